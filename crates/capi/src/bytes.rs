//! Bytes that cross the border: what the caller points at, and what the library hands out.

use crate::status::mangrove_status::*;
use crate::status::{Answer, Failure};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The object behind a handle, or the sentence for NULL.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the header's contract: NULL, or a live handle of this type.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// As [`handle`], for the handles that one thread uses at a time.
pub(crate) unsafe fn handle_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the header's contract: NULL, or a live handle that no other thread uses now.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

fn null(what: &str) -> Failure {
    Failure::invalid(format!("'{what}' is NULL"))
}

/// An out-parameter that must be there. Set to `empty` at once, so that every path leaves it defined.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, empty: T, what: &str) -> Result<&'a mut T, Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the header says it points at room for a T; written before it is read.
    unsafe {
        pointer.write(empty);
        Ok(&mut *pointer)
    }
}

/// Writes an out-parameter that may be left out.
pub(crate) unsafe fn put_out<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null, and the header says it points at room for a T.
        unsafe { pointer.write(value) };
    }
}

/// The caller's bytes. (NULL, 0) is the empty string.
pub(crate) unsafe fn slice<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid(format!("'{what}' is NULL, with a length of {len}")));
    }
    // A negative int that became a length, as in memcpy.
    if len > isize::MAX as usize {
        return Err(Failure::invalid(format!("the length of '{what}' is {len}, more than memory has")));
    }
    // SAFETY: not null, and the header says that `len` bytes are readable for the whole call.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// The caller's array of `count` elements.
pub(crate) unsafe fn array<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    check_array(data, count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, and the header says that `count` elements are readable for the whole call.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// The caller's array of `count` out-parameters. All are set to `empty` at once, as in [`out`].
pub(crate) unsafe fn array_out<'a, T: Copy>(
    data: *mut T,
    count: usize,
    empty: T,
    what: &str,
) -> Result<&'a mut [T], Failure> {
    check_array(data, count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    for place in 0..count {
        // SAFETY: not null, and the header says that there is room for `count` elements.
        unsafe { data.add(place).write(empty) };
    }
    // SAFETY: as above, and each was written.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
}

fn check_array<T>(data: *const T, count: usize, what: &str) -> Result<(), Failure> {
    if count > 0 && data.is_null() {
        return Err(Failure::invalid(format!("'{what}' is NULL, with a count of {count}")));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::invalid(format!("the count of '{what}' is {count}, more than memory has")));
    }
    Ok(())
}

/// The caller's bytes, where NULL says "none" rather than "empty".
pub(crate) unsafe fn optional<'a>(
    data: *const c_void,
    len: usize,
    what: &str,
) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: as the caller of this function promises.
    let bytes = unsafe { slice(data, len, what) }?;
    Ok((!data.is_null()).then_some(bytes))
}

/// The caller's path.
pub(crate) unsafe fn path<'a>(text: *const c_char, what: &str) -> Result<&'a Path, Failure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the header says it ends with NUL.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// A copy of `bytes` in the caller's name: from malloc(), with one NUL behind that does not count.
pub(crate) fn allocate(bytes: &[u8]) -> Result<*mut c_void, Failure> {
    // SAFETY: malloc takes any size; slices are at most isize::MAX long, so + 1 does not wrap.
    let block = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if block.is_null() {
        return Err(Failure::new(MANGROVE_ERR_NO_MEMORY, format!("no memory for {} bytes", bytes.len() + 1)));
    }
    // SAFETY: the block is new, len + 1 bytes long, and so overlaps nothing.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), block, bytes.len());
        block.add(bytes.len()).write(0);
    }
    Ok(block.cast())
}

