//! Converts the errors of the crates below into this crate's.

use crate::Error;
use crate::heap::HeapError;
use std::path::Path;

/// Name of a pool's data file, which holds its region.
const IMAGE: &str = "image";

impl From<mangrove_pool::Error> for Error {
    fn from(error: mangrove_pool::Error) -> Self {
        use mangrove_pool::Error as Below;
        match error {
            Below::Busy { path, holder } => Self::Busy { path, holder },
            Below::NotFound { path } => Self::NotFound { path },
            Below::Exists { path } => Self::Exists { path },
            Below::Foreign { path, what } => Self::Foreign { path, what },
            Below::Newer { path, found, supported } => Self::Newer { path, found, supported },
            Below::WrongKind { path, found, wanted } => Self::WrongKind { path, found, wanted },
            Below::Corrupt { path, offset, what } => Self::Corrupt { path, offset, what },
            Below::ReadOnly { path } => Self::ReadOnly { path },
            Below::NoSpace { path, wanted } => Self::NoSpace { path, wanted },
            Below::FileLimit { path, wanted } => Self::FileLimit { path, wanted },
            Below::MemoryLimit { path, wanted, limit } => Self::MemoryLimit { path, wanted, limit },
            Below::Unsupported { what } => Self::Unsupported { what },
            Below::Poisoned { first } => Self::Poisoned { first },
            Below::Io { path, doing, code, message } => {
                Self::Io { path, doing: doing.to_owned(), code, message }
            }
            other => Self::Unsupported { what: other.to_string() },
        }
    }
}

impl From<HeapError> for Error {
    fn from(error: HeapError) -> Self {
        match error {
            HeapError::Pool(error) => error.into(),
            other => Self::Unsupported { what: other.to_string() },
        }
    }
}

/// An error of the map in the pool at `path`.
#[cold]
pub(crate) fn engine(path: &Path, error: mangrove_hart::Error) -> Error {
    use mangrove_hart::Error as Below;
    match error {
        Below::KeyTooLong { len, max } => Error::KeyTooLong { len, max },
        Below::ValueTooLong { len, max } => Error::ValueTooLong { len, max },
        Below::Full { wanted, capacity } => {
            Error::Full { path: path.to_owned(), wanted, capacity, reserved: capacity }
        }
        Below::Corrupt { offset, what } => Error::Corrupt { path: path.join(IMAGE), offset, what },
        Below::NoMemory { wanted } => Error::NoMemory { wanted },
        Below::Mismatch { key } => Error::Mismatch { key: key.into() },
        Below::ReadOnly => Error::ReadOnly { path: path.to_owned() },
        Below::SnapshotExpired => Error::SnapshotExpired,
        Below::Unsupported { what } => Error::Unsupported { what },
        Below::Medium(error) => error.into(),
        other => Error::Unsupported { what: other.to_string() },
    }
}
