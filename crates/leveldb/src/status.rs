//! Why a call failed, in LevelDB's form, and the guards of the entry points.

use mangrove::Error;
use mangrove_cabi::{BadArgument, Problem, allocate, stop_panics, stop_panics_and_cancellation};
use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{c_char, c_void};
use std::fmt;

/// The message that a caller gets where there is no memory for the right one.
const NO_MEMORY_FOR_MESSAGE: &[u8] = b"IO error: no memory for more words";

/// The kinds of failure that LevelDB distinguishes by the first words of the message; `NotFound` is no failure here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Corruption,
    NotSupported,
    InvalidArgument,
    IoError,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
    /// The medium could not read what lies there.
    is_unreadable: bool,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), is_unreadable: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidArgument, message)
    }

    pub(crate) fn corruption(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Corruption, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotSupported, message)
    }

    /// What went wrong, without the kind before it.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// True when what was written is not what was read, or the medium cannot read it.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind == FailureKind::Corruption || self.is_unreadable
    }

    /// The operating system refused to `doing` the thing at `path`.
    pub(crate) fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(FailureKind::IoError, format!("cannot {doing} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::Corruption => "Corruption",
            FailureKind::NotSupported => "Not implemented",
            FailureKind::InvalidArgument => "Invalid argument",
            FailureKind::IoError => "IO error",
        };
        write!(f, "{kind}: {}", self.message)
    }
}

impl From<BadArgument> for Failure {
    fn from(bad: BadArgument) -> Self {
        let what = bad.what;
        Self::invalid(match bad.problem {
            Problem::NullBytes(len) => format!("a {what} of {len} bytes: they are at NULL"),
            Problem::TooManyBytes(len) => format!("a {what} of {len} bytes: no memory holds so many"),
            _ => bad.to_string(),
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            // Not NotFound, which is a key's: of a database it means that one of its files is missing.
            Error::NotFound { .. }
            | Error::Corrupt { .. }
            | Error::Foreign { .. }
            | Error::WrongKind { .. } => FailureKind::Corruption,
            Error::Unsupported { .. } | Error::Newer { .. } => FailureKind::NotSupported,
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::Exists { .. } => {
                FailureKind::InvalidArgument
            }
            _ => FailureKind::IoError,
        };
        let is_unreadable =
            matches!(&error, Error::Io { doing, code: Some(libc::EIO), .. } if doing == "read");
        Self { is_unreadable, ..Self::new(kind, error.to_string()) }
    }
}

/// Runs the body of an entry point; a panic becomes a failure like any other.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    or_panic(stop_panics(body))
}

fn or_panic<T>(answer: std::result::Result<Result<T>, String>) -> Result<T> {
    answer.unwrap_or_else(|panic| Err(Failure::new(FailureKind::IoError, panic)))
}

/// As [`caught`], of work that waits or uses files: a cancellation waits until it has ended.
pub(crate) fn caught_uncancelled<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    or_panic(stop_panics_and_cancellation(work))
}

/// Runs the body of an entry point that reports errors. A failure, or a panic, replaces the caller's error string,
/// and `guard` returns `None`. Success leaves the string as it is. A cancellation waits until the body has ended.
///
/// # Safety
/// `errptr` is NULL or points to NULL or to a string from malloc().
pub(crate) unsafe fn guard<T>(errptr: *mut *mut c_char, body: impl FnOnce() -> Result<T>) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { reported(errptr, caught_uncancelled(body)) }
}

/// As [`guard`], of a call that meets no cancellation: it only reads memory, and where an engine makes it wait for the
/// log, the engine itself uses [`caught_uncancelled`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn guard_look_up<T>(
    errptr: *mut *mut c_char,
    body: impl FnOnce() -> Result<T>,
) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { reported(errptr, caught(body)) }
}

/// # Safety
/// As [`guard`].
unsafe fn reported<T>(errptr: *mut *mut c_char, answer: Result<T>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(failure) => {
            // SAFETY: the caller's promise.
            unsafe { tell(errptr, &failure) };
            None
        }
    }
}

