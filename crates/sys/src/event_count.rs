//! A gate at which threads sleep until it is opened next (an event count on a futex).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Threads take a ticket, look whether they need to sleep, and sleep until the gate is opened
/// after the ticket was taken: no wake-up is lost between the look and the sleep.
#[derive(Debug, Default)]
pub struct Gate {
    word: AtomicU32,
}

impl Gate {
    /// A gate that was never opened.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// A ticket: openings from now on end a wait with it.
    #[inline]
    #[must_use]
    pub fn ticket(&self) -> u32 {
        // Acquire pairs with the Release in `open`: what was done before an opening is seen by
        // who takes a ticket after it.
        self.word.load(Ordering::Acquire)
    }

    /// Sleeps until the gate has been opened after `ticket` was taken.
    pub fn wait(&self, ticket: u32) {
        // Acquire pairs with the Release in `open`.
        while self.word.load(Ordering::Acquire) == ticket {
            futex_wait(&self.word, ticket, None);
        }
    }

    /// Sleeps until the gate is opened or about `limit` has passed; true when it was opened.
    pub fn wait_for(&self, ticket: u32, limit: Duration) -> bool {
        let end = std::time::Instant::now() + limit;
        // Acquire pairs with the Release in `open`.
        while self.word.load(Ordering::Acquire) == ticket {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            futex_wait(&self.word, ticket, Some(left));
        }
        true
    }

    /// Opens the gate for everybody who has a ticket.
    pub fn open(&self) {
        self.advance();
        self.wake();
    }

    /// First half of `open`: tickets taken from here on are not served by it. Cheap enough to be
    /// done under a lock.
    #[inline]
    pub fn advance(&self) {
        // Release pairs with the Acquire of `ticket` and `wait`.
        self.word.fetch_add(1, Ordering::Release);
    }

    /// Second half of `open`: wakes the sleepers.
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
    // Any answer (woken, value changed, interrupted, timed out) sends the caller back to its check.
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
    use super::Gate;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn an_opening_ends_every_wait_and_none_is_lost() {
        let (gate, ready) = (Gate::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let ticket = gate.ticket();
                        if ready.load(Ordering::Acquire) {
                            break;
                        }
                        gate.wait(ticket);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5));
            ready.store(true, Ordering::Release);
            gate.open();
        });
        assert!(!gate.wait_for(gate.ticket(), Duration::from_millis(2)), "nobody opened it");
    }
}
