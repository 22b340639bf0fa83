//! Bytes that the library returns, and what `mangrove_cabi` does not know of those that it is given.

use crate::status::mangrove_status::*;
use crate::status::{Answer, Failure};
use mangrove_cabi::slice;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// The caller's bytes, where NULL says "none" rather than "empty".
pub(crate) unsafe fn optional<'a>(
    data: *const c_void,
    len: usize,
    what: &'static str,
) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: as the caller of this function promises.
    let bytes = unsafe { slice(data, len, what) }?;
    Ok((!data.is_null()).then_some(bytes))
}

/// A copy of `bytes` for the caller: from malloc(), followed by one NUL that does not count.
pub(crate) fn allocate(bytes: &[u8]) -> Result<*mut c_void, Failure> {
    let block = mangrove_cabi::allocate(bytes);
    if block.is_null() {
        return Err(Failure::new(MANGROVE_ERR_NO_MEMORY, format!("no memory for {} bytes", bytes.len() + 1)));
    }
    Ok(block)
}

/// Copies `value` into the caller's buffer, or returns that it does not fit.
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

/// The caller's buffer of `capacity` bytes, which may hold anything.
///
/// # Safety
/// Unless it is NULL, `buffer` has `capacity` bytes that nothing else uses during the entry point.
pub(crate) unsafe fn caller_buffer<'a>(
    buffer: *mut c_void,
    capacity: usize,
) -> Result<&'a mut [MaybeUninit<u8>], Failure> {
    check_buffer(buffer, capacity)?;
    if capacity == 0 {
        return Ok(&mut []);
    }
    // No object is longer than that, and a value is far shorter.
    let capacity = capacity.min(isize::MAX as usize);
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), capacity) })
}

/// Whether some of the bytes lie in the buffer.
pub(crate) fn overlaps(bytes: &[u8], buffer: *const c_void, capacity: usize) -> bool {
    let (from, to) = (bytes.as_ptr().addr(), buffer.addr());
    from < to.saturating_add(capacity) && to < from.saturating_add(bytes.len())
}

/// Checks the arguments of a buffer.
pub(crate) fn check_buffer(buffer: *mut c_void, capacity: usize) -> Result<(), Failure> {
    if buffer.is_null() && capacity > 0 {
        return Err(Failure::invalid(format!("'buffer' is NULL, with a capacity of {capacity}")));
    }
    Ok(())
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
    // SAFETY: the caller says that `size` bytes are there.
    unsafe { mangrove_cabi::put_sized(to, size, value) };
    Ok(())
}

/// Frees memory that a function of this library handed out as bytes or text; the same as free(). NULL
/// is fine. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_free(bytes: *mut c_void) {
    // SAFETY: NULL, or from `allocate`, whose blocks are malloc's.
    unsafe { libc::free(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_the_caller_forgot_to_set_are_refused() {
        let mut space = [9_u64; 6];
        for size in [0, 8, usize::MAX] {
            // SAFETY: refused before anything is written.
            assert!(unsafe { put_sized(space.as_mut_ptr().cast(), size, [1_u64, 2, 3, 4], "x") }.is_err());
        }
        assert_eq!(space, [9; 6]);
    }

    #[test]
    fn bytes_in_a_buffer_are_noticed_also_at_its_ends() {
        let bytes = [0_u8; 8];
        let base = bytes.as_ptr();
        for (from, len, expected) in
            [(0, 2, false), (0, 3, true), (3, 2, true), (4, 4, true), (5, 3, false), (0, 8, true)]
        {
            let buffer = base.wrapping_add(2).cast();
            assert_eq!(overlaps(&bytes[from..from + len], buffer, 3), expected, "{len} from {from} on");
        }
        assert!(!overlaps(&bytes, std::ptr::null(), 0));
    }

    #[test]
    fn null_is_none_and_not_empty() {
        let byte = 0_u8;
        // SAFETY: no byte is read.
        unsafe {
            assert_eq!(optional(std::ptr::null(), 0, "value").unwrap(), None);
            assert_eq!(optional((&raw const byte).cast(), 0, "value").unwrap(), Some(&b""[..]));
        }
    }
}
