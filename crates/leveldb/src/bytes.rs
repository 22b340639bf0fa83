//! The caller's bytes and paths, where LevelDB's callers need other words than those of `mangrove_cabi`.

use crate::status::{Failure, Result};
use mangrove_cabi::Problem;
use std::ffi::c_char;
use std::path::Path;

/// The caller's bytes, or a failure for a pointer that cannot have so many. Any pointer with a length of 0 is the
/// empty string.
///
/// # Safety
/// `data` has `len` readable bytes until the entry point returns, unless it is NULL or `len` is larger than any
/// memory.
#[inline]
pub(crate) unsafe fn slice<'a>(data: *const c_char, len: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    Ok(unsafe { mangrove_cabi::slice(data, len, "key or value") }?)
}

/// The caller's path.
///
/// # Safety
/// NULL, or a NUL-terminated string.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { mangrove_cabi::path(text, "name") }.map_err(|bad| {
        Failure::invalid(match bad.problem {
            Problem::EmptyPath => "the name of the database is empty",
            _ => "the name of the database is NULL",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn what_cannot_be_read_is_an_invalid_argument() {
        let byte: c_char = 0;
        // SAFETY: refused before anything is read.
        let said = unsafe {
            [
                slice(ptr::null(), 3).unwrap_err(),
                slice(&raw const byte, usize::MAX).unwrap_err(),
                path(ptr::null()).unwrap_err(),
                mangrove_cabi::handle(ptr::null::<u8>(), "db").unwrap_err().into(),
            ]
        };
        let many =
            format!("Invalid argument: a key or value of {} bytes: no memory holds so many", usize::MAX);
        assert_eq!(
            said.map(|failure| failure.to_string()),
            [
                "Invalid argument: a key or value of 3 bytes: they are at NULL",
                &many,
                "Invalid argument: the name of the database is NULL",
                "Invalid argument: 'db' is NULL",
            ]
        );
    }
}
