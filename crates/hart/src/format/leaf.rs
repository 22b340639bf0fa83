//! The two words of a leaf, and how an update keeps the two readings of a torn pair distinct.
//!
//! An update stores meta, then word, in one cache line. A crash leaves one of three pairs: neither, meta only, or
//! both (stores to one line reach the medium in program order). Meta carries kind and CRC of the value before (A) and
//! the value now (B), so:
//!
//! 1. B verifies against the word: the pair is whole.
//! 2. Otherwise A verifies: only meta arrived, and the value is the one before.
//! 3. Otherwise the leaf is damaged.
//!
//! Invariant: the previous word never verifies as B unless it equals the present word ([`Meta::updated`] picks the
//! salt so). A plain CRC would not suffice: it is linear, so salted CRCs of two words would collide for every salt or
//! for none. Therefore the salt changes the word by a multiplication.
//!
//! A value that lies behind the key ([`KIND_SLOT`]) never replaces another one in its slot: an update writes the record
//! to another slot, and then marks the old one as free. In between there are two leaves of one key. Such a leaf needs
//! no A; the bits count how often the record was written to a new slot, its *generation*, and the leaf of the next
//! generation is the one that counts ([`Meta::succeeds`]).

use crate::format::layout::LEAF_KEY;
use mangrove_pool::crc32c;

/// The leaf's word holds values of up to this many bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 8;
/// The word is the offset of a value block.
pub(crate) const KIND_BLOCK: u8 = 9;
/// The value lies behind the key; the word is its length and checksum.
pub(crate) const KIND_SLOT: u8 = 10;
/// The most bytes of a slot with a value behind the key.
pub(crate) const SLOT_BYTES_MAX: usize = 512;
/// The most bytes of such a value.
pub(crate) const SLOT_VALUE_BYTES_MAX: usize = SLOT_BYTES_MAX - LEAF_KEY as usize;
/// No value: stands for A in a leaf that was never updated.
const KIND_NONE: u8 = 15;

const KEY_LEN_BITS: u32 = 11;
const SALT_SHIFT: u32 = 11;
const A_KIND_SHIFT: u32 = 12;
const A_CRC_SHIFT: u32 = 16;
/// The generation stands in place of A.
const GENERATION_SHIFT: u32 = A_KIND_SHIFT;
const GENERATION_BITS: u32 = B_KIND_SHIFT - A_KIND_SHIFT;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const B_KIND_SHIFT: u32 = 38;
const B_CRC_SHIFT: u32 = 42;
const CRC_BITS: u32 = 22;
/// Both kinds, as none.
const KINDS: u64 = (KIND_NONE as u64) << A_KIND_SHIFT | (KIND_NONE as u64) << B_KIND_SHIFT;
const CRC_MASK: u64 = (1 << CRC_BITS) - 1;

const _: () = assert!(B_CRC_SHIFT + CRC_BITS == 64 && A_CRC_SHIFT + CRC_BITS == B_KIND_SHIFT);
const _: () = assert!(crate::KEY_BYTES_MAX < 1 << KEY_LEN_BITS);

/// A value in the form of the leaf's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafValue {
    /// 0 to 8: that many bytes inline; [`KIND_BLOCK`]: the word is a block's offset; [`KIND_SLOT`]: it is length and
    /// checksum of the bytes behind the key.
    pub(crate) kind: u8,
    /// The leaf's word.
    pub(crate) word: u64,
}

impl LeafValue {
    /// A value of at most 8 bytes.
    #[inline]
    pub(crate) fn inline(bytes: &[u8]) -> Self {
        Self { kind: bytes.len() as u8, word: word_of(bytes) }
    }

    /// A value in a block.
    #[inline]
    pub(crate) fn block(offset: u64) -> Self {
        Self { kind: KIND_BLOCK, word: offset }
    }

    /// A value behind the key, with this checksum of its length and bytes.
    #[inline]
    pub(crate) fn in_slot(len: usize, crc: u32) -> Self {
        Self { kind: KIND_SLOT, word: len as u64 | u64::from(crc) << 32 }
    }

    /// True of a value behind the key.
    #[inline]
    pub(crate) fn is_in_slot(self) -> bool {
        self.kind == KIND_SLOT
    }

    /// Bytes of a leaf with a key of `key_len` bytes and this value.
    #[inline]
    pub(crate) fn leaf_bytes(self, key_len: usize) -> usize {
        if self.is_in_slot() {
            value_at(key_len) + slot_value_len(self.word)
        } else {
            LEAF_KEY as usize + key_len
        }
    }

