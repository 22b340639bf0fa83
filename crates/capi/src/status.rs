//! The results of calls, the messages that go with errors, and the guard that stops panics.

use mangrove::Error;
use mangrove_cabi::{BadArgument, LastError, stop_panics, stop_panics_and_cancellation};
use std::borrow::Cow;
use std::ffi::{CStr, c_char};

/// The result of a call. Above 0: an ordinary result. Below 0: an error, see mangrove_last_error(). The
/// numbers are part of the ABI. New ones may be added: treat an unknown one by its sign.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mangrove_status {
    /// Done.
    MANGROVE_OK = 0,
    /// There is no such key; or the iterator has no record there.
    MANGROVE_NOT_FOUND = 1,
    /// The key is in another state than the call expected. Nothing changed.
    MANGROVE_MISMATCH = 2,
    /// The value does not fit the caller's buffer; the call has returned its length.
    MANGROVE_BUFFER_TOO_SMALL = 3,
    /// A check ran to its end and found damage.
    MANGROVE_UNSOUND = 4,
    /// The body of a transaction aborted it. Nothing changed.
    MANGROVE_TX_ABORTED = 5,
    /// Only inside a transaction: it must run again. Its body returns this status at once. (The number lies far from
    /// those that programs abort with.)
    MANGROVE_TX_STOP = 1000000,
    /// An argument breaks the rules of the call. Nothing happened.
    MANGROVE_ERR_INVALID_ARGUMENT = -1,
    /// The key is longer than MANGROVE_KEY_BYTES_MAX. Nothing changed.
    MANGROVE_ERR_KEY_TOO_LONG = -2,
    /// The value is longer than MANGROVE_VALUE_BYTES_MAX. Nothing changed.
    MANGROVE_ERR_VALUE_TOO_LONG = -3,
    /// Another process, or another handle of this one, holds the pool.
    MANGROVE_ERR_POOL_BUSY = -4,
    /// There is no pool at the path.
    MANGROVE_ERR_POOL_NOT_FOUND = -5,
    /// Something is already at the path.
    MANGROVE_ERR_POOL_EXISTS = -6,
    /// What lies at the path is not a Mangrove pool, or is a pool of the other byte order.
    MANGROVE_ERR_FOREIGN = -7,
    /// The pool was written by a newer format than this library reads.
    MANGROVE_ERR_NEWER = -8,
    /// The pool holds another kind of object than the one that was asked for.
    MANGROVE_ERR_WRONG_KIND = -9,
    /// Bytes read back are not the bytes written, and were not returned. The message names the file and
    /// the place.
    MANGROVE_ERR_CORRUPT = -10,
    /// The map or the heap is open read-only, or its files cannot be written.
    MANGROVE_ERR_READ_ONLY = -11,
    /// The medium is full, or a file of the pool reached the process's file size limit; the message
    /// says which. Nothing changed; free some space there, or raise the limit, and retry.
    MANGROVE_ERR_NO_SPACE = -12,
    /// This pool or this machine cannot do that.
    MANGROVE_ERR_UNSUPPORTED = -13,
    /// An earlier I/O error poisoned the pool: reads continue, writes fail, nothing more is
    /// acknowledged.
    MANGROVE_ERR_POISONED = -14,
    /// More changed since the snapshot than it may hold; take a new one.
    MANGROVE_ERR_SNAPSHOT_EXPIRED = -15,
    /// The callback stopped the call. Nothing is left of it.
    MANGROVE_ERR_STOPPED = -16,
    /// The operating system refused; mangrove_last_os_error() has its number.
    MANGROVE_ERR_IO = -17,
    /// malloc() had no memory for the result, or the process may not have as much memory as the pool needs. A
    /// call that reads, or that grows the pool, changed nothing.
    MANGROVE_ERR_NO_MEMORY = -18,
    /// Snapshots or iterators of the map are still alive, or a transaction on the heap is open. Nothing happened.
    MANGROVE_ERR_IN_USE = -19,
    /// A bug in Mangrove. The map stays usable; please report the message.
    MANGROVE_ERR_INTERNAL = -20,
    /// The pool's capacity is in use, or the address space that the process may have for it; the
    /// message says which. Nothing changed; delete records, or load a larger pool, or raise the limit.
    MANGROVE_ERR_FULL = -21,
    /// The log failed when other threads could see the transaction already: a crash may undo it. Nothing more
    /// becomes durable; close the heap and open it again.
    MANGROVE_ERR_IN_DOUBT = -22,
    /// The transaction has ended, or is another thread's; or the call cannot be made inside a transaction on the
    /// same heap, or comes from a destructor of a thread that is ending, or from a signal handler that has
    /// interrupted the library. Nothing happened.
    MANGROVE_ERR_TX_MISPLACED = -23,
}

