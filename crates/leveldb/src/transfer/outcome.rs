//! How a transfer goes and ends.

use crate::status::Failure;
use std::fmt;
use std::path::Path;

/// How far a transfer has come.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TransferProgress {
    /// Records that were written.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// About how many bytes there are in all.
    pub bytes_expected: u64,
}

/// What a transfer that is done has moved.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Transferred {
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Why a transfer failed. It left nothing under the asked name, unless the message says that it did.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The caller asked it to stop.
    Stopped,
    /// It cannot be done, for a reason that the caller can change.
    Refused(String),
    /// It began, and something failed.
    Failed(String),
}

pub(super) type Result<T> = std::result::Result<T, TransferError>;

impl TransferError {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }

    /// The operating system refused to `doing` the thing at `path`.
    pub(super) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::Failed(format!("cannot {doing} {}: {error}", path.display()))
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Refused(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TransferError {}

impl From<Failure> for TransferError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.message().to_owned())
    }
}
