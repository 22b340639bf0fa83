//! The redo list of a batch: its bytes, and how it is applied.
//!
//! An entry of a list gives the outcome of a change to a leaf bitmap or a leaf's words, so applying the list again
//! changes nothing. So recovery applies a committed list, however much of it was applied before the crash.

use crate::format::layout::{
    BITMAP_MASK, CHUNK_BITMAP, LEAF_META, LEAF_WORD, REDO_BITS, REDO_ENTRY_BYTES, REDO_HEADER_BYTES,
    REDO_LEAF, REDO_REMOVALS, chunk_word,
};
use crate::format::space::MapSpace;
use crate::report::Damage;
use mangrove_pool::crc32c;
use std::sync::atomic::Ordering;

/// A list is read in pieces of so many bytes until it is known to be one.
const PIECE_BYTES: usize = 64 << 10;

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedoEntry {
    /// Changes bits of the chunk whose header is at `header`.
    Bits { header: u64, set: u64, clear: u64 },
    /// Stores a leaf's two words.
    Leaf { slot: u64, meta: u64, word: u64 },
    /// Clears the bits in the removal words with this number, which so many chunks have.
    Removals { number: u64, chunks: u64 },
}

/// Bytes of a list of `count` entries.
pub(crate) fn list_bytes(count: usize) -> u64 {
    REDO_HEADER_BYTES + count as u64 * REDO_ENTRY_BYTES
}

/// The bytes of the list for `area`.
pub(crate) fn encode(area: u64, entries: &[RedoEntry]) -> Vec<u8> {
    let mut bytes = vec![0; REDO_HEADER_BYTES as usize];
    for entry in entries {
        let words = match *entry {
            RedoEntry::Bits { header, set, clear } => [header | REDO_BITS, set, clear],
            RedoEntry::Leaf { slot, meta, word } => [slot | REDO_LEAF, meta, word],
            RedoEntry::Removals { number, chunks } => [REDO_REMOVALS, number, chunks],
        };
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    let count = entries.len() as u64;
    let crc = list_crc(area, count, &bytes[REDO_HEADER_BYTES as usize..]);
    bytes[..8].copy_from_slice(&(count | u64::from(crc) << 32).to_le_bytes());
    bytes
}

fn list_crc(area: u64, count: u64, entries: &[u8]) -> u32 {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&area.to_le_bytes());
    head[8..].copy_from_slice(&count.to_le_bytes());
    crc32c(crc32c(0, &head), entries)
}

/// The inverse of [`encode`]. Checks the list against itself, not against the map.
pub(crate) fn decode(space: &MapSpace, area: u64) -> Result<Vec<RedoEntry>, Damage> {
    let damage = |what: &str| Damage { offset: area, what: what.into() };
    let end = space.usable_offset();
    if !area.is_multiple_of(64) || area + REDO_HEADER_BYTES > end {
        return Err(damage("the redo list of the committed batch lies outside the map"));
    }
    let head = space.region.word(area).load(Ordering::Acquire);
    let count = head & 0xffff_ffff;
    if list_bytes(count as usize) > end - area {
        return Err(damage("the redo list of the committed batch is longer than the map"));
    }
    let (from, len) = (area + REDO_HEADER_BYTES, (count * REDO_ENTRY_BYTES) as usize);
    let (mut bytes, mut crc) = (Vec::new(), list_crc(area, count, &[]));
    // A damaged count may be as large as the map: no memory for all of it before the checksum says that it is right.
    for at in (0..len).step_by(PIECE_BYTES) {
        space.copy_out(from + at as u64, PIECE_BYTES.min(len - at), &mut bytes);
        crc = crc32c(crc, &bytes);
    }
    if u64::from(crc) != head >> 32 {
        return Err(damage("the redo list of the committed batch does not have its checksum"));
    }
    space.copy_out(from, len, &mut bytes);
    let entries = bytes.chunks_exact(REDO_ENTRY_BYTES as usize).map(|entry| {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| entry[i * 8 + b]));
        let (offset, first, second) = (word(0) & !7, word(1), word(2));
        match word(0) & 7 {
            REDO_BITS => Ok(RedoEntry::Bits { header: offset, set: first, clear: second }),
            REDO_LEAF => Ok(RedoEntry::Leaf { slot: offset, meta: first, word: second }),
            REDO_REMOVALS => Ok(RedoEntry::Removals { number: first, chunks: second }),
            _ => Err(damage("the redo list of the committed batch has an unknown operation")),
        }
    });
    entries.collect()
}

/// Applies one entry, of a chunk or a leaf; `slots` are those of the chunk whose bitmap it changes. The caller has
/// checked the place, and flushes.
#[track_caller]
pub(crate) fn apply(space: &MapSpace, entry: RedoEntry, slots: u32) {
    match entry {
        RedoEntry::Bits { header, set, clear } => {
            let at = header + CHUNK_BITMAP;
            let bitmap = space.region.word(at).load(Ordering::Acquire) & BITMAP_MASK;
            space.region.store(at, chunk_word(bitmap & !clear | set, slots), Ordering::Release);
        }
        RedoEntry::Leaf { slot, meta, word } => {
            space.region.store(slot + LEAF_META, meta, Ordering::Release);
            space.region.store(slot + LEAF_WORD, word, Ordering::Release);
        }
        RedoEntry::Removals { .. } => unreachable!("it stands for entries of single chunks"),
    }
}