use mangrove_status::*;

impl mangrove_status {
    /// Name and one-line meaning. A match without a wildcard, so that no status can be forgotten.
    const fn words(self) -> (&'static CStr, &'static CStr) {
        match self {
            MANGROVE_OK => (c"MANGROVE_OK", c"done"),
            MANGROVE_NOT_FOUND => (c"MANGROVE_NOT_FOUND", c"not there"),
            MANGROVE_MISMATCH => (c"MANGROVE_MISMATCH", c"the key is in another state than expected"),
            MANGROVE_BUFFER_TOO_SMALL => (c"MANGROVE_BUFFER_TOO_SMALL", c"the value does not fit the buffer"),
            MANGROVE_UNSOUND => (c"MANGROVE_UNSOUND", c"the check found damage"),
            MANGROVE_TX_ABORTED => (c"MANGROVE_TX_ABORTED", c"the body aborted the transaction"),
            MANGROVE_TX_STOP => (c"MANGROVE_TX_STOP", c"the transaction must run again"),
            MANGROVE_ERR_INVALID_ARGUMENT => (c"MANGROVE_ERR_INVALID_ARGUMENT", c"invalid argument"),
            MANGROVE_ERR_KEY_TOO_LONG => (c"MANGROVE_ERR_KEY_TOO_LONG", c"the key is too long"),
            MANGROVE_ERR_VALUE_TOO_LONG => (c"MANGROVE_ERR_VALUE_TOO_LONG", c"the value is too long"),
            MANGROVE_ERR_POOL_BUSY => (c"MANGROVE_ERR_POOL_BUSY", c"the pool is in use elsewhere"),
            MANGROVE_ERR_POOL_NOT_FOUND => (c"MANGROVE_ERR_POOL_NOT_FOUND", c"there is no pool at the path"),
            MANGROVE_ERR_POOL_EXISTS => (c"MANGROVE_ERR_POOL_EXISTS", c"something is already at the path"),
            MANGROVE_ERR_FOREIGN => (c"MANGROVE_ERR_FOREIGN", c"not a Mangrove pool"),
            MANGROVE_ERR_NEWER => (c"MANGROVE_ERR_NEWER", c"the pool's format is newer than this library"),
            MANGROVE_ERR_WRONG_KIND => (c"MANGROVE_ERR_WRONG_KIND", c"the pool holds another kind of object"),
            MANGROVE_ERR_CORRUPT => (c"MANGROVE_ERR_CORRUPT", c"bytes read back are not the bytes written"),
            MANGROVE_ERR_READ_ONLY => (c"MANGROVE_ERR_READ_ONLY", c"the map or the heap cannot be written"),
            MANGROVE_ERR_NO_SPACE => (c"MANGROVE_ERR_NO_SPACE", c"no space left"),
            MANGROVE_ERR_UNSUPPORTED => (c"MANGROVE_ERR_UNSUPPORTED", c"this pool or machine cannot do that"),
            MANGROVE_ERR_POISONED => (c"MANGROVE_ERR_POISONED", c"an earlier I/O error ended writing"),
            MANGROVE_ERR_SNAPSHOT_EXPIRED => (c"MANGROVE_ERR_SNAPSHOT_EXPIRED", c"the snapshot expired"),
            MANGROVE_ERR_STOPPED => (c"MANGROVE_ERR_STOPPED", c"stopped as asked"),
            MANGROVE_ERR_IO => (c"MANGROVE_ERR_IO", c"the operating system refused"),
            MANGROVE_ERR_NO_MEMORY => (c"MANGROVE_ERR_NO_MEMORY", c"out of memory"),
            MANGROVE_ERR_IN_USE => (c"MANGROVE_ERR_IN_USE", c"it has snapshots, iterators or transactions"),
            MANGROVE_ERR_INTERNAL => (c"MANGROVE_ERR_INTERNAL", c"a bug in Mangrove"),
            MANGROVE_ERR_FULL => (c"MANGROVE_ERR_FULL", c"the pool's capacity is in use"),
            MANGROVE_ERR_IN_DOUBT => (c"MANGROVE_ERR_IN_DOUBT", c"a crash may undo the transaction"),
            MANGROVE_ERR_TX_MISPLACED => (c"MANGROVE_ERR_TX_MISPLACED", c"no transaction can run here"),
        }
    }

