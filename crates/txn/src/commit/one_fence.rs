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

use super::collect::{log_bytes, put, wait};
use super::leasing::{LogUser, Logs};
use crate::sink::{RedoLog, RedoSink, UnitSize, Writes};
use mangrove_shadow::{Error, Order, Shadow, Ticket};
use std::sync::Arc;

/// The redo log with one fence a commit.
#[derive(Debug)]
pub struct OneFence {
    logs: Logs,
}

impl OneFence {
    /// The redo log in a shadow on dax or emulated.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>) -> Self {
        Self { logs: Logs::new(shadow) }
    }

    /// Which commits survive a crash.
    pub(super) fn order(&self) -> Order {
        self.logs.shadow().order()
    }
}

impl RedoLog for OneFence {
    type Sink<'log> = OneFenceSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> OneFenceSink<'_> {
        OneFenceSink { shadow: self.logs.shadow(), user: self.logs.user(), state: State::Idle }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.logs.shadow().committed().0
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
    shadow: &'log Shadow,
    user: LogUser<'log>,
    state: State,
}

impl RedoSink for OneFenceSink<'_> {
    type Error = Error;

    fn withdraw(&mut self) {
        // Undone between `put` and `number`, if anything was put.
        self.user.clear();
        self.user.give_back();
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        self.user.lease().make_room(log_bytes(size))
    }

    #[inline(always)]
    fn put(&mut self, writes: &impl Writes) -> Result<(), Error> {
        put(self.user.lease(), writes)
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        let ticket = self.user.leased().number().expect("a ring draws numbers without fail");
        self.state = State::Numbered(ticket);
        ticket.0
    }

    #[inline(always)]
    fn number_alone(&mut self) -> u64 {
        let ticket = self.user.leased().number_alone().expect("a ring draws numbers without fail");
        self.state = State::Numbered(ticket);
        ticket.0
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        self.user.leased().seal();
        Ok(())
    }

    fn void(&mut self) {
        self.user.leased().void();
        self.state = State::Void;
    }

    fn number_void(&mut self) -> u64 {
        let lease = self.user.lease();
        if !lease.is_empty() {
            lease.clear();
        }
        if lease.reserve().is_err() {
            self.state = State::Idle;
            return self.user.leased().skip().0;
        }
        let number = self.number();
        self.void();
        number
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<(), Error> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Idle {
            self.user.give_back();
            return Ok(());
        }
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        let lease = self.user.leased();
        let flushed = lease.flush();
        lease.publish();
        self.user.give_back();
        flushed?;
        match state {
            State::Numbered(ticket) => wait(self.shadow, ticket),
            State::Void | State::Idle => Ok(()),
        }
    }

    #[inline(always)]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        wait(self.shadow, Ticket(number))
    }
}
