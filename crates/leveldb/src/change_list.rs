//! The changes of a batch as bytes: LevelDB's form, which the batches of C++ programs have too
//! (`cpp/src/write_batch.cc`).
//!
//! | bytes | what |
//! |---|---|
//! | 8 | zero (in LevelDB's log the number of the first change) |
//! | 4 | how many changes there are, little endian |
//! | then for each change: 1 | 1 to set a key, 0 to remove it |
//! | | the key, and the value if there is one: each its length, then that many bytes |
//!
//! A length has 7 bits in each byte, the lowest first; every byte but the last has its top bit set.

use crate::status::{Failure, Result};

/// Bytes before the first change.
const HEADER_BYTES: usize = 12;
/// Where in the header the count stands.
const COUNT_AT: usize = 8;
const REMOVES: u8 = 0;
const SETS: u8 = 1;
/// The most bytes of a length.
const LENGTH_BYTES_MAX: u32 = 10;

/// What one entry does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// The changes of a batch, in the order in which they were added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeList<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> ChangeList<'a> {
    /// The list in these bytes, which may be anything.
    pub(crate) fn verified(bytes: &'a [u8]) -> Result<Self> {
        let Some(list) = Self::of(bytes) else {
            return Err(Failure::corruption("malformed WriteBatch (too small)"));
        };
        let mut rest = list.bytes;
        for number in 0..list.count {
            if take_change(&mut rest).is_none() {
                return Err(Failure::corruption(if rest.is_empty() {
                    format!("WriteBatch has wrong count: {} changes instead of {number}", list.count)
                } else {
                    format!("bad WriteBatch: change {number} cannot be read")
                }));
            }
        }
        if !rest.is_empty() {
            return Err(Failure::corruption(format!(
                "WriteBatch has wrong count: {} bytes follow the last change",
                rest.len()
            )));
        }
        Ok(list)
    }

    /// The list in bytes that this file made.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let count = bytes.get(COUNT_AT..HEADER_BYTES)?;
        let count = u32::from_le_bytes(count.try_into().ok()?) as usize;
        Some(Self { count, bytes: &bytes[HEADER_BYTES..] })
    }

    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// The changes.
    pub(crate) fn changes(self) -> Changes<'a> {
        Changes { left: self.count, rest: self.bytes }
    }
}

/// Walks a list. It ends early where bytes are no change, which [`ChangeList::verified`] excludes.
#[derive(Clone)]
pub(crate) struct Changes<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    #[inline]
    fn next(&mut self) -> Option<Change<'a>> {
        self.left = self.left.checked_sub(1)?;
        take_change(&mut self.rest)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // No change takes fewer than two bytes, whatever the count says.
        let most = self.left.min(self.rest.len() / 2);
        (most, Some(most))
    }
}

/// Takes a change off the front; `None`, with the bytes as they were, where there is none.
#[inline]
fn take_change<'a>(bytes: &mut &'a [u8]) -> Option<Change<'a>> {
    let (&kind, mut rest) = bytes.split_first()?;
    let key = take_slice(&mut rest)?;
    let change = match kind {
        SETS => Change::Put(key, take_slice(&mut rest)?),
        REMOVES => Change::Delete(key),
        _ => return None,
    };
    *bytes = rest;
    Some(change)
}

#[inline]
fn take_slice<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_length(bytes)?;
    let (slice, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(slice)
}

#[inline]
fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let mut len = 0;
    for place in 0..LENGTH_BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        len |= usize::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte < 0x80 {
            return Some(len);
        }
    }
    None
}

/// The bytes of a list that grows.
#[derive(Clone, Debug)]
pub(crate) struct ChangeBytes(Vec<u8>);

impl Default for ChangeBytes {
    fn default() -> Self {
        Self(vec![0; HEADER_BYTES])
    }
}

impl ChangeBytes {
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.reserve(1 + 2 * LENGTH_BYTES_MAX as usize + key.len() + value.len());
        self.0.push(SETS);
        self.push_slice(key);
        self.push_slice(value);
        self.count(1);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.0.push(REMOVES);
        self.push_slice(key);
        self.count(1);
    }

    /// Whether `more` changes can be added: the count has 4 bytes.
    #[inline]
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.list().count.checked_add(more).is_some_and(|all| u32::try_from(all).is_ok())
    }

    /// A list whose header counts so many changes, and that has none.
    #[cfg(test)]
    pub(crate) fn that_counts(changes: u32) -> Self {
        let mut bytes = Self::default();
        bytes.count(changes as usize);
        bytes
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0[HEADER_BYTES..]);
        self.count(other.list().count);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.resize(HEADER_BYTES, 0);
    }

    /// Bytes of the list.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn list(&self) -> ChangeList<'_> {
        ChangeList::of(&self.0).unwrap_or(ChangeList { count: 0, bytes: &[] })
    }

    #[inline]
    fn push_slice(&mut self, bytes: &[u8]) {
        let mut len = bytes.len();
        while len >= 0x80 {
            self.0.push(len as u8 | 0x80);
            len >>= 7;
        }
        self.0.push(len as u8);
        self.0.extend_from_slice(bytes);
    }

    #[inline]
    fn count(&mut self, more: usize) {
        let count = self.0.first_chunk_mut::<HEADER_BYTES>().and_then(|header| header.last_chunk_mut::<4>());
        if let Some(count) = count {
            *count = u32::from_le_bytes(*count).wrapping_add(more as u32).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: [u8; 300] = [b'v'; 300];

    fn list() -> ChangeBytes {
        let mut bytes = ChangeBytes::default();
        bytes.put(b"", b"empty key");
        bytes.delete(b"gone");
        bytes.put(b"k", &LONG);
        bytes
    }

    #[test]
    fn a_list_says_what_was_put_into_it() {
        let mut twice = list();
        twice.append(&list());
        let expected = [Change::Put(b"", b"empty key"), Change::Delete(b"gone"), Change::Put(b"k", &LONG)];
        assert_eq!(twice.list().changes().collect::<Vec<_>>(), [expected, expected].concat());
        assert_eq!(ChangeList::verified(&twice.0).unwrap().len(), 6);
        twice.clear();
        assert_eq!(twice.list().changes().count(), 0);
    }

    /// The bytes are LevelDB's, so that a program may compare sizes.
    #[test]
    fn the_bytes_are_those_of_the_table_above() {
        let mut bytes = ChangeBytes::default();
        bytes.put(b"key", b"value");
        bytes.delete(b"no");
        assert_eq!(bytes.0, b"\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x03key\x05value\0\x02no");
        assert_eq!(list().0[HEADER_BYTES + 12 + 6 + 3..][..2], [0xac, 2], "300 takes two bytes");
    }

    /// Any byte may have been changed: an error, or another list, and never a panic.
    #[test]
    fn changed_bytes_are_refused_or_a_list() {
        let whole = list().0;
        for at in 0..whole.len() {
            assert!(ChangeList::verified(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                if let Ok(list) = ChangeList::verified(&changed) {
                    assert_eq!(list.changes().count(), 3);
                    assert_eq!(list.changes().size_hint().0, 3);
                } else if let Some(list) = ChangeList::of(&changed) {
                    let _ = list.changes().count();
                }
            }
        }
        let mut count = whole.clone();
        count[8] = 4;
        let said = ChangeList::verified(&count).unwrap_err().to_string();
        assert_eq!(said, "Corruption: WriteBatch has wrong count: 4 changes instead of 3");
    }
}
