//! The slots through which clients and the combiner communicate: any number, each on cache lines of its own.
//!
//! Fig. 2 of the Mangosteen paper has arrays of a size fixed at compile time, indexed by thread. Here
//! a slot belongs to a client and the table grows: blocks of doubling size that never move and are
//! freed with the table, so a slot's address is good for as long as its table.
//!
//! Invariants:
//! 1. Slots below `len` exist; `len` only grows.
//! 2. A slot that no client owns has status IDLE and reads nothing.
//! 3. The owner of a slot touches its `job`, `ready` and `jobs` while the status is IDLE or DONE; the combiner reads
//!    `job` between READY and DONE. `ready` and `jobs` are the owner's alone while it combines.

use super::sync::{AtomicU32, AtomicUsize, EventCount, Mutex, Ordering};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// There is no job.
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

/// What a writer shows the combiner, on a cache line of its own.
#[repr(align(128))]
pub(crate) struct WriteRequest<J> {
    pub(crate) status: AtomicU32,
    /// 1 while the owner sleeps, or is about to.
    pub(crate) asleep: AtomicU32,
    /// 1 while the owner should sleep on until the event that the combiner waits for.
    pub(crate) settles: AtomicU32,
    pub(crate) gate: EventCount,
    pub(crate) job: UnsafeCell<Option<NonNull<J>>>,
}

/// What a reader shows the combiner: the rFlag of Fig. 2, on a cache line of its own; 0, or the mark of the thread
/// that reads.
#[repr(align(128))]
pub(crate) struct Reading(pub(crate) AtomicUsize);

/// Lists that the owner fills when it combines; kept for reuse.
#[repr(align(128))]
pub(crate) struct Lists<J> {
    pub(crate) ready: UnsafeCell<Vec<NonNull<ClientSlot<J>>>>,
    pub(crate) jobs: UnsafeCell<Vec<NonNull<J>>>,
}

/// The slot of one client.
pub(crate) struct ClientSlot<J> {
    pub(crate) request: WriteRequest<J>,
    pub(crate) reading: Reading,
    pub(crate) lists: Lists<J>,
    pub(crate) number: usize,
}

impl<J> ClientSlot<J> {
    fn new(number: usize) -> Self {
        Self {
            request: WriteRequest {
                status: AtomicU32::new(IDLE),
                asleep: AtomicU32::new(0),
                settles: AtomicU32::new(0),
                gate: EventCount::new(),
                job: UnsafeCell::new(None),
            },
            reading: Reading(AtomicUsize::new(0)),
            lists: Lists { ready: UnsafeCell::new(Vec::new()), jobs: UnsafeCell::new(Vec::new()) },
            number,
        }
    }
}

/// All slots.
pub(crate) struct SlotTable<J> {
    blocks: [OnceLock<Box<[ClientSlot<J>]>>; BLOCK_COUNT_MAX],
    len: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

// SAFETY: `status` and the ownership of the slot hand the cells over (invariant 3). What they carry between threads
// is pointers to jobs, which are Send by the bound.
unsafe impl<J: Send> Sync for SlotTable<J> {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl<J: Send> Send for SlotTable<J> {}

/// The block of a slot, and its place there.
pub(crate) fn place(number: usize) -> (usize, usize) {
    let scaled = number / FIRST_BLOCK_SLOTS + 1;
    let block = scaled.ilog2() as usize;
    (block, number - FIRST_BLOCK_SLOTS * ((1 << block) - 1))
}

impl<J> SlotTable<J> {
    pub(crate) fn new() -> Self {
        Self {
            blocks: [const { OnceLock::new() }; BLOCK_COUNT_MAX],
            len: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// A slot for a new client; `None` when there are too many to count.
    pub(crate) fn take(&self) -> Option<&ClientSlot<J>> {
        let mut free = self.free.lock();
        if let Some(number) = free.pop() {
            return Some(self.get(number));
        }
        let number = self.len.load(Ordering::Relaxed);
        let (block, _) = place(number);
        let cell = self.blocks.get(block)?;
        cell.get_or_init(|| {
            let (first, count) = (FIRST_BLOCK_SLOTS * ((1 << block) - 1), FIRST_BLOCK_SLOTS << block);
            (first..first + count).map(ClientSlot::new).collect()
        });
        // Release, with the Acquire in `len`: a thread that sees the number finds the block.
        self.len.store(number + 1, Ordering::Release);
        Some(self.get(number))
    }

    /// Takes a slot back from its client.
    pub(crate) fn give_back(&self, slot: &ClientSlot<J>) {
        debug_assert_eq!(slot.request.status.load(Ordering::Relaxed), IDLE);
        self.free.lock().push(slot.number);
    }

    #[inline]
    fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The slot with this number, which exists.
    pub(crate) fn get(&self, number: usize) -> &ClientSlot<J> {
        let (block, at) = place(number);
        &self.blocks[block].get().expect("a slot below len has its block")[at]
    }

    /// Every slot that ever had a client.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = &ClientSlot<J>> {
        let len = self.len();
        self.blocks
            .iter()
            .map_while(|block| block.get())
            .flat_map(|block| block.iter())
            .take_while(move |slot| slot.number < len)
    }
}
