//! The slots through which clients and the combiner communicate: any number, each on cache lines of its own.
//!
//! Fig. 2 of the Mangosteen paper has arrays of a size fixed at compile time, indexed by thread. Here
//! a slot belongs to a client and the table grows: blocks of doubling size that never move and are
//! freed with the table, so a slot's address is good for as long as its table.
//!
//! No write costs more because there are, or were, many clients: jobs that wait form a list, and the clients beyond
//! the first [`OWN_FLAGS`] that read are counted in a fixed number of counters.
//!
//! Invariants:
//! 1. Slots below `len` exist; `len` only grows.
//! 2. A slot that no client owns has status IDLE, reads nothing and is in no list.
//! 3. A slot is in the list of waiting jobs from READY to STARTED: its owner puts it there, and a combiner takes the
//!    whole list. `next` is a number of a slot or 0 at any time, also where it is out of date.
//! 4. The owner of a slot touches its `job`, `ready` and `jobs` while the status is IDLE or DONE; the combiner reads
//!    `job` between READY and DONE. `ready` and `jobs` are the owner's alone while it combines.

use super::sync::{
    AtomicU32, AtomicUsize, EventCount, Mutex, OWN_FLAGS, Ordering, SHARED_COUNTERS, thread_local,
};
use std::cell::{Cell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    /// The slot behind this one in the list of waiting jobs: its number plus 1; 0 at the end.
    next: AtomicUsize,
}

/// The thread that reads by a slot, on a cache line of its own: its mark, or 0. For the first [`OWN_FLAGS`] slots it
/// is what a combiner looks at: the rFlag of Fig. 2.
#[repr(align(128))]
pub(crate) struct SlotReader(AtomicUsize);

thread_local! {
    /// Reads that the thread is in by slots that are counted, of whichever table.
    #[allow(clippy::missing_const_for_thread_local, reason = "the models' macros take no const block")]
    static COUNTED_READS: Cell<u32> = Cell::new(0);
}

/// How many clients read of those that share this counter, on a cache line of its own.
#[repr(align(128))]
struct Readers(AtomicUsize);

/// Lists that the owner fills when it combines; kept for reuse.
#[repr(align(128))]
pub(crate) struct Lists<J> {
    pub(crate) ready: UnsafeCell<Vec<NonNull<ClientSlot<J>>>>,
    pub(crate) jobs: UnsafeCell<Vec<NonNull<J>>>,
}

/// The slot of one client.
pub(crate) struct ClientSlot<J> {
    pub(crate) request: WriteRequest<J>,
    pub(crate) reading: SlotReader,
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
                next: AtomicUsize::new(0),
            },
            reading: SlotReader(AtomicUsize::new(0)),
            lists: Lists { ready: UnsafeCell::new(Vec::new()), jobs: UnsafeCell::new(Vec::new()) },
            number,
        }
    }
}

/// All slots.
pub(crate) struct SlotTable<J> {
    blocks: [OnceLock<Box<[ClientSlot<J>]>>; BLOCK_COUNT_MAX],
    len: AtomicUsize,
    /// The lowest number is given out first. So clients that come after a crowd has left have flags of their own.
    free: Mutex<BinaryHeap<Reverse<usize>>>,
    /// The newest waiting job: its slot's number plus 1; 0 when there is none.
    waiting: Waiting,
    /// For the slots from [`OWN_FLAGS`] on, each of which counts in the one at its number modulo their count.
    readers: OnceLock<Box<[Readers]>>,
}

/// The head of the list of waiting jobs, on a cache line of its own.
#[repr(align(128))]
struct Waiting(AtomicUsize);

