//! The results of calls, the messages that go with errors, and the guard that stops panics.

use mangrove_cabi::{BadArgument, LastError, stop_panics_and_cancellation};
use mangrove_durable::Error;
use std::ffi::{CStr, c_char};

/// The result of a call. 0: done. Below 0: an error, see mangrove_app_last_error(). The numbers are
/// part of the ABI. New ones may be added: treat an unknown one by its sign.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mangrove_app_status {
    /// Done.
    MANGROVE_APP_OK = 0,
    /// An argument breaks the rules of the call. Nothing happened.
    MANGROVE_APP_ERR_INVALID_ARGUMENT = -1,
    /// The pool could not be opened, read or written; the message says why and what to do.
    MANGROVE_APP_ERR_POOL = -2,
    /// The state belongs to another build of the program, or to another program.
    MANGROVE_APP_ERR_FOREIGN = -3,
    /// The state points to something of the process that lies elsewhere in this run, or will in the next.
    MANGROVE_APP_ERR_MOVED = -4,
    /// The state's own structures contradict each other; nothing was served.
    MANGROVE_APP_ERR_DAMAGED = -5,
    /// The state's address space is used up.
    MANGROVE_APP_ERR_FULL = -6,
    /// An earlier error of the medium poisoned the pool: reads continue, writes fail. The next start
    /// has every acknowledged write, unless the message says that the pool is damaged.
    MANGROVE_APP_ERR_POISONED = -7,
    /// A command ended halfway: nothing of its batch is durable, and nothing more is served. Restart.
    MANGROVE_APP_ERR_BROKEN = -8,
    /// The call came from inside a command, or on a client that is in a call. Nothing happened.
    MANGROVE_APP_ERR_NESTED = -9,
    /// The chosen tracker cannot work here.
    MANGROVE_APP_ERR_TRACKER = -10,
    /// init_state or on_recover returned another number than 0.
    MANGROVE_APP_ERR_REFUSED = -11,
    /// More clients at a time than can be counted.
    MANGROVE_APP_ERR_TOO_MANY_CLIENTS = -12,
    /// A call of the server came in the wrong order.
    MANGROVE_APP_ERR_SERVER = -13,
    /// The operating system refused; mangrove_app_last_os_error() has its number.
    MANGROVE_APP_ERR_IO = -14,
    /// Clients are still alive. Nothing happened.
    MANGROVE_APP_ERR_IN_USE = -15,
    /// A bug in Mangrove; please report the message.
    MANGROVE_APP_ERR_INTERNAL = -16,
    /// A call of a batch came in the wrong order, or from the wrong thread or process. Nothing happened.
    MANGROVE_APP_ERR_BATCH = -17,
    /// This process may not have the memory that the state needs; the message says what it needs, and what to do.
    MANGROVE_APP_ERR_NO_MEMORY = -18,
}

use mangrove_app_status::*;

