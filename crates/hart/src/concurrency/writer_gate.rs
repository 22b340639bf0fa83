//! Which threads may write: any number of single writes, or one batch, range delete, check or new snapshot.
//!
//! Readers never pass this gate. A writer announces itself in its lane and then looks whether the gate is closed. A
//! thread that closes the gate marks it closed first and then waits until the lanes are empty. A store-load barrier
//! between the two steps, on both sides, makes at least one of the two threads see the other. For writers the barrier
//! is free ([`AsymmetricBarrier`]), because a locked instruction there may wait for the write-back of the previous
//! write (docs/decisions/writer-gate.md).
//!
//! Invariants:
//! 1. Only the thread that owns a lane stores to it, so plain loads and stores suffice to count in it. Threads beyond
//!    the first [`OWN_LANES_MAX`] share the lane after the own ones; they write one after the other.
//! 2. While an [`ExclusivePermit`] lives, every lane is 0, or a writer that has seen the closed gate is about to
//!    reset it.
//! 3. So what is kept for a lane elsewhere (the allocator's caches) belongs to the holder of that lane's permit, or
//!    to the holder of the exclusive permit. A [`LaneToken`] stands for that right.

use crate::concurrency::lane::{OWN_LANES_MAX, lanes_ever_owned, own_lane};
use crate::concurrency::pause::pause;
use mangrove_sys::AsymmetricBarrier;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The lane of threads that have none of their own.
const SHARED_LANE: usize = OWN_LANES_MAX;
/// The lane of the thread that has closed the gate.
const EXCLUSIVE_LANE: usize = OWN_LANES_MAX + 1;
/// Lanes for which other modules may keep something.
pub(crate) const LANE_COUNT: usize = OWN_LANES_MAX + 2;

/// The right to what is kept for one lane. While it lives, no other thread has that right.
#[derive(Debug)]
pub(crate) struct LaneToken<'a> {
    number: usize,
    _right: std::marker::PhantomData<(&'a (), *const ())>,
}

impl LaneToken<'_> {
    /// Number of the lane, below [`LANE_COUNT`].
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// True when the gate is closed and this is the lane of the thread that closed it.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.number == EXCLUSIVE_LANE
    }
}

/// On a pair of cache lines of its own, because the processor fetches adjacent lines together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneCount {
    writers: AtomicU64,
    /// Records inserted minus records removed by threads of this lane.
    records: AtomicI64,
}

/// The gate that every writer passes.
#[derive(Debug)]
pub(crate) struct WriterGate {
    lanes: Box<[LaneCount]>,
    /// Held by the one thread that uses the shared lane.
    shared: Mutex<()>,
    closed: AtomicBool,
    owner: Mutex<()>,
    barrier: AsymmetricBarrier,
}

/// The right to write one record. It cannot be sent to another thread, because it belongs to its thread's lane.
pub(crate) struct WriterPermit<'a> {
    gate: &'a WriterGate,
    lane: usize,
    _shared: Option<MutexGuard<'a, ()>>,
    _here: std::marker::PhantomData<*const ()>,
}

/// The right to write while no other thread does.
pub(crate) struct ExclusivePermit<'a> {
    gate: &'a WriterGate,
    _owner: MutexGuard<'a, ()>,
}

impl WriterGate {
    /// An open gate.
    pub(crate) fn new(barrier: AsymmetricBarrier) -> Self {
        Self {
            lanes: (0..LANE_COUNT).map(|_| LaneCount::default()).collect(),
            shared: Mutex::default(),
            closed: AtomicBool::new(false),
            owner: Mutex::default(),
            barrier,
        }
    }

    /// Replaces the barrier, while no other thread has the gate.
    pub(crate) fn set_barrier(&mut self, barrier: AsymmetricBarrier) {
        self.barrier = barrier;
    }

