//! The ordered directory of trees: a slot for the empty key, each one-byte key and each pair of first bytes.
//!
//! The paper hashes the first k_h bytes (HART, section III, "Hash-assisted ARTs"). With k_h = 2 a table of all pairs
//! takes no more memory than its buckets would, has no collisions, and is ordered, so that ranges cross trees (gaps
//! 14, 16 and 18 of the paper).

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::sync::atomic::{AtomicU64, Ordering};

use super::layouts::{load, store};
use super::lock::VersionLock;
use super::word::Word;

/// Directory entries: the empty key, and for each first byte its one-byte key and 256 second bytes.
pub(crate) const ENTRY_COUNT: usize = 1 + 256 * 257;

const PRESENT_WORDS: usize = ENTRY_COUNT.div_ceil(64);

/// The directory entry of `key`; entries are ordered as their keys are.
#[inline]
pub(crate) fn entry_of(key: &[u8]) -> usize {
    match *key {
        [] => 0,
        [a] => 1 + usize::from(a) * 257,
        [a, b, ..] => 2 + usize::from(a) * 257 + usize::from(b),
    }
}

/// The root of one tree; it behaves as a node with a single slot.
#[derive(Debug)]
#[repr(C)]
pub(super) struct DirectoryEntry {
    pub(super) lock: VersionLock,
    pub(super) root: AtomicU64,
}

/// All trees.
#[derive(Debug)]
pub(super) struct Directory {
    entries: Box<[DirectoryEntry; ENTRY_COUNT]>,
    /// A bit for each entry whose root is not empty; set before it and cleared after it, under the entry's lock.
    present: [AtomicU64; PRESENT_WORDS],
}

impl Directory {
    pub(super) fn new() -> Self {
        const LAYOUT: Layout = Layout::new::<[DirectoryEntry; ENTRY_COUNT]>();
        // SAFETY: the layout is that of the entries, and an entry is two atomic words, for which zero is a value.
        // Zeroed memory costs nothing until it is touched, so small maps stay small.
        let entries = unsafe {
            let entries = alloc_zeroed(LAYOUT).cast::<[DirectoryEntry; ENTRY_COUNT]>();
            if entries.is_null() {
                handle_alloc_error(LAYOUT);
            }
            Box::from_raw(entries)
        };
        Self { entries, present: [const { AtomicU64::new(0) }; PRESENT_WORDS] }
    }

    #[inline]
    pub(super) fn entry(&self, entry: usize) -> &DirectoryEntry {
        &self.entries[entry]
    }

    /// Gives an empty entry its first child. The caller holds its lock.
    pub(super) fn fill(&self, entry: usize, word: Word) {
        // Relaxed: a scan must find this key only if the insertion happened before the scan began, and then
        // the bit did too; sets and clears of one bit are ordered by the entry's lock.
        self.present[entry / 64].fetch_or(1 << (entry % 64), Ordering::Relaxed);
        store(&self.entries[entry].root, word);
    }

    /// Removes the last child of an entry. The caller holds its lock.
    pub(super) fn empty(&self, entry: usize) {
        store(&self.entries[entry].root, Word::EMPTY);
        self.present[entry / 64].fetch_and(!(1 << (entry % 64)), Ordering::Relaxed);
    }

    /// The first entry from `entry` upwards that is not empty.
    pub(super) fn next_up(&self, entry: usize) -> Option<usize> {
        let mut at = entry / 64;
        let mut bits = self.present.get(at)?.load(Ordering::Relaxed) & (u64::MAX << (entry % 64));
        while bits == 0 {
            at += 1;
            bits = self.present.get(at)?.load(Ordering::Relaxed);
        }
        Some(at * 64 + bits.trailing_zeros() as usize)
    }

    /// The first entry from `entry` downwards that is not empty.
    pub(super) fn next_down(&self, entry: usize) -> Option<usize> {
        let mut at = entry / 64;
        let mut bits = self.present[at].load(Ordering::Relaxed) & (u64::MAX >> (63 - entry % 64));
        while bits == 0 {
            at = at.checked_sub(1)?;
            bits = self.present[at].load(Ordering::Relaxed);
        }
        Some(at * 64 + 63 - bits.leading_zeros() as usize)
    }

    /// Bytes of the directory.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<[DirectoryEntry; ENTRY_COUNT]>() + size_of_val(&self.present)) as u64
    }

    /// True if `entry` holds nothing.
    pub(super) fn is_empty(&self, entry: usize) -> bool {
        load(&self.entries[entry].root).is_empty()
    }
}
