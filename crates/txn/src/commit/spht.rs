//! SPHT (Castro, Baldassin, Barreto, Romano, FAST 2021) as Algorithm 2 of the SPHT-eADR dissertation has it, for
//! persistent memory with volatile caches: commits are ordered by time stamps, and a durable marker tells what is
//! complete. l. are the algorithm's lines; `precedence.rs` has l.1, and l.25 to l.43.
//!
//! Durable-order: an atomic group before its persist bit (l.21, l.22), the atomic groups of all earlier stamps
//! before the marker (l.27, l.36), and the marker before the call returns (l.38, l.43). A crash before the marker
//! is durable loses the commit, and everything that read what it wrote, since that has a larger stamp. Recovery
//! applies the whole atomic groups up to the marker.
//!
//! What the text leaves open, and what is different here (docs/decisions/txn.md has the reasons):
//!
//! - l.1: a slot without a transaction shows a set bit: `withdraw`, and the drop of a sink, set it. A commit that is
//!   visible is completed by the next call, or by the drop, if a panic came between l.15 and l.22.
//! - l.11: the log takes what was written after the hardware commit, from the writes in DRAM. So it may use stores
//!   that no hardware transaction can hold, and the log's lines are not in the write set. The marker makes this
//!   safe: no atomic group counts before l.22.
//! - l.17 to l.19: a reader waits until what it saw is durable.
//! - l.21: space in the log is made before l.8 (`prepare`, `put`).
//! - On the lock path l.5 to l.8 come when the body has ended. No attempt commits while the lock is held, so no
//!   transaction could read what was stored; and the thread may wait for space in the log before that.

use super::collect::{is_left_out, log_bytes, put, refuse_child};
use super::leasing::{LogUser, Logs};
use super::precedence::Precedence;
use super::stamp_clock::StampClock;
use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use mangrove_shadow::{Error, Shadow};
use std::sync::Arc;

/// The redo log of Algorithm 2.
#[derive(Debug)]
pub struct Spht {
    logs: Logs,
    clock: StampClock,
    precedence: Precedence,
}

impl Spht {
    /// The redo log in a shadow on dax or emulated that was opened with time stamps and a marker.
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        let last = shadow.committed().0;
        let precedence = Precedence::new(shadow.stat().logs, last);
        Self { logs: Logs::new(shadow), clock: StampClock::after(last), precedence }
    }

    /// The error of a medium that has failed: then a wait for another thread is in vain.
    fn alive(&self) -> Result<(), Error> {
        #[cfg(feature = "silenced-steps")]
        if crate::lab::waits_in_vain() {
            return Err(Error::Poisoned { first: "a commit waits for what no thread will do".into() });
        }
        self.logs.shadow().poisoned().map_or(Ok(()), Err)
    }
}

impl RedoLog for Spht {
    type Sink<'log> = SphtSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = false;

    fn is_stamped(&self) -> bool {
        true
    }

    fn sink(&self) -> SphtSink<'_> {
        SphtSink { log: self, user: self.logs.user(), state: State::Idle }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.clock.now()
    }
}

/// Where this thread's slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its bit is set.
    Idle,
    Announced,
    /// Stamped: visible in memory, if the executor does not call `void`.
    Stamped(u64),
}

/// One thread's way into the log.
#[derive(Debug)]
pub struct SphtSink<'log> {
    log: &'log Spht,
    user: LogUser<'log>,
    state: State,
}

impl SphtSink<'_> {
    /// Completes a commit between whose visibility and `finish` the thread panicked: others may have read it.
    #[inline(always)]
    fn complete(&mut self) {
        if matches!(self.state, State::Stamped(_)) {
            // A medium that failed is reported by the next call.
            let _ = self.finish();
        }
    }
}

impl RedoSink for SphtSink<'_> {
    type Error = Error;

    fn refuse_child(&self) -> Result<(), Error> {
        refuse_child(self.log.logs.shadow())
    }

    /// BEGINTX
    #[inline]
    fn announce(&mut self) {
        let slot = self.user.leased().log();
        self.log.precedence.begin(slot, self.log.clock.now()); // l.5 to l.8
        self.state = State::Announced;
        // l.9, l.10 and l.12 are the executor's.
    }

    fn withdraw(&mut self) {
        if self.state == State::Announced {
            self.log.precedence.leave(self.user.leased().log());
            self.state = State::Idle;
        }
        self.user.clear();
        self.user.give_back();
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        self.complete();
        self.user.lease().make_room(log_bytes(size))
    }

    fn has_room(&self, size: UnitSize) -> bool {
        self.user.has_room(size)
    }

    /// l.11
    #[inline]
    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
        self.complete();
        put(self.user.lease(), writes)
    }

    /// COMMITTX
    #[inline(always)]
    fn number(&mut self) -> u64 {
        let stamp = self.log.clock.now(); // l.14
        self.state = State::Stamped(stamp);
        stamp
    }

    /// l.15 is the executor's.
    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn void(&mut self) {
        self.state = State::Announced;
        self.withdraw();
    }

    fn number_void(&mut self) -> u64 {
        self.withdraw();
        self.log.clock.now()
    }

    #[inline]
    fn finish(&mut self) -> Result<(), Error> {
        let State::Stamped(stamp) = self.state else { return Ok(()) };
        self.state = State::Idle;
        let (log, shadow) = (self.log, self.log.logs.shadow());
        let lease = self.user.leased();
        let slot = lease.log();
        log.precedence.committed(slot, stamp); // l.16, l.20
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        lease.number_as(stamp); // l.21
        lease.seal();
        let flushed = lease.flush();
        lease.publish();
        log.precedence.persisted(slot, stamp); // l.22, also where the medium has failed
        let done = flushed.and_then(|()| {
            // l.23
            let waits = !is_left_out();
            let skips = waits && log.precedence.wait_for_preceding(slot, stamp, || log.alive())?;
            // l.24
            if !skips && !is_left_out() {
                log.precedence.update_marker(stamp, |stamp| shadow.mark(stamp))?;
            }
            // l.41 to l.43: matters only beside a later commit under way, which tests/spht_model.rs has.
            log.precedence.wait_for_marker(stamp, || log.alive())
        });
        self.user.give_back();
        done
    }

    /// l.17 to l.19, with the wait that they leave out.
    #[inline]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        self.complete();
        if is_left_out() {
            return Ok(());
        }
        let log = self.log;
        let newest = log.precedence.newest_seen(number, || log.alive())?;
        log.precedence.wait_for_marker(newest, || log.alive())
    }
}

impl Drop for SphtSink<'_> {
    fn drop(&mut self) {
        self.complete();
        self.withdraw();
    }
}
