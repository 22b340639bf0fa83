//! Slots set aside for the writers of one lane, so that taking and giving one back costs no locked instruction.
//!
//! A locked instruction has to wait until the lines that were flushed before it are written back; a plain one lets
//! the next lookup run meanwhile. So each lane (see [`crate::gate`]) has caches that only its holder touches, and
//! the shared masks of chunks are touched once for many slots.
//!
//! Invariant: slots of leaves in the cache of a thread's lane have their bit set and a durable meta word of zero
//! (`leafbit.rs`). The lane of who has closed the gate keeps slots with and without bit.

use crate::class::Class;
use crate::gate::{LANE_COUNT, Lane};
use std::cell::UnsafeCell;

/// Slots given back that a lane keeps for its next takers, for each class.
const SPARE_COUNT_MAX: usize = 28;

/// What one lane has set aside of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// Free slots of the chunk at `base`.
    pub(super) mask: u64,
    pub(super) base: u64,
    pub(super) slot_bytes: u32,
    spare_count: u32,
    /// Slots given back, the last one first taken again: it is still near.
    spare: [u64; SPARE_COUNT_MAX],
}

impl Cache {
    /// A slot, if there is one; with `in_row` the next one of the chunk.
    #[inline]
    pub(super) fn take(&mut self, in_row: bool) -> Option<u64> {
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

    /// The next slot of the mask for single writes: even ones first. Two small slots share a line, and who writes into a line that is
    /// on its way to the medium waits until it has arrived.
    #[inline]
    fn first(&self) -> u32 {
        let even = self.mask & 0x5555_5555_5555_5555;
        (if even != 0 { even } else { self.mask }).trailing_zeros()
    }

    /// Keeps a slot; false when there is no room.
    #[inline]
    pub(super) fn keep(&mut self, slot: u64) -> bool {
        let Some(place) = self.spare.get_mut(self.spare_count as usize) else { return false };
        *place = slot;
        self.spare_count += 1;
        true
    }

    /// Where the next slot will be, as far as that is known.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.base + u64::from(self.first()) * u64::from(self.slot_bytes)
    }

    /// The slots that were given back.
    pub(super) fn take_spare(&mut self) -> impl Iterator<Item = u64> + use<> {
        let count = std::mem::take(&mut self.spare_count) as usize;
        self.spare.into_iter().take(count)
    }

    /// All slots, which stay.
    fn slots(&self) -> impl Iterator<Item = u64> + '_ {
        let masked = (0..64).filter(|bit| self.mask >> bit & 1 == 1);
        let masked = masked.map(|bit| self.base + bit * u64::from(self.slot_bytes));
        masked.chain(self.spare.iter().copied().take(self.spare_count as usize))
    }
}

/// One lane's caches, by class; on lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneCaches {
    /// Empty until the lane is used.
    caches: UnsafeCell<Vec<Cache>>,
}

/// All lanes' caches.
#[derive(Debug)]
pub(super) struct Caches {
    lanes: Box<[LaneCaches]>,
    class_count: usize,
}

// SAFETY: a lane's caches are reached only by way of a `Lane`, the right that one thread has at a time; the gate
// orders what one holder did before what the next does.
unsafe impl Sync for Caches {}

impl Caches {
    pub(super) fn new(class_count: usize) -> Self {
        Self { lanes: (0..LANE_COUNT).map(|_| LaneCaches::default()).collect(), class_count }
    }

    /// Runs `work`, which must not come back here, on the lane's cache of the class.
    #[inline]
    pub(super) fn with<R>(&self, lane: &Lane<'_>, class: Class, work: impl FnOnce(&mut Cache) -> R) -> R {
        // SAFETY: the lane is the right to its caches, and `work` does not come back here.
        let caches = unsafe { &mut *self.lanes[lane.number()].caches.get() };
        if caches.is_empty() {
            caches.resize(self.class_count, Cache::default());
        }
        work(&mut caches[usize::from(class)])
    }

    /// All slots that lanes have set aside, for who is alone. With `take` they are no longer.
    pub(super) fn all(&self, alone: &Lane<'_>, take: bool) -> Vec<u64> {
        assert!(alone.is_alone(), "other lanes' caches are reached alone");
        let mut slots = Vec::new();
        for lane in &self.lanes {
            // SAFETY: the gate is closed, so that nobody else has any lane.
            let caches = unsafe { &mut *lane.caches.get() };
            slots.extend(caches.iter().flat_map(Cache::slots));
            if take {
                caches.clear();
            }
        }
        slots
    }
}
