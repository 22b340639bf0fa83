//! An event count on a futex: threads sleep until the next event after a moment that they chose.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A thread takes a ticket, checks whether it needs to sleep, and sleeps until the first event after it took the
/// ticket: an event between the check and the sleep is not lost.
#[derive(Debug, Default)]
pub struct EventCount {
    word: AtomicU32,
}

impl EventCount {
    /// An event count without events.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// A ticket: every event from now on ends a wait with it.
    #[inline]
    #[must_use]
    pub fn ticket(&self) -> u32 {
        // Acquire pairs with the Release in `advance`: a thread that takes a ticket after an event sees what was
        // done before that event.
        self.word.load(Ordering::Acquire)
    }

    /// Sleeps until there is an event after `ticket` was taken.
    pub fn wait(&self, ticket: u32) {
        // Acquire pairs with the Release in `advance`.
        while self.word.load(Ordering::Acquire) == ticket {
            futex_wait(&self.word, ticket, None);
        }
    }

    /// Sleeps until there is an event or about `limit` has passed; true when there was an event.
    pub fn wait_for(&self, ticket: u32, limit: Duration) -> bool {
        let Some(end) = std::time::Instant::now().checked_add(limit) else {
            // The clock never comes so far.
            self.wait(ticket);
            return true;
        };
        // Acquire pairs with the Release in `advance`.
        while self.word.load(Ordering::Acquire) == ticket {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            futex_wait(&self.word, ticket, Some(left));
        }
        true
    }

    /// An event: ends the wait of every thread that has a ticket.
    pub fn notify_all(&self) {
        self.advance();
        self.wake();
    }

    /// First half of `notify_all`: tickets taken from here on wait for the next event. Cheap enough to be done under
    /// a lock.
    #[inline]
    pub fn advance(&self) {
        // Release pairs with the Acquire of `ticket` and `wait`.
        self.word.fetch_add(1, Ordering::Release);
    }

    /// Second half of `notify_all`: wakes the sleeping threads.
    #[inline]
    pub fn wake(&self) {
        futex_wake_all(&self.word);
    }
}

#[cfg(target_os = "linux")]
fn futex_wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    use rustix::thread::futex;
    let timeout = limit.map(|l| futex::Timespec {
        tv_sec: i64::try_from(l.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: l.subsec_nanos().into(),
    });
    // Whatever it returns (woken, value changed, interrupted, timed out), the caller checks again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, timeout.as_ref());
}

#[cfg(target_os = "linux")]
fn futex_wake_all(word: &AtomicU32) {
    use rustix::thread::futex;
    // Waking can fail only for an address that is not ours.
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

#[cfg(not(target_os = "linux"))]
fn futex_wait(_word: &AtomicU32, _seen: u32, limit: Option<Duration>) {
    std::thread::sleep(limit.unwrap_or(Duration::from_micros(50)).min(Duration::from_micros(50)));
}

#[cfg(not(target_os = "linux"))]
fn futex_wake_all(_word: &AtomicU32) {}

#[cfg(test)]
mod tests {
    use super::EventCount;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn an_event_ends_every_wait_and_none_is_lost() {
        let (event, ready) = (EventCount::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let ticket = event.ticket();
                        if ready.load(Ordering::Acquire) {
                            break;
                        }
                        event.wait(ticket);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5));
            ready.store(true, Ordering::Release);
            event.notify_all();
        });
        assert!(!event.wait_for(event.ticket(), Duration::from_millis(2)), "there was no event");
    }

    #[test]
    fn a_limit_beyond_the_clock_is_none() {
        let event = EventCount::new();
        let ticket = event.ticket();
        event.notify_all();
        assert!(event.wait_for(ticket, Duration::MAX));
    }
}
