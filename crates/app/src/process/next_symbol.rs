//! The functions that this library's functions of the same names stand in front of.

use std::ffi::CStr;

/// The next function of this name in the order in which the dynamic linker searches; `None` where there
/// is none.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(crate) unsafe fn next_symbol<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
    // SAFETY: a NUL-terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: a pointer to a function, of the caller's type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}
