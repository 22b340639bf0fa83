//! Who may write: any number of single writes, or one batch, range delete, check or snapshot being taken.
//!
//! Readers never come here. A writer announces itself in its lane, then looks whether the gate is closed; who
//! closes the gate does so first, then waits for the lanes to empty. A store-load barrier between the two steps
//! on both sides makes one of the two see the other. The writers' side of it is free ([`AsymmetricBarrier`]):
//! a locked instruction there may wait for the write-back of the write before
//! (docs/decisions/writer-gate.md).
//!
//! Invariants:
//! 1. A lane is stored to only by the thread that owns it, so plain loads and stores count in it. Threads beyond
//!    [`OWN_LANES_MAX`] share the lane behind the own ones, one at a time: they write one after the other.
//! 2. While an [`Exclusive`] lives, every lane is 0 or about to be taken back by a writer that saw it.
//! 3. So whatever is kept for each lane elsewhere (the allocator's caches) belongs to whoever holds the lane's
//!    ticket, or to whoever has closed the gate: a [`Lane`] stands for that right.

use crate::lane::{OWN_LANES_MAX, own_lane};
use mangrove_sys::AsymmetricBarrier;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The lane of threads that have none of their own.
const SHARED: usize = OWN_LANES_MAX;
/// The lane of who has closed the gate.
const ALONE: usize = OWN_LANES_MAX + 1;
/// Lanes for which something may be kept.
pub(crate) const LANE_COUNT: usize = OWN_LANES_MAX + 2;

/// The right to what is kept for one lane. While it lives nobody else has it.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    number: usize,
    _right: std::marker::PhantomData<(&'a (), *const ())>,
}

impl Lane<'_> {
    /// Number of the lane, below [`LANE_COUNT`].
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// True when the gate is closed and this is the lane of who closed it.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.number == ALONE
    }
}

/// On a line pair of its own: adjacent lines are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count {
    writers: AtomicU64,
    /// Records inserted minus records removed by threads of this lane.
    records: AtomicI64,
}

/// The gate that writers pass.
#[derive(Debug)]
pub(crate) struct Gate {
    lanes: Box<[Count]>,
    /// Held by the one thread that is using the shared lane.
    shared: Mutex<()>,
    closed: AtomicBool,
    owner: Mutex<()>,
    barrier: AsymmetricBarrier,
}

/// The right to write one record. Not sent to other threads: it belongs to its thread's lane.
pub(crate) struct Ticket<'a> {
    gate: &'a Gate,
    lane: usize,
    _shared: Option<MutexGuard<'a, ()>>,
    _here: std::marker::PhantomData<*const ()>,
}

/// The right to write alone.
pub(crate) struct Exclusive<'a> {
    gate: &'a Gate,
    _owner: MutexGuard<'a, ()>,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new(barrier: AsymmetricBarrier) -> Self {
        Self {
            lanes: (0..LANE_COUNT).map(|_| Count::default()).collect(),
            shared: Mutex::default(),
            closed: AtomicBool::new(false),
            owner: Mutex::default(),
            barrier,
        }
    }

    /// Changes the barrier while nobody else has the gate.
    pub(crate) fn set_barrier(&mut self, barrier: AsymmetricBarrier) {
        self.barrier = barrier;
    }

    /// Waits while the gate is closed, then keeps it from closing as long as the ticket lives.
    #[inline]
    pub(crate) fn enter(&self) -> Ticket<'_> {
        match own_lane() {
            Some(lane) => {
                self.pass(lane);
                // Made where it stays: a copy would wait in the store buffer for the fence of the write before.
                Ticket { gate: self, lane, _shared: None, _here: std::marker::PhantomData }
            }
            None => self.enter_shared(),
        }
    }

    #[cold]
    fn enter_shared(&self) -> Ticket<'_> {
        let shared = Some(self.shared.lock());
        self.pass(SHARED);
        Ticket { gate: self, lane: SHARED, _shared: shared, _here: std::marker::PhantomData }
    }

    /// Enters by a lane that nobody else has.
    #[inline]
    fn pass(&self, lane: usize) {
        let writers = &self.lanes[lane].writers;
        loop {
            writers.store(writers.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // With `heavy` in `close`: either we see `closed`, or it sees us.
            self.barrier.light();
            // SeqCst (a plain load on x86), with the store in `close`.
            if !self.closed.load(Ordering::SeqCst) {
                return;
            }
            self.leave(lane);
            drop(self.owner.lock());
        }
    }

    #[inline]
    fn leave(&self, lane: usize) {
        let writers = &self.lanes[lane].writers;
        // Release, with the loads in `close`: our write is seen by who waited for us.
        writers.store(writers.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Waits until nobody else writes.
    pub(crate) fn close(&self) -> Exclusive<'_> {
        let owner = self.owner.lock();
        // SeqCst, with `enter`.
        self.closed.store(true, Ordering::SeqCst);
        self.barrier.heavy();
        for lane in &self.lanes {
            let mut tries = 0u32;
            while lane.writers.load(Ordering::SeqCst) != 0 {
                tries += 1;
                if tries < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
        Exclusive { gate: self, _owner: owner }
    }

    /// Counts records.
    #[inline]
    pub(crate) fn add_records(&self, lane: &Lane<'_>, delta: i64) {
        let records = &self.lanes[lane.number].records;
        records.store(records.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }

    /// Records counted.
    pub(crate) fn records(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.records.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }
}

impl Ticket<'_> {
    /// The lane that belongs to the ticket.
    #[inline]
    pub(crate) fn lane(&self) -> Lane<'_> {
        Lane { number: self.lane, _right: std::marker::PhantomData }
    }
}

impl Exclusive<'_> {
    /// The lane of who is alone. What is kept for other lanes is free for the taking too.
    #[inline]
    pub(crate) fn lane(&self) -> Lane<'_> {
        Lane { number: ALONE, _right: std::marker::PhantomData }
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.lane);
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // Release, with the load in `enter`: later writers see what was done alone.
        self.gate.closed.store(false, Ordering::Release);
    }
}
