//! The thread that waits for durability, so that event loops need not.
//!
//! Event loops say which ticket their clients' answers wait for, and continue. This thread waits until it is durable
//! (one group commit for everything committed meanwhile) and wakes the loops that asked.
//!
//! Invariants:
//! 1. A loop that has listened and asked for a ticket, and then finds it not durable and the medium not failed, is
//!    woken after it has become durable, or after the medium failed.
//! 2. `run` sleeps only when it has waited for every ticket that was asked for.

use crate::sync::{AtomicBool, AtomicU64, EventCount, Ordering, barrier_after_rmw};

pub(crate) struct Syncer {
    wanted: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    gate: EventCount,
}

/// Whether an event loop is to be woken.
pub(crate) struct DurabilityListener(AtomicBool);

impl DurabilityListener {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// From now on the loop is woken for whatever becomes durable. Call [`Syncer::want`] next.
    pub(crate) fn listen(&self) {
        self.0.swap(true, Ordering::SeqCst);
    }

    /// True once for each call of `listen`; the thread that gets it wakes the loop.
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
            gate: EventCount::new(),
        }
    }

    /// Asks for everything up to `ticket`. Does not wait. A loop that listens then checks whether the ticket is
    /// durable already, or the medium failed: either may have happened before it listened.
    pub(crate) fn want(&self, ticket: u64) {
        self.wanted.fetch_max(ticket, Ordering::SeqCst);
        // Pairs with the one in `run`: either `run` sees the ticket, or this thread sees it asleep.
        barrier_after_rmw();
        if self.asleep.load(Ordering::SeqCst) {
            self.gate.notify_all();
        }
    }

    /// Ends `run` once every ticket that was asked for is served.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.gate.notify_all();
    }

    /// Serves tickets until `end` is called. `wait` returns when a ticket is durable or never will be; `wake` is
    /// called after each.
    pub(crate) fn run(&self, wait: impl Fn(u64), wake: impl Fn()) {
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
                wake();
            } else if self.ended.load(Ordering::SeqCst) {
                return;
            } else {
                self.gate.wait(ticket);
            }
        }
    }
}
