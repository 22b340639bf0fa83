//! The one who waits for durability, so that event loops need not.
//!
//! Event loops say which ticket their clients' answers wait for and go on; this thread has it made durable
//! (one group commit for everything committed meanwhile) and rings the loops that asked.

use crate::Runtime;
use mangrove_shadow::Ticket;
use mangrove_sys::Gate;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Syncer {
    wanted: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    gate: Gate,
}

impl Syncer {
    /// Asks for everything up to `ticket`. Does not wait.
    pub(super) fn want(&self, ticket: Ticket) {
        // SeqCst with those in `run`: either it sees the wish, or we see it asleep.
        self.wanted.fetch_max(ticket.0, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.gate.open();
        }
    }

    /// Ends `run`.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.gate.open();
    }

    /// Serves wishes until told to end; `ring` is called after each.
    pub(super) fn run(&self, runtime: &Runtime, ring: impl Fn()) {
        let mut done = 0;
        loop {
            let ticket = self.gate.ticket();
            self.asleep.store(true, Ordering::SeqCst);
            let wanted = self.wanted.load(Ordering::SeqCst);
            if wanted > done {
                self.asleep.store(false, Ordering::SeqCst);
                // An error latches in the runtime, where the loops find it.
                let _ = runtime.wait(Ticket(wanted));
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