/// Runs the body of an entry point that cannot report errors.
pub(crate) fn quietly<T>(body: impl FnOnce() -> Result<T>) -> Option<T> {
    // SAFETY: NULL is allowed.
    unsafe { guard(std::ptr::null_mut(), body) }
}

/// Frees the old error string and stores the new one. Ends the process where there is memory for no message at all:
/// without one the caller would take the failure for success.
///
/// # Safety
/// As [`guard`].
pub(crate) unsafe fn tell(errptr: *mut *mut c_char, failure: &Failure) {
    // SAFETY: the caller's promise.
    unsafe { tell_by(errptr, failure, allocate) };
}

/// As [`tell`], with copies that `copy` makes: from malloc(), or NULL without memory.
///
/// # Safety
/// As there.
unsafe fn tell_by(errptr: *mut *mut c_char, failure: &Failure, mut copy: impl FnMut(&[u8]) -> *mut c_void) {
    if errptr.is_null() {
        return;
    }
    let mut text = failure.to_string().into_bytes();
    text.retain(|&b| b != 0);
    let mut new = copy(&text);
    if new.is_null() {
        // What the long message took is enough for a short one.
        drop(text);
        new = copy(NO_MEMORY_FOR_MESSAGE);
    }
    // SAFETY: not null, and as the caller promises.
    unsafe {
        if !new.is_null() {
            libc::free((*errptr).cast::<c_void>());
            *errptr = new.cast::<c_char>();
        } else if (*errptr).is_null() {
            handle_alloc_error(Layout::for_value(NO_MEMORY_FOR_MESSAGE));
        }
        // Otherwise the old string reports that something failed.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;

    #[test]
    fn failures_and_panics_become_strings_of_malloc() {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: the pointer is NULL or the guard's own string, freed at the end.
        unsafe {
            assert_eq!(guard(&raw mut error, || Ok(7)), Some(7));
            assert!(error.is_null());
            assert_eq!(guard::<()>(&raw mut error, || Err(Failure::invalid("x: \0no"))), None);
            assert_eq!(CStr::from_ptr(error), c"Invalid argument: x: no");
            assert_eq!(guard(&raw mut error, || Ok(7)), Some(7));
            assert_eq!(CStr::from_ptr(error), c"Invalid argument: x: no", "success leaves it");
            assert_eq!(guard::<()>(&raw mut error, || panic!("seven is not eight")), None);
            assert!(CStr::from_ptr(error).to_string_lossy().contains("seven is not eight"));
            libc::free(error.cast());
        }
        assert_eq!(quietly::<()>(|| Err(Failure::corruption("nobody hears it"))), None);
    }

    #[test]
    fn a_sector_that_cannot_be_read_is_damage() {
        let failure = |doing: &str, code| {
            let (path, doing) = ("p/image".into(), doing.to_owned());
            Failure::from(Error::Io { path, doing, code: Some(code), message: "no".to_owned() })
        };
        assert!(failure("read", libc::EIO).is_damage());
        assert!(failure("read", libc::EIO).to_string().starts_with("IO error: "));
        assert!(!failure("read", libc::ENOMEM).is_damage());
        assert!(!failure("write", libc::EIO).is_damage());
    }

    #[test]
    fn a_failure_is_told_without_memory_for_its_message() {
        let mut error: *mut c_char = ptr::null_mut();
        let failure = Failure::invalid("what is too long");
        let mut calls = 0;
        let second_call_only = |text: &[u8]| -> *mut c_void {
            calls += 1;
            if calls == 2 { allocate(text) } else { ptr::null_mut() }
        };
        // SAFETY: the pointer is NULL or a string of malloc(), freed at the end.
        unsafe {
            tell_by(&raw mut error, &failure, second_call_only);
            assert!(!error.is_null(), "the caller would take it for success");
            assert_eq!(CStr::from_ptr(error).to_bytes(), NO_MEMORY_FOR_MESSAGE);
            let before = error;
            tell_by(&raw mut error, &failure, |_| ptr::null_mut());
            assert_eq!(error, before, "the old string stays");
            libc::free(error.cast());
        }
    }
}
