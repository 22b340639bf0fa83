//! The durable header word of leaf chunks: bitmap, next free slot, full indicator (paper, Fig. 2).
//!
//! A leaf is live if its bit is set and its meta word is not zero. The paper sets and persists the bit with each
//! insertion. Here the bits of a chunk are set together, when its free slots are set aside for a lane, and say that
//! the slots are in service; from then on the meta word alone, stored last into the leaf's line, is the commit
//! record of an insertion, and zero that of a deletion. Batches commit their leaves by bits that they set all at
//! once (`commit.rs`).
//!
//! Invariants:
//! 1. A free slot whose bit is set has a durable meta word of zero.
//! 2. Durable-order: the meta words of slots are zero before their bits are set: else a crash would show leaves that
//!    nobody inserted. The bits are durable with the fence that ends the insertion for which they were set; no other
//!    thread gets the slots before, since the writer holds its lane until then (`write.rs`).
//! 3. The word changes under the class lock, or while the gate is closed: the two never meet, since slots are
//!    taken only by who has passed the gate or closed it.

use super::slab::Allocator;
use crate::class::Cut;
use crate::layout::{BITMAP_MASK, CHUNK_BITMAP, LEAF_META, chunk_word};
use std::sync::atomic::Ordering;

impl Allocator {
    /// Puts the slots `mask` of a chunk in service, for a writer who fences before it gives its lane up. Their meta words may be anything where `scrub` is set, and are
    /// durably zero otherwise.
    pub(super) fn put_in_service(&self, header: u64, slots: u32, cut: &Cut, mask: u64, scrub: bool) {
        let region = &self.space().region;
        let word = region.word(header + CHUNK_BITMAP).load(Ordering::Acquire);
        let fresh = mask & !word;
        if fresh == 0 {
            return;
        }
        if scrub {
            for slot in (0..slots).filter(|slot| fresh >> slot & 1 == 1) {
                let meta = header + u64::from(cut.header_bytes + slot * cut.slot_bytes) + LEAF_META;
                region.store(meta, 0, Ordering::Release);
                region.flush(meta, 8);
            }
            // Durable-order 2: no stale meta word behind a set bit.
            region.fence();
        }
        region.store(header + CHUNK_BITMAP, chunk_word(word & BITMAP_MASK | fresh, slots), Ordering::Release);
        region.flush(header + CHUNK_BITMAP, 8);
    }

    /// Clears and sets bits of a chunk's bitmap for a batch; the caller flushes.
    #[track_caller]
    pub(crate) fn change_bitmap(&self, header: u64, clear: u64, set: u64) {
        let region = &self.space().region;
        let at = header + CHUNK_BITMAP;
        let slots = self.batch_changes(header);
        let bitmap = region.word(at).load(Ordering::Acquire) & BITMAP_MASK;
        assert!(
            bitmap & clear == clear && bitmap & set == 0,
            "leaf bits at {header} are not as they must be"
        );
        region.store(at, chunk_word(bitmap & !clear | set, slots), Ordering::Release);
    }

    /// True when the bit of the leaf's slot is set.
    pub(crate) fn leaf_bit(&self, offset: u64) -> bool {
        let (header, slot) = self.leaf_place(offset);
        self.space().region.word(header + CHUNK_BITMAP).load(Ordering::Acquire) >> slot & 1 == 1
    }
}