/// Status, name and one-line meaning.
const TABLE: [(mangrove_app_status, &CStr, &CStr); 19] = [
    (MANGROVE_APP_OK, c"MANGROVE_APP_OK", c"done"),
    (MANGROVE_APP_ERR_INVALID_ARGUMENT, c"MANGROVE_APP_ERR_INVALID_ARGUMENT", c"invalid argument"),
    (MANGROVE_APP_ERR_POOL, c"MANGROVE_APP_ERR_POOL", c"the pool cannot be used"),
    (MANGROVE_APP_ERR_FOREIGN, c"MANGROVE_APP_ERR_FOREIGN", c"the state is another program's"),
    (MANGROVE_APP_ERR_MOVED, c"MANGROVE_APP_ERR_MOVED", c"what the state points to lies elsewhere"),
    (MANGROVE_APP_ERR_DAMAGED, c"MANGROVE_APP_ERR_DAMAGED", c"the state is damaged"),
    (MANGROVE_APP_ERR_FULL, c"MANGROVE_APP_ERR_FULL", c"the state's address space is used up"),
    (MANGROVE_APP_ERR_POISONED, c"MANGROVE_APP_ERR_POISONED", c"an earlier I/O error ended writing"),
    (MANGROVE_APP_ERR_BROKEN, c"MANGROVE_APP_ERR_BROKEN", c"a command ended halfway"),
    (MANGROVE_APP_ERR_NESTED, c"MANGROVE_APP_ERR_NESTED", c"called from inside a command"),
    (MANGROVE_APP_ERR_TRACKER, c"MANGROVE_APP_ERR_TRACKER", c"the tracker cannot work here"),
    (MANGROVE_APP_ERR_REFUSED, c"MANGROVE_APP_ERR_REFUSED", c"the application's callback said no"),
    (MANGROVE_APP_ERR_TOO_MANY_CLIENTS, c"MANGROVE_APP_ERR_TOO_MANY_CLIENTS", c"too many clients"),
    (MANGROVE_APP_ERR_SERVER, c"MANGROVE_APP_ERR_SERVER", c"the server cannot do that now"),
    (MANGROVE_APP_ERR_IO, c"MANGROVE_APP_ERR_IO", c"the operating system refused"),
    (MANGROVE_APP_ERR_IN_USE, c"MANGROVE_APP_ERR_IN_USE", c"clients are still alive"),
    (MANGROVE_APP_ERR_INTERNAL, c"MANGROVE_APP_ERR_INTERNAL", c"a bug in Mangrove"),
    (MANGROVE_APP_ERR_BATCH, c"MANGROVE_APP_ERR_BATCH", c"a batch was used in the wrong order"),
    (MANGROVE_APP_ERR_NO_MEMORY, c"MANGROVE_APP_ERR_NO_MEMORY", c"out of memory"),
];

/// Why a call failed: the status, the message, the system's error number.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: mangrove_app_status,
    message: String,
    os_error: i32,
}

impl Failure {
    pub(crate) fn new(status: mangrove_app_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), os_error: 0 }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(MANGROVE_APP_ERR_INVALID_ARGUMENT, message)
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::invalid(format!("'{what}' is NULL"))
    }
}

impl From<BadArgument> for Failure {
    fn from(bad: BadArgument) -> Self {
        Self::invalid(bad.to_string())
    }
}

/// The status that goes with an error.
pub(crate) fn status_of(error: &Error) -> mangrove_app_status {
    match error {
        error if error.is_memory_limit() => MANGROVE_APP_ERR_NO_MEMORY,
        Error::Pool(_) => MANGROVE_APP_ERR_POOL,
        Error::Tracker { .. } => MANGROVE_APP_ERR_TRACKER,
        Error::Invalid { .. } => MANGROVE_APP_ERR_INVALID_ARGUMENT,
        Error::Poisoned { .. } => MANGROVE_APP_ERR_POISONED,
        Error::Broken { .. } => MANGROVE_APP_ERR_BROKEN,
        Error::Nested => MANGROVE_APP_ERR_NESTED,
        Error::Refused { .. } => MANGROVE_APP_ERR_REFUSED,
        Error::Foreign { .. } => MANGROVE_APP_ERR_FOREIGN,
        Error::Moved { .. } => MANGROVE_APP_ERR_MOVED,
        Error::Damaged { .. } => MANGROVE_APP_ERR_DAMAGED,
        Error::Full { .. } => MANGROVE_APP_ERR_FULL,
        Error::TooManyClients => MANGROVE_APP_ERR_TOO_MANY_CLIENTS,
        Error::Batch { .. } => MANGROVE_APP_ERR_BATCH,
        Error::Server { .. } => MANGROVE_APP_ERR_SERVER,
        Error::Io { .. } => MANGROVE_APP_ERR_IO,
        // The enum may grow; its message still reaches the caller.
        _ => MANGROVE_APP_ERR_INTERNAL,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let os_error = match &error {
            Error::Io { code, .. } => code.unwrap_or(0),
            _ => 0,
        };
        Self { status: status_of(&error), message: error.to_string(), os_error }
    }
}

/// Done, or why not.
pub(crate) type Answer = Result<(), Failure>;

/// Bytes of a message, with its NUL.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024;

thread_local! {
    static LAST: LastError<MESSAGE_BYTES_MAX> = const { LastError::none() };
}

