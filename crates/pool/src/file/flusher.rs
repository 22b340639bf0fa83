//! Who writes what no thread waits for: a thread that sleeps until there is such a thing.
//!
//! Invariants:
//! 1. What was appended before [`Flusher::note`] is durable about the limit later, unless the pool has failed or ended
//!    by then. The flusher clears `noted` before it reads, under the log's lock, up to where it flushes. So a thread
//!    that appends after that finds `noted` false, and wakes the flusher.
//! 2. While nothing is noted the flusher sleeps without a limit.
//! 3. The flusher writes nothing after the pool has ended.
//! 4. A thread that asks, or waits for what it asked for, takes no lock.

use crate::config::Durability;
use crate::log::ring::Log;
use crate::sync::{AtomicBool, EventCount, Ordering};
use crate::{Lsn, PoolConfig};
use std::time::{Duration, Instant};

/// What a thread that does not wait, and the thread that flushes for it, know of each other.
pub(crate) struct Flusher {
    /// Time between two looks at the log; zero: it flushes nothing by itself.
    window: Duration,
    /// No thread waits for anything, so every append is noted.
    pub(crate) notes_all: bool,
    /// Something was appended that no thread waits for. Always set where nothing is flushed, so that no thread wakes
    /// the flusher.
    noted: AtomicBool,
    /// A thread wants everything flushed now.
    asked: AtomicBool,
    /// Notified when something was noted, or was asked for, or when the flusher shall end.
    wake: EventCount,
    /// Notified after each flush.
    flushed: EventCount,
}

impl Flusher {
    /// The flusher of a pool that is opened with `config`. With `runs` false no thread calls [`Flusher::run`].
    pub(crate) fn new(config: &PoolConfig, runs: bool) -> Self {
        let (window, notes_all) = match config.durability {
            // A write is seen in one window and flushed at the end of the next. Half, rounded up: zero means never.
            Durability::Sync => (config.nowait_within - config.nowait_within / 2, false),
            Durability::Interval(_) => (Duration::from_millis(config.durability.milliseconds().into()), true),
        };
        let flushes = runs && !window.is_zero();
        Self {
            window,
            notes_all,
            noted: AtomicBool::new(!flushes),
            asked: AtomicBool::new(false),
            wake: EventCount::new(),
            flushed: EventCount::new(),
        }
    }

    /// No thread waits for what the caller has appended so far.
    #[inline]
    pub(crate) fn note(&self) {
        // Relaxed: the log's lock orders it after the append, and with the flusher's store (invariant 1).
        if !self.noted.load(Ordering::Relaxed) {
            self.note_first();
        }
    }

    #[cold]
    fn note_first(&self) {
        // Relaxed: the event publishes it.
        if !self.noted.swap(true, Ordering::Relaxed) {
            self.wake.notify_all();
        }
    }

    /// Has the flusher flush everything now.
    pub(crate) fn ask(&self) {
        // Release pairs with the Acquire in `run`.
        self.asked.store(true, Ordering::Release);
        self.wake.notify_all();
    }

    /// Waits until `is_done`, which a flush or a failure of the pool brings about, or until `end`.
    pub(crate) fn wait_until(&self, end: Instant, is_done: impl Fn() -> bool) {
        loop {
            let ticket = self.flushed.ticket();
            let left = end.saturating_duration_since(Instant::now());
            if is_done() || left.is_zero() {
                return;
            }
            self.flushed.wait_for(ticket, left);
        }
    }

    /// Has the flusher look at `has_ended`, and every thread that waits at `is_done`.
    pub(crate) fn stop(&self) {
        self.wake.notify_all();
        self.flushed.notify_all();
    }

    /// Makes durable what is noted, by `flush`, until `has_ended`.
    pub(crate) fn run(&self, log: &Log, has_ended: impl Fn() -> bool, flush: impl Fn(Lsn)) {
        loop {
            let ticket = self.wake.ticket();
            if has_ended() {
                return;
            }
            // Acquire pairs with the Release in `ask`.
            if !self.asked.swap(false, Ordering::Acquire) && !self.is_time(log, ticket) {
                continue;
            }
            if !self.window.is_zero() {
                // Relaxed: see `note`.
                self.noted.store(false, Ordering::Relaxed);
            }
            flush(log.appended_now());
            self.flushed.notify_all();
        }
    }

    /// Sleeps; true when what was noted is to be flushed. `ticket` was taken before the caller looked at anything
    /// else.
    fn is_time(&self, log: &Log, ticket: u32) -> bool {
        // Relaxed: a note that this misses comes after the ticket, and ends the wait.
        if self.window.is_zero() || !self.noted.load(Ordering::Relaxed) {
            self.wake.wait(ticket);
            return false;
        }
        let seen = log.appended();
        if self.wake.wait_for(ticket, self.window) {
            return false;
        }
        // Between the two, other threads wait for what they append, and keep the log moving: they need no help, and
        // what was noted after `seen` has another window.
        let durable = log.commit.durable();
        self.notes_all || durable < seen || durable >= log.appended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window, and whether the flusher does without notes.
    fn window(nowait_within: Duration) -> (Duration, bool) {
        let flusher = Flusher::new(&PoolConfig { nowait_within, ..PoolConfig::default() }, true);
        (flusher.window, flusher.noted.load(Ordering::Relaxed))
    }

    #[test]
    fn only_a_limit_of_zero_means_never() {
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(window(Duration::ZERO), (Duration::ZERO, true));
        assert_eq!(window(nanosecond), (nanosecond, false));
        assert_eq!(window(2 * nanosecond), (nanosecond, false));
        assert!(window(Duration::MAX).0 >= Duration::MAX / 2);
    }
}
