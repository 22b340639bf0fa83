//! Empties sparse segments for compaction.
//!
//! The records of a class would fit into fewer segments than it has when it has segments to spare. The sparsest are
//! emptied: their free slots are set aside, so that new records go to the others, which have room for all. What moves
//! out of them is set aside, too. At the end all of it becomes free again, and with that the segment, unless a writer
//! has used a slot that another writer freed meanwhile.

use super::moving::Moving;
use super::slab::SlabAllocator;
use crate::concurrency::writer_gate::LaneToken;
use crate::format::size_class::Class;
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A segment of which at least this part is live stays as it is: emptying it costs more than it gains.
const DENSE: (u64, u64) = (3, 4);

impl SlabAllocator {
    /// Chooses the segments to empty and sets their free slots aside. Returns how many records must move.
    pub(crate) fn begin_moving(&self, exclusive: &LaneToken<'_>) -> u64 {
        // No lane keeps a slot, no class an empty segment.
        self.reclaim_idle(exclusive);
        let high_water = self.pool.high_water();
        let mut by_class: Vec<Vec<(u64, u32)>> = vec![Vec::new(); self.classes.count()];
        for segment in 0..high_water {
            if let Some((class, masks)) = self.slab(segment) {
                let free: u64 = masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
                by_class[usize::from(class)].push((self.slot_count(class) - free, segment));
            }
        }
        let mut moving = self.moving.lock();
        moving.segments = vec![false; high_water as usize];
        for (class, segments) in (0..).zip(&mut by_class) {
            segments.sort_unstable();
            let slots = if segments.is_empty() { 1 } else { self.slot_count(class) };
            let live: u64 = segments.iter().map(|(live, _)| *live).sum();
            let spare = segments.len() - live.div_ceil(slots) as usize;
            let sparse = segments[..spare].iter().filter(|(live, _)| live * DENSE.1 < slots * DENSE.0);
            for &(live, segment) in sparse {
                moving.segments[segment as usize] = true;
                moving.left += live;
                self.set_free_aside(segment, class, &mut moving.aside);
            }
        }
        moving.left
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
    pub(crate) fn moving(&self) -> MutexGuard<'_, Moving> {
        self.moving.lock()
    }

    /// True when the slot at `offset` is to be emptied.
    #[inline]
    pub(crate) fn is_moving(&self, moving: &Moving, offset: u64) -> bool {
        moving.has(self.space().geometry.locate(offset).0)
    }

    /// Sets the slot at `offset`, of a segment that is being emptied, aside: its record has moved.
    pub(crate) fn set_aside(&self, moving: &mut Moving, offset: u64) {
        let (segment, chunk, bit) = self.place_of(offset);
        *moving.aside.entry((segment, chunk)).or_default() |= bit;
    }

    /// Frees all slots that were set aside.
    pub(crate) fn end_moving(&self) {
        let moving = std::mem::take(&mut *self.moving.lock());
        for ((segment, chunk), bits) in moving.aside {
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
