//! Our protocol on the file medium: all threads share the pool's one log, and one device write commits many.
//!
//! The log draws its number when it takes an atomic group, but an executor checks what it read between the two. So
//! the transactions' numbers are a clock of their own, and a lock held from the number to the atomic group gives
//! the log the clock's order. A table tells for each of the last numbers how far the log must be durable for it.
//!
//! 1. `number` to `seal` (or `void`) excludes other commits: the log has the order of the numbers.
//! 2. The log has taken an atomic group before the locks of its transaction are released.
//! 3. An atomic group is acknowledged, and readers return what it wrote, when the log is durable up to it. The log
//!    becomes durable in order, so all that it depends on is durable, too.

use super::collect::{put, refuse_child, wait};
use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use crate::sync::{AtomicU64, Ordering, RawLock, RawMutex};
use mangrove_shadow::{Error, LogLease, Shadow, Ticket};
use std::sync::Arc;

/// Numbers for which the table tells the log's ticket. For an older one it gives a later ticket.
const TICKETS: usize = 1024;

/// The redo log of a shadow on the file medium.
pub struct Group {
    shadow: Arc<Shadow>,
    clock: Clock,
    turn: RawMutex,
    /// By number: the log's last ticket when that number was done.
    tickets: Box<[AtomicU64; TICKETS]>,
}

/// On cache lines of its own (two: the prefetcher fetches pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Clock(AtomicU64);

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Group {
    /// The redo log in a shadow on the file medium.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>) -> Self {
        Self {
            shadow,
            clock: Clock(AtomicU64::new(0)),
            turn: RawMutex::INIT,
            tickets: Box::new([const { AtomicU64::new(0) }; TICKETS]),
        }
    }

    fn ticket(&self, number: u64) -> &AtomicU64 {
        &self.tickets[number as usize % TICKETS]
    }

    /// How far the log must be durable for what `number` wrote.
    fn needed(&self, number: u64) -> Ticket {
        // Acquire pairs with the Release in `end_turn`.
        Ticket(self.ticket(number).load(Ordering::Acquire))
    }
}

impl RedoLog for Group {
    type Sink<'log> = GroupSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> GroupSink<'_> {
        GroupSink { log: self, lease: self.shadow.lease(), number: None, ticket: None }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        // Acquire pairs with the Release in `number`.
        self.clock.0.load(Ordering::Acquire)
    }
}

/// One thread's way into the log.
#[derive(Debug)]
pub struct GroupSink<'log> {
    log: &'log Group,
    lease: LogLease,
    /// The number drawn, while the turn is ours.
    number: Option<u64>,
    /// What `finish` waits for.
    ticket: Option<Ticket>,
}

impl GroupSink<'_> {
    /// Ends our turn: `ticket` of the log is what our number needs.
    fn end_turn(&mut self, ticket: Ticket) {
        let Some(number) = self.number.take() else { return };
        // Release pairs with the Acquire in `needed`. Tickets grow with numbers, since turns exclude each other.
        self.log.ticket(number).store(ticket.0, Ordering::Release);
        // SAFETY: `number` locked it, in this thread, and it is unlocked once for each number.
        unsafe { self.log.turn.unlock() };
    }

    fn append(&mut self) -> Result<Ticket, Error> {
        let ticket = self.lease.number()?;
        self.lease.seal();
        self.lease.flush()?;
        self.lease.publish();
        Ok(ticket)
    }
}

impl RedoSink for GroupSink<'_> {
    type Error = Error;

    fn refuse_child(&self) -> Result<(), Error> {
        refuse_child(&self.log.shadow)
    }

    fn withdraw(&mut self) {
        self.end_turn(self.log.shadow.committed());
        self.lease.clear();
    }

    fn prepare(&mut self, _size: UnitSize) -> Result<(), Error> {
        Ok(())
    }

    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
        put(&mut self.lease, writes)
    }

    fn number(&mut self) -> u64 {
        self.log.turn.lock();
        // Relaxed: only the holder of the turn stores.
        let number = self.log.clock.0.load(Ordering::Relaxed) + 1;
        // A reader may see the number before `end_turn`. What it has read is of commits before. Relaxed: the holder of
        // the turn before stored it. Release pairs with the Acquire in `needed`.
        let before = self.log.ticket(number - 1).load(Ordering::Relaxed);
        self.log.ticket(number).store(before, Ordering::Release);
        // Release pairs with the Acquire in `newest`: a thread that sees the number sees our locks.
        self.log.clock.0.store(number, Ordering::Release);
        self.number = Some(number);
        number
    }

    fn seal(&mut self) -> Result<(), Error> {
        let appended = self.append();
        match &appended {
            Ok(ticket) => self.end_turn(*ticket),
            Err(_) => {
                self.lease.clear();
                self.end_turn(self.log.shadow.committed());
            }
        }
        self.ticket = Some(appended?);
        Ok(())
    }

    fn void(&mut self) {
        self.lease.clear();
        self.end_turn(self.log.shadow.committed());
    }

    fn number_void(&mut self) -> u64 {
        if !self.log.shadow.is_here() {
            // As in `one_fence.rs`. A thread of the parent's may have had the turn.
            return self.log.newest() + 1;
        }
        let number = self.number();
        self.void();
        number
    }

    fn finish(&mut self) -> Result<(), Error> {
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        self.ticket.take().map_or(Ok(()), |ticket| wait(&self.log.shadow, ticket))
    }

    /// The medium soon writes by itself what no thread waits for, and takes no more while its log is full.
    fn defer(&mut self) -> Result<u64, Error> {
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        Ok(self.ticket.take().map_or(0, |ticket| ticket.0))
    }

    fn settle(&mut self, number: u64) -> Result<(), Error> {
        wait(&self.log.shadow, self.log.needed(number))
    }

    fn settle_later(&mut self, number: u64) -> Result<u64, Error> {
        Ok(self.log.needed(number).0)
    }
}

impl Drop for GroupSink<'_> {
    fn drop(&mut self) {
        self.end_turn(self.log.shadow.committed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_shadow::{AddressChoice, Create, Medium, Options};

    /// A reader sees the number first.
    #[test]
    fn a_number_that_was_just_drawn_needs_what_was_committed_before() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options::new().medium(Medium::File).create(Create::IfMissing).address(AddressChoice::Anywhere);
        let log = Group::new(Arc::new(Shadow::open(dir.path().join("shadow"), &options).unwrap()));
        let (mut first, mut second) = (log.sink(), log.sink());
        first.number();
        first.end_turn(Ticket(77));
        second.number();
        assert_eq!(log.needed(log.newest()), Ticket(77));
        second.void();
    }
}
