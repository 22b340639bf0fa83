//! The executor on Intel RTM: transactions that the hardware isolates, and one lock for those that it cannot run.
//!
//! A transaction tries hardware as often as [`RetryBudget`] says, then takes the lock, to which every attempt
//! subscribes: it loads the lock's word first, and so is aborted when a transaction takes the lock. What is known to be
//! in vain is not tried again: a capacity abort leads to the lock at once, two aborts in a row without a reason as
//! well (a page fault has none, and repeats until the page was touched outside of hardware, as it is with the lock, or
//! by `cold_code`). An attempt that finds the lock taken waits for it, and has not used up an attempt (the lemming
//! effect; see `model`).
//!
//! 1. Numbers follow the order of commits. The number is drawn inside the hardware transaction, so that the
//!    counter's line is in its write set: of two attempts between their draw and their commit one is aborted. Drawn
//!    after the commit, numbers would not: a transaction that read the first one's writes might draw before it, and
//!    with dense numbers a crash would keep the second one without the first.
//! 2. The atomic group is sealed before the commit makes a write visible, or, where sealing writes lines back
//!    (`RedoSink::seals_after_hardware`), right behind the commit, with the values and the number that it took. An
//!    abort undoes the number and the atomic group with everything else that the attempt stored, the sink's own
//!    state included.
//! 3. On the lock path no attempt commits: each has loaded the lock's word, and taking the lock stores to it.
//!
//! What a sink does between `put` and `seal` must be possible in hardware. Where it is not (non-temporal stores, a
//! system call), attempts abort without a reason, and the lock is taken: slower, never wrong. So it is where an atomic
//! group is longer than the space that was made for it: spilling may wait for other commits, with PAUSE or a system
//! call, and these abort, as the next interrupt would. So no attempt waits while others wait for what it announced
//! (the model has to ask first: `RedoSink::has_room`).

use super::backoff::Backoff;
use super::cold_code::ColdCode;
use super::in_place::InPlaceTx;
use super::retries::{Retries, RetryBudget, Site, WITHOUT_REASON_MAX};
use super::wakeup::Wakeups;
use crate::access::{Halt, Interrupted};
use crate::memory::{TxMemory, WORD_BYTES};
use crate::run::{Answer, Isolation, TxCounts, TxError, TxThread, foreign_interruption, once};
use crate::sink::{RedoLog, RedoSink, UnitSize};
use crate::sync::{AbortStatus, AtomicU64, Mutex, MutexGuard, Ordering, fence, rtm, xabort, xbegin, xend};
use std::convert::Infallible;
use std::panic::Location;

/// XABORT's code of an attempt that found the lock taken.
const LOCK_TAKEN: u8 = 0xff;

/// Words that an attempt can write: a first-level cache of 48 KiB. Room in the log is made for so many.
const WRITTEN_WORDS_MAX: usize = 48 * 1024 / WORD_BYTES;

/// The executor on Intel RTM. Where transactions do not commit in hardware, each takes the lock.
#[derive(Debug)]
pub struct Htm<L> {
    memory: TxMemory,
    in_hardware: bool,
    retries: RetryBudget,
    turn: Mutex<()>,
    lock: LockWord,
    wakeups: Wakeups,
    log: L,
}

/// 1 while a transaction has the lock; on cache lines of its own, because every attempt's read set holds it.
#[derive(Debug)]
#[repr(align(128))]
struct LockWord(AtomicU64);

impl<L: RedoLog> Htm<L> {
    /// An executor for the transactions on `memory`; no other one may use it meanwhile. The first one of a process
    /// tries some hardware transactions, which takes less than a millisecond.
    pub fn new(memory: TxMemory, log: L) -> Self {
        let lock = LockWord(AtomicU64::new(0));
        let in_hardware = rtm().commits();
        let (retries, turn, wakeups) = (RetryBudget::default(), Mutex::new(()), Wakeups::new());
        Self { memory, in_hardware, retries, turn, lock, wakeups, log }
    }

