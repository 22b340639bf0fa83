//! What can go wrong with a tracked call, by what the caller can do about it.

use std::fmt;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a tracker could not be made, or a call could not be tracked. `Display` is a message for the user.
///
/// After [`Refused`](Error::Refused), [`Exception`](Error::Exception), [`LongJump`](Error::LongJump) and
/// [`Escaped`](Error::Escaped) the call has *ended early or unseen*: see [`Error::is_fatal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Error {
    /// Another thread is in a tracked call, or this one calls a second time from within.
    Busy,
    /// The machine or the process cannot host this tracker.
    Unsupported { what: String },
    /// An option cannot be honoured.
    Invalid { what: String },
    /// The tracked code did something that cannot be tracked; the call was abandoned at that instruction.
    Refused { what: String },
    /// An exception left the called function; it was caught and destroyed.
    Exception,
    /// The called function jumped out (longjmp); the jump was not made and the call was abandoned.
    LongJump,
    /// Part of the call ran untracked: its writes are unknown.
    Escaped { how: String },
}

impl Error {
    /// True if memory may now hold half of what the call wanted to do, or writes that no tracker recorded. The
    /// program must go back to the state before the batch, as it would after a crash.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Exception | Self::LongJump | Self::Escaped { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "a tracked call is already running; one runs at a time"),
            Self::Unsupported { what } => write!(f, "this tracker cannot work here: {what}"),
            Self::Invalid { what } => write!(f, "{what}"),
            Self::Refused { what } => write!(f, "the tracked call was abandoned: {what}"),
            Self::Exception => write!(f, "an exception left the tracked call; catch it inside"),
            Self::LongJump => {
                write!(f, "the tracked call jumped out of itself (longjmp); jump inside it only")
            }
            Self::Escaped { how } => write!(f, "part of the tracked call ran unseen: {how}"),
        }
    }
}

impl std::error::Error for Error {}
