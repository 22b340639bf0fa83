//! How a program runs transactions: an executor for all threads, a handle for each, and how a transaction ends.

use crate::access::{Halt, Interrupted, TxAccess};
use std::convert::Infallible;
use std::fmt;

/// Why a transaction has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxError<E, S> {
    /// The body aborted with this value. Nothing happened.
    Aborted(E),
    /// The redo log did not take the atomic group. Nothing happened.
    Refused(S),
    /// The redo log failed after the transaction had become visible to others (or, if it only read, while it waited
    /// for what it saw to be durable). Whether a crash keeps it is not known.
    InDoubt(S),
}

impl<E: fmt::Display, S: fmt::Debug> fmt::Display for TxError<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted(value) => write!(f, "the transaction aborted, and nothing was changed: {value}"),
            Self::Refused(cause) => {
                write!(f, "the log did not take the transaction, and nothing was changed: {cause:?}")
            }
            Self::InDoubt(cause) => write!(
                f,
                "the transaction took place, but the log failed, and a crash may undo it: {cause:?}"
            ),
        }
    }
}

impl<E: fmt::Debug + fmt::Display, S: fmt::Debug> std::error::Error for TxError<E, S> {}

/// What one thread's transactions have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxCounts {
    /// Transactions that committed.
    pub commits: u64,
    /// Attempts that were undone because of another thread (or, in hardware, for any cause).
    pub conflicts: u64,
    /// Of the commits, those that ran while no other transaction could: the fallback after many conflicts, or with the
    /// one lock.
    pub serial: u64,
    /// Of the commits, those that ran in solo mode.
    pub solo: u64,
    /// Of the commits, those in hardware or its model. The commits that are none of these three ran beside others,
    /// under ownership records.
    pub hardware: u64,
    /// Of the aborted hardware attempts, those that wrote or read more than the hardware holds.
    pub capacity: u64,
    /// Of the aborted hardware attempts, those that ended themselves (XABORT): another transaction had the lock.
    pub explicit: u64,
    /// Of the aborted hardware attempts, those for which the hardware gave no reason: a page fault, a system call, an
    /// interrupt, an instruction that transactions cannot execute. RTM does not tell which.
    pub without_reason: u64,
}

/// An executor: it isolates the transactions of many threads on one [`TxMemory`](crate::TxMemory).
pub trait Isolation: Sync {
    /// One thread's handle.
    type Thread<'executor>: TxThread
    where
        Self: 'executor;

    /// A handle for the calling thread.
    fn thread(&self) -> Self::Thread<'_>;
}

/// What a transaction of this handle returns.
pub type Answer<T, E, H> = Result<T, TxError<E, <H as TxThread>::SinkError>>;

/// One thread's handle to an executor.
///
/// A body may run many times, and its effects must be confined to what it reads and writes through its argument;
/// each run sees one consistent state of memory, also a run that is undone in the end. A panic in a body undoes the
/// transaction and then reaches the caller; other threads do not notice.
pub trait TxThread {
    /// A transaction as its body sees it.
    type Tx: TxAccess;
    /// Why the redo log fails.
    type SinkError: fmt::Debug;

    /// Runs `body` as one transaction and returns its result.
    ///
    /// # Errors
    /// [`TxError::Aborted`] with the value of [`Halt::Abort`]; the other two when the redo log fails.
    fn run<T, E>(&mut self, body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self>;

    /// As `run`, but may return before what the transaction wrote, and what it read, is durable: it returns the
    /// result with the redo log's ticket to wait for ([`RedoSink::defer`](crate::RedoSink::defer)), 0 if all of it
    /// is durable. An executor that cannot defer waits.
    ///
    /// # Errors
    /// As for `run`.
    fn run_nowait<T, E>(
        &mut self,
        body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>,
    ) -> Answer<(T, u64), E, Self> {
        self.run(body).map(|answer| (answer, 0))
    }

    /// As `run`, for a body that rarely or never writes: executors skip what only writers need.
    ///
    /// # Errors
    /// As for `run`.
    fn read<T, E>(&mut self, body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self> {
        self.run(body)
    }

    /// Runs `body` exactly once, while no other transaction runs: no other thread can undo it, and it may do what
    /// cannot be undone, such as output. It waits until the running transactions have ended, and all others wait
    /// until it has. (Nested transactions in it may halt, as everywhere.)
    ///
    /// # Errors
    /// The redo log's. With [`TxError::Refused`] its writes are undone although the body has run. So they are when it
    /// panics.
    ///
    /// # Panics
    /// When the body gives back the interruption of another executor's transaction.
    fn irrevocable<T>(
        &mut self,
        body: impl FnOnce(&mut Self::Tx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self>;

    /// Waits until everything that has been committed is durable, as `run` waits for what a transaction has read: for
    /// what an aborted one has read, which its caller may tell.
    ///
    /// # Errors
    /// The redo log's.
    fn settle_all(&mut self) -> Result<(), Self::SinkError>;

    /// What this handle's transactions have met so far.
    fn counts(&self) -> TxCounts;
}

/// The body of an irrevocable transaction, which runs once.
///
/// # Panics
/// At the second call.
pub(crate) fn once<B>(body: &mut Option<B>) -> B {
    body.take().expect("an executor runs an irrevocable body once")
}

/// An irrevocable transaction gave back an interruption, or asked for a retry, which its type does not allow.
#[cold]
pub(crate) fn foreign_interruption() -> ! {
    panic!(
        "no access of an irrevocable transaction is interrupted; this interruption is another transaction's"
    )
}
