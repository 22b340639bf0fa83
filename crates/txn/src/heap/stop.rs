//! How the body of a transaction ends without a result.

use super::error::HeapError;
use crate::access::{Halt, Interrupted};

/// The body must end: return it from the body, usually with `?`. The transaction is then undone; whether it runs
/// again or fails depends on why the access failed.
#[derive(Debug)]
#[must_use = "return it from the body"]
pub struct Stop(pub(super) Why);

#[derive(Debug)]
pub(super) enum Why {
    Interrupted(Interrupted),
    Retry,
    Failed(Box<HeapError>),
}

impl Stop {
    /// The error that the transaction will fail with; none if it only has to be run again.
    #[must_use]
    pub fn error(&self) -> Option<&HeapError> {
        match &self.0 {
            Why::Failed(error) => Some(error),
            Why::Interrupted(_) | Why::Retry => None,
        }
    }
}

impl From<Interrupted> for Stop {
    #[inline(always)]
    fn from(interrupted: Interrupted) -> Self {
        Self(Why::Interrupted(interrupted))
    }
}

impl From<HeapError> for Stop {
    #[cold]
    fn from(error: HeapError) -> Self {
        Self(Why::Failed(Box::new(error)))
    }
}

/// How the body of [`Heap::try_transaction`](crate::Heap::try_transaction) ends without a result.
#[derive(Debug)]
pub enum Cancel<E> {
    /// Something of the heap's; `?` makes this of [`Stop`].
    Stop(Stop),
    /// Undo the transaction, and give this to the caller.
    Abort(E),
}

impl<E> From<Stop> for Cancel<E> {
    #[inline(always)]
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// What an executor returns for a body that returned no result.
pub(super) enum Cancelled<E> {
    Failed(Box<HeapError>),
    Aborted(E),
}

impl<E> From<Cancel<E>> for Halt<Cancelled<E>> {
    #[inline(always)]
    fn from(cancel: Cancel<E>) -> Self {
        match cancel {
            Cancel::Stop(Stop(Why::Interrupted(interrupted))) => Self::Interrupted(interrupted),
            Cancel::Stop(Stop(Why::Retry)) => Self::Retry,
            Cancel::Stop(Stop(Why::Failed(error))) => Self::Abort(Cancelled::Failed(error)),
            Cancel::Abort(value) => Self::Abort(Cancelled::Aborted(value)),
        }
    }
}
