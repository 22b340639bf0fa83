//! SPHT-eADR: Algorithm 3 of the dissertation, for persistent memory with persistent caches. An atomic group is
//! durable when it is visible, so no thread waits, and nothing is flushed or fenced. l. are the algorithm's lines.
//!
//! Durable-order: the whole atomic group, checksum included, before the first of the transaction's writes can be
//! seen (l.11 before l.12). In hardware both become visible in one step; on the lock path plain stores become
//! visible, and there durable, in their order, and the lock is released last. Recovery applies every whole atomic
//! group: what depends on one that a crash left unfinished does not exist.
//!
//! What the text leaves open, and what is different here:
//!
//! - l.2, l.6: `isUpdate` is never reset there. Here an executor asks for an atomic group only if the attempt has
//!   written.
//! - l.7: the log takes what was written in l.11, from the writes in DRAM.
//! - l.12 on the lock path: "memory barrier" means the order of stores, which releasing the lock gives.
//! - The replayer applies atomic groups in the order of their stamps, so it must know that no smaller one comes. An
//!   attempt shows a lower bound of its stamp before it begins, with a plain store; the replayer pays for the barrier
//!   (`Horizon`).

use super::collect::{log_bytes, put, refuse_child};
use super::leasing::{LogUser, Logs};
use super::stamp_clock::StampClock;
use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use crate::sync::{AsymmetricBarrier, AtomicU64, Ordering};
use mangrove_shadow::{Error, LogLease, Shadow};
use std::sync::Arc;

/// No attempt is under way.
const NONE: u64 = u64::MAX;

/// A lower bound of the stamp that the attempt with this log may draw.
#[derive(Debug)]
#[repr(align(128))]
struct Bound(AtomicU64);

/// Up to which stamp no atomic group is still to come.
#[derive(Debug)]
struct Horizon {
    clock: StampClock,
    /// By log.
    bounds: Box<[Bound]>,
    barrier: AsymmetricBarrier,
}

impl Horizon {
    /// The replayer's half.
    fn complete(&self) -> u64 {
        let now = self.clock.now();
        // Pairs with the light half in `announce`: a bound that is not visible yet is followed by a later stamp.
        self.barrier.heavy();
        // Acquire pairs with the Release in `end`: the atomic group is published.
        self.bounds.iter().fold(now, |least, bound| least.min(bound.0.load(Ordering::Acquire))) - 1
    }
}

/// The redo log of Algorithm 3.
#[derive(Debug)]
pub struct SphtEadr {
    logs: Logs,
    horizon: Arc<Horizon>,
}

impl SphtEadr {
    /// The redo log in a shadow whose atomic groups may have gaps.
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        let horizon = Arc::new(Horizon {
            clock: StampClock::after(shadow.committed().0),
            bounds: (0..shadow.stat().logs).map(|_| Bound(AtomicU64::new(NONE))).collect(),
            barrier: AsymmetricBarrier::detect(),
        });
        let complete = Arc::clone(&horizon);
        shadow.set_watermark(move || complete.complete());
        Self { logs: Logs::new(shadow), horizon }
    }
}

impl RedoLog for SphtEadr {
    type Sink<'log> = SphtEadrSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = false;

    fn is_stamped(&self) -> bool {
        true
    }

    fn sink(&self) -> SphtEadrSink<'_> {
        SphtEadrSink { horizon: &self.horizon, user: self.logs.user(), state: State::Idle }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.horizon.clock.now()
    }
}

/// How far the attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Announced,
    /// The atomic group has its stamp.
    Stamped,
    Sealed,
}

/// One thread's way into the log.
#[derive(Debug)]
pub struct SphtEadrSink<'log> {
    horizon: &'log Horizon,
    user: LogUser<'log>,
    state: State,
}

impl SphtEadrSink<'_> {
    fn bound(&mut self) -> &AtomicU64 {
        let log = self.user.leased().log();
        &self.horizon.bounds[log].0
    }

    /// The thread has no stamp any more that is not published.
    fn end(&mut self) {
        // Release pairs with the Acquire in `complete`.
        self.bound().store(NONE, Ordering::Release);
        self.state = State::Idle;
    }

    /// Publishes the sealed atomic group; `before` may do something with it first.
    #[inline(always)]
    pub(super) fn finish_after(&mut self, before: impl FnOnce(&LogLease)) -> Result<(), Error> {
        if self.state != State::Sealed {
            return Ok(());
        }
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        let lease = self.user.leased();
        before(lease);
        // No fence: with gaps it only reports a medium that has failed.
        let alive = lease.flush();
        lease.publish();
        self.end();
        self.user.give_back();
        alive
    }

    /// Completes a commit after whose visibility the thread panicked.
    #[inline(always)]
    fn complete(&mut self) {
        // A medium that failed is reported by the next call.
        let _ = self.finish_after(|_| ());
    }
}

impl RedoSink for SphtEadrSink<'_> {
    type Error = Error;

    fn refuse_child(&self) -> Result<(), Error> {
        refuse_child(self.user.shadow())
    }

    /// BEGINTX
    #[inline]
    fn announce(&mut self) {
        let bound = self.horizon.clock.now();
        // Relaxed: the barrier orders it before the clock is read in `number`.
        self.bound().store(bound, Ordering::Relaxed);
        self.horizon.barrier.light();
        self.state = State::Announced;
        // l.4 to l.6 and l.8 are the executor's.
    }

    fn withdraw(&mut self) {
        if self.state == State::Announced {
            self.user.clear();
            self.end();
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

    /// l.7
    #[inline]
    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
        self.complete();
        put(self.user.lease(), writes)
    }

    /// COMMITTX; l.10 is the executor's.
    #[inline(always)]
    fn number(&mut self) -> u64 {
        let stamp = self.horizon.clock.now(); // l.11: RDTSCP
        self.user.leased().number_as(stamp);
        self.state = State::Stamped;
        stamp
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        self.user.leased().seal(); // l.11; l.12 is the executor's.
        self.state = State::Sealed;
        Ok(())
    }

    fn void(&mut self) {
        self.user.leased().void();
        self.state = State::Sealed;
    }

    fn number_void(&mut self) -> u64 {
        self.withdraw();
        self.horizon.clock.now()
    }

    #[inline]
    fn finish(&mut self) -> Result<(), Error> {
        self.finish_after(|_| ())
    }

    /// What can be seen is durable.
    #[inline(always)]
    fn settle(&mut self, _number: u64) -> Result<(), Error> {
        self.complete();
        Ok(())
    }
}

impl Drop for SphtEadrSink<'_> {
    fn drop(&mut self) {
        self.complete();
        self.withdraw();
    }
}
