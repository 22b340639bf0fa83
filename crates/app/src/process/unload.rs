//! dlclose(3), in front of the C library's: what the destructors of a library free of a durable state stays in use.
//!
//! The variables of a library that is unloaded stay part of the state, and the next start puts them back: a C++
//! container of such a library would lead to blocks that are free.

use crate::process::next_symbol::next_symbol;
use libc::{c_int, c_void};
use mangrove_durable::route;

/// As dlclose(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    // SAFETY: the C library's dlclose has this type.
    let next = unsafe { next_symbol::<unsafe extern "C" fn(*mut c_void) -> c_int>(c"dlclose") };
    // SAFETY: as the caller promises.
    next.map_or(-1, |next| route::unloading(|| unsafe { next(handle) }))
}