    /// The offset of the value's block, if it has one.
    #[inline]
    pub(crate) fn block_offset(self) -> Option<u64> {
        (self.kind == KIND_BLOCK).then_some(self.word)
    }
}

/// Where in its slot a value begins that lies behind a key of `key_len` bytes.
#[inline]
pub(crate) fn value_at(key_len: usize) -> usize {
    LEAF_KEY as usize + key_len.next_multiple_of(8)
}

/// The length in the word of a value behind the key.
#[inline]
pub(crate) fn slot_value_len(word: u64) -> usize {
    (word & 0xffff_ffff) as usize
}

/// The word of a value of at most 8 bytes.
#[inline]
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The first word of a leaf. A writer stores it last into a new leaf, so that the leaf is there or not: a free slot
/// that is in service has [`Meta::FREE`] there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(pub(crate) u64);

/// CRC32C of a key, the part of a leaf's CRC that never changes.
#[inline]
pub(crate) fn key_crc(key: &[u8]) -> u32 {
    crc32c(0, key)
}

#[inline]
fn leaf_crc(key_crc: u32, key_len: u64, salt: u64, generation: u64, value: LeafValue) -> u64 {
    // Odd, so that the multiplication is a bijection: no two words become the same.
    const SALTED: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = if salt == 0 { value.word } else { value.word.wrapping_mul(SALTED) };
    let head = key_len | salt << 16 | u64::from(value.kind) << 24 | generation << 32;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&head.to_le_bytes());
    bytes[8..].copy_from_slice(&word.to_le_bytes());
    u64::from(crc32c(key_crc, &bytes)) & CRC_MASK
}

impl Meta {
    /// No leaf: both kinds are none, which no leaf has. The other bits are those of some characters, so that neither a
    /// blank nor a damaged word passes for it.
    pub(crate) const FREE: Self = Self(KINDS | 0x15_4645 << A_CRC_SHIFT | 0x11_5245 << B_CRC_SHIFT);

    /// The meta word of a fresh leaf with a key of this length and CRC.
    #[inline]
    pub(crate) fn new(key_len: usize, key_crc: u32, value: LeafValue) -> Self {
        let len = key_len as u64;
        Self::pack(len, 0, u64::from(KIND_NONE), 0, value.kind, leaf_crc(key_crc, len, 0, 0, value))
    }

    /// The meta word of a fresh leaf with a value behind the key.
    #[inline]
    pub(crate) fn in_slot(key_len: usize, key_crc: u32, generation: u64, value: LeafValue) -> Self {
        let len = key_len as u64;
        Self::pack_slot(len, 0, generation, leaf_crc(key_crc, len, 0, generation, value))
    }

    /// The meta word of a fresh leaf, which replaces one with the meta word `before`, if there is one.
    #[inline]
    pub(crate) fn fresh(key_len: usize, key_crc: u32, before: Option<Self>, value: LeafValue) -> Self {
        if value.is_in_slot() {
            Self::in_slot(key_len, key_crc, before.map_or(0, Self::next_generation), value)
        } else {
            Self::new(key_len, key_crc, value)
        }
    }

    #[inline]
    fn pack_slot(key_len: u64, salt: u64, generation: u64, b_crc: u64) -> Self {
        let b = u64::from(KIND_SLOT) << B_KIND_SHIFT | b_crc << B_CRC_SHIFT;
        Self(key_len | salt << SALT_SHIFT | generation << GENERATION_SHIFT | b)
    }

    #[inline]
    fn pack(key_len: u64, salt: u64, a_kind: u64, a_crc: u64, b_kind: u8, b_crc: u64) -> Self {
        Self(
            key_len
                | salt << SALT_SHIFT
                | a_kind << A_KIND_SHIFT
                | a_crc << A_CRC_SHIFT
                | u64::from(b_kind) << B_KIND_SHIFT
                | b_crc << B_CRC_SHIFT,
        )
    }

    /// Bytes of the key; up to 2047 when the leaf is damaged or freed.
    #[inline]
    pub(crate) fn key_len(self) -> usize {
        (self.0 & ((1 << KEY_LEN_BITS) - 1)) as usize
    }

    /// The kind of the present value.
    #[inline]
    pub(crate) fn kind(self) -> u8 {
        (self.0 >> B_KIND_SHIFT & 0xf) as u8
    }

