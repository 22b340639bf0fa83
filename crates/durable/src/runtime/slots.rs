//! The slots through which clients talk to the combiner: any number, each on cache lines of its own.
//!
//! Fig. 2 of the Mangosteen paper has arrays of a size fixed at compile time, indexed by thread. Here
//! a slot belongs to a client and the table grows: blocks of doubling size that never move and are
//! freed with the table, so a slot's address is good for as long as its table.
//!
//! Invariants:
//! 1. Slots below `len` exist; `len` only grows.
//! 2. A slot that no client owns has status IDLE and reads nothing.
//! 3. `job`, `ready` and `jobs` of a slot are touched by its owner while its status is IDLE or DONE,
//!    and `job` is read by the combiner between READY and DONE. `ready` and `jobs` are the owner's
//!    alone while it combines.

use crate::sync::{AtomicU32, AtomicUsize, Gate, Mutex, Ordering};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Nothing is asked for.
pub(crate) const IDLE: u32 = 0;
/// A job waits for a combiner.
pub(crate) const READY: u32 = 1;
/// A combiner took the job: its owner may stop competing (early notification).
pub(crate) const STARTED: u32 = 2;
/// The job is done and its outcome written.
pub(crate) const DONE: u32 = 3;

/// Slots in the first block; each further block doubles the table.
pub(crate) const FIRST_BLOCK_SLOTS: usize = 8;
/// Blocks at most: 8 * 2^24 slots are more than Linux has threads and sockets.
const BLOCK_COUNT_MAX: usize = 24;

/// What a writer tells the combiner, on a line of its own.
#[repr(align(128))]
pub(crate) struct Request<J> {
    pub(crate) status: AtomicU32,
    /// 1 while the owner sleeps, or is about to.
    pub(crate) asleep: AtomicU32,
    /// 1 while the owner need not be woken before what the combiner waits for is there.
    pub(crate) settles: AtomicU32,
    pub(crate) gate: Gate,
    pub(crate) job: UnsafeCell<Option<NonNull<J>>>,
}

/// What a reader tells the combiner: the rFlag of Fig. 2, on a line of its own; 0, or the mark of the thread that reads.
#[repr(align(128))]
pub(crate) struct Reading(pub(crate) AtomicUsize);

/// Lists that the owner fills when it combines; kept to be used again.
#[repr(align(128))]
pub(crate) struct Lists<J> {
    pub(crate) ready: UnsafeCell<Vec<NonNull<Slot<J>>>>,
    pub(crate) jobs: UnsafeCell<Vec<NonNull<J>>>,
}

/// One client's place.
pub(crate) struct Slot<J> {
    pub(crate) request: Request<J>,
    pub(crate) reading: Reading,
    pub(crate) lists: Lists<J>,
    pub(crate) number: usize,
}

impl<J> Slot<J> {
    fn new(number: usize) -> Self {
        Self {
            request: Request {
                status: AtomicU32::new(IDLE),
                asleep: AtomicU32::new(0),
                settles: AtomicU32::new(0),
                gate: Gate::new(),
                job: UnsafeCell::new(None),
            },
            reading: Reading(AtomicUsize::new(0)),
            lists: Lists { ready: UnsafeCell::new(Vec::new()), jobs: UnsafeCell::new(Vec::new()) },
            number,
        }
    }
}

/// The table.
pub(crate) struct Slots<J> {
    blocks: [OnceLock<Box<[Slot<J>]>>; BLOCK_COUNT_MAX],
    len: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

// SAFETY: the cells are handed over by `status` and by ownership of the slot (invariant 3), and what
// they carry between threads is pointers to jobs, which are Send by the bound.
unsafe impl<J: Send> Sync for Slots<J> {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl<J: Send> Send for Slots<J> {}

/// Block and place in it of a slot.
pub(crate) fn place(number: usize) -> (usize, usize) {
    let scaled = number / FIRST_BLOCK_SLOTS + 1;
    let block = scaled.ilog2() as usize;
    (block, number - FIRST_BLOCK_SLOTS * ((1 << block) - 1))
}

impl<J> Slots<J> {
    pub(crate) fn new() -> Self {
        Self {
            blocks: [const { OnceLock::new() }; BLOCK_COUNT_MAX],
            len: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// A slot for a new client; `None` when there are too many to count.
    pub(crate) fn take(&self) -> Option<&Slot<J>> {
        let mut free = self.free.lock();
        if let Some(number) = free.pop() {
            return Some(self.get(number));
        }
        let number = self.len.load(Ordering::Relaxed);
        let (block, _) = place(number);
        let cell = self.blocks.get(block)?;
        cell.get_or_init(|| {
            let (first, count) = (FIRST_BLOCK_SLOTS * ((1 << block) - 1), FIRST_BLOCK_SLOTS << block);
            (first..first + count).map(Slot::new).collect()
        });
        // Release, with the Acquire in `len`: who sees the number finds the block.
        self.len.store(number + 1, Ordering::Release);
        Some(self.get(number))
    }

    /// Takes a slot back from its client.
    pub(crate) fn give_back(&self, slot: &Slot<J>) {
        debug_assert_eq!(slot.request.status.load(Ordering::Relaxed), IDLE);
        self.free.lock().push(slot.number);
    }

    #[inline]
    fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The slot with this number, which exists.
    pub(crate) fn get(&self, number: usize) -> &Slot<J> {
        let (block, at) = place(number);
        &self.blocks[block].get().expect("a slot below len has its block")[at]
    }

    /// Every slot that ever had a client.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = &Slot<J>> {
        let len = self.len();
        self.blocks
            .iter()
            .map_while(|block| block.get())
            .flat_map(|block| block.iter())
            .take_while(move |slot| slot.number < len)
    }
}
