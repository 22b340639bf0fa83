//! The one who waits for durability, so that event loops need not.
//!
//! Event loops say which ticket their clients' answers wait for and go on; this thread has it made durable
//! (one group commit for everything committed meanwhile) and rings the loops that asked.
//!
//! Invariants:
//! 1. A loop that has listened and asked for a ticket, and then finds it not durable and the medium not failed, is rung
//!    after it has become durable, or after the medium failed.
//! 2. `run` sleeps only when every ticket that was asked for has been waited for.

use crate::sync::{AtomicBool, AtomicU64, Gate, Ordering, barrier_after_rmw};

pub(crate) struct Syncer {
    wanted: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    gate: Gate,
}

/// Whether an event loop wants to be rung.
pub(crate) struct Listener(AtomicBool);

impl Listener {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// From here on the loop is rung for whatever becomes durable; to be followed by [`Syncer::want`].
    pub(crate) fn listen(&self) {
        self.0.swap(true, Ordering::SeqCst);
    }

    /// True once for each listening, for who rings.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Syncer {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gate: Gate::new(),
        }
    }

    /// Asks for everything up to `ticket`. Does not wait. Whoever listens looks afterwards whether it is durable
    /// already, or the medium failed: that may have happened before the listening.
    pub(crate) fn want(&self, ticket: u64) {
        self.wanted.fetch_max(ticket, Ordering::SeqCst);
        // Pairs with the one in `run`: either it sees the wish, or we see it asleep.
        barrier_after_rmw();
        if self.asleep.load(Ordering::SeqCst) {
            self.gate.open();
        }
    }

    /// Ends `run` once every wish is served.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.gate.open();
    }

    /// Serves wishes until told to end: `wait` returns when a ticket is durable or never will be, `ring` is
    /// called after each.
    pub(crate) fn run(&self, wait: impl Fn(u64), ring: impl Fn()) {
        let mut done = 0;
        loop {
            let ticket = self.gate.ticket();
            self.asleep.swap(true, Ordering::SeqCst);
            barrier_after_rmw();
            let wanted = self.wanted.load(Ordering::SeqCst);
            if wanted > done {
                self.asleep.store(false, Ordering::SeqCst);
                wait(wanted);
                done = wanted;
                ring();
            } else if self.ended.load(Ordering::SeqCst) {
                return;
            } else {
                self.gate.wait(ticket);
            }
        }
    }
}
