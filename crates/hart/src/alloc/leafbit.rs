//! The durable header word of leaf chunks: bitmap, next free slot, full indicator (paper, Fig. 2).
//!
//! The bit of a leaf is the only commit record of its record. The word is changed by compare-and-swap, so that
//! threads with slots in one chunk lose none of each other's bits (the paper's allocator leaves that open).

use super::slab::Allocator;
use crate::layout::{BITMAP_MASK, CHUNK_BITMAP, chunk_word};
use std::sync::atomic::Ordering;

impl Allocator {
    /// Stores and flushes the bit of the leaf at `offset`; the caller fences.
    #[inline]
    #[track_caller]
    pub(crate) fn set_leaf_bit(&self, offset: u64, live: bool) {
        let (header, slot, slots) = self.leaf_place(offset);
        let bit = 1u64 << slot;
        let (clear, set) = if live { (0, bit) } else { (bit, 0) };
        self.change_bitmap(header, slots, clear, set);
        self.space().region.flush(header + CHUNK_BITMAP, 8);
    }

    /// Clears and sets bits of a chunk's bitmap; the caller flushes.
    #[inline]
    #[track_caller]
    pub(crate) fn change_bitmap(&self, header: u64, slots: u32, clear: u64, set: u64) {
        let region = &self.space().region;
        let at = header + CHUNK_BITMAP;
        let mut word = region.word(at).load(Ordering::Acquire);
        loop {
            let bitmap = word & BITMAP_MASK;
            assert!(
                bitmap & clear == clear && bitmap & set == 0,
                "leaf bits at {header} are not as they must be"
            );
            match region.compare_exchange(at, word, chunk_word(bitmap & !clear | set, slots)) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// True when the leaf's bit is set.
    pub(crate) fn leaf_bit(&self, offset: u64) -> bool {
        let (header, slot, _) = self.leaf_place(offset);
        self.space().region.word(header + CHUNK_BITMAP).load(Ordering::Acquire) >> slot & 1 == 1
    }
}
