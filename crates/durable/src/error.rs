//! What can go wrong with a durable application, by what the caller can do about it.

use std::fmt;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. `Display` is a message for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Error {
    /// The pool could not be opened, read or written: see the inner error.
    Pool(mangrove_shadow::Error),
    /// The machine or the process cannot host the chosen tracker.
    Tracker { what: String },
    /// An option has a value that cannot be honoured.
    Invalid { what: String },
    /// An earlier error of the medium poisoned the pool: reads continue, writes fail.
    Poisoned { first: String },
    /// A command ended halfway: memory is not what a restart would find. Nothing more is committed or served.
    Broken { what: String },
    /// The call came from inside a command, or a second time on a client that is in a call.
    Nested,
    /// A call of a batch that the program fills itself came in the wrong order, or from the wrong thread or process.
    /// Nothing happened.
    Batch { what: String },
    /// The application's own initialisation or recovery callback failed.
    Refused { what: String },
    /// The state belongs to another build of the program.
    Foreign { what: String },
    /// The state points to something of the process that is elsewhere, or another build, in this run or the next.
    Moved { what: String },
    /// The state's own structures contradict each other.
    Damaged { what: String },
    /// The state's address space is used up.
    Full { what: String },
    /// More clients at a time than there can be.
    TooManyClients,
    /// The server got a call in the wrong order, or is being stopped.
    Server { what: String },
    /// The operating system refused.
    Io { doing: String, code: Option<i32>, message: String },
}

impl std::error::Error for Error {}

impl Error {
    /// True when this process may not have the memory that the state needs.
    #[must_use]
    pub fn is_memory_limit(&self) -> bool {
        matches!(self, Self::Pool(mangrove_shadow::Error::MemoryLimit { .. }))
    }

    /// True when what is stored is not what was written, or no state at all: trying again does not help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use mangrove_shadow::Error as Below;
        matches!(
            self,
            Self::Damaged { .. }
                | Self::Pool(Below::Corrupt { .. } | Below::Foreign { .. } | Below::WrongKind { .. })
        )
    }
}

impl From<mangrove_shadow::Error> for Error {
    fn from(error: mangrove_shadow::Error) -> Self {
        match error {
            mangrove_shadow::Error::Poisoned { first } => Self::Poisoned { first },
            other => Self::Pool(other),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => error.fmt(f),
            Self::Tracker { what } => {
                write!(f, "writes cannot be tracked here: {what}; choose another tracker")
            }
            Self::Invalid { what } => f.write_str(what),
            Self::Poisoned { first } => write!(
                f,
                "an earlier error ended writing ({first}); reads go on, and unless the pool is damaged the next start has every acknowledged write"
            ),
            Self::Broken { what } => write!(
                f,
                "a command ended halfway ({what}); nothing of its batch is durable, restart the program to go on from before it"
            ),
            Self::Nested => f.write_str(
                "this client is already in a call, or the call came from inside a command; use a client of its own, outside commands",
            ),
            Self::Refused { what } | Self::Foreign { what } | Self::Moved { what } | Self::Full { what } => {
                f.write_str(what)
            }
            Self::Damaged { what } => {
                write!(f, "the durable state is damaged: {what}; restore a backup of its directory")
            }
            Self::TooManyClients => f.write_str("there are more clients than can be counted; close some"),
            Self::Batch { what } | Self::Server { what } => f.write_str(what),
            Self::Io { doing, message, .. } => write!(f, "cannot {doing}: {message}"),
        }
    }
}
