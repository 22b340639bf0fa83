//! The executor that was chosen for a heap, as one type. Ownership records are compiled into each body; the other
//! executors run a body by way of a pointer to it, so that a program has it once for all of them. (The call site goes
//! with it: hardware counts retries for each.)

use super::choice::{Choice, Executor};
use crate::access::{Halt, Interrupted, TxAccess, write_in_pieces};
use crate::commit::HeapLog;
use crate::executor::{
    HardwareModel, HardwareThread, HardwareTx, Htm, HtmThread, InPlaceTx, Sgl, SglThread, Stm, StmOptions,
    StmThread, StmTx,
};
use crate::memory::TxMemory;
use crate::run::{Isolation, TxCounts, TxError, TxThread};
use mangrove_shadow::Error;
use mangrove_sys::Reservation;
use std::marker::PhantomData;

/// A heap's executor.
#[expect(clippy::large_enum_variant, reason = "a heap has one, in a box")]
pub(super) enum HeapExecutor {
    Records(Stm<HeapLog>),
    OneLock(Sgl<HeapLog>),
    Rtm(Htm<HeapLog>),
    Model(HardwareModel<HeapLog>),
}

impl HeapExecutor {
    /// The executor of `choice` for the transactions on `memory`.
    ///
    /// # Errors
    /// `Unsupported` when the process has no address space left for the ownership records.
    pub(super) fn new(choice: &Choice, memory: TxMemory, log: HeapLog) -> Result<Self, Error> {
        let records = |log, options: StmOptions| {
            has_addresses_for(&options)?;
            Ok(Self::Records(Stm::new(memory, log, options)))
        };
        match choice.executor {
            Executor::Records(options) => records(log, options),
            Executor::OneLock => Ok(Self::OneLock(Sgl::new(memory, log))),
            Executor::Rtm => Ok(Self::Rtm(Htm::new(memory, log))),
            Executor::HardwareModel(limits) => Ok(Self::Model(HardwareModel::new(memory, log, limits))),
            Executor::Automatic => records(log, StmOptions::default()),
        }
    }

    /// A handle for the calling thread; none if the model has no core left.
    pub(super) fn thread(&'static self) -> Option<HeapThread> {
        Some(match self {
            Self::Records(executor) => HeapThread::Records(executor.thread()),
            Self::OneLock(executor) => HeapThread::OneLock(executor.thread()),
            Self::Rtm(executor) => HeapThread::Rtm(executor.thread()),
            Self::Model(executor) => HeapThread::Model(executor.try_thread()?),
        })
    }
}

/// Whether the table of the ownership records finds a place: under a limit of address space (`ulimit -v`) it may not.
fn has_addresses_for(options: &StmOptions) -> Result<(), Error> {
    // The table is mapped at a multiple of a huge page, and has a little room on both sides.
    let bytes = (8usize << options.record_bits.min(28)) + (4 << 20);
    Reservation::anonymous(bytes).map(drop).map_err(|error| Error::Unsupported {
        what: format!(
            "the process has no {bytes} bytes of address space left for the ownership records ({error}); raise its limit (ulimit -v)"
        ),
    })
}