    /// How often a transaction is tried in hardware. Default: [`RetryBudget::Found`].
    #[must_use]
    pub fn with_retries(mut self, retries: RetryBudget) -> Self {
        self.retries = retries;
        self
    }

    /// The redo log.
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Takes the lock: no attempt runs in hardware until it is given back.
    fn take_lock(&self) -> Locked<'_> {
        let turn = self.turn.lock();
        // SeqCst: attempts are aborted before the holder loads anything.
        self.lock.0.store(1, Ordering::SeqCst);
        Locked { word: &self.lock.0, _turn: turn }
    }

    /// Whether transactions run in hardware here. Otherwise they take the lock, one at a time.
    pub fn is_in_hardware(&self) -> bool {
        self.in_hardware
    }
}

impl<L: RedoLog> Isolation for Htm<L> {
    type Thread<'htm>
        = HtmThread<'htm, L>
    where
        Self: 'htm;

    fn thread(&self) -> HtmThread<'_, L> {
        let tx = InPlaceTx::new(self.memory);
        // Any seed: delays need not differ from run to run.
        let backoff = Backoff::new(std::ptr::from_ref(&tx).addr() as u64);
        let (retries, cold_code) = (Retries::new(self.retries), ColdCode::new());
        let counts = TxCounts::default();
        HtmThread { htm: self, sink: self.log.sink(), tx, backoff, retries, cold_code, counts }
    }
}

/// One thread's handle to an [`Htm`].
#[derive(Debug)]
pub struct HtmThread<'htm, L: RedoLog + 'htm> {
    htm: &'htm Htm<L>,
    sink: L::Sink<'htm>,
    tx: InPlaceTx,
    backoff: Backoff,
    retries: Retries,
    cold_code: ColdCode,
    counts: TxCounts,
}

/// The lock, held.
struct Locked<'htm> {
    word: &'htm AtomicU64,
    _turn: MutexGuard<'htm, ()>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release pairs with the loads of attempts that begin.
        self.word.store(0, Ordering::Release);
    }
}

/// What makes an attempt atomic.
enum Way<'htm> {
    Hardware,
    Lock(#[expect(dead_code, reason = "held until the attempt ends")] Locked<'htm>),
}

/// An attempt that runs; undone before others can see it, unless it is sealed or will be.
struct Running<'a, 'htm, S: RedoSink> {
    tx: &'a mut InPlaceTx,
    sink: &'a mut S,
    sealed: bool,
    way: Way<'htm>,
}

impl<S: RedoSink> Drop for Running<'_, '_, S> {
    fn drop(&mut self) {
        if !self.sealed {
            self.tx.undo.roll_back(&self.tx.memory);
            self.sink.withdraw();
        }
        self.tx.undo.clear();
        if matches!(self.way, Way::Hardware) {
            // SAFETY: made behind XBEGIN. After an abort there is none: control is back at XBEGIN.
            unsafe { xend() };
        }
    }
}

/// Why an attempt was in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Conflict,
    Capacity,
    WithoutReason,
    LockTaken,
}

impl From<AbortStatus> for Cause {
    fn from(status: AbortStatus) -> Self {
        match status.explicit_code() {
            Some(LOCK_TAKEN) => Self::LockTaken,
            _ if status.is_capacity() => Self::Capacity,
            _ if status.is_without_reason() => Self::WithoutReason,
            _ => Self::Conflict,
        }
    }
}

/// How an attempt ended, when it is visible or undone.
enum End<T, E, S> {
    Wrote(T),
    Read(T),
    Aborted(Cause),
    Retry,
    Failed(TxError<E, S>),
}

/// How an attempt with this handle's sink ends.
type HandleEnd<'htm, T, E, L> = End<T, E, <<L as RedoLog>::Sink<'htm> as RedoSink>::Error>;

