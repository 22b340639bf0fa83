//! What can go wrong with a heap, by what the caller can do about it.

use std::fmt;

/// Result of a heap's calls.
pub type HeapResult<T> = Result<T, HeapError>;

/// Why a call failed. `Display` is a message for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HeapError {
    /// The pool could not be opened, read or written: see the inner error. A transaction that failed so was undone.
    Pool(mangrove_shadow::Error),
    /// The log failed after the transaction had become visible to others. Whether a crash keeps it is not known;
    /// nothing is acknowledged any more.
    InDoubt(mangrove_shadow::Error),
    /// A transaction wrote to a heap that was opened read-only, or waits for a change of it. It was undone.
    ReadOnly,
    /// The heap's capacity has no space for a block. The transaction was undone, and the heap stays usable.
    Full {
        /// Bytes of the block.
        wanted: u64,
    },
    /// The heap's medium has no space to grow for a block. The transaction was undone, and the heap stays usable.
    NoSpace {
        /// Bytes of the block.
        wanted: u64,
        /// Why the heap did not grow.
        why: String,
    },
    /// A block was freed that is none, or is free already. The transaction was undone.
    BadFree {
        /// The address.
        address: usize,
        /// True if a block begins there that is free already.
        twice: bool,
    },
    /// A root has another size than the type that it was asked for, or cannot be made. The transaction was undone.
    Root {
        /// Its name, and what is wrong.
        what: String,
    },
    /// A transaction was begun inside another one of the same thread on the same heap.
    Nested,
    /// A destructor of the calling thread called, after the thread's part of the heap had gone.
    Ending,
    /// The caller stopped a backup: nothing is left of it.
    Stopped,
    /// The heap was opened by the process that this one was forked from.
    Forked,
    /// The heap's own structures contradict each other.
    Damaged {
        /// Which, and how.
        what: String,
    },
    /// An option cannot be honoured.
    Invalid {
        /// Which, and what would work.
        what: String,
    },
}

impl std::error::Error for HeapError {}

impl From<mangrove_shadow::Error> for HeapError {
    fn from(error: mangrove_shadow::Error) -> Self {
        Self::Pool(error)
    }
}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => error.fmt(f),
            Self::InDoubt(error) => write!(
                f,
                "the log failed when the transaction was visible already, and a crash may undo it ({error}); nothing is durable any more, close the heap and open it again"
            ),
            Self::ReadOnly => {
                f.write_str("the heap was opened read-only, so nothing in it can change; open it for writing")
            }
            Self::Full { wanted } => write!(
                f,
                "the heap has no room for a block of {wanted} bytes: its address space is used up, or free in shorter pieces; free blocks, or create a heap of a larger capacity"
            ),
            Self::NoSpace { wanted, why } => write!(
                f,
                "the heap cannot grow for a block of {wanted} bytes ({why}); free blocks, or make room on its medium"
            ),
            Self::BadFree { address, twice: true } => {
                write!(f, "the block at {address:#x} is free already; free each block once")
            }
            Self::BadFree { address, twice: false } => {
                write!(f, "no block of this heap begins at {address:#x}; free what `alloc` returned")
            }
            Self::Root { what } | Self::Invalid { what } => f.write_str(what),
            Self::Nested => f.write_str(
                "a transaction of this thread is running on this heap already; use its `tx` instead of the heap",
            ),
            Self::Ending => f.write_str(
                "the calling thread is ending, and its part of the heap has gone; let a destructor of the thread leave the heap to other threads",
            ),
            Self::Stopped => f.write_str("the backup was stopped, and nothing is left of it"),
            Self::Forked => f.write_str(
                "this heap was opened before the process was forked; use it in the parent, or close it there and open it here",
            ),
            Self::Damaged { what } => write!(f, "the heap is damaged: {what}; restore it from a backup"),
        }
    }
}