// SAFETY: `status` and the ownership of the slot hand the cells over (invariant 4). What they carry between threads
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
            free: Mutex::new(BinaryHeap::new()),
            waiting: Waiting(AtomicUsize::new(0)),
            readers: OnceLock::new(),
        }
    }

    /// A slot for a new client; `None` when there are too many to count.
    pub(crate) fn take(&self) -> Option<&ClientSlot<J>> {
        let mut free = self.free.lock();
        if let Some(Reverse(number)) = free.pop() {
            return Some(self.get(number));
        }
        let number = self.len.load(Ordering::Relaxed);
        // For all slots: giving one back allocates nothing. It may happen in a command, whose memory is the state's.
        free.reserve(number + 1);
        let (block, _) = place(number);
        let cell = self.blocks.get(block)?;
        cell.get_or_init(|| {
            let (first, count) = (FIRST_BLOCK_SLOTS * ((1 << block) - 1), FIRST_BLOCK_SLOTS << block);
            (first..first + count).map(ClientSlot::new).collect()
        });
        if number >= OWN_FLAGS {
            self.readers.get_or_init(|| (0..SHARED_COUNTERS).map(|_| Readers(AtomicUsize::new(0))).collect());
        }
        // Release, with the Acquire in `len`: a thread that sees the number finds the block and the counters.
        self.len.store(number + 1, Ordering::Release);
        Some(self.get(number))
    }

    /// Takes a slot back from its client.
    pub(crate) fn give_back(&self, slot: &ClientSlot<J>) {
        debug_assert_eq!(slot.request.status.load(Ordering::Relaxed), IDLE);
        self.free.lock().push(Reverse(slot.number));
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
    /// Shows combiners that the thread with this mark reads by this slot (line 4 of Fig. 2). A locked instruction.
    #[inline]
    pub(crate) fn begin_read(&self, slot: &ClientSlot<J>, mark: usize) {
        match self.counter(slot) {
            None => drop(slot.reading.0.swap(mark, Ordering::SeqCst)),
            Some(readers) => {
                // Relaxed: only its thread asks for the mark.
                slot.reading.0.store(mark, Ordering::Relaxed);
                COUNTED_READS.with(|reads| reads.set(reads.get() + 1));
                readers.0.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Line 7 of Fig. 2. Release, with the Acquire in `readers_are_out`: the reads of the call are over.
    #[inline]
    pub(crate) fn end_read(&self, slot: &ClientSlot<J>) {
        slot.reading.0.store(0, Ordering::Release);
        if let Some(readers) = self.counter(slot) {
            readers.0.fetch_sub(1, Ordering::Release);
            COUNTED_READS.with(|reads| reads.set(reads.get() - 1));
        }
    }

    /// Whether the thread with this mark, the calling one, reads by a slot other than `but`. Looks at more than
    /// [`OWN_FLAGS`] slots only where that thread reads by one that is counted.
    pub(crate) fn reads_here(&self, mark: usize, but: Option<&ClientSlot<J>>) -> bool {
        // Relaxed: a thread sees its own stores, and no other thread stores its mark.
        let reads = |slot: &ClientSlot<J>| {
            !but.is_some_and(|but| std::ptr::eq(but, slot)) && slot.reading.0.load(Ordering::Relaxed) == mark
        };
        let counted = but.is_some_and(|but| but.number >= OWN_FLAGS);
        self.each().take(OWN_FLAGS).any(reads)
            || (COUNTED_READS.with(Cell::get) > u32::from(counted) && self.each().skip(OWN_FLAGS).any(reads))
    }

    /// The counter that this slot shares; `None` when its flag is its own.
    #[inline]
    fn counter(&self, slot: &ClientSlot<J>) -> Option<&Readers> {
        if slot.number < OWN_FLAGS {
            return None;
        }
        self.readers.get().map(|readers| &readers[slot.number % readers.len()])
    }

    /// Whether no client reads. Looks at [`OWN_FLAGS`] flags at most and the counters, however many slots there are.
    #[inline]
    pub(crate) fn readers_are_out(&self) -> bool {
        // Acquire, with the Release in `end_read`.
        self.each().take(OWN_FLAGS).all(|slot| slot.reading.0.load(Ordering::Acquire) == 0)
            && (self.len() <= OWN_FLAGS
                || self.readers.get().is_none_or(|all| all.iter().all(|r| r.0.load(Ordering::Acquire) == 0)))
    }

    /// Puts a slot whose job is READY into the list.
    #[inline]
    pub(crate) fn enlist(&self, slot: &ClientSlot<J>) {
        let mut head = self.waiting.0.load(Ordering::Relaxed);
        loop {
            slot.request.next.store(head, Ordering::Relaxed);
            // Release, with the Acquire in `take_waiting`: who finds the slot sees its job.
            match self.waiting.0.compare_exchange_weak(
                head,
                slot.number + 1,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the list, and calls `each` with its slots, the newest first. One thread at a time.
    #[inline]
    pub(crate) fn take_waiting<'a>(&'a self, mut each: impl FnMut(&'a ClientSlot<J>)) {
        if self.waiting.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut at = self.waiting.0.swap(0, Ordering::Acquire);
        while let Some(number) = at.checked_sub(1) {
            let slot = self.get(number);
            // Before `each`, which may let the owner go on. Relaxed: the Release of the head covers it, as each later
            // change of the head was a locked instruction.
            at = slot.request.next.load(Ordering::Relaxed);
            each(slot);
        }
    }

    /// The first slots of the list as it is now, the newest first, at most `count`. Others may take it meanwhile; then
    /// some of the slots have no waiting job any more.
    pub(crate) fn waiting(&self, count: usize) -> impl Iterator<Item = &ClientSlot<J>> {
        // Acquire, with the Release in `enlist`.
        let mut at = self.waiting.0.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let slot = self.get(at.checked_sub(1)?);
            at = slot.request.next.load(Ordering::Acquire);
            Some(slot)
        })
        .take(count)
    }
}
