//! The durable header word of leaf chunks: bitmap, next free slot, full indicator (paper, Fig. 2).
//!
//! A leaf is live if its bit is set and its meta word is not that of a free slot. The paper sets and persists the bit
//! with each insertion. Here the allocator sets the bits of all free slots of a chunk at once, when it reserves them
//! for a lane; a set bit says that the slot is in service. From then on only the meta word, stored last into the
//! leaf's line, commits an insertion, and the meta word of a free slot commits a deletion. Batches commit their leaves
//! by setting bits of many slots at once (`operations/batch_commit.rs`).
//!
//! Invariants:
//! 1. A free slot whose bit is set has the durable meta word of a free slot. (Zero would cost a fresh segment nothing,
//!    but a block of the medium that was blanked would then be taken for free slots.)
//! 2. Durable-order: the meta words of slots say "free" before their bits are set; otherwise a crash would show leaves
//!    that no writer inserted. The bits become durable with the fence that ends the insertion for which they were
//!    set. No other thread gets the slots earlier, since the writer holds its lane until then
//!    (`operations/write.rs`).
//! 3. The word changes under the class lock, or while the gate is closed. The two never coincide, because only a
//!    thread that has passed the gate or closed it allocates slots.

use super::slab::SlabAllocator;
use crate::format::layout::{BITMAP_MASK, CHUNK_BITMAP, LEAF_META, chunk_word};
use crate::format::leaf::Meta;
use crate::format::size_class::Cut;
use std::sync::atomic::Ordering;

/// The medium writes lines of this many bytes.
const LINE_BYTES: u64 = mangrove_sys::CACHE_LINE_BYTES as u64;

impl SlabAllocator {
    /// Puts the slots `mask` of a chunk in service, for a writer that fences before it leaves its lane. Behind a clear
    /// bit their meta words may be anything.
    pub(super) fn put_in_service(&self, header: u64, slots: u32, cut: &Cut, mask: u64) {
        let region = &self.space().region;
        let word = region.word(header + CHUNK_BITMAP).load(Ordering::Acquire);
        let fresh = mask & !word;
        if fresh == 0 {
            return;
        }
        // The first and the last meta word stored in a line that has not been flushed.
        let mut line: Option<(u64, u64)> = None;
        for slot in (0..slots).filter(|slot| fresh >> slot & 1 == 1) {
            let meta = header + u64::from(cut.header_bytes + slot * cut.slot_bytes) + LEAF_META;
            region.store(meta, Meta::FREE.0, Ordering::Release);
            match &mut line {
                Some((first, last)) if *first / LINE_BYTES == meta / LINE_BYTES => *last = meta,
                _ => {
                    if let Some((first, last)) = line.replace((meta, meta)) {
                        region.flush(first, (last + 8 - first) as usize);
                    }
                }
            }
        }
        if let Some((first, last)) = line {
            region.flush(first, (last + 8 - first) as usize);
        }
        // Durable-order 2: no stale meta word in a slot whose bit is set.
        region.fence();
        region.store(header + CHUNK_BITMAP, chunk_word(word & BITMAP_MASK | fresh, slots), Ordering::Release);
        region.flush(header + CHUNK_BITMAP, 8);
    }

    /// Clears and sets bits of a chunk's bitmap for a batch; the caller flushes.
    #[track_caller]
    pub(crate) fn change_bitmap(&self, header: u64, clear: u64, set: u64) {
        let region = &self.space().region;
        let at = header + CHUNK_BITMAP;
        let slots = self.slots_of(header);
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
