//! Exceptions that leave the called function.
//!
//! The frame of `enter` claims to handle every exception. The unwinder, itself translated, then continues at
//! `mangrove_tracker_caught`, which destroys the exception and leaves the call with an error. Exceptions that are
//! caught inside the call never get here: original return addresses lie on the stack, so the unwinder finds its way
//! as it does natively.

use crate::recompiler::run::stubs::mangrove_tracker_caught;
use std::ffi::c_void;

const SEARCH_PHASE: i32 = 1;
const HANDLER_FRAME: i32 = 4;
const FORCE_UNWIND: i32 = 8;
const HANDLER_FOUND: i32 = 6;
const INSTALL_CONTEXT: i32 = 7;
const CONTINUE_UNWIND: i32 = 8;
/// DWARF numbers of the registers that carry the exception to the landing pad.
const DWARF_RAX: i32 = 0;
/// Class of exceptions of g++ and clang++: "GNUCC++\0", last byte ignored (1: a dependent exception).
const CLASS_GNU_CXX: u64 = u64::from_be_bytes(*b"GNUCC++\0");

unsafe extern "C" {
    fn _Unwind_SetGR(context: *mut c_void, register: i32, value: usize);
    fn _Unwind_SetIP(context: *mut c_void, value: usize);
    fn _Unwind_DeleteException(exception: *mut c_void);
}

/// Personality routine of the frame of `enter` (Itanium C++ ABI: exception handling, level I).
#[unsafe(no_mangle)]
unsafe extern "C" fn mangrove_tracker_personality(
    _version: i32,
    actions: i32,
    _class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> i32 {
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & (HANDLER_FRAME | FORCE_UNWIND) != 0 {
        let pad = mangrove_tracker_caught as *const () as usize;
        // SAFETY: the unwinder's own context, in the phase that may change it.
        unsafe {
            _Unwind_SetGR(context, DWARF_RAX, exception.expose_provenance());
            _Unwind_SetIP(context, pad);
        }
        return INSTALL_CONTEXT;
    }
    CONTINUE_UNWIND
}

/// Destroys a caught exception. Runs translated, because the memory that it frees belongs to the call.
pub(in crate::recompiler) unsafe extern "C" fn destroy_exception(exception: *mut c_void) {
    // SAFETY: every unwinder's exception begins with its class; the two C++ functions are those of the
    // library that threw, which is loaded.
    unsafe {
        if exception.cast::<u64>().read() & !0xff == CLASS_GNU_CXX {
            let begin = libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_begin_catch".as_ptr());
            let end = libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_end_catch".as_ptr());
            if !begin.is_null() && !end.is_null() {
                let begin: unsafe extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(begin);
                let end: unsafe extern "C" fn() = std::mem::transmute(end);
                begin(exception);
                end();
                return;
            }
        }
        _Unwind_DeleteException(exception);
    }
}