/// One thread's handle to a heap's executor.
pub(super) enum HeapThread {
    Records(StmThread<'static, HeapLog>),
    OneLock(SglThread<'static, HeapLog>),
    Rtm(HtmThread<'static, HeapLog>),
    Model(HardwareThread<'static, HeapLog>),
}

/// A body whose answer is kept elsewhere.
type ErasedBody<'a> = &'a mut dyn FnMut(HeapTx<'_>) -> Result<(), Halt<()>>;

impl HeapThread {
    /// Runs `body` as one transaction; `reads`: it rarely or never writes.
    #[inline]
    #[track_caller]
    pub(super) fn run<T, E>(
        &mut self,
        reads: bool,
        mut body: impl FnMut(HeapTx<'_>) -> Result<T, Halt<E>>,
    ) -> Result<T, TxError<E, Error>> {
        let Self::Records(thread) = self else { return self.run_elsewhere(reads, body) };
        let body = |tx: &mut StmTx<'static, HeapLog>| body(HeapTx::records(tx));
        if reads { thread.read(body) } else { thread.run(body) }
    }

    /// As `run`, for a caller who does not wait: gives the redo log's ticket. Executors without ownership records wait,
    /// as the heap's durability says, and give none.
    #[inline]
    #[track_caller]
    pub(super) fn run_nowait<T, E>(
        &mut self,
        mut body: impl FnMut(HeapTx<'_>) -> Result<T, Halt<E>>,
    ) -> Result<(T, Option<u64>), TxError<E, Error>> {
        let Self::Records(thread) = self else {
            return self.run_elsewhere(false, body).map(|answer| (answer, None));
        };
        let (answer, ticket) =
            thread.run_nowait(|tx: &mut StmTx<'static, HeapLog>| body(HeapTx::records(tx)))?;
        Ok((answer, Some(ticket)))
    }

    /// See [`TxThread::settle_all`].
    #[cold]
    pub(super) fn settle_all(&mut self) -> Result<(), Error> {
        match self {
            Self::Records(thread) => thread.settle_all(),
            Self::OneLock(thread) => thread.settle_all(),
            Self::Rtm(thread) => thread.settle_all(),
            Self::Model(thread) => thread.settle_all(),
        }
    }

    /// By an executor without ownership records.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn run_elsewhere<T, E>(
        &mut self,
        reads: bool,
        mut body: impl FnMut(HeapTx<'_>) -> Result<T, Halt<E>>,
    ) -> Result<T, TxError<E, Error>> {
        // Of the last run.
        let (mut answer, mut value) = (None, None);
        let ended = self.run_erased(reads, &mut |tx| match body(tx) {
            Ok(found) => {
                answer = Some(found);
                Ok(())
            }
            Err(Halt::Abort(found)) => {
                value = Some(found);
                Err(Halt::Abort(()))
            }
            Err(Halt::Retry) => Err(Halt::Retry),
            Err(Halt::Interrupted(interrupted)) => Err(Halt::Interrupted(interrupted)),
        });
        match ended {
            Ok(()) => Ok(answer.expect("the body that committed gave an answer")),
            Err(TxError::Aborted(())) => {
                Err(TxError::Aborted(value.expect("the body that aborted gave a value")))
            }
            Err(TxError::Refused(error)) => Err(TxError::Refused(error)),
            Err(TxError::InDoubt(error)) => Err(TxError::InDoubt(error)),
        }
    }

    #[track_caller]
    fn run_erased(&mut self, reads: bool, body: ErasedBody<'_>) -> Result<(), TxError<(), Error>> {
        #[track_caller]
        fn by<'a, H: TxThread<SinkError = Error>>(
            thread: &mut H,
            reads: bool,
            mut body: impl FnMut(&mut H::Tx) -> Result<(), Halt<()>> + 'a,
        ) -> Result<(), TxError<(), Error>> {
            if reads { thread.read(&mut body) } else { thread.run(&mut body) }
        }
        match self {
            Self::Records(thread) => by(thread, reads, |tx| body(HeapTx::records(tx))),
            Self::OneLock(thread) => by(thread, reads, |tx| body(HeapTx::in_place(tx))),
            Self::Rtm(thread) => by(thread, reads, |tx| body(HeapTx::in_place(tx))),
            Self::Model(thread) => by(thread, reads, |tx| body(HeapTx::model(tx))),
        }
    }

    /// Runs `work` while no transaction runs, and everything that was committed is in the log; `work` begins none.
    pub(super) fn alone<T>(&mut self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Records(thread) => thread.alone(work),
            Self::OneLock(thread) => thread.alone(work),
            Self::Rtm(thread) => thread.alone(work),
            Self::Model(thread) => thread.alone(work),
        }
    }

    /// What this handle's transactions have met so far.
    pub(super) fn counts(&self) -> TxCounts {
        match self {
            Self::Records(thread) => thread.counts(),
            Self::OneLock(thread) => thread.counts(),
            Self::Rtm(thread) => thread.counts(),
            Self::Model(thread) => thread.counts(),
        }
    }
}

/// A transaction of the heap's executor.
///
/// Two words that are copied, not an enum behind a reference: where nothing takes its address, the compiler keeps the
/// pointer in a register, and an access of ownership records costs one comparison more than without the others.
pub(super) struct HeapTx<'a> {
    /// Null elsewhere. This one or the other is borrowed for `'a`.
    records: *mut StmTx<'static, HeapLog>,
    elsewhere: Elsewhere,
    borrowed: PhantomData<&'a mut ()>,
}

/// A transaction without ownership records.
#[derive(Clone, Copy)]
enum Elsewhere {
    Nowhere,
    /// With the one lock, and on RTM.
    InPlace(*mut InPlaceTx),
    Model(*mut HardwareTx<'static>),
}

impl<'a> HeapTx<'a> {
    #[inline(always)]
    fn records(tx: &'a mut StmTx<'static, HeapLog>) -> Self {
        Self { records: tx, elsewhere: Elsewhere::Nowhere, borrowed: PhantomData }
    }

    fn in_place(tx: &'a mut InPlaceTx) -> Self {
        let elsewhere = Elsewhere::InPlace(tx);
        Self { records: std::ptr::null_mut(), elsewhere, borrowed: PhantomData }
    }

    fn model(tx: &'a mut HardwareTx<'static>) -> Self {
        let elsewhere = Elsewhere::Model(tx);
        Self { records: std::ptr::null_mut(), elsewhere, borrowed: PhantomData }
    }

    /// The same transaction, for a shorter time.
    #[inline(always)]
    pub(super) fn again(&mut self) -> HeapTx<'_> {
        HeapTx { records: self.records, elsewhere: self.elsewhere, borrowed: PhantomData }
    }

    /// The transaction with ownership records, if it is one.
    #[inline(always)]
    fn with_records(&mut self) -> Option<&mut StmTx<'static, HeapLog>> {
        // SAFETY: null, or borrowed for `'a`, and by this value alone while it is borrowed itself.
        unsafe { self.records.as_mut() }
    }
}

/// Does something with the transaction that runs elsewhere.
macro_rules! elsewhere {
    ($tx:ident of $elsewhere:expr => $what:expr) => {
        match $elsewhere {
            Elsewhere::InPlace($tx) => {
                // SAFETY: as in `with_records`.
                let $tx = unsafe { &mut *$tx };
                $what
            }
            Elsewhere::Model($tx) => {
                // SAFETY: as in `with_records`.
                let $tx = unsafe { &mut *$tx };
                $what
            }
            Elsewhere::Nowhere => {
                unreachable!("a transaction without ownership records has another executor")
            }
        }
    };
}

/// Not inlined: the code of each access would have the other executors' as well.
#[cold]
#[inline(never)]
fn read_elsewhere(elsewhere: Elsewhere, address: usize, size: usize) -> Result<u64, Interrupted> {
    elsewhere!(tx of elsewhere => tx.read_piece(address, size))
}

#[cold]
#[inline(never)]
fn write_elsewhere(elsewhere: Elsewhere, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
    elsewhere!(tx of elsewhere => tx.write_piece(address, size, value))
}

impl TxAccess for HeapTx<'_> {
    #[inline(always)]
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        // SAFETY: as in `with_records`.
        match unsafe { self.records.as_mut() } {
            Some(tx) => tx.read_piece(address, size),
            None => read_elsewhere(self.elsewhere, address, size),
        }
    }

    #[inline(always)]
    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        // SAFETY: as in `with_records`.
        match unsafe { self.records.as_mut() } {
            Some(tx) => tx.write_piece(address, size, value),
            None => write_elsewhere(self.elsewhere, address, size, value),
        }
    }

    /// Ownership records pass long writes to the log as ranges.
    #[inline]
    fn write_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<(), Interrupted> {
        match self.with_records() {
            Some(tx) => tx.write_bytes(address, bytes),
            None => write_in_pieces(self, address, bytes),
        }
    }

    fn privatise(&mut self) {
        let elsewhere = self.elsewhere;
        match self.with_records() {
            Some(tx) => tx.privatise(),
            None => elsewhere!(tx of elsewhere => tx.privatise()),
        }
    }

    fn begin_nested(&mut self) {
        let elsewhere = self.elsewhere;
        match self.with_records() {
            Some(tx) => tx.begin_nested(),
            None => elsewhere!(tx of elsewhere => tx.begin_nested()),
        }
    }

    fn end_nested(&mut self, keeps: bool) {
        let elsewhere = self.elsewhere;
        match self.with_records() {
            Some(tx) => tx.end_nested(keeps),
            None => elsewhere!(tx of elsewhere => tx.end_nested(keeps)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Protocol;
    use crate::executor::HardwareLimits;
    use mangrove_shadow::{Create, Latency, Medium, Options, Order};
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// With Algorithm 2 a commit is visible before it is in the log. What runs alone then waits for it: a page that it
    /// gave back would lose the commit.
    #[test]
    fn what_runs_alone_finds_everything_that_is_visible_in_the_log() {
        if mangrove_sys::tsc().unusable.is_some() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().create(Create::New).medium(Medium::Emulated(Latency::new(0, 0)));
        let options = options.capacity(1 << 20).log_bytes(64 << 10).log_count(4).order(Order::Marker);
        let shadow = Arc::new(options.stamped(true).open(folder.path().join("s")).unwrap());
        shadow.grow(4096).unwrap();
        // SAFETY: the executor ends before the shadow, and only transactions use the words meanwhile.
        let memory = unsafe { TxMemory::new(shadow.base(), 4096) };
        let log = Protocol::Spht.log(Arc::clone(&shadow)).unwrap();
        let ((visible, is_visible), (release, released)) = (channel(), channel::<()>());
        let released = std::sync::Mutex::new(released);
        let model = HardwareModel::new(memory, log, HardwareLimits::default()).with_window(move || {
            visible.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        });
        let is_released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (model, is_released) = (&model, &is_released);
            scope.spawn(move || {
                let write = |tx: &mut HardwareTx<'_>| -> Result<(), Halt<Infallible>> {
                    Ok(tx.write_word(memory.base(), 7)?)
                };
                model.thread().run(write).unwrap();
            });
            is_visible.recv().unwrap();
            let (done, is_done) = channel();
            scope.spawn(move || {
                model.thread().alone(|| {
                    // SAFETY: inside the words, which no transaction writes now.
                    assert_eq!(unsafe { memory.load_word(memory.base()) }, 7);
                    done.send(is_released.load(Ordering::SeqCst)).unwrap();
                });
            });
            // Long enough for work that does not wait.
            let early = is_done.recv_timeout(Duration::from_millis(200));
            is_released.store(true, Ordering::SeqCst);
            release.send(()).unwrap();
            assert_eq!(
                early.or_else(|_| is_done.recv()),
                Ok(true),
                "it ran beside a commit that is not logged"
            );
        });
    }
}