    /// The status with this number.
    fn from_number(number: i32) -> Option<Self> {
        const ALL: [mangrove_status; 30] = [
            MANGROVE_OK,
            MANGROVE_NOT_FOUND,
            MANGROVE_MISMATCH,
            MANGROVE_BUFFER_TOO_SMALL,
            MANGROVE_UNSOUND,
            MANGROVE_TX_ABORTED,
            MANGROVE_TX_STOP,
            MANGROVE_ERR_INVALID_ARGUMENT,
            MANGROVE_ERR_KEY_TOO_LONG,
            MANGROVE_ERR_VALUE_TOO_LONG,
            MANGROVE_ERR_POOL_BUSY,
            MANGROVE_ERR_POOL_NOT_FOUND,
            MANGROVE_ERR_POOL_EXISTS,
            MANGROVE_ERR_FOREIGN,
            MANGROVE_ERR_NEWER,
            MANGROVE_ERR_WRONG_KIND,
            MANGROVE_ERR_CORRUPT,
            MANGROVE_ERR_READ_ONLY,
            MANGROVE_ERR_NO_SPACE,
            MANGROVE_ERR_UNSUPPORTED,
            MANGROVE_ERR_POISONED,
            MANGROVE_ERR_SNAPSHOT_EXPIRED,
            MANGROVE_ERR_STOPPED,
            MANGROVE_ERR_IO,
            MANGROVE_ERR_NO_MEMORY,
            MANGROVE_ERR_IN_USE,
            MANGROVE_ERR_INTERNAL,
            MANGROVE_ERR_FULL,
            MANGROVE_ERR_IN_DOUBT,
            MANGROVE_ERR_TX_MISPLACED,
        ];
        ALL.into_iter().find(|s| *s as i32 == number)
    }
}

/// Why a call failed: the status, the message, the system's error number.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: mangrove_status,
    message: Cow<'static, str>,
    os_error: i32,
}

impl Failure {
    pub(crate) fn new(status: mangrove_status, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), os_error: 0 }
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(MANGROVE_ERR_INVALID_ARGUMENT, message)
    }
}

impl From<BadArgument> for Failure {
    fn from(bad: BadArgument) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let os_error = match &error {
            Error::Io { code, .. } => code.unwrap_or(0),
            _ => 0,
        };
        let status = match &error {
            Error::KeyTooLong { .. } => MANGROVE_ERR_KEY_TOO_LONG,
            Error::ValueTooLong { .. } => MANGROVE_ERR_VALUE_TOO_LONG,
            // A call that can meet it returns it as an answer.
            Error::Mismatch { .. } => MANGROVE_MISMATCH,
            Error::Busy { .. } => MANGROVE_ERR_POOL_BUSY,
            Error::NotFound { .. } => MANGROVE_ERR_POOL_NOT_FOUND,
            Error::Exists { .. } => MANGROVE_ERR_POOL_EXISTS,
            Error::Foreign { .. } => MANGROVE_ERR_FOREIGN,
            Error::Newer { .. } => MANGROVE_ERR_NEWER,
            Error::WrongKind { .. } => MANGROVE_ERR_WRONG_KIND,
            Error::Corrupt { .. } => MANGROVE_ERR_CORRUPT,
            Error::NoMemory { .. } | Error::MemoryLimit { .. } => MANGROVE_ERR_NO_MEMORY,
            Error::ReadOnly { .. } => MANGROVE_ERR_READ_ONLY,
            Error::NoSpace { .. } | Error::FileLimit { .. } => MANGROVE_ERR_NO_SPACE,
            Error::Full { .. } => MANGROVE_ERR_FULL,
            Error::Unsupported { .. } => MANGROVE_ERR_UNSUPPORTED,
            Error::Poisoned { .. } => MANGROVE_ERR_POISONED,
            Error::SnapshotExpired => MANGROVE_ERR_SNAPSHOT_EXPIRED,
            Error::Stopped => MANGROVE_ERR_STOPPED,
            Error::Io { .. } => MANGROVE_ERR_IO,
            // The facade's enum may grow; its message still reaches the caller.
            _ => MANGROVE_ERR_INTERNAL,
        };
        Self { status, message: error.to_string().into(), os_error }
    }
}

