//! Who may write: any number of single writes, or one batch, range delete, check or snapshot being taken.
//!
//! Readers never come here. A writer announces itself in its lane, then looks whether the gate is closed; who
//! closes the gate does so first, then waits for the lanes to empty. Both steps are sequentially consistent, so
//! one of the two sees the other.

use crate::lane::{LANE_COUNT, lane};
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
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lanes: [Lane; LANE_COUNT],
    closed: AtomicBool,
    owner: Mutex<()>,
}

/// The right to write one record.
pub(crate) struct Ticket<'a> {
    lane: &'a Lane,
}

/// The right to write alone.
pub(crate) struct Exclusive<'a> {
    gate: &'a Gate,
    _owner: MutexGuard<'a, ()>,
}

impl Gate {
    /// Waits while the gate is closed, then keeps it from closing as long as the ticket lives.
    #[inline]
    pub(crate) fn enter(&self) -> Ticket<'_> {
        let lane = &self.lanes[lane()];
        loop {
            // SeqCst, with `close`: either we see `closed`, or it sees us.
            lane.writers.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
                return Ticket { lane };
            }
            lane.writers.fetch_sub(1, Ordering::Release);
            drop(self.owner.lock());
        }
    }

    /// Waits until nobody else writes.
    pub(crate) fn close(&self) -> Exclusive<'_> {
        let owner = self.owner.lock();
        // SeqCst, with `enter`.
        self.closed.store(true, Ordering::SeqCst);
        for lane in &self.lanes {
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
        self.lanes[lane()].records.fetch_add(delta, Ordering::Relaxed);
    }

    /// Records counted.
    pub(crate) fn records(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.records.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release, with the loads in `close`: our write is seen by who waited for us.
        self.lane.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // Release, with the load in `enter`: later writers see what was done alone.
        self.gate.closed.store(false, Ordering::Release);
    }
}
