//! What can fail in a pool, divided by what the caller can do about it.

use std::path::PathBuf;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a pool could not be opened, read or made durable. `Display` is a message for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Error {
    /// Another process holds the pool: `holder` tells which, where that can be found out.
    Busy { path: PathBuf, holder: Option<String> },
    /// There is no pool at the path.
    NotFound { path: PathBuf },
    /// A pool is already there and the caller asked for a new one.
    Exists { path: PathBuf },
    /// The path holds something that is not a Mangrove pool (or one of another byte order).
    Foreign { path: PathBuf, what: String },
    /// The pool was written by a newer format.
    Newer { path: PathBuf, found: u32, supported: u32 },
    /// The pool holds another kind of object.
    WrongKind { path: PathBuf, found: String, wanted: String },
    /// Bytes read back are not the bytes written.
    Corrupt { path: PathBuf, offset: u64, what: String },
    /// The pool or its medium cannot be written.
    ReadOnly { path: PathBuf },
    /// The medium is full. Nothing acknowledged is lost, and the pool stays usable.
    NoSpace { path: PathBuf, wanted: u64 },
    /// A file may not grow further, for the process or on its file system; otherwise as `NoSpace`.
    FileLimit { path: PathBuf, wanted: u64 },
    /// This process may not have so much memory. Nothing changed, and the pool stays usable.
    MemoryLimit { path: PathBuf, wanted: u64, limit: u64 },
    /// Something else lies at the address that the pool's pointers were made for.
    AddressTaken { address: u64, len: u64 },
    /// An option has a value that this pool or machine cannot honour.
    Unsupported { what: String },
    /// An earlier I/O error poisoned the pool: reads continue, writes fail.
    Poisoned { first: String },
    /// The pool was closed or dropped while its region was still in use.
    Closed { path: PathBuf },
    /// The operating system reported an error.
    Io { path: PathBuf, doing: &'static str, code: Option<i32>, message: String },
}

/// The holder that is this process.
const HERE: &str = "this process itself";

impl std::error::Error for Error {}

impl Error {
    /// The operating system's error while `doing` something to `path`.
    pub(crate) fn from_io(path: PathBuf, doing: &'static str, e: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match e.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if doing != "read" => {
                Self::ReadOnly { path }
            }
            ErrorKind::FileTooLarge => {
                let message = format!("{e}; raise the limit of this process or its file system (ulimit -f)");
                Self::Io { path, doing, code: e.raw_os_error(), message }
            }
            _ => Self::Io { path, doing, code: e.raw_os_error(), message: e.to_string() },
        }
    }

    /// The error of a call in a child of fork on what its parent has open at `path`.
    #[must_use]
    pub fn forked(path: &std::path::Path) -> Self {
        Self::Unsupported {
            what: format!(
                "{} was opened before this process was forked; use it in the parent, or close it there and open it in \
                 a process that was started anew",
                path.display()
            ),
        }
    }

    /// The error that another opening has the pool in `directory`, or that another process has locked this file.
    #[must_use]
    pub fn busy(directory: &std::path::Path) -> Self {
        let holder = mangrove_sys::lock_holder(directory)
            .or_else(|| mangrove_sys::lock_holder(&directory.join("pool")))
            .map(|pid| match mangrove_sys::process_name(pid) {
                _ if pid == std::process::id() => HERE.to_owned(),
                Some(name) => format!("process {pid} ({name})"),
                None => format!("process {pid}"),
            });
        Self::Busy { path: directory.to_owned(), holder }
    }

    /// True of `busy` when the holder is this process.
    pub(crate) fn is_held_here(&self) -> bool {
        matches!(self, Self::Busy { holder: Some(holder), .. } if holder == HERE)
    }

    /// As `busy`, for a reader: the holder does what `why` says.
    pub(crate) fn busy_since(directory: &std::path::Path, why: &str) -> Self {
        match Self::busy(directory) {
            Self::Busy { path, holder } => {
                let holder = holder.unwrap_or_else(|| "another process, or elsewhere in this one".to_owned());
                Self::Busy { path, holder: Some(format!("{holder}, which {why}")) }
            }
            other => other,
        }
    }

    /// The error about `path` for `e`, of which [`is_no_space`] is true.
    pub(crate) fn no_space(path: PathBuf, wanted: u64, e: &std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::FileTooLarge => Self::FileLimit { path, wanted },
            _ => Self::NoSpace { path, wanted },
        }
    }
}

/// True when the medium, or the user's share of it, is full.
pub(crate) fn is_no_space(e: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// True when the process, or the system, has no file descriptor left: nothing was written.
pub(crate) fn is_no_descriptor(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What a kind of pool is called in a message.
#[must_use]
pub fn named(kind: &str) -> std::borrow::Cow<'static, str> {
    match kind {
        "durable" => "the state of a durable application".into(),
        other => format!("a {other}").into(),
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Busy { path, holder } => write!(
                f,
                "{} is in use by {}; close it there first, or wait for it",
                path.display(),
                holder.as_deref().unwrap_or("another process, or elsewhere in this one")
            ),
            Self::NotFound { path } => write!(f, "there is no pool at {}", path.display()),
            Self::Exists { path } => {
                write!(f, "{} already holds a pool; open it, or choose another path", path.display())
            }
            Self::Foreign { path, what } => write!(f, "{} is not a Mangrove pool: {what}", path.display()),
            Self::Newer { path, found, supported } => write!(
                f,
                "{} has format version {found}, this program reads up to {supported}; use a newer Mangrove",
                path.display()
            ),
            Self::WrongKind { path, found, wanted } => {
                let (found, wanted) = (named(found), named(wanted));
                write!(f, "{} holds {found}, not {wanted}; open it as what it is", path.display())
            }
            Self::Corrupt { path, offset, what } => {
                write!(f, "{} is damaged at byte {offset}: {what}; restore it from a backup", path.display())
            }
            Self::ReadOnly { path } => {
                write!(f, "{} cannot be written; open it read-only or change its permissions", path.display())
            }
            Self::NoSpace { path, wanted: 0 } => {
                write!(f, "no space left on the medium of {}; free some space and retry", path.display())
            }
            Self::NoSpace { path, wanted } => write!(
                f,
                "no space left on the medium of {} ({wanted} more bytes were wanted); free some space and retry",
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
            Self::AddressTaken { address, len } => write!(
                f,
                "the pool belongs at address {address:#x} (up to {len} bytes), where this process has something \
                 else; open it earlier, or in a process started again"
            ),
            Self::Unsupported { what } => f.write_str(what),
            Self::Poisoned { first } => write!(
                f,
                "an earlier I/O error made this pool unable to promise durability: {first}; reads go on, reopen the pool to write"
            ),
            Self::Closed { path } => write!(f, "the pool {} has been closed; open it again", path.display()),
            Self::Io { path, doing, message, .. } => {
                write!(f, "cannot {doing} {}: {message}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn a_write_beyond_a_limit_on_files_is_told_with_the_limit() {
        let e = std::io::Error::from_raw_os_error(libc::EFBIG);
        let told = Error::from_io("p/image".into(), "write", &e);
        assert!(matches!(told, Error::Io { code: Some(libc::EFBIG), .. }), "{told}");
        let told = told.to_string();
        assert!(told.starts_with("cannot write p/image: ") && told.contains("(ulimit -f)"), "{told}");
    }
}
