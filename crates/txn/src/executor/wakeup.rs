//! How transactions that called `retry` sleep until something that they read has changed.
//!
//! A sleeper first counts itself, then looks whether anything has changed, then sleeps; a committer first makes its
//! writes visible, then looks whether a sleeper is counted. Between its two steps each side has a barrier, so that
//! at least one of the two sees the other.

use crate::sync::{AtomicU32, EventCount, Ordering, fence, limit};

/// After this time a sleeper's body runs again although nothing that it read has changed: it may watch a clock.
const SLEEP_MILLISECONDS_MAX: u64 = 20;

/// Transactions that sleep, and the event that wakes them.
#[derive(Debug)]
pub(crate) struct Wakeups {
    sleepers: AtomicU32,
    commits: EventCount,
}

impl Wakeups {
    pub(crate) fn new() -> Self {
        Self { sleepers: AtomicU32::new(0), commits: EventCount::new() }
    }

    /// Whether a transaction sleeps or is about to. The caller has passed a barrier after its writes.
    #[inline(always)]
    pub(crate) fn needed(&self) -> bool {
        // Relaxed: the barrier orders it after the writes.
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// A commit has become visible, or the mode has changed: wakes those that sleep, if there are any. The commit's way
    /// where no other barrier stands after its writes.
    pub(crate) fn wake_after_commit(&self) {
        // Between the writes and the look for sleepers; pairs with the barrier of a sleeper.
        fence(Ordering::SeqCst);
        if self.needed() {
            self.wake();
        }
    }

    /// Wakes all sleepers; each looks for itself.
    #[cold]
    pub(crate) fn wake(&self) {
        self.commits.notify_all();
    }

    /// For a sleeper that cannot tell by a number whether anything has changed since it ran: it runs once more, and
    /// then waits. What was committed before this call that run sees, and what is committed later ends the wait.
    pub(crate) fn watch(&self) -> Watch<'_> {
        self.join();
        // Pairs with the fence in `wake_after_commit`.
        fence(Ordering::SeqCst);
        Watch { wakeups: self, ticket: self.commits.ticket() }
    }

    /// The caller is about to sleep; `sleep` must follow, after a barrier.
    pub(crate) fn join(&self) {
        // Relaxed: the barrier orders it before what `changed` loads.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps until `changed`, or for [`SLEEP_MILLISECONDS_MAX`].
    pub(crate) fn sleep(&self, changed: impl Fn() -> bool) {
        loop {
            let ticket = self.commits.ticket();
            if changed() || !self.commits.wait_for(ticket, limit(SLEEP_MILLISECONDS_MAX)) {
                break;
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A transaction that is counted as a sleeper, and runs once more before it sleeps.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    wakeups: &'a Wakeups,
    ticket: u32,
}

impl Watch<'_> {
    /// Sleeps until a commit after `watch`, or for [`SLEEP_MILLISECONDS_MAX`].
    pub(crate) fn wait(self) {
        self.wakeups.commits.wait_for(self.ticket, limit(SLEEP_MILLISECONDS_MAX));
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.wakeups.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
