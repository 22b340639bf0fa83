//! Slots reserved for the writers of one lane, so that allocating and freeing one costs no locked instruction.
//!
//! A locked instruction waits until the lines that were flushed before it are written back; a plain one lets the next
//! lookup run meanwhile. So each lane (see [`crate::concurrency::writer_gate`]) has caches that only its holder uses,
//! and one access to the shared mask of a chunk serves many slots.
//!
//! Invariant: slots of leaves in the cache of a thread's lane have their bit set and the durable meta word of
//! a free slot (`leafbit.rs`). The lane of the exclusive permit keeps slots with and without their bit.

use crate::concurrency::writer_gate::{LANE_COUNT, LaneToken};
use crate::format::size_class::Class;
use std::cell::UnsafeCell;

/// Freed slots of a class that a lane keeps for its next allocations.
const SPARE_COUNT_MAX: usize = 28;

/// The free slots of one class that one lane has reserved.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotCache {
    /// Free slots of the chunk at `base`.
    pub(super) mask: u64,
    pub(super) base: u64,
    pub(super) slot_bytes: u32,
    spare_count: u32,
    /// Freed slots. The last one is reused first, because the processor still has it in its caches.
    spare: [u64; SPARE_COUNT_MAX],
}

impl SlotCache {
    /// A slot, if there is one; with `in_row` the next one of the chunk.
    #[inline]
    pub(super) fn alloc(&mut self, in_row: bool) -> Option<u64> {
        if self.spare_count > 0 {
            self.spare_count -= 1;
            return self.spare.get(self.spare_count as usize).copied();
        }
        if self.mask == 0 {
            return None;
        }
        let slot = if in_row { self.mask.trailing_zeros() } else { self.first() };
        self.mask &= !(1 << slot);
        Some(self.base + u64::from(slot) * u64::from(self.slot_bytes))
    }

    /// The next slot of the mask for single writes: even ones first. Two small slots share a line, and a store into a
    /// line that is on its way to the medium waits until it has arrived.
    #[inline]
    fn first(&self) -> u32 {
        let even = self.mask & 0x5555_5555_5555_5555;
        (if even != 0 { even } else { self.mask }).trailing_zeros()
    }

    /// Keeps a slot; false when the cache is full.
    #[inline]
    pub(super) fn keep(&mut self, slot: u64) -> bool {
        let Some(place) = self.spare.get_mut(self.spare_count as usize) else { return false };
        *place = slot;
        self.spare_count += 1;
        true
    }

    /// Offset of the next slot, as far as that is known.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.base + u64::from(self.first()) * u64::from(self.slot_bytes)
    }

    /// Removes and returns the freed slots.
    pub(super) fn take_spare(&mut self) -> impl Iterator<Item = u64> + use<> {
        let count = std::mem::take(&mut self.spare_count) as usize;
        self.spare.into_iter().take(count)
    }

    /// All slots; they stay in the cache.
    fn slots(&self) -> impl Iterator<Item = u64> + '_ {
        let masked = (0..64).filter(|bit| self.mask >> bit & 1 == 1);
        let masked = masked.map(|bit| self.base + bit * u64::from(self.slot_bytes));
        masked.chain(self.spare.iter().copied().take(self.spare_count as usize))
    }
}

/// The caches of one lane, by class; on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneCaches {
    /// Empty until the lane is used.
    caches: UnsafeCell<Vec<SlotCache>>,
}

/// The caches of all lanes.
#[derive(Debug)]
pub(super) struct SlotCaches {
    lanes: Box<[LaneCaches]>,
    class_count: usize,
}

// SAFETY: a lane's caches are reached only by way of its `LaneToken`, which one thread has at a time; the gate orders
// what one holder did before what the next one does.
unsafe impl Sync for SlotCaches {}

impl SlotCaches {
    pub(super) fn new(class_count: usize) -> Self {
        Self { lanes: (0..LANE_COUNT).map(|_| LaneCaches::default()).collect(), class_count }
    }

    /// Runs `work` on the lane's cache of the class. `work` must not call this function.
    #[inline]
    pub(super) fn with<R>(
        &self,
        lane: &LaneToken<'_>,
        class: Class,
        work: impl FnOnce(&mut SlotCache) -> R,
    ) -> R {
        // SAFETY: the token is the right to the lane's caches, and `work` does not call this function.
        let caches = unsafe { &mut *self.lanes[lane.number()].caches.get() };
        if caches.is_empty() {
            caches.resize(self.class_count, SlotCache::default());
        }
        work(&mut caches[usize::from(class)])
    }

    /// All slots that lanes have reserved, for the holder of the exclusive permit; `take` empties the caches.
    pub(super) fn all(&self, exclusive: &LaneToken<'_>, take: bool) -> Vec<u64> {
        assert!(exclusive.is_exclusive(), "other lanes' caches are reached alone");
        let mut slots = Vec::new();
        for lane in &self.lanes {
            // SAFETY: the gate is closed, so that no other thread has a lane.
            let caches = unsafe { &mut *lane.caches.get() };
            slots.extend(caches.iter().flat_map(SlotCache::slots));
            if take {
                caches.clear();
            }
        }
        slots
    }
}
