//! Our protocol on persistent memory (media dax and emulated): dense numbers, one fence.
//!
//! 1. A number is drawn while the transaction holds its locks, so that numbers have the order of the transactions.
//! 2. The atomic group stands in the transaction's own log, checksum included, before the locks are released.
//! 3. One fence, after the locks are released, makes it durable.
//! 4. It is acknowledged when every smaller number is durable. So a transaction that saw what it wrote, and was
//!    acknowledged, waited for it; and recovery may drop everything from the first missing number on.
//!
//! A commit that is deferred skips the fence and the wait; a later fence of its thread, or of any thread that waits
//! for its number, serves it and others. A transaction that saw what it wrote waits for it as in 4, so nothing that
//! was acknowledged depends on it before it is durable.
//!
//! SPHT (Algorithm 2) needs a second fence, for the marker: with time stamps, recovery cannot know whether one is
//! missing. docs/decisions/txn.md has the comparison.

use super::collect::{log_bytes, put, refuse_child, wait};
use super::leasing::{LogUser, Logs};
use crate::sink::{RedoLog, RedoSink, Taken, TxWrites, UnitSize};
use mangrove_shadow::{Error, Order, Shadow, Ticket};
use std::sync::Arc;

/// The redo log with one fence a commit.
#[derive(Debug)]
pub struct OneFence {
    logs: Logs,
    /// The last ticket of openings before: executors count from there, since a heap that was used with time stamps has
    /// tickets of any size, and an ownership record has no place for those.
    base: u64,
}

impl OneFence {
    /// The redo log in a shadow on dax or emulated.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>) -> Self {
        let base = shadow.committed().0;
        Self { logs: Logs::new(shadow), base }
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
        OneFenceSink {
            shadow: self.logs.shadow(),
            user: self.logs.user(),
            base: self.base,
            state: State::Idle,
        }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.logs.shadow().committed().0 - self.base
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
    /// See [`OneFence`].
    base: u64,
    state: State,
}

impl OneFenceSink<'_> {
    /// What `take` does where it cannot do it in one pass.
    #[cold]
    #[inline(never)]
    fn take_in_steps(
        &mut self,
        writes: &impl TxWrites,
        alone: bool,
        may_commit: impl Fn(u64) -> bool,
    ) -> Result<Taken, Error> {
        self.put(writes)?;
        let number = if alone { self.number_alone() } else { self.number() };
        if !may_commit(number) {
            return Ok(Taken::Numbered(number));
        }
        self.seal()?;
        Ok(Taken::Sealed(number))
    }
}

impl RedoSink for OneFenceSink<'_> {
    type Error = Error;

    fn refuse_child(&self) -> Result<(), Error> {
        refuse_child(self.shadow)
    }

    fn withdraw(&mut self) {
        // Undone between `put` and `number`, if anything was put.
        self.user.clear();
        self.user.give_back();
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        self.user.lease().make_room(log_bytes(size))
    }

    fn has_room(&self, size: UnitSize) -> bool {
        self.user.has_room(size)
    }

    #[inline(always)]
    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
        put(self.user.lease(), writes)
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        let ticket = self.user.leased().number().expect("a ring draws numbers without fail");
        self.state = State::Numbered(ticket);
        ticket.0 - self.base
    }

    #[inline(always)]
    fn number_alone(&mut self) -> u64 {
        let ticket = self.user.leased().number_alone().expect("a ring draws numbers without fail");
        self.state = State::Numbered(ticket);
        ticket.0 - self.base
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        self.user.leased().seal();
        Ok(())
    }

    #[inline(always)]
    fn seals_after_hardware(&self) -> bool {
        self.shadow.order() != Order::Gaps
    }

    #[inline(always)]
    fn take(
        &mut self,
        writes: &impl TxWrites,
        alone: bool,
        may_commit: impl Fn(u64) -> bool,
    ) -> Result<Taken, Error> {
        let word = |entry: &_| writes.word(entry);
        let base = self.base;
        if let Some(entries) = writes.as_words()
            && let Some(lease) = self.user.kept()
            && let Some((ticket, is_sealed)) =
                lease.seal_words(entries, word, alone, |ticket| may_commit(ticket.0 - base))
        {
            self.state = State::Numbered(ticket);
            let number = ticket.0 - base;
            return Ok(if is_sealed { Taken::Sealed(number) } else { Taken::Numbered(number) });
        }
        self.take_in_steps(writes, alone, may_commit)
    }

    fn void(&mut self) {
        self.user.leased().void();
        self.state = State::Void;
    }

    fn number_void(&mut self) -> u64 {
        if !self.shadow.is_here() {
            // A child of fork undoes its copy of a body. The log is its parent's, and no transaction follows here.
            self.state = State::Idle;
            return self.shadow.committed().0 - self.base + 1;
        }
        let lease = self.user.lease();
        if !lease.is_empty() {
            lease.clear();
        }
        if lease.reserve().is_err() {
            self.state = State::Idle;
            return self.user.leased().skip().0 - self.base;
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
        // Not kept in a variable: the copy of a result loads more than was stored last, and such a load waits for the
        // fence.
        match self.user.leased().finish() {
            Ok(covers_it) => {
                self.user.give_back();
                match state {
                    // The simulator knows a wait by its call.
                    State::Numbered(ticket) if cfg!(feature = "silenced-steps") || !covers_it => {
                        wait(self.shadow, ticket)
                    }
                    _ => Ok(()),
                }
            }
            Err(error) => {
                self.user.give_back();
                Err(error)
            }
        }
    }

    #[inline(always)]
    fn defer(&mut self) -> Result<u64, Error> {
        let State::Numbered(ticket) = self.state else { return self.finish().map(|()| 0) };
        self.state = State::Idle;
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        let deferred = self.user.leased().defer();
        self.user.give_back();
        deferred.map(|()| ticket.0)
    }

    #[inline(always)]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        wait(self.shadow, Ticket(number + self.base))
    }

    #[inline(always)]
    fn settle_later(&mut self, number: u64) -> Result<u64, Error> {
        Ok(number + self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_shadow::{AddressChoice, Create, Domain, Latency, Medium, Options};

    /// Years of time stamps are past what an ownership record holds.
    #[test]
    fn after_tickets_of_any_size_executors_count_from_the_opening_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shadow");
        let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::new(0, 0)));
        let options = options.address(AddressChoice::Anywhere).capacity(16 << 20).domain(Domain::Eadr);
        let options = options.order(Order::Gaps);
        let last = 1 << 60;
        let shadow = options.clone().stamped(true).open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        shadow.set_watermark(move || last);
        let mut lease = shadow.lease();
        lease.word(shadow.base() as usize, 0);
        lease.reserve().unwrap();
        lease.number_as(last);
        lease.seal();
        lease.flush().unwrap();
        lease.publish();
        drop(lease);
        shadow.close().unwrap();

        let shadow = Arc::new(options.open(&path).unwrap());
        assert!(shadow.committed() >= Ticket(last), "{:?}", shadow.committed());
        let log = OneFence::new(Arc::clone(&shadow));
        assert_eq!(log.newest(), 0);
        let mut sink = log.sink();
        assert_eq!(sink.number_void(), 1);
        sink.finish().unwrap();
        assert_eq!(log.newest(), 1);
        sink.settle(1).unwrap();
        assert!(sink.settle_later(1).unwrap() > last);
    }
}