pub(crate) fn remember(failure: &Failure) -> mangrove_app_status {
    // A thread that is ending has no place for the message any more; the status remains.
    let _ = LAST.try_with(|last| last.set(&failure.message, failure.os_error));
    failure.status
}

/// Runs the body of an entry point. Its error becomes this thread's last error; a panic stops here and
/// becomes `MANGROVE_APP_ERR_INTERNAL`. A cancellation waits until it has ended.
pub(crate) fn guard(body: impl FnOnce() -> Answer) -> mangrove_app_status {
    match stop_panics_and_cancellation(body) {
        Ok(Ok(())) => MANGROVE_APP_OK,
        Ok(Err(failure)) => remember(&failure),
        Err(panic) => remember(&Failure::new(MANGROVE_APP_ERR_INTERNAL, panic)),
    }
}

fn row(status: i32) -> Option<&'static (mangrove_app_status, &'static CStr, &'static CStr)> {
    TABLE.iter().find(|row| row.0 as i32 == status)
}

/// The version of the library, as "0.1.0". Compare with MANGROVE_APP_VERSION, the header's. Static.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The name of a status, as "MANGROVE_APP_ERR_IO"; "MANGROVE_APP_UNKNOWN" for other numbers. Static.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_status_name(status: i32) -> *const c_char {
    // Nothing here can panic.
    row(status).map_or(c"MANGROVE_APP_UNKNOWN", |row| row.1).as_ptr()
}

/// What a status means in general, in a few words. mangrove_app_last_error() says more about the one
/// case. Static. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_status_text(status: i32) -> *const c_char {
    // Nothing here can panic.
    row(status).map_or(c"a status unknown to this library", |row| row.2).as_ptr()
}

/// What went wrong in the last call of this thread that returned an error: a message in UTF-8 of at
/// most 1023 bytes. "" when there was none yet. A call that returns no error leaves it alone. Valid
/// until the next call of this library on this thread; not to be freed. Threads: any, each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_last_error() -> *const c_char {
    LAST.try_with(LastError::message).unwrap_or(c"".as_ptr())
}

/// The errno that goes with mangrove_app_last_error() when that was MANGROVE_APP_ERR_IO; 0 when there
/// is none. Threads: any, each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_last_os_error() -> i32 {
    LAST.try_with(LastError::os_error).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: never null, NUL-terminated, and nothing replaces it before the copy.
        unsafe { CStr::from_ptr(mangrove_app_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(guard(|| panic!("seven is not eight")), MANGROVE_APP_ERR_INTERNAL);
        assert!(last().contains("seven is not eight"), "{}", last());
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("and again");
            }
        }
        assert_eq!(guard(|| std::panic::panic_any(Nasty)), MANGROVE_APP_ERR_INTERNAL);
    }

    #[test]
    fn the_message_and_errno_of_an_error_arrive_cut_if_need_be() {
        let error = Error::Io { doing: "listen on x".into(), code: Some(13), message: "no".into() };
        assert_eq!(guard(|| Err(error.into())), MANGROVE_APP_ERR_IO);
        assert_eq!((last().as_str(), mangrove_app_last_os_error()), ("cannot listen on x: no", 13));
        assert_eq!(guard(|| Ok(())), MANGROVE_APP_OK);
        assert_eq!(mangrove_app_last_os_error(), 13, "success leaves it alone");
        guard(|| Err(Failure::invalid("\u{e9}".repeat(2000))));
        assert_eq!(last().chars().count(), 511);
        guard(|| Err(Failure::invalid("with\0NUL")));
        assert_eq!(last(), "withNUL");
    }

    #[test]
    fn every_status_has_its_number_and_name() {
        for (index, (status, name, _)) in TABLE.iter().enumerate() {
            assert_eq!(*status as i32, -(index as i32), "numbers are the ABI: never change one");
            assert_eq!(name.to_str().unwrap(), format!("{status:?}"));
        }
        // SAFETY: static, NUL-terminated.
        let unknown = unsafe { CStr::from_ptr(mangrove_app_status_name(77)) };
        assert_eq!(unknown, c"MANGROVE_APP_UNKNOWN");
    }
}