impl<'htm, S: RedoSink> Running<'_, 'htm, S> {
    /// Runs the body and commits or undoes.
    #[inline(always)]
    fn complete<T, E>(
        mut self,
        body: &mut impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> End<T, E, S::Error> {
        self.tx.memory.refresh();
        let answer = body(self.tx);
        if let Some(cause) = self.sink.refusal() {
            return End::Failed(TxError::Refused(cause));
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(Halt::Abort(value)) => return End::Failed(TxError::Aborted(value)),
            Err(Halt::Retry) => return End::Retry,
            // Interruptions do not happen here; one of elsewhere means the same.
            Err(Halt::Interrupted(_)) => return End::Aborted(Cause::Conflict),
        };
        if self.tx.undo.is_empty() {
            return End::Read(answer);
        }
        if let Err(cause) = self.sink.put(&self.tx.undo.written(&self.tx.memory)) {
            return End::Failed(TxError::Refused(cause));
        }
        match self.way {
            Way::Hardware if self.sink.seals_after_hardware() => {
                self.sink.number();
                self.sealed = true;
                return End::Wrote(answer);
            }
            Way::Hardware => self.sink.number(),
            // Attempts that draw a number do so in vain.
            Way::Lock(..) => {
                self.sink.announce();
                self.sink.number_alone()
            }
        };
        if let Err(cause) = self.sink.seal() {
            return End::Failed(TxError::Refused(cause));
        }
        self.sealed = true;
        End::Wrote(answer)
    }
}

impl<'htm, L: RedoLog> HtmThread<'htm, L> {
    /// From XBEGIN to XEND.
    #[inline(always)]
    fn in_hardware<T, E>(
        &mut self,
        body: &mut impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> HandleEnd<'htm, T, E, L> {
        if let Err(cause) = self.sink.refuse_child() {
            return End::Failed(TxError::Refused(cause));
        }
        // At most every second byte of a word begins a range.
        let size = UnitSize {
            words: WRITTEN_WORDS_MAX,
            ranges: WRITTEN_WORDS_MAX * WORD_BYTES / 2,
            range_bytes: WRITTEN_WORDS_MAX * WORD_BYTES,
        };
        if let Err(cause) = self.sink.prepare(size) {
            self.sink.withdraw();
            return End::Failed(TxError::Refused(cause));
        }
        self.sink.announce();
        self.tx.begin(false);
        // SAFETY: `run` asks for hardware only where transactions commit.
        if let Err(status) = unsafe { xbegin() } {
            self.sink.withdraw();
            return End::Aborted(status.into());
        }
        // Relaxed: the hardware orders it; a thread that takes the lock from now on aborts this attempt.
        if self.htm.lock.0.load(Ordering::Relaxed) != 0 {
            // SAFETY: in a transaction.
            unsafe { xabort::<LOCK_TAKEN>() };
        }
        let running = Running { tx: &mut self.tx, sink: &mut self.sink, sealed: false, way: Way::Hardware };
        let end = running.complete(body);
        // Behind XEND.
        if matches!(end, End::Wrote(_))
            && self.sink.seals_after_hardware()
            && let Err(cause) = self.sink.seal()
        {
            return End::Failed(TxError::InDoubt(cause));
        }
        end
    }

    /// With the lock.
    fn with_lock<T, E>(
        &mut self,
        body: &mut impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> HandleEnd<'htm, T, E, L> {
        if let Err(cause) = self.sink.refuse_child() {
            return End::Failed(TxError::Refused(cause));
        }
        let way = Way::Lock(self.htm.take_lock());
        self.tx.begin(true);
        let running = Running { tx: &mut self.tx, sink: &mut self.sink, sealed: false, way };
        running.complete(body)
    }

    /// Waits until what was read or written may be told.
    fn acknowledge(&mut self, wrote: bool) -> Result<(), <L::Sink<'htm> as RedoSink>::Error> {
        self.counts.commits += 1;
        if wrote {
            self.htm.wakeups.wake_after_commit();
            self.sink.finish()
        } else if L::KEEPS {
            // No older than what it saw.
            self.sink.settle(self.htm.log.newest())
        } else {
            Ok(())
        }
    }
}