/// An ordinary result, or why there is none.
pub(crate) type Answer = Result<mangrove_status, Failure>;

/// Bytes of a message, with its NUL: enough for a path of two thousand bytes. The buffer lies in the storage of each
/// thread of the program, which glibc takes from the thread's stack.
const MESSAGE_BYTES_MAX: usize = 2048;

thread_local! {
    static LAST: LastError<MESSAGE_BYTES_MAX> = const { LastError::none() };
}

/// Makes the failure the thread's last error, and returns its status.
#[cold]
pub(crate) fn remember(failure: &Failure) -> mangrove_status {
    // A thread that is ending has no place for the message any more; the status remains.
    let _ = LAST.try_with(|last| last.set(&failure.message, failure.os_error));
    failure.status
}

/// Runs the body of an entry point. Its error becomes this thread's last error; a panic stops here and
/// becomes `MANGROVE_ERR_INTERNAL`. A cancellation waits until it has ended.
pub(crate) fn guard(body: impl FnOnce() -> Answer) -> mangrove_status {
    status_of(stop_panics_and_cancellation(|| remembered(body())))
}

/// As [`guard`], of a call that reads memory, and waits for nothing but the medium, which makes pthread_cancel wait.
#[inline]
pub(crate) fn guard_look_up(body: impl FnOnce() -> Answer) -> mangrove_status {
    status_of(stop_panics(|| remembered(body())))
}

/// The status of an answer, whose error becomes the thread's last error. Within the wall, which then hands on a number:
/// a larger result would be stored in parts and loaded whole, for which a processor waits.
#[inline]
fn remembered(answer: Answer) -> mangrove_status {
    answer.unwrap_or_else(|failure| remember(&failure))
}

#[inline]
fn status_of(stopped: Result<mangrove_status, String>) -> mangrove_status {
    stopped.unwrap_or_else(|panic| remember(&Failure::new(MANGROVE_ERR_INTERNAL, panic)))
}

/// As [`guard`], for a body whose only ordinary result is `MANGROVE_OK`.
pub(crate) fn guard_unit(body: impl FnOnce() -> Result<(), Failure>) -> mangrove_status {
    guard(|| body().map(|()| MANGROVE_OK))
}

/// The version of the library, as "0.1.0". Compare with MANGROVE_VERSION, the header's. Static.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The name of a status, as "MANGROVE_ERR_IO"; "MANGROVE_UNKNOWN" for other numbers. Static.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_status_name(status: i32) -> *const c_char {
    mangrove_status::from_number(status).map_or(c"MANGROVE_UNKNOWN", |s| s.words().0).as_ptr()
}

/// What a status means in general, in a few words. mangrove_last_error() says more about the one case.
/// Static. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_status_text(status: i32) -> *const c_char {
    mangrove_status::from_number(status).map_or(c"a status unknown to this library", |s| s.words().1).as_ptr()
}

/// What went wrong in the last call of this thread that returned an error: a message in UTF-8 of at
/// most 2047 bytes, as "phonebook is in use by process 17 (server); close it there first". "" when there was none
/// yet. A call that returns no error leaves it alone. Valid until the next call of this library on this thread; not
/// to be freed. Threads: any, each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_last_error() -> *const c_char {
    LAST.try_with(LastError::message).unwrap_or(c"".as_ptr())
}