    /// The generation of a leaf with a value behind the key; 0 of others.
    #[inline]
    fn generation(self) -> u64 {
        if self.kind() == KIND_SLOT { self.0 >> GENERATION_SHIFT & GENERATION_MASK } else { 0 }
    }

    /// The generation of a leaf that replaces this one.
    #[inline]
    fn next_generation(self) -> u64 {
        if self.kind() == KIND_SLOT { (self.generation() + 1) & GENERATION_MASK } else { 0 }
    }

    /// True if an update that a crash stopped wrote this leaf to replace `other`, of the same key. Other values than
    /// those behind the key replace what is there in its slot, so a leaf never replaces another by one of them.
    pub(crate) fn succeeds(self, other: Self) -> bool {
        self.kind() == KIND_SLOT && self.generation() == other.next_generation()
    }

    #[inline]
    fn salt(self) -> u64 {
        self.0 >> SALT_SHIFT & 1
    }

    /// The meta word of this leaf with the value `new`, where `old` is the present value. None, once in 2^44 times,
    /// when `old` would verify as `new` with both salts: then the caller stores `new` in another way. `new` does not
    /// lie behind the key.
    #[inline]
    pub(crate) fn updated(self, key_crc: u32, old: LeafValue, new: LeafValue) -> Option<Self> {
        let len = self.key_len() as u64;
        for salt in [self.salt(), self.salt() ^ 1] {
            let b_crc = leaf_crc(key_crc, len, salt, 0, new);
            let mistaken = LeafValue { kind: new.kind, word: old.word };
            if old.word != new.word && leaf_crc(key_crc, len, salt, 0, mistaken) == b_crc {
                continue;
            }
            // A has no room for a generation.
            let keeps = salt == self.salt() && !old.is_in_slot();
            let a_crc = if keeps { self.0 >> B_CRC_SHIFT } else { leaf_crc(key_crc, len, salt, 0, old) };
            return Some(Self::pack(len, salt, u64::from(old.kind), a_crc, new.kind, b_crc));
        }
        None
    }

