//! Why a call failed, LevelDB's way of saying so, and the wall that no panic passes.

use crate::bytes::allocate;
use mangrove::Error;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The kinds of failure that LevelDB tells apart, by the words in front of the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NotFound,
    Corruption,
    NotSupported,
    InvalidArgument,
    IoError,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    sentence: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self::new(Kind::InvalidArgument, sentence)
    }

    pub(crate) fn corruption(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Corruption, sentence)
    }

    pub(crate) fn unsupported(sentence: impl Into<String>) -> Self {
        Self::new(Kind::NotSupported, sentence)
    }

    /// The operating system refused to `doing` the thing at `path`.
    pub(crate) fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(Kind::IoError, format!("cannot {doing} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::NotFound => "NotFound",
            Kind::Corruption => "Corruption",
            Kind::NotSupported => "Not implemented",
            Kind::InvalidArgument => "Invalid argument",
            Kind::IoError => "IO error",
        };
        write!(f, "{kind}: {}", self.sentence)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => Kind::NotFound,
            Error::Corrupt { .. } | Error::Foreign { .. } | Error::WrongKind { .. } => Kind::Corruption,
            Error::Unsupported { .. } | Error::Newer { .. } => Kind::NotSupported,
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::Exists { .. } => {
                Kind::InvalidArgument
            }
            _ => Kind::IoError,
        };
        Self::new(kind, error.to_string())
    }
}

/// Runs the body of an entry point; a panic is a failure like any other.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // AssertUnwindSafe: the engines latch what a panic may have left half done, and handles of this
    // crate hold no invariants across a call into them.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => {
            let words = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            // The payload's destructor is code like any other: it may panic too.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(panic)));
            Err(Failure::new(Kind::IoError, format!("a bug in Mangrove: {words}; please report it")))
        }
    }
}

/// Runs the body of an entry point that reports errors. A failure, or a panic, replaces the caller's
/// error string and answers `None`; success leaves the string alone.
///
/// # Safety
/// `errptr` is NULL or points to NULL or to a string from malloc().
pub(crate) unsafe fn guard<T>(errptr: *mut *mut c_char, body: impl FnOnce() -> Result<T>) -> Option<T> {
    match caught(body) {
        Ok(value) => Some(value),
        Err(failure) => {
            // SAFETY: passed on.
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

/// Frees the old error string and puts the new one in its place.
///
/// # Safety
/// As [`guard`].
pub(crate) unsafe fn tell(errptr: *mut *mut c_char, failure: &Failure) {
    if errptr.is_null() {
        return;
    }
    let mut text = failure.to_string().into_bytes();
    text.retain(|&b| b != 0);
    // SAFETY: not null, and as the caller promises. Without memory for the sentence the old string, if
    // any, still says that something failed.
    unsafe {
        let new = allocate(&text).cast::<c_char>();
        if !new.is_null() {
            libc::free((*errptr).cast::<c_void>());
            *errptr = new;
        }
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
}
