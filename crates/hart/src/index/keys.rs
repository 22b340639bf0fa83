//! Compares keys a word at a time: byte strings in memory with those of a [`KeySource`].

use super::leaf::{KeySource, Leaf};

/// Bytes `8 * index ..` of `key`, the first lowest, zeros after its end.
#[inline]
pub(super) fn word_of(key: &[u8], index: usize) -> u64 {
    let rest = &key[index * 8..];
    if let Some(word) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*word);
    }
    // Two reads that overlap make up any length from 4 to 7; three single bytes any from 1 to 3.
    let len = rest.len();
    if len >= 4 {
        let low = rest.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let high = rest.last_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        return u64::from(low) | (u64::from(high) << (8 * (len - 4)));
    }
    if len == 0 {
        return 0;
    }
    u64::from(rest[0])
        | (u64::from(rest[len / 2]) << (8 * (len / 2)))
        | (u64::from(rest[len - 1]) << (8 * (len - 1)))
}

/// The (up to) 8 bytes of `key` before `position`, the last one highest.
#[inline]
pub(super) fn tail_of(key: &[u8], position: usize) -> u64 {
    let before = &key[..position];
    if let Some(word) = before.last_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if position == 0 {
        0
    } else {
        word_of(before, 0) << (8 * (8 - position))
    }
}

/// True if `leaf` has exactly this key.
#[inline]
pub(super) fn equals(keys: &impl KeySource, leaf: Leaf, key: &[u8]) -> bool {
    if keys.key_len(leaf) != key.len() {
        return false;
    }
    let whole = key.len() / 8;
    for index in 0..whole {
        if keys.key_word(leaf, index) != word_of(key, index) {
            return false;
        }
    }
    let rest = key.len() % 8;
    rest == 0 || (keys.key_word(leaf, whole) ^ word_of(key, whole)) << (8 * (8 - rest)) == 0
}

/// Where a key and a leaf's key differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// They are equal.
    Never,
    /// At this index; with the leaf's byte there, none if its key has ended.
    At(usize, Option<u8>),
}

/// Where `key` and the key of `leaf` differ first; the bytes before `from` are taken to be equal.
#[inline]
pub(super) fn parting(keys: &impl KeySource, leaf: Leaf, key: &[u8], from: usize) -> Parting {
    let leaf_len = keys.key_len(leaf);
    let both = leaf_len.min(key.len());
    let mut index = from / 8;
    while index * 8 < both {
        let word = keys.key_word(leaf, index);
        let differing = word ^ word_of(key, index);
        if differing != 0 {
            let lane = differing.trailing_zeros() / 8;
            let at = index * 8 + lane as usize;
            if at < both {
                return Parting::At(at, Some((word >> (8 * lane)) as u8));
            }
            break;
        }
        index += 1;
    }
    if leaf_len == key.len() { Parting::Never } else { Parting::At(both, byte_of(keys, leaf, both)) }
}

/// The byte of the leaf's key at `position`, none after its end.
#[inline]
pub(super) fn byte_of(keys: &impl KeySource, leaf: Leaf, position: usize) -> Option<u8> {
    if position < keys.key_len(leaf) {
        Some((keys.key_word(leaf, position / 8) >> (8 * (position % 8))) as u8)
    } else {
        None
    }
}

/// Copies the leaf's key.
#[inline]
pub(super) fn copy(keys: &impl KeySource, leaf: Leaf, key: &mut Vec<u8>) {
    let len = keys.key_len(leaf);
    key.clear();
    for index in 0..len.div_ceil(8) {
        key.extend_from_slice(&keys.key_word(leaf, index).to_le_bytes());
    }
    key.truncate(len);
}

/// Appends the leaf's key.
#[inline]
pub(super) fn append(keys: &impl KeySource, leaf: Leaf, out: &mut Vec<u8>) {
    let len = keys.key_len(leaf);
    let words = len.div_ceil(8);
    out.reserve(words * 8);
    let start = out.len();
    for index in 0..words {
        // SAFETY: `words * 8` bytes were reserved after `start`.
        unsafe {
            let target = out.as_mut_ptr().add(start + index * 8).cast::<u64>();
            target.write_unaligned(keys.key_word(leaf, index).to_le());
        }
    }
    // SAFETY: the first `len` of the reserved bytes were written.
    unsafe { out.set_len(start + len) };
}

/// Orders the keys of two leaves.
pub(super) fn compare(keys: &impl KeySource, one: Leaf, other: Leaf) -> std::cmp::Ordering {
    let (one_len, other_len) = (keys.key_len(one), keys.key_len(other));
    let both = one_len.min(other_len);
    for index in 0..both.div_ceil(8) {
        let (a, b) = (keys.key_word(one, index), keys.key_word(other, index));
        // Bytes after the end of the shorter key do not count.
        let rest = (both - index * 8).min(8);
        let (a, b) = (a << (8 * (8 - rest)), b << (8 * (8 - rest)));
        if a != b {
            return a.swap_bytes().cmp(&b.swap_bytes());
        }
    }
    one_len.cmp(&other_len)
}
