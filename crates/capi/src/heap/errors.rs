//! The statuses of a heap's errors.

use crate::status::Failure;
use crate::status::mangrove_status::*;
use mangrove::Error;
use mangrove::heap::HeapError;

/// The message for a call inside a transaction on the same heap.
pub(super) const NESTED: &str =
    "the thread is inside a transaction on this heap; use its `tx`, or end it first";

impl From<HeapError> for Failure {
    fn from(error: HeapError) -> Self {
        let status = match &error {
            HeapError::Pool(pool) => return Error::from(pool.clone()).into(),
            HeapError::InDoubt(_) => MANGROVE_ERR_IN_DOUBT,
            HeapError::Stopped => MANGROVE_ERR_STOPPED,
            HeapError::ReadOnly => MANGROVE_ERR_READ_ONLY,
            HeapError::Full { .. } => MANGROVE_ERR_FULL,
            HeapError::NoSpace { .. } => MANGROVE_ERR_NO_SPACE,
            HeapError::BadFree { .. } | HeapError::Root { .. } | HeapError::Invalid { .. } => {
                MANGROVE_ERR_INVALID_ARGUMENT
            }
            HeapError::Nested | HeapError::Ending => MANGROVE_ERR_TX_MISPLACED,
            HeapError::Forked => MANGROVE_ERR_UNSUPPORTED,
            HeapError::Damaged { .. } => MANGROVE_ERR_CORRUPT,
            // The enum may grow; its message still reaches the caller.
            _ => MANGROVE_ERR_INTERNAL,
        };
        Self::new(status, error.to_string())
    }
}