/// The errno that goes with mangrove_last_error() when that was MANGROVE_ERR_IO; 0 when there is
/// none. Threads: any, each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_last_os_error() -> i32 {
    LAST.try_with(LastError::os_error).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: never null, NUL-terminated, and nothing replaces it before the copy.
        unsafe { CStr::from_ptr(mangrove_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(guard(|| panic!("seven is not eight")), MANGROVE_ERR_INTERNAL);
        assert!(last().contains("seven is not eight"), "{}", last());
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("and again");
            }
        }
        assert_eq!(guard(|| std::panic::panic_any(Nasty)), MANGROVE_ERR_INTERNAL);
    }

    #[test]
    fn the_message_and_errno_of_an_error_arrive() {
        let error = Error::Io {
            path: "/x/log".into(),
            doing: "write".into(),
            code: Some(5),
            message: "Input/output error".into(),
        };
        assert_eq!(guard(|| Err(error.into())), MANGROVE_ERR_IO);
        assert_eq!(last(), "cannot write /x/log: Input/output error");
        assert_eq!(mangrove_last_os_error(), 5);
        assert_eq!(guard(|| Ok(MANGROVE_NOT_FOUND)), MANGROVE_NOT_FOUND);
        assert_eq!(mangrove_last_os_error(), 5, "an answer is not an error");
        assert_eq!(guard(|| Err(Failure::invalid("with\0NUL"))), MANGROVE_ERR_INVALID_ARGUMENT);
        assert_eq!(last(), "withNUL");
        assert_eq!(mangrove_last_os_error(), 0);
        guard(|| Err(Failure::invalid("\u{e9}".repeat(8192))));
        assert_eq!(last().chars().count(), 1023, "as the header says");
    }

    #[test]
    fn numbers_are_the_abi() {
        // Never edit a line of this table: programs were compiled against it. Add at the end.
        let table = [
            (0, "MANGROVE_OK"),
            (1, "MANGROVE_NOT_FOUND"),
            (2, "MANGROVE_MISMATCH"),
            (3, "MANGROVE_BUFFER_TOO_SMALL"),
            (4, "MANGROVE_UNSOUND"),
            (-1, "MANGROVE_ERR_INVALID_ARGUMENT"),
            (-2, "MANGROVE_ERR_KEY_TOO_LONG"),
            (-3, "MANGROVE_ERR_VALUE_TOO_LONG"),
            (-4, "MANGROVE_ERR_POOL_BUSY"),
            (-5, "MANGROVE_ERR_POOL_NOT_FOUND"),
            (-6, "MANGROVE_ERR_POOL_EXISTS"),
            (-7, "MANGROVE_ERR_FOREIGN"),
            (-8, "MANGROVE_ERR_NEWER"),
            (-9, "MANGROVE_ERR_WRONG_KIND"),
            (-10, "MANGROVE_ERR_CORRUPT"),
            (-11, "MANGROVE_ERR_READ_ONLY"),
            (-12, "MANGROVE_ERR_NO_SPACE"),
            (-13, "MANGROVE_ERR_UNSUPPORTED"),
            (-14, "MANGROVE_ERR_POISONED"),
            (-15, "MANGROVE_ERR_SNAPSHOT_EXPIRED"),
            (-16, "MANGROVE_ERR_STOPPED"),
            (-17, "MANGROVE_ERR_IO"),
            (-18, "MANGROVE_ERR_NO_MEMORY"),
            (-19, "MANGROVE_ERR_IN_USE"),
            (-20, "MANGROVE_ERR_INTERNAL"),
            (-21, "MANGROVE_ERR_FULL"),
            (5, "MANGROVE_TX_ABORTED"),
            (1_000_000, "MANGROVE_TX_STOP"),
            (-22, "MANGROVE_ERR_IN_DOUBT"),
            (-23, "MANGROVE_ERR_TX_MISPLACED"),
        ];
        for (number, name) in table {
            // SAFETY: static strings.
            let found = unsafe { CStr::from_ptr(mangrove_status_name(number)) };
            assert_eq!(found.to_str().unwrap(), name, "{number}");
            assert_ne!(mangrove_status_text(number), mangrove_status_text(9999));
        }
        for number in [6, 9999, -24, i32::MIN] {
            assert_eq!(mangrove_status_name(number), mangrove_status_name(9999), "{number}");
        }
    }
}
