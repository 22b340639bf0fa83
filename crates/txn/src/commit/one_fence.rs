//! Our protocol on persistent memory (media dax and emulated): dense numbers, one fence.
//!
//! 1. A number is drawn while the transaction holds its locks, so that numbers have the order of the transactions.
//! 2. The unit stands in the transaction's own log, checksum included, before the locks are released.
//! 3. One fence, after the locks are released, makes it durable.
//! 4. It is acknowledged when every smaller number is durable. So whoever saw what it wrote, and was acknowledged,
//!    waited for it; and recovery may drop everything from the first missing number on.
//!
//! SPHT (Algorithm 2) needs a second fence, for the marker: with time stamps, recovery cannot know whether one is
//! missing. docs/decisions/txn.md has the comparison.
//!
//! A thread keeps a log of its own while there are enough; the others take one for each commit, and wait while none
//! is free. Whoever has one in a commit waits for no lock, so each comes back.

use super::collect::{log_bytes, put, wait};
use crate::sink::{RedoLog, RedoSink, UnitSize, Writes};
use mangrove_shadow::{Error, LogLease, Shadow, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The redo log with one fence a commit.
#[derive(Debug)]
pub struct OneFence {
    shadow: Arc<Shadow>,
    /// Logs that threads may still keep. At least one stays for the threads that keep none.
    keepable: AtomicUsize,
}

impl OneFence {
    /// The redo log in a shadow on dax or emulated with this many logs.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>, logs: usize) -> Self {
        Self { shadow, keepable: AtomicUsize::new(logs - logs.div_ceil(8)) }
    }

    fn may_keep(&self) -> bool {
        // Relaxed: only a count.
        self.keepable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl RedoLog for OneFence {
    type Sink<'log> = OneFenceSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> OneFenceSink<'_> {
        OneFenceSink { log: self, lease: None, keeps: self.may_keep(), state: State::Idle }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.shadow.committed().0
    }
}

/// What `finish` has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Numbered(Ticket),
    Void,
}

/// One thread's way into the log.
#[derive(Debug)]
pub struct OneFenceSink<'log> {
    log: &'log OneFence,
    lease: Option<LogLease>,
    /// The lease stays between commits.
    keeps: bool,
    state: State,
}

impl OneFenceSink<'_> {
    #[inline(always)]
    fn lease(&mut self) -> &mut LogLease {
        self.lease.get_or_insert_with(|| self.log.shadow.lease())
    }

    /// The lease that `put` took.
    #[inline(always)]
    fn leased(&mut self) -> &mut LogLease {
        self.lease.as_mut().expect("the calls come in the trait's order")
    }

    #[inline(always)]
    fn give_back(&mut self) {
        if !self.keeps {
            self.lease = None;
        }
    }
}

impl RedoSink for OneFenceSink<'_> {
    type Error = Error;

    fn withdraw(&mut self) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.is_empty()) {
            // Undone between `put` and `number`.
            lease.clear();
        }
        self.give_back();
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        self.lease().make_room(log_bytes(size))
    }

    #[inline(always)]
    fn put(&mut self, writes: &impl Writes) -> Result<(), Error> {
        put(self.lease(), writes)
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        let ticket = self.leased().number().expect("a ring draws numbers without fail");
        self.state = State::Numbered(ticket);
        ticket.0
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        self.leased().seal();
        Ok(())
    }

    fn void(&mut self) {
        self.leased().void();
        self.state = State::Void;
    }

    fn number_void(&mut self) -> u64 {
        let lease = self.lease();
        if !lease.is_empty() {
            lease.clear();
        }
        if lease.reserve().is_err() {
            self.state = State::Idle;
            return self.leased().skip().0;
        }
        let number = self.number();
        self.void();
        number
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<(), Error> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Idle {
            self.give_back();
            return Ok(());
        }
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        let lease = self.leased();
        let flushed = lease.flush();
        lease.publish();
        self.give_back();
        flushed?;
        match state {
            State::Numbered(ticket) => wait(&self.log.shadow, ticket),
            State::Void | State::Idle => Ok(()),
        }
    }

    #[inline(always)]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        wait(&self.log.shadow, Ticket(number))
    }
}

impl Drop for OneFenceSink<'_> {
    fn drop(&mut self) {
        if self.keeps {
            // Relaxed: only a count.
            self.log.keepable.fetch_add(1, Ordering::Relaxed);
        }
    }
}
