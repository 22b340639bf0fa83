//! Errors of a map, by what the caller can do about them.

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Every variant leaves the map usable for reading.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than [`crate::KEY_BYTES_MAX`]; nothing changed.
    KeyTooLong {
        /// Bytes of the key given.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The value is longer than [`crate::VALUE_BYTES_MAX`]; nothing changed.
    ValueTooLong {
        /// Bytes of the value given.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The region's whole address space is in use; nothing changed. Deleting records frees space.
    Full {
        /// Bytes that were wanted in one piece.
        wanted: u64,
        /// Bytes that the region can ever hold.
        capacity: u64,
    },
    /// A durable structure breaks its rules; the map did not return the bad bytes.
    Corrupt {
        /// Where in the region.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// There is no memory for a copy of the value; nothing happened.
    NoMemory {
        /// Bytes of the value.
        wanted: u64,
    },
    /// The record of this key is not as the batch expects; nothing changed.
    Mismatch {
        /// The first such key.
        key: Box<[u8]>,
    },
    /// The map was opened read-only.
    ReadOnly,
    /// The snapshot's pre-images outgrew their bound; take a new snapshot.
    SnapshotExpired,
    /// An option has a value that this map cannot honour.
    Unsupported {
        /// Which, and what to do.
        what: String,
    },
    /// The medium failed or is full, or an earlier failure poisoned it.
    Medium(mangrove_pool::Error),
}

impl Error {
    /// True when space is lacking in the region or on the medium; reclaiming what lanes have reserved can help then.
    pub(crate) fn is_full(&self) -> bool {
        use mangrove_pool::Error as Below;
        matches!(
            self,
            Self::Full { .. }
                | Self::Medium(Below::NoSpace { .. } | Below::FileLimit { .. } | Below::MemoryLimit { .. })
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Medium(e) => Some(e),
            _ => None,
        }
    }
}

impl From<mangrove_pool::Error> for Error {
    fn from(e: mangrove_pool::Error) -> Self {
        Self::Medium(e)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KeyTooLong { len, max } => {
                write!(f, "a key has at most {max} bytes and this one has {len}; shorten it or store its hash")
            }
            Self::ValueTooLong { len, max } => {
                write!(f, "a value has at most {max} bytes and this one has {len}; split it over several keys")
            }
            Self::Full { wanted, capacity } => write!(
                f,
                "the map's {capacity} bytes are in use ({wanted} more were wanted); delete records, or open the map with a greater capacity"
            ),
            Self::Corrupt { offset, what } => {
                write!(f, "the map is damaged at byte {offset} of its region: {what}; restore it from a backup")
            }
            Self::NoMemory { wanted } => {
                write!(f, "no memory for a value of {wanted} bytes; free some and retry")
            }
            Self::Mismatch { key } => write!(
                f,
                "the record of key \"{}\" is not as the batch expects; read it again and retry",
                key.escape_ascii()
            ),
            Self::ReadOnly => f.write_str("the map is open read-only; open it for writing to change it"),
            Self::SnapshotExpired => f.write_str(
                "the snapshot was dropped because too much changed since it was taken; take a new one, or raise snapshot_bytes_max (it is no more than a quarter of the memory limit)",
            ),
            Self::Unsupported { what } => f.write_str(what),
            Self::Medium(e) => e.fmt(f),
        }
    }
}

/// What `attempt` returns; where it found no space, what it returns once `make_room` has been called.
pub(crate) fn twice_if_full<T>(
    make_room: impl FnOnce(),
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(e) if e.is_full() => {
            make_room();
            attempt()
        }
        answer => answer,
    }
}