    /// Waits while the gate is closed. The gate does not close as long as the permit lives.
    #[inline]
    pub(crate) fn enter(&self) -> WriterPermit<'_> {
        match own_lane() {
            Some(lane) => {
                self.pass(lane);
                // Built in place: a copy would wait in the store buffer for the fence of the previous write.
                WriterPermit { gate: self, lane, _shared: None, _here: std::marker::PhantomData }
            }
            None => self.enter_shared(),
        }
    }

    #[cold]
    fn enter_shared(&self) -> WriterPermit<'_> {
        let shared = Some(self.shared.lock());
        self.pass(SHARED_LANE);
        WriterPermit { gate: self, lane: SHARED_LANE, _shared: shared, _here: std::marker::PhantomData }
    }

    /// Enters by a lane that no other thread has.
    #[inline]
    fn pass(&self, lane: usize) {
        let writers = &self.lanes[lane].writers;
        loop {
            writers.store(writers.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Partner is `heavy` in `close`: either this thread sees `closed`, or the closing thread sees this lane.
            self.barrier.light();
            // SeqCst (a plain load on x86): partner is the store in `close`.
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
        // Release: partners are the loads in `close`. The thread that waited for this lane sees its writes.
        writers.store(writers.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Waits until no other thread writes, and keeps new writers out until the permit is dropped.
    pub(crate) fn close(&self) -> ExclusivePermit<'_> {
        let owner = self.owner.lock();
        // SeqCst: partner is the load in `pass`.
        self.closed.store(true, Ordering::SeqCst);
        self.barrier.heavy();
        for lane in self.lanes() {
            let mut tries = 0u32;
            while lane.writers.load(Ordering::SeqCst) != 0 {
                pause(&mut tries);
            }
        }
        ExclusivePermit { gate: self, _owner: owner }
    }

    /// The lanes of all threads that the caller is ordered after.
    fn lanes(&self) -> impl Iterator<Item = &LaneCount> {
        let (own, others) = self.lanes.split_at(OWN_LANES_MAX);
        own[..lanes_ever_owned()].iter().chain(others)
    }

    /// Adds `delta` to the records that this lane counts.
    #[inline]
    pub(crate) fn add_records(&self, lane: &LaneToken<'_>, delta: i64) {
        let records = &self.lanes[lane.number].records;
        // Release: partner is the load in `records`. Who counts a record sees that its write has begun.
        records.store(records.load(Ordering::Relaxed) + delta, Ordering::Release);
    }

    /// Records inserted minus records removed, over all lanes. They are read one after the other, and a writer counts
    /// after other threads can see what it did: beside writers the sum is off by at most what they do meanwhile.
    pub(crate) fn records(&self) -> u64 {
        // Acquire: partner is the store in `add_records`.
        self.lanes().map(|lane| lane.records.load(Ordering::Acquire)).sum::<i64>().max(0) as u64
    }
}

impl WriterPermit<'_> {
    /// The lane that belongs to the permit.
    #[inline]
    pub(crate) fn lane(&self) -> LaneToken<'_> {
        LaneToken { number: self.lane, _right: std::marker::PhantomData }
    }
}

impl ExclusivePermit<'_> {
    /// The lane of the exclusive permit. Its holder may also take what is kept for other lanes.
    #[inline]
    pub(crate) fn lane(&self) -> LaneToken<'_> {
        LaneToken { number: EXCLUSIVE_LANE, _right: std::marker::PhantomData }
    }
}

impl Drop for WriterPermit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.lane);
    }
}

impl Drop for ExclusivePermit<'_> {
    fn drop(&mut self) {
        // Release: partner is the load in `pass`. Later writers see what was done under the exclusive permit.
        self.gate.closed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_testkit::process::{is_asleep, own_thread};
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    #[test]
    fn who_closes_the_gate_waits_for_the_writes_under_way() {
        let gate = WriterGate::new(AsymmetricBarrier::detect());
        let permit = gate.enter();
        let is_alone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _exclusive = gate.close();
                is_alone.store(true, Ordering::SeqCst);
            });
            while !gate.closed.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            for _ in 0..10_000 {
                assert!(!is_alone.load(Ordering::SeqCst), "a write is under way");
                std::thread::yield_now();
            }
            drop(permit);
        });
        assert!(is_alone.load(Ordering::SeqCst));
    }

    #[test]
    fn who_closes_the_gate_sleeps_while_a_write_takes_long() {
        // A barrier without a system call, in which the thread could be seen asleep.
        let gate = WriterGate::new(AsymmetricBarrier::full());
        let permit = gate.enter();
        let (thread, is_alone, begun) = (OnceLock::new(), AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                thread.set(own_thread()).unwrap();
                let _exclusive = gate.close();
                is_alone.store(true, Ordering::SeqCst);
            });
            let is_closed = || gate.closed.load(Ordering::SeqCst);
            while !(is_closed() && thread.get().is_some_and(|thread| is_asleep(thread))) {
                assert!(begun.elapsed() < Duration::from_secs(300), "it does not sleep");
                std::thread::yield_now();
            }
            assert!(!is_alone.load(Ordering::SeqCst), "a write is under way");
            drop(permit);
        });
        assert!(is_alone.load(Ordering::SeqCst));
    }

    #[test]
    fn a_closed_gate_keeps_writers_out() {
        let gate = WriterGate::new(AsymmetricBarrier::detect());
        let (thread, has_entered) = (OnceLock::new(), AtomicBool::new(false));
        let (exclusive, begun) = (gate.close(), Instant::now());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                thread.set(own_thread()).unwrap();
                let _permit = gate.enter();
                has_entered.store(true, Ordering::SeqCst);
            });
            while !writer.is_finished() && !thread.get().is_some_and(|thread| is_asleep(thread)) {
                assert!(begun.elapsed() < Duration::from_secs(300), "it neither waits nor enters");
                std::thread::yield_now();
            }
            assert!(!has_entered.load(Ordering::SeqCst), "a write began");
            drop(exclusive);
        });
        assert!(has_entered.load(Ordering::SeqCst));
    }
}
