//! Errors of a map, by what the caller can do about them.

use std::path::PathBuf;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. `Display` is a message that a user can act on.
///
/// None of these loses what was acknowledged earlier, except [`Error::Corrupt`], which names the file and the byte
/// where the medium returned something other than what was written.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than [`crate::KEY_BYTES_MAX`]. Nothing was changed.
    KeyTooLong {
        /// Bytes of the key given.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The value is longer than [`crate::VALUE_BYTES_MAX`]. Nothing was changed.
    ValueTooLong {
        /// Bytes of the value given.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The record of this key is not as the batch expects ([`crate::Batch::expect`]). Nothing was changed.
    Mismatch {
        /// The first such key.
        key: Vec<u8>,
    },
    /// Another process (or another handle of this one) holds the pool.
    Busy {
        /// The pool.
        path: PathBuf,
        /// Which process, as in "process 17 (redis-server)", where that can be found out.
        holder: Option<String>,
    },
    /// There is no pool at the path, and the options do not say `create`.
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// A pool is already there and the caller asked for a new one.
    Exists {
        /// The pool.
        path: PathBuf,
    },
    /// What lies at the path is not a Mangrove pool, or is one of a machine of the other byte order.
    Foreign {
        /// The path asked for.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// The pool was written by a newer format than this program reads.
    Newer {
        /// The pool.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version that this program reads.
        supported: u32,
    },
    /// The pool holds another kind of object than it was opened for.
    WrongKind {
        /// The pool.
        path: PathBuf,
        /// Kind found.
        found: String,
        /// Kind that it was opened for.
        wanted: String,
    },
    /// The bytes read back are not the bytes written. The map did not return them.
    Corrupt {
        /// File that holds the bad bytes.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was expected.
        what: String,
    },
    /// There is no memory for a copy of the value. Nothing happened.
    NoMemory {
        /// Bytes of the value.
        wanted: u64,
    },
    /// The map was opened read-only, or the pool's files cannot be written.
    ReadOnly {
        /// The pool.
        path: PathBuf,
    },
    /// The medium is full. Nothing was changed; the map continues to work.
    NoSpace {
        /// The pool.
        path: PathBuf,
        /// Bytes wanted.
        wanted: u64,
    },
    /// A file of the pool may not grow further, for this process (`ulimit -f`) or on its file system. Nothing was
    /// changed; the map continues to work.
    FileLimit {
        /// The file.
        path: PathBuf,
        /// Bytes wanted.
        wanted: u64,
    },
    /// This process may not have so much memory ([`crate::MapOptions::memory_bytes_max`]; with `limit` 0, `ulimit -v`).
    /// Nothing was changed; an open map continues to work.
    MemoryLimit {
        /// The pool.
        path: PathBuf,
        /// Bytes that the process would have then; with `limit` 0, bytes of address space wanted.
        wanted: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// The pool's capacity is in use. Nothing was changed; the map continues to work.
    Full {
        /// The pool.
        path: PathBuf,
        /// Bytes wanted in one piece.
        wanted: u64,
        /// Bytes that the pool can ever hold.
        capacity: u64,
        /// Bytes of address space that this process could reserve for the pool; fewer than `capacity` under a limit
        /// of the process.
        reserved: u64,
    },
    /// An option or a request cannot be honoured by this pool or machine.
    Unsupported {
        /// Which, and what to do.
        what: String,
    },
    /// An earlier I/O error has poisoned the pool: reads work, writes fail, and nothing more is acknowledged.
    Poisoned {
        /// The first error.
        first: String,
    },
    /// The snapshot's pre-images exceeded their bound and were dropped; take a new snapshot.
    SnapshotExpired,
    /// The caller's progress function stopped the operation, which left nothing.
    Stopped,
    /// The operating system refused.
    Io {
        /// File concerned.
        path: PathBuf,
        /// What was being done, as in "cannot *read* FILE".
        doing: String,
        /// The system's error number, if there is one.
        code: Option<i32>,
        /// The system's message.
        message: String,
    },
}

impl std::error::Error for Error {}

/// The message of `Display`: what a program prints whose `main` returns the error.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
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
            Self::Mismatch { key } => write!(
                f,
                "the record of key \"{}\" is not as the batch expects; read it again and retry",
                key.escape_ascii()
            ),
            Self::Busy { path, holder } => write!(
                f,
                "{} is in use by {}; close it there first",
                path.display(),
                holder.as_deref().unwrap_or("another process, or elsewhere in this one")
            ),
            Self::NotFound { path } => write!(f, "there is no pool at {}", path.display()),
            Self::Exists { path } => {
                write!(f, "{} already exists; open it, or choose another path", path.display())
            }
            Self::Foreign { path, what } => write!(f, "{} is not a Mangrove pool: {what}", path.display()),
            Self::Newer { path, found, supported } => write!(
                f,
                "{} has format version {found}, this program reads up to {supported}; use a newer Mangrove",
                path.display()
            ),
            Self::WrongKind { path, found, wanted } => {
                let (found, wanted) = (mangrove_pool::named(found), mangrove_pool::named(wanted));
                write!(f, "{} holds {found}, not {wanted}; open it as what it is", path.display())
            }
            Self::Corrupt { path, offset, what } => {
                write!(f, "{} is damaged at byte {offset}: {what}; restore it from a backup", path.display())
            }
            Self::NoMemory { wanted } => {
                write!(f, "no memory for a value of {wanted} bytes; free some and retry")
            }
            Self::ReadOnly { path } => {
                let path = path.display();
                write!(
                    f,
                    "{path} cannot be written: it is open read-only, or its permissions or its directory's \
                     say so"
                )
            }
            Self::NoSpace { path, wanted: 0 } => {
                write!(f, "no space left for {}; free some and retry", path.display())
            }
            Self::NoSpace { path, wanted } => write!(
                f,
                "no space left for {} ({wanted} more bytes were wanted); free some and retry",
                path.display()
            ),
            Self::FileLimit { path, .. } => write!(
                f,
                "{} has reached the file size limit of this process or its file system; raise it (ulimit -f) and retry",
                path.display()
            ),
            Self::MemoryLimit { path, wanted, limit: 0 } => write!(
                f,
                "{} needs {wanted} more bytes of address space than this process may map; raise its limit (ulimit -v)",
                path.display()
            ),
            Self::MemoryLimit { path, wanted, limit } => write!(
                f,
                "{} needs {wanted} bytes of memory in this process, which may have {limit}; free some, or raise the limit (memory_bytes_max, in C set_memory_max, or that of its control group)",
                path.display()
            ),
            Self::Full { path, wanted, capacity, reserved } if reserved < capacity => write!(
                f,
                "this process could reserve only {reserved} bytes of address space for {}, and they are in use ({wanted} more were wanted); raise its limit (ulimit -v) and open the pool again",
                path.display()
            ),
            Self::Full { path, wanted, capacity, .. } => write!(
                f,
                "the {capacity} bytes of {} are in use ({wanted} more were wanted); delete records, or open the pool with a greater capacity",
                path.display()
            ),
            Self::Unsupported { what } => f.write_str(what),
            Self::Poisoned { first } => write!(
                f,
                "an earlier I/O error made this pool unable to promise durability: {first}; reads go on, reopen the pool to write"
            ),
            Self::SnapshotExpired => {
                f.write_str("the snapshot was dropped because too much changed since it was taken; take a new one, or raise snapshot_bytes_max (it is no more than a quarter of the memory limit)")
            }
            Self::Stopped => f.write_str("stopped as asked; nothing was left behind"),
            Self::Io { path, doing, message, .. } => write!(f, "cannot {doing} {}: {message}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn a_number_that_nobody_knows_is_not_told() {
        let path = std::path::PathBuf::from("p/log");
        let some = Error::NoSpace { path: path.clone(), wanted: 7 }.to_string();
        assert_eq!(some, "no space left for p/log (7 more bytes were wanted); free some and retry");
        let none = Error::NoSpace { path, wanted: 0 }.to_string();
        assert_eq!(none, "no space left for p/log; free some and retry");
    }

    #[test]
    fn a_main_that_returns_an_error_prints_its_sentence() {
        let error = Error::NotFound { path: "p".into() };
        assert_eq!(format!("{error:?}"), "there is no pool at p");
        assert_eq!(format!("{:?}", Err::<(), _>(error)), "Err(there is no pool at p)");
    }
}