impl<L: RedoLog> HtmThread<'_, L> {
    /// Runs `work` while no transaction runs, and everything that was committed is in the log; `work` begins none.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _lock = self.htm.take_lock();
        if L::KEEPS {
            // A medium that has failed is reported by whatever asks it next.
            let _ = self.sink.settle(self.htm.log.newest());
        }
        work()
    }
}

impl<'htm, L: RedoLog> TxThread for HtmThread<'htm, L> {
    type Tx = InPlaceTx;
    type SinkError = <L::Sink<'htm> as RedoSink>::Error;

    #[inline]
    #[track_caller]
    fn run<T, E>(
        &mut self,
        mut body: impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> Answer<T, E, Self> {
        let (htm, site) = (self.htm, Site::of(Location::caller()));
        let tried = self.retries.begin(site);
        let (mut attempts, mut without_reason, mut watch) = (0, 0, None);
        loop {
            // Before the attempt: a later number is a change for a sleeper.
            let newest = htm.log.newest();
            if without_reason >= WITHOUT_REASON_MAX {
                // Generic, so it lies in the module of its caller, as this function does.
                let code = Self::acknowledge as fn(&mut Self, bool) -> _ as usize;
                self.cold_code.takes_lock(self.counts.hardware, code);
            }
            let locked = !htm.in_hardware || attempts >= tried.most || without_reason >= WITHOUT_REASON_MAX;
            let end = if locked { self.with_lock(&mut body) } else { self.in_hardware(&mut body) };
            let (answer, wrote) = match end {
                End::Wrote(answer) => (answer, true),
                End::Read(answer) => (answer, false),
                End::Aborted(cause) => {
                    self.counts.conflicts += 1;
                    without_reason = if cause == Cause::WithoutReason { without_reason + 1 } else { 0 };
                    match cause {
                        Cause::Conflict => {
                            attempts += 1;
                            self.backoff.wait(attempts);
                        }
                        Cause::Capacity => {
                            self.counts.capacity += 1;
                            attempts = tried.most;
                        }
                        Cause::WithoutReason => self.counts.without_reason += 1,
                        Cause::LockTaken => {
                            self.counts.explicit += 1;
                            // Waits until the lock is free.
                            drop(htm.turn.lock());
                        }
                    }
                    continue;
                }
                End::Retry => {
                    (attempts, without_reason) = (0, 0);
                    // A time stamp is always later than the last one: no sign of a change.
                    if htm.log.is_stamped() {
                        watch = match watch.take() {
                            None => Some(htm.wakeups.watch()),
                            Some(watch) => {
                                watch.wait();
                                None
                            }
                        };
                        continue;
                    }
                    htm.wakeups.join();
                    fence(Ordering::SeqCst);
                    htm.wakeups.sleep(|| htm.log.newest() != newest);
                    continue;
                }
                End::Failed(error) => return Err(error),
            };
            self.counts.serial += u64::from(locked);
            self.counts.hardware += u64::from(!locked);
            self.retries.end(tried);
            return self.acknowledge(wrote).map(|()| answer).map_err(TxError::InDoubt);
        }
    }

    fn irrevocable<T>(
        &mut self,
        body: impl FnOnce(&mut InPlaceTx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self> {
        let mut body = Some(body);
        let end = self.with_lock(&mut |tx| Ok::<T, Halt<Infallible>>(once(&mut body)(tx)?));
        let (answer, wrote) = match end {
            End::Wrote(answer) => (answer, true),
            End::Read(answer) => (answer, false),
            End::Failed(error) => return Err(error),
            End::Aborted(_) | End::Retry => foreign_interruption(),
        };
        self.counts.serial += 1;
        self.acknowledge(wrote).map(|()| answer).map_err(TxError::InDoubt)
    }

    fn settle_all(&mut self) -> Result<(), Self::SinkError> {
        if L::KEEPS { self.sink.settle(self.htm.log.newest()) } else { Ok(()) }
    }

    fn counts(&self) -> TxCounts {
        self.counts
    }
}