    /// The value that a leaf with this meta and `word` has after a crash, and a meta word for that value alone.
    pub(crate) fn settle(self, key: &[u8], word: u64) -> Option<(Self, LeafValue)> {
        let len = self.key_len() as u64;
        let key_crc = key_crc(key);
        let now = LeafValue { kind: self.kind(), word };
        let b_crc = leaf_crc(key_crc, len, self.salt(), self.generation(), now);
        if now.kind <= KIND_SLOT && b_crc == self.0 >> B_CRC_SHIFT {
            return Some((self, now));
        }
        if now.is_in_slot() {
            return None;
        }
        let before = LeafValue { kind: (self.0 >> A_KIND_SHIFT & 0xf) as u8, word };
        let a_crc = self.0 >> A_CRC_SHIFT & CRC_MASK;
        if before.kind <= KIND_SLOT && leaf_crc(key_crc, len, self.salt(), 0, before) == a_crc {
            let meta = if before.is_in_slot() {
                Self::pack_slot(len, self.salt(), 0, a_crc)
            } else {
                Self::pack(len, self.salt(), u64::from(KIND_NONE), 0, before.kind, a_crc)
            };
            return Some((meta, before));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crash_state_of_an_update_reads_as_before_or_after() {
        let key = b"some key";
        let mut value = LeafValue::inline(b"");
        let mut meta = Meta::new(key.len(), key_crc(key), value);
        assert_eq!(meta.settle(key, value.word), Some((meta, value)));
        for step in 0..100_000u64 {
            let new = match step % 3 {
                0 => LeafValue::block(step * 16),
                1 => LeafValue::inline(&step.to_le_bytes()[..(step % 9) as usize]),
                _ => LeafValue::inline(&step.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()),
            };
            let next = meta.updated(key_crc(key), value, new).expect("one salt of two");
            let (_, torn) = next.settle(key, value.word).expect("meta only");
            assert!(torn == value || value.word == new.word, "{value:?} -> {new:?} reads {torn:?}");
            let (settled, whole) = next.settle(key, new.word).expect("both");
            assert_eq!((settled, whole), (next, new));
            (meta, value) = (next, new);
        }
    }

    #[test]
    fn a_word_that_collides_gets_the_other_salt() {
        let key = b"k";
        let old = LeafValue::inline(&0u64.to_le_bytes());
        let meta = Meta::new(key.len(), key_crc(key), old);
        // 22 bits: among four million words some collide with zero under salt 0.
        let crc = leaf_crc(key_crc(key), 1, 0, 0, old);
        let twin = (1..1u64 << 26)
            .find(|w| leaf_crc(key_crc(key), 1, 0, 0, LeafValue { kind: 8, word: *w }) == crc)
            .expect("a collision of 22 bits");
        let new = LeafValue { kind: 8, word: twin };
        let next = meta.updated(key_crc(key), old, new).expect("the other salt");
        assert_eq!(next.salt(), 1);
        assert_eq!(next.settle(key, old.word).map(|s| s.1), Some(old));
        assert_eq!(next.settle(key, new.word).map(|s| s.1), Some(new));
    }

    #[test]
    fn of_two_leaves_of_a_key_the_next_generation_counts() {
        let key = b"some key";
        let value = |salt: u32| LeafValue::in_slot(100, salt);
        let of = |generation: u64| Meta::in_slot(key.len(), key_crc(key), generation, value(1));
        let last = of(GENERATION_MASK);
        for meta in [of(0), of(1), of(0x155_5555), last] {
            let next = Meta::fresh(key.len(), key_crc(key), Some(meta), value(2));
            assert_eq!(next.settle(key, value(2).word), Some((next, value(2))));
            assert!(next.succeeds(meta) && !meta.succeeds(next));
            assert!(!meta.succeeds(meta));
            for bit in 0..64 {
                assert_eq!(Meta(next.0 ^ 1 << bit).settle(key, value(2).word), None, "bit {bit}");
            }
        }
        assert_eq!(Meta::fresh(key.len(), key_crc(key), Some(last), value(1)), of(0));
        assert!(!of(2).succeeds(of(0)), "an update writes one generation, not two");
        for other in [LeafValue::inline(b"inline"), LeafValue::block(4096)] {
            let meta = Meta::new(key.len(), key_crc(key), other);
            assert!(of(0).succeeds(meta) && !meta.succeeds(of(0)) && !meta.succeeds(meta));
            assert!(!of(1).succeeds(meta), "it has succeeded another one");
        }
    }

    #[test]
    fn a_value_behind_the_key_gives_way_to_one_in_the_word() {
        let key = b"some key";
        let old = LeafValue::in_slot(77, 0x1234_5678);
        let meta = Meta::in_slot(key.len(), key_crc(key), 12345, old);
        let mut new = LeafValue::inline(b"12345678");
        let next = meta.updated(key_crc(key), old, new).expect("one salt of two");
        assert_eq!(next.settle(key, new.word), Some((next, new)));
        let (torn, value) = next.settle(key, old.word).expect("meta only");
        assert_eq!((torn.kind(), value), (KIND_SLOT, old));
        assert_eq!(torn.settle(key, old.word), Some((torn, old)));
        new.word ^= 1;
        assert_eq!(next.settle(key, new.word), None);
    }

    #[test]
    fn no_leaf_looks_free_or_blank() {
        let empty = LeafValue::inline(b"");
        let mut meta = Meta::new(0, key_crc(b""), empty);
        for _ in 0..3 {
            assert!(meta != Meta::FREE && meta.0 != 0);
            meta = meta.updated(key_crc(b""), empty, empty).expect("one salt of two");
        }
        assert!(Meta::FREE.key_len() == 0 && Meta::FREE.kind() == KIND_NONE);
        assert_eq!(Meta::FREE.settle(b"", 0), None, "a free slot does not verify as a leaf");
        assert_eq!(Meta(0).settle(b"", 0), None, "nor does a blank one");
        for bit in 0..64 {
            assert_eq!(Meta(Meta::FREE.0 ^ 1 << bit).settle(b"", 0), None, "bit {bit}");
        }
    }

    #[test]
    fn damage_does_not_verify() {
        let key = b"key";
        let value = LeafValue::inline(b"value");
        let meta = Meta::new(key.len(), key_crc(key), value);
        for bit in 0..64 {
            assert_eq!(meta.settle(key, value.word ^ 1 << bit), None);
            let bad = Meta(meta.0 ^ 1 << bit);
            assert!(bad.settle(key, value.word).is_none_or(|s| s.1 == value), "bit {bit}");
        }
        assert_eq!(meta.settle(b"kez", value.word), None);
    }
}
