//! How much was freed since the compaction in the background last looked, and its sleep until then.
//!
//! Writers only add to a counter, when slots become free for all lanes. They wake the sleeping thread once.

use mangrove_sys::EventCount;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `look_at` while no thread sleeps until something was freed.
const NEVER: u64 = u64::MAX;

/// The counter, and the thread that sleeps.
#[derive(Debug)]
pub(crate) struct Garbage {
    /// Bytes freed since the map was opened.
    freed: AtomicU64,
    /// The sleeping thread looks when `freed` has come so far.
    look_at: AtomicU64,
    wake: EventCount,
}

impl Garbage {
    pub(super) fn new() -> Self {
        Self { freed: AtomicU64::new(0), look_at: AtomicU64::new(NEVER), wake: EventCount::new() }
    }

    /// So many bytes have become free.
    #[inline]
    pub(super) fn add(&self, bytes: u64) {
        // SeqCst, here and in `wait`: each side stores one of the two and then looks at the other, and at least one of
        // them sees what the other has stored.
        let freed = self.freed.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if freed >= self.look_at.load(Ordering::SeqCst) {
            self.look_now();
        }
    }

    #[cold]
    fn look_now(&self) {
        // Relaxed: the event orders it.
        if self.look_at.swap(NEVER, Ordering::Relaxed) != NEVER {
            self.wake.notify_all();
        }
    }

    /// Bytes freed since the map was opened.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::SeqCst)
    }

    /// Sleeps until `at` bytes have been freed since the map was opened, or `has_ended`.
    pub(crate) fn wait(&self, at: u64, has_ended: impl Fn() -> bool) {
        loop {
            let ticket = self.wake.ticket();
            // After the ticket, and again after each event: a writer that was to end an earlier sleep may take this one
            // for it, long before so much was freed, and would leave no writer to wake the thread.
            self.look_at.store(at, Ordering::SeqCst);
            if has_ended() || self.freed() >= at {
                break;
            }
            self.wake.wait(ticket);
        }
        self.look_at.store(NEVER, Ordering::Relaxed);
    }

    /// Sleeps for `time`, or until `has_ended`.
    pub(crate) fn pause(&self, time: Duration, has_ended: impl Fn() -> bool) {
        let end = Instant::now() + time;
        loop {
            let ticket = self.wake.ticket();
            let left = end.saturating_duration_since(Instant::now());
            if has_ended() || left.is_zero() {
                return;
            }
            self.wake.wait_for(ticket, left);
        }
    }

    /// Has the sleeping thread look at its `has_ended`.
    pub(crate) fn notify(&self) {
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_sleep_ends_when_enough_was_freed_or_when_it_is_to_end() {
        let (garbage, ended) = (Garbage::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| garbage.wait(100, || ended.load(Ordering::Relaxed)));
            (0..10).for_each(|_| garbage.add(10));
            sleeper.join().unwrap();
            let sleeper = scope.spawn(|| garbage.wait(u64::MAX, || ended.load(Ordering::Relaxed)));
            ended.store(true, Ordering::Relaxed);
            garbage.notify();
            sleeper.join().unwrap();
            garbage.pause(Duration::from_secs(3600), || ended.load(Ordering::Relaxed));
        });
    }

    /// Of two writers that free enough, the second may be as late as the next sleep.
    #[test]
    fn a_writer_that_comes_late_for_one_sleep_does_not_make_the_next_endless() {
        let (garbage, looks) = (Garbage::new(), Cell::new(0));
        garbage.add(100);
        garbage.wait(100, || false);
        garbage.wait(200, || {
            let look = looks.replace(looks.get() + 1);
            // The rest of the late writer's `add`; its event ends the sleep that follows.
            if look == 0 {
                garbage.look_now();
            }
            let wakes = garbage.look_at.load(Ordering::SeqCst);
            assert!(look == 0 || wakes == 200, "no writer would wake the thread any more");
            look > 0
        });
        assert_eq!(looks.get(), 2);
    }
}
