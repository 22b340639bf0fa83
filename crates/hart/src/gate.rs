//! Who may write: any number of single writes, or one batch, range delete, check or snapshot being taken.
//!
//! Readers never come here. A writer announces itself in its lane, then looks whether the gate is closed; who
//! closes the gate does so first, then waits for the lanes to empty. A store-load barrier between the two steps
//! on both sides makes one of the two see the other. The writers' side of it is free ([`AsymmetricBarrier`]):
//! a locked instruction there may wait for the write-back of the write before
//! (docs/decisions/hart-gate.md).
//!
//! Invariants:
//! 1. A lane of `own` is stored to only by the thread that owns it, so plain loads and stores count in it;
//!    `shared` serves the threads beyond [`OWN_LANES_MAX`] and is counted by atomic additions.
//! 2. While an [`Exclusive`] lives, every lane is 0 or about to be taken back by a writer that saw it.

use crate::lane::{OWN_LANES_MAX, own_lane};
use mangrove_sys::AsymmetricBarrier;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// On a line pair of its own: adjacent lines are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    writers: AtomicU64,
    /// Records inserted minus records removed by threads of this lane.
    records: AtomicI64,
}

/// The gate that writers pass.
#[derive(Debug)]
pub(crate) struct Gate {
    own: Box<[Lane]>,
    shared: Lane,
    closed: AtomicBool,
    owner: Mutex<()>,
    barrier: AsymmetricBarrier,
}

/// The right to write one record. Not sent to other threads: it belongs to its thread's lane.
pub(crate) struct Ticket<'a> {
    gate: &'a Gate,
    lane: Option<usize>,
    _here: std::marker::PhantomData<*const ()>,
}

/// The right to write alone.
pub(crate) struct Exclusive<'a> {
    gate: &'a Gate,
    _owner: MutexGuard<'a, ()>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            own: (0..OWN_LANES_MAX).map(|_| Lane::default()).collect(),
            shared: Lane::default(),
            closed: AtomicBool::new(false),
            owner: Mutex::default(),
            barrier: AsymmetricBarrier::detect(),
        }
    }
}

impl Gate {
    /// Waits while the gate is closed, then keeps it from closing as long as the ticket lives.
    #[inline]
    pub(crate) fn enter(&self) -> Ticket<'_> {
        let ticket = Ticket { gate: self, lane: own_lane(), _here: std::marker::PhantomData };
        loop {
            match ticket.lane {
                Some(lane) => {
                    let writers = &self.own[lane].writers;
                    writers.store(writers.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    // With `heavy` in `close`: either we see `closed`, or it sees us.
                    self.barrier.light();
                }
                // SeqCst, with `close`, likewise.
                None => {
                    self.shared.writers.fetch_add(1, Ordering::SeqCst);
                }
            }
            // SeqCst (a plain load on x86), with the store in `close`.
            if !self.closed.load(Ordering::SeqCst) {
                return ticket;
            }
            ticket.leave();
            drop(self.owner.lock());
        }
    }

    /// Waits until nobody else writes.
    pub(crate) fn close(&self) -> Exclusive<'_> {
        let owner = self.owner.lock();
        // SeqCst, with `enter`.
        self.closed.store(true, Ordering::SeqCst);
        self.barrier.heavy();
        for lane in self.own.iter().chain([&self.shared]) {
            let mut tries = 0u32;
            while lane.writers.load(Ordering::SeqCst) != 0 {
                tries += 1;
                if tries < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
        Exclusive { gate: self, _owner: owner }
    }

    /// Counts records; any thread.
    #[inline]
    pub(crate) fn add_records(&self, delta: i64) {
        match own_lane() {
            Some(lane) => {
                let records = &self.own[lane].records;
                records.store(records.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
            }
            None => {
                self.shared.records.fetch_add(delta, Ordering::Relaxed);
            }
        }
    }

    /// Records counted.
    pub(crate) fn records(&self) -> u64 {
        let lanes = self.own.iter().chain([&self.shared]);
        lanes.map(|lane| lane.records.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }
}

impl Ticket<'_> {
    #[inline]
    fn leave(&self) {
        // Release, with the loads in `close`: our write is seen by who waited for us.
        match self.lane {
            Some(lane) => {
                let writers = &self.gate.own[lane].writers;
                writers.store(writers.load(Ordering::Relaxed) - 1, Ordering::Release);
            }
            None => {
                self.gate.shared.writers.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // Release, with the load in `enter`: later writers see what was done alone.
        self.gate.closed.store(false, Ordering::Release);
    }
}
