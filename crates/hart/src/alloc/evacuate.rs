//! Empties sparse segments for compaction.
//!
//! The records of a class would fit into fewer segments than it has when it has segments to spare. The sparsest are
//! emptied: their free slots are set aside, so that new records go to the others, which have room for all. What moves
//! out of them, or is freed there by a writer, is set aside, too. At the end all of it becomes free again, and with
//! that the segment, unless a batch that was being prepared had a slot of it. A writer that finds no slot ends it.

use super::moving::MovingSegments;
use super::slab::{EXTENT_TAIL, SlabAllocator};
use crate::concurrency::writer_gate::WriterGate;
use crate::format::size_class::Class;
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A segment of which at least this part is live stays as it is: emptying it costs more than it gains.
const DENSE: (u64, u64) = (3, 4);

/// Segments that are marked while the gate is closed.
const MARKED_MAX: usize = 64;

/// What compaction would give back, in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gain {
    /// In use now.
    pub(crate) used: u64,
    /// Of them, those that would be emptied.
    pub(crate) sparse: u64,
    /// Free ones whose space the medium still reserves.
    pub(crate) free: u64,
}

impl SlabAllocator {
    /// What a compaction would gain, about: writers run meanwhile. O(segments).
    pub(crate) fn gain(&self) -> Gain {
        let segments = 0..self.pool.high_water();
        let used = segments.filter(|segment| self.is_in_use(*segment)).count() as u64;
        let sparse = self.sparse_segments().len() as u64;
        Gain { used, sparse, free: self.pool.provided_count() }
    }

    /// The segments to empty, about, while writers run: of each class those that its records can do without, and that
    /// are sparse.
    fn sparse_segments(&self) -> Vec<(u32, Class)> {
        let mut by_class: Vec<Vec<(u64, u32)>> = vec![Vec::new(); self.classes.count()];
        for segment in 0..self.pool.high_water() {
            let class = self.segments[segment as usize].class.load(Ordering::Acquire);
            if (1..EXTENT_TAIL).contains(&class) {
                let free = self.free_slots(segment, class);
                by_class[usize::from(class)].push((self.slot_count(class).saturating_sub(free), segment));
            }
        }
        let mut sparse = Vec::new();
        for (class, segments) in (0..).zip(&mut by_class).filter(|(_, segments)| !segments.is_empty()) {
            segments.sort_unstable();
            let slots = self.slot_count(class);
            let live: u64 = segments.iter().map(|(live, _)| *live).sum();
            let spare = segments.len() - live.div_ceil(slots) as usize;
            let of_class = segments[..spare].iter().filter(|(live, _)| live * DENSE.1 < slots * DENSE.0);
            sparse.extend(of_class.map(|(_, segment)| (*segment, class)));
        }
        sparse
    }

    /// Chooses the segments to empty and sets their free slots aside. The gate is closed for some segments at a time.
    pub(crate) fn begin_moving(&self, gate: &WriterGate) {
        self.moving.lock().is_cut_off = false;
        // No class keeps an empty segment.
        self.reclaim_idle(&gate.close().lane());
        for some in self.sparse_segments().chunks(MARKED_MAX) {
            // No writer is between freeing a slot and listing its chunk.
            let exclusive = gate.close();
            // No lane keeps a slot.
            self.reclaim_idle(&exclusive.lane());
            let mut moving = self.moving.lock();
            for &(segment, class) in some {
                // It may have another use by now.
                if let Some((own, masks)) = self.slab(segment)
                    && own == class
                {
                    let free: u64 = masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
                    moving.left += self.slot_count(class) - free;
                    moving.segments.push(segment);
                    self.segments[segment as usize].is_moving.store(true, Ordering::Relaxed);
                    self.set_free_aside(segment, class, &mut moving.aside);
                }
            }
        }
    }

    fn slot_count(&self, class: Class) -> u64 {
        let cut = self.classes.cut(class);
        (0..cut.chunk_count).map(|chunk| u64::from(cut.slots(chunk))).sum()
    }

    fn set_free_aside(&self, segment: u32, class: Class, aside: &mut BTreeMap<(u32, u32), u64>) {
        let cut = *self.classes.cut(class);
        let mut list = self.lists[usize::from(class)].lock();
        let state = &self.segments[segment as usize];
        let (masks, summary) = self.masks(segment, &cut);
        for chunk in 0..cut.chunk_count {
            let mask = masks[chunk as usize].swap(0, Ordering::AcqRel);
            if mask == cut.full_mask(chunk) {
                state.full_chunks.fetch_sub(1, Ordering::AcqRel);
            }
            if mask != 0 {
                aside.insert((segment, chunk), mask);
            }
        }
        summary.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        if state.listed.load(Ordering::Relaxed) != 0 {
            self.unlist(segment, &mut list);
        }
    }

    /// The segments that are being emptied.
    pub(crate) fn moving(&self) -> MutexGuard<'_, MovingSegments> {
        self.moving.lock()
    }

    /// True when the slot at `offset` is to be emptied.
    #[inline]
    pub(crate) fn is_moving(&self, offset: u64) -> bool {
        let (segment, _) = self.space().geometry.locate(offset);
        // Relaxed: it is set by the thread that asks, or while the gate is closed, in which a writer is.
        self.segments[segment as usize].is_moving.load(Ordering::Relaxed)
    }

    /// Sets the slot at `offset`, of a segment that is being emptied, aside: its record has moved.
    pub(crate) fn set_aside(&self, moving: &mut MovingSegments, offset: u64) {
        let (segment, chunk, bit) = self.place_of(offset);
        *moving.aside.entry((segment, chunk)).or_default() |= bit;
    }

    /// As `set_aside`, for a writer that frees the slot; false when the segment is not emptied any more. In the
    /// writer's lane the slot would soon have a record again, and the segment would never be empty.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_aside(&self, offset: u64) -> bool {
        let mut moving = self.moving.lock();
        let is_moving = self.is_moving(offset);
        if is_moving {
            self.set_aside(&mut moving, offset);
        }
        is_moving
    }

    /// As `end_moving`, for a writer that needs the slots. False when no segment is being emptied.
    pub(super) fn cut_off_moving(&self) -> bool {
        let mut moving = self.moving.lock();
        let is_moving = !moving.segments.is_empty();
        moving.is_cut_off |= is_moving;
        self.free_aside(&mut moving);
        is_moving
    }

    /// Frees all slots that were set aside.
    pub(crate) fn end_moving(&self) {
        self.free_aside(&mut self.moving.lock());
    }

    /// Under the lock: a writer that needs a slot waits until all are free.
    fn free_aside(&self, moving: &mut MovingSegments) {
        for segment in moving.segments.drain(..) {
            self.segments[segment as usize].is_moving.store(false, Ordering::Relaxed);
        }
        moving.left = 0;
        for ((segment, chunk), bits) in std::mem::take(&mut moving.aside) {
            self.free_slots_of(segment, chunk, bits);
        }
    }

    /// The slots that are set aside, for `check`, while no writer runs.
    pub(super) fn slots_aside(&self) -> Vec<u64> {
        let mut slots = Vec::new();
        for (&(segment, chunk), &bits) in &self.moving.lock().aside {
            let class = self.segments[segment as usize].class.load(Ordering::Acquire);
            let cut = self.classes.cut(class);
            let first = self.space().geometry.start(segment)
                + u64::from(chunk * cut.chunk_bytes)
                + u64::from(cut.header_bytes);
            let set = (0..64u64).filter(|bit| bits >> bit & 1 == 1);
            slots.extend(set.map(|bit| first + bit * u64::from(cut.slot_bytes)));
        }
        slots
    }
}