/// Copies `value` into the caller's buffer, or tells that it does not fit.
pub(crate) unsafe fn fill(value: &[u8], buffer: *mut c_void, capacity: usize, len: &mut usize) -> Answer {
    *len = value.len();
    if value.len() > capacity {
        return Ok(MANGROVE_BUFFER_TOO_SMALL);
    }
    if !value.is_empty() {
        // SAFETY: value.len() <= capacity, so capacity > 0 and the buffer was checked to be there; it
        // is the caller's memory and the value the map's, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len()) };
    }
    Ok(MANGROVE_OK)
}

/// A buffer that [`fill`] may use.
pub(crate) fn check_buffer(buffer: *mut c_void, capacity: usize) -> Result<(), Failure> {
    if buffer.is_null() && capacity > 0 {
        return Err(Failure::invalid(format!("'buffer' is NULL, with a capacity of {capacity}")));
    }
    Ok(())
}

/// Text for a fixed array of the caller's struct: cut at a character, always NUL-terminated.
pub(crate) fn text<const N: usize>(from: &str) -> [c_char; N] {
    let mut to = [0; N];
    let mut len = from.len().min(N - 1);
    while !from.is_char_boundary(len) {
        len -= 1;
    }
    for (to, from) in to.iter_mut().zip(&from.as_bytes()[..len]) {
        *to = *from as c_char;
    }
    to
}

/// Writes a struct that begins with its size, as the caller's header knew it: no byte beyond, and
/// zeros in what this library does not know.
pub(crate) unsafe fn put_sized<T: Copy>(
    to: *mut T,
    size: usize,
    value: T,
    what: &str,
) -> Result<(), Failure> {
    if size < size_of::<usize>() * 2 || size > 1 << 16 {
        return Err(Failure::invalid(format!("set {what}->size to sizeof(*{what}) before the call")));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller says that `size` bytes are there; `value` has size_of::<T>() of them.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast::<u8>(), known);
        std::ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
    }
    Ok(())
}

/// Frees what a function of this library handed out as bytes or text; the same as free(). NULL is
/// fine. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_free(bytes: *mut c_void) {
    // SAFETY: NULL, or from `allocate`, whose blocks are malloc's.
    unsafe { libc::free(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        let cut = |s| text::<6>(s).iter().take_while(|b| **b != 0).map(|b| *b as u8).collect::<Vec<_>>();
        assert_eq!(cut("abc"), b"abc");
        assert_eq!(cut("abcde"), b"abcde");
        assert_eq!(cut("abcdef"), b"abcde");
        assert_eq!(cut("abcd\u{e9}"), b"abcd");
        assert_eq!(cut(""), b"");
    }

    #[test]
    fn sized_structs_stay_inside_what_the_caller_has() {
        let value = [1_u64, 2, 3, 4];
        for (size, expected) in [(16, [1, 2, 9, 9, 9, 9]), (24, [1, 2, 3, 9, 9, 9]), (40, [1, 2, 3, 4, 0, 9])]
        {
            let mut room = [9_u64; 6];
            // SAFETY: the room is larger than any size tried.
            unsafe { put_sized(room.as_mut_ptr().cast::<[u64; 4]>(), size, value, "x") }.unwrap();
            assert_eq!(room, expected, "{size}");
        }
        let mut room = [9_u64; 6];
        for size in [0, 8, usize::MAX] {
            // SAFETY: refused before anything is written.
            assert!(unsafe { put_sized(room.as_mut_ptr().cast(), size, value, "x") }.is_err());
        }
        assert_eq!(room, [9; 6]);
    }

    #[test]
    fn lengths_that_were_negative_are_refused() {
        let byte = 0_u8;
        // SAFETY: refused before anything is read.
        unsafe {
            assert!(slice((&raw const byte).cast(), usize::MAX, "key").is_err());
            assert!(slice(std::ptr::null(), 1, "key").is_err());
            assert_eq!(slice(std::ptr::null(), 0, "key").unwrap(), b"");
            assert_eq!(optional(std::ptr::null(), 0, "value").unwrap(), None);
            assert_eq!(optional((&raw const byte).cast(), 0, "value").unwrap(), Some(&b""[..]));
        }
    }
}
