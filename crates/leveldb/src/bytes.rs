//! Bytes that cross the border: what the caller points at, and what the library hands out.

use crate::status::{Failure, Result};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The caller's bytes, or the sentence for what cannot be any. Any pointer with a length of 0 is the empty string.
///
/// # Safety
/// `data` has `len` readable bytes until the call that got it returns, unless it is NULL or they are too many.
#[inline]
pub(crate) unsafe fn slice<'a>(data: *const c_char, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    // A negative int that became a length, for instance.
    if data.is_null() || len > isize::MAX as usize {
        return Err(no_bytes(data, len));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

#[cold]
fn no_bytes(data: *const c_char, len: usize) -> Failure {
    let why = if data.is_null() { "they are at NULL" } else { "no memory holds so many" };
    Failure::invalid(format!("a key or value of {len} bytes: {why}"))
}

/// The caller's path.
///
/// # Safety
/// NULL, or a NUL-terminated string.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    if text.is_null() {
        return Err(Failure::invalid("the name of the database is NULL"));
    }
    // SAFETY: not null, and NUL-terminated as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// The object behind a handle, or the sentence for NULL.
///
/// # Safety
/// NULL, or a live handle of this type.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("'{what}' is NULL")))
}

/// A copy of `bytes` from malloc(), with one NUL behind that does not count; NULL without memory.
pub(crate) fn allocate(bytes: &[u8]) -> *mut c_void {
    // SAFETY: malloc takes any size; slices are at most isize::MAX long, so + 1 does not wrap.
    let block = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if !block.is_null() {
        // SAFETY: the block is new, len + 1 bytes long, and so overlaps nothing.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), block, bytes.len());
            block.add(bytes.len()).write(0);
        }
    }
    block.cast()
}

/// Gives an object to C.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes back and drops what [`give`] gave; nothing for NULL.
///
/// # Safety
/// NULL, or a pointer from [`give`] that was not taken back yet and is not used any more.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pointer) });
    }
}
