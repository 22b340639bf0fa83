//! The lines that a thread has flushed and that an emulated medium with a queue has not taken yet.
//!
//! A medium takes one line after the other, each for as long as its bandwidth says, and a line is durable one latency
//! after it was taken. A flush adds its lines and returns; a fence waits for the last of them.
//!
//! Invariants:
//! 1. A queue belongs to one thread and is no shared memory: docs/decisions/media.md says why.
//! 2. At most [`QUEUE_LINES_MAX`] lines are in it. A CPU core has some tens of write-backs under way, then the next
//!    one waits; without such a limit a thread that never fences would exceed the bandwidth.
//! 3. Nothing here executes an instruction that aborts a hardware transaction.

use mangrove_sys::{spin_ticks, ticks};
use std::cell::Cell;

/// Lines of a thread that wait for the medium. One flush more waits until the first of them has been taken.
pub(super) const QUEUE_LINES_MAX: u64 = 64;

/// The lines of one thread, as moments in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlushQueue {
    /// The last flush.
    flushed_at: u64,
    /// The medium has taken every line.
    taken_at: u64,
    /// Every line is durable.
    durable_at: u64,
}

impl FlushQueue {
    /// Adds `lines` lines at the moment `now`; each takes `line_ticks`, and is durable `latency_ticks` later. Returns
    /// for how many ticks the caller must wait until no more than [`QUEUE_LINES_MAX`] are left.
    pub(super) fn add(&mut self, now: u64, lines: u64, line_ticks: u64, latency_ticks: u64) -> u64 {
        if now < self.flushed_at {
            // Another CPU's counter, or the machine was suspended: what the queue says of the time means nothing.
            *self = Self::default();
        }
        self.flushed_at = now;
        self.taken_at = self.taken_at.max(now).saturating_add(lines.saturating_mul(line_ticks));
        self.durable_at = self.durable_at.max(self.taken_at.saturating_add(latency_ticks));
        (self.taken_at - now).saturating_sub(QUEUE_LINES_MAX.saturating_mul(line_ticks))
    }

    /// Ticks until every line is durable.
    pub(super) fn left(&self, now: u64) -> u64 {
        if now < self.flushed_at { 0 } else { self.durable_at.saturating_sub(now) }
    }
}

thread_local! {
    /// One for all media of the process: a fence waits for what its thread flushed, wherever that lies.
    static MINE: Cell<FlushQueue> = const {
        Cell::new(FlushQueue { flushed_at: 0, taken_at: 0, durable_at: 0 })
    };
}

/// The calling thread has just flushed `lines` lines.
#[inline]
pub(super) fn flushed(lines: u64, line_ticks: u64, latency_ticks: u64) {
    let mut queue = MINE.get();
    let wait = queue.add(ticks(), lines, line_ticks, latency_ticks);
    MINE.set(queue);
    if wait > 0 {
        spin_ticks(wait);
    }
}

/// Waits until everything that the calling thread flushed is durable.
#[inline]
pub(super) fn fenced() {
    let left = MINE.get().left(ticks());
    if left > 0 {
        spin_ticks(left);
    }
}

/// Ticks that a fence of the calling thread would wait.
#[cfg(test)]
pub(super) fn ticks_left() -> u64 {
    MINE.get().left(ticks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_one_after_the_other_and_durable_a_latency_later() {
        let mut queue = FlushQueue::default();
        assert_eq!(queue.left(5), 0, "nothing was flushed");
        assert_eq!(queue.add(1_000, 1, 10, 300), 0);
        assert_eq!((queue.left(1_000), queue.left(1_309), queue.left(1_310)), (310, 1, 0));
        // While the first is on its way: three more, of which the first is taken after it.
        assert_eq!(queue.add(1_004, 3, 10, 300), 0);
        assert_eq!(queue.left(1_004), 1_040 + 300 - 1_004);
        // The latency is paid once, however many lines a fence waits for, and an idle medium takes a line at once.
        assert_eq!(queue.add(2_000, 1, 10, 300), 0);
        assert_eq!((queue.left(2_000), queue.left(2_310)), (310, 0));
    }

    #[test]
    fn a_full_queue_makes_the_flush_wait_for_the_bandwidth() {
        let mut queue = FlushQueue::default();
        assert_eq!(queue.add(0, QUEUE_LINES_MAX, 10, 300), 0);
        assert_eq!(queue.add(0, 1, 10, 300), 10, "until one has been taken");
        assert_eq!(queue.add(10, 1, 10, 300), 10);
        // A thread that never fences: each flush at the moment to which the one before made it wait.
        let (mut queue, mut now) = (FlushQueue::default(), 0);
        for _ in 0..10_000 {
            now += queue.add(now, 1, 10, 300);
        }
        assert_eq!(now, (10_000 - QUEUE_LINES_MAX) * 10);
        // Many lines at once wait for all but the last ones.
        assert_eq!(FlushQueue::default().add(7, 16_384, 10, 300), (16_384 - QUEUE_LINES_MAX) * 10);
    }

    #[test]
    fn media_of_different_speed_share_the_queue_of_a_thread() {
        let mut queue = FlushQueue::default();
        queue.add(0, 1, 10, 5_000);
        queue.add(0, 1, 10, 300);
        assert_eq!(queue.left(0), 5_010, "the first line takes longer than the second");
    }

    #[test]
    fn no_queue_waits_for_a_moment_that_another_clock_named() {
        let mut queue = FlushQueue::default();
        queue.add(1 << 40, 1, 10, 300);
        assert_eq!(queue.left(1_000), 0);
        assert_eq!(queue.add(1_000, 1, 10, 300), 0);
        assert_eq!(queue.left(1_000), 310);
        assert_eq!(queue.add(u64::MAX - 5, u64::MAX, u64::MAX, 300), 0, "saturates");
    }

    #[test]
    fn threads_wait_for_their_own_lines_only() {
        // The limit of a queue's lines times a day: no test run is that slow.
        let day = mangrove_sys::ticks_per_microsecond() * 86_400_000_000 / QUEUE_LINES_MAX;
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                for _ in 0..QUEUE_LINES_MAX {
                    flushed(1, day, 0);
                }
                ticks_left()
            });
            let left = busy.join().unwrap();
            assert!(left > day * QUEUE_LINES_MAX / 2, "the flushes did not wait: {left}");
            scope.spawn(|| {
                assert_eq!(ticks_left(), 0);
                fenced();
            });
        });
    }
}
