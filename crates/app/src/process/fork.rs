//! fork(2), in front of the C library's: inside a write command it makes no process.
//!
//! The child would share sockets and the log with a parent in the middle of a batch. The tracker refuses the system
//! call too, but by then the program's fork handlers have run, and the command ends broken.

use crate::process::next_symbol::next_symbol;
use libc::{c_int, pid_t};
use mangrove_durable::route::{in_tracked_call, is_inside};

/// As fork(2); inside a write command it returns -1 with ENOTSUP and does nothing.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: errno is this thread's own.
    let refuse = |error: c_int| unsafe {
        *libc::__errno_location() = error;
        -1
    };
    if is_inside() || in_tracked_call() {
        return refuse(libc::ENOTSUP);
    }
    // SAFETY: the C library's fork has this type.
    let next = unsafe { next_symbol::<unsafe extern "C" fn() -> pid_t>(c"fork") };
    // SAFETY: as the caller promises.
    next.map_or_else(|| refuse(libc::ENOSYS), |next| unsafe { next() })
}
