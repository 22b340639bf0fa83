//! How a step passes from the thread that runs it to the others of a crew, and its end back.
//!
//! Invariants:
//! 1. What the caller of `begin` did before, the threads that it named see; what they did before `end`, a caller that
//!    saw `has_ended` sees.
//! 2. A thread that was named ends each round once, and the next begins when all have: so no round is missed.

use crate::sync::{AtomicBool, AtomicU64, EventCount, Ordering};

/// Rounds of some threads, which have numbers.
pub(crate) struct ReplayRounds {
    /// For each thread: the rounds that it was named for.
    given: Box<[AtomicU64]>,
    /// Threads that have not ended the round.
    left: AtomicU64,
    is_over: AtomicBool,
    /// Notified when a round begins, or none will any more.
    begun: EventCount,
    /// Notified when the last thread has ended the round.
    ended: EventCount,
}

impl ReplayRounds {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            given: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            left: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            begun: EventCount::new(),
            ended: EventCount::new(),
        }
    }

    /// Begins a round of these threads. The last one has ended.
    pub(crate) fn begin(&self, threads: impl Iterator<Item = usize> + Clone) {
        // Relaxed: the Release below follows.
        self.left.store(threads.clone().count() as u64, Ordering::Relaxed);
        for thread in threads {
            // Release pairs with the Acquire in `next`.
            self.given[thread].fetch_add(1, Ordering::Release);
        }
        self.begun.notify_all();
    }

    /// Waits for the next round of a thread that has ended `seen` of them; false when there will be none.
    pub(crate) fn next(&self, thread: usize, seen: &mut u64) -> bool {
        loop {
            let ticket = self.begun.ticket();
            // Acquire pairs with the Release in `begin`.
            if self.given[thread].load(Ordering::Acquire) != *seen {
                *seen += 1;
                return true;
            }
            // Relaxed: nothing else depends on it.
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
            self.begun.wait(ticket);
        }
    }

    /// Reports that the calling thread has ended the round.
    pub(crate) fn end(&self) {
        // AcqRel pairs with the Acquire in `has_ended`, through the others' additions.
        if self.left.fetch_add(1u64.wrapping_neg(), Ordering::AcqRel) == 1 {
            self.ended.notify_all();
        }
    }

    /// Whether all threads have ended the round.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire pairs with the AcqRel in `end`.
        self.left.load(Ordering::Acquire) == 0
    }

    /// Sleeps until all threads have ended the round.
    pub(crate) fn wait(&self) {
        loop {
            let ticket = self.ended.ticket();
            if self.has_ended() {
                return;
            }
            self.ended.wait(ticket);
        }
    }

    /// There will be no further round.
    pub(crate) fn stop(&self) {
        // Relaxed: as in `next`.
        self.is_over.store(true, Ordering::Relaxed);
        self.begun.notify_all();
    }
}
