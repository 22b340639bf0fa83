//! One lock: one transaction at a time. The yardstick for the others, and their fallback in small programs.

use super::in_place::InPlaceTx;
use super::wakeup::Wakeups;
use crate::access::{Halt, Interrupted};
use crate::memory::TxMemory;
use crate::run::{Answer, Isolation, TxCounts, TxError, TxThread, foreign_interruption, once};
use crate::sink::{RedoLog, RedoSink};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use std::convert::Infallible;

/// The executor with one lock. Reads take it, too; no attempt is ever undone but by its own body.
#[derive(Debug)]
pub struct Sgl<L> {
    memory: TxMemory,
    lock: Mutex<()>,
    /// Transactions that wrote, for those that sleep in `retry`.
    updates: AtomicU64,
    wakeups: Wakeups,
    log: L,
}

impl<L: RedoLog> Sgl<L> {
    /// An executor for the transactions on `memory`; no other one may use it meanwhile.
    pub fn new(memory: TxMemory, log: L) -> Self {
        Self { memory, lock: Mutex::new(()), updates: AtomicU64::new(0), wakeups: Wakeups::new(), log }
    }

    /// The redo log.
    pub fn log(&self) -> &L {
        &self.log
    }
}

impl<L: RedoLog> Isolation for Sgl<L> {
    type Thread<'sgl>
        = SglThread<'sgl, L>
    where
        Self: 'sgl;

    fn thread(&self) -> SglThread<'_, L> {
        let tx = InPlaceTx::new(self.memory);
        SglThread { sgl: self, sink: self.log.sink(), tx, counts: TxCounts::default() }
    }
}

/// One thread's handle to an [`Sgl`].
#[derive(Debug)]
pub struct SglThread<'sgl, L: RedoLog + 'sgl> {
    sgl: &'sgl Sgl<L>,
    sink: L::Sink<'sgl>,
    tx: InPlaceTx,
    counts: TxCounts,
}

/// A transaction that holds the lock; undone, if it has not ended, before the lock is released.
struct Holding<'a, 'sgl, S: RedoSink> {
    tx: &'a mut InPlaceTx,
    sink: &'a mut S,
    sealed: bool,
    _lock: MutexGuard<'sgl, ()>,
}

impl<S: RedoSink> Drop for Holding<'_, '_, S> {
    fn drop(&mut self) {
        if !self.sealed {
            self.tx.undo.roll_back(&self.tx.memory);
            self.sink.withdraw();
        }
        self.tx.undo.clear();
    }
}

/// How an attempt ended, when the lock is free again.
enum End<T, E, S> {
    Wrote(T),
    Read(T, u64),
    /// With the number of updates that it saw.
    Retry(u64),
    Again,
    Failed(TxError<E, S>),
}

impl<'sgl, L: RedoLog> SglThread<'sgl, L> {
    #[inline(always)]
    fn attempt<T, E>(
        &mut self,
        body: &mut impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> End<T, E, <L::Sink<'sgl> as RedoSink>::Error> {
        if let Err(cause) = self.sink.refuse_child() {
            return End::Failed(TxError::Refused(cause));
        }
        let sgl = self.sgl;
        let lock = sgl.lock.lock();
        let mut holding = Holding { tx: &mut self.tx, sink: &mut self.sink, sealed: false, _lock: lock };
        holding.tx.memory.refresh();
        holding.tx.begin(true);
        let answer = body(holding.tx);
        if let Some(cause) = holding.sink.refusal() {
            return End::Failed(TxError::Refused(cause));
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(Halt::Abort(value)) => return End::Failed(TxError::Aborted(value)),
            // Interruptions do not happen here; one of elsewhere means the same.
            Err(Halt::Interrupted(_)) => return End::Again,
            Err(Halt::Retry) => {
                // Under the lock: a transaction that writes after us sees that we sleep.
                sgl.wakeups.join();
                // Relaxed: the lock orders the updates.
                return End::Retry(sgl.updates.load(Ordering::Relaxed));
            }
        };
        if holding.tx.undo.is_empty() {
            return End::Read(answer, if L::KEEPS { sgl.log.newest() } else { 0 });
        }
        let written = holding.tx.undo.written(&holding.tx.memory);
        if let Err(cause) = holding.sink.put(&written) {
            return End::Failed(TxError::Refused(cause));
        }
        holding.sink.announce();
        holding.sink.number_alone();
        if let Err(cause) = holding.sink.seal() {
            return End::Failed(TxError::Refused(cause));
        }
        holding.sealed = true;
        // Release pairs with the Acquire of sleepers. Only the lock's holder stores.
        sgl.updates.store(sgl.updates.load(Ordering::Relaxed) + 1, Ordering::Release);
        let sleepers = sgl.wakeups.needed();
        drop(holding);
        if sleepers {
            sgl.wakeups.wake();
        }
        End::Wrote(answer)
    }
}

impl<L: RedoLog> SglThread<'_, L> {
    /// Runs `work` while no transaction runs, and everything that was committed is in the log; `work` begins none.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _lock = self.sgl.lock.lock();
        if L::KEEPS {
            // A medium that has failed is reported by whatever asks it next.
            let _ = self.sink.settle(self.sgl.log.newest());
        }
        work()
    }
}

impl<'sgl, L: RedoLog> TxThread for SglThread<'sgl, L> {
    type Tx = InPlaceTx;
    type SinkError = <L::Sink<'sgl> as RedoSink>::Error;

    #[inline]
    fn run<T, E>(
        &mut self,
        mut body: impl FnMut(&mut InPlaceTx) -> Result<T, Halt<E>>,
    ) -> Answer<T, E, Self> {
        loop {
            let (answer, durable) = match self.attempt(&mut body) {
                End::Wrote(answer) => (answer, self.sink.finish()),
                End::Read(answer, newest) if L::KEEPS => (answer, self.sink.settle(newest)),
                End::Read(answer, _) => (answer, Ok(())),
                // Acquire pairs with the Release in `attempt`.
                End::Retry(seen) => {
                    let updates = &self.sgl.updates;
                    self.sgl.wakeups.sleep(|| updates.load(Ordering::Acquire) != seen);
                    continue;
                }
                End::Again => continue,
                End::Failed(error) => return Err(error),
            };
            self.counts.commits += 1;
            self.counts.serial += 1;
            return durable.map(|()| answer).map_err(TxError::InDoubt);
        }
    }

    fn irrevocable<T>(
        &mut self,
        body: impl FnOnce(&mut InPlaceTx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self> {
        let mut body = Some(body);
        let end = self.attempt(&mut |tx| Ok::<T, Halt<Infallible>>(once(&mut body)(tx)?));
        let (answer, durable) = match end {
            End::Wrote(answer) => (answer, self.sink.finish()),
            End::Read(answer, newest) => (answer, self.sink.settle(newest)),
            End::Failed(error) => return Err(error),
            End::Retry(_) | End::Again => foreign_interruption(),
        };
        self.counts.commits += 1;
        self.counts.serial += 1;
        durable.map(|()| answer).map_err(TxError::InDoubt)
    }

    fn settle_all(&mut self) -> Result<(), Self::SinkError> {
        if L::KEEPS { self.sink.settle(self.sgl.log.newest()) } else { Ok(()) }
    }

    fn counts(&self) -> TxCounts {
        self.counts
    }
}
