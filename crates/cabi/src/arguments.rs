//! What passes between C and Rust: handles, out-parameters, bytes, arrays, paths, text.
//!
//! Invariants:
//! 1. An out-parameter is written before it is read, so that every path of an entry point leaves it defined.
//! 2. A slice is made only of a pointer that is not NULL and a length that memory can have.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An argument that cannot be used, and the words for it where a door has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArgument {
    /// The argument's name; of a number, the name of the C enum that lacks it.
    pub what: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is NULL.
    Null,
    /// It is a path of no byte.
    EmptyPath,
    /// It is NULL, and its length is this.
    NullBytes(usize),
    /// Its length is more than memory has: a negative int, for instance, that was converted to a length.
    TooManyBytes(usize),
    /// It is NULL, and it should have so many elements.
    NullArray(usize),
    /// It has more elements than memory has.
    TooManyElements(usize),
    /// It is a number that its enum does not have.
    NoSuchNumber(i32),
}

impl fmt::Display for BadArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match self.problem {
            Problem::Null => write!(f, "'{what}' is NULL"),
            Problem::EmptyPath => write!(f, "the path '{what}' is empty; it has to name a directory"),
            Problem::NullBytes(len) => write!(f, "'{what}' is NULL, with a length of {len}"),
            Problem::TooManyBytes(len) => {
                write!(f, "the length of '{what}' is {len}, more than memory has")
            }
            Problem::NullArray(count) => write!(f, "'{what}' is NULL, with a count of {count}"),
            Problem::TooManyElements(count) => {
                write!(f, "the count of '{what}' is {count}, more than memory has")
            }
            Problem::NoSuchNumber(number) => write!(f, "{number} is no {what}"),
        }
    }
}

/// As the results of this file.
pub type Checked<T> = Result<T, BadArgument>;

#[cold]
fn bad<T>(what: &'static str, problem: Problem) -> Checked<T> {
    Err(BadArgument { what, problem })
}

/// The object behind a handle.
///
/// # Errors
/// For NULL.
///
/// # Safety
/// NULL, or a live handle of this type.
#[inline]
pub unsafe fn handle<'a, T>(pointer: *const T, what: &'static str) -> Checked<&'a T> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_ref() } {
        Some(object) => Ok(object),
        None => bad(what, Problem::Null),
    }
}

/// As [`handle`], for an object that one thread uses at a time.
///
/// # Errors
/// For NULL.
///
/// # Safety
/// NULL, or a live handle of this type that nothing else uses during the entry point.
#[inline]
pub unsafe fn handle_mut<'a, T>(pointer: *mut T, what: &'static str) -> Checked<&'a mut T> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_mut() } {
        Some(object) => Ok(object),
        None => bad(what, Problem::Null),
    }
}

/// Returns an object to C as a handle.
pub fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Drops an object that [`give`] returned; does nothing for NULL.
///
/// # Safety
/// NULL, or a pointer from [`give`] that was not dropped yet and is not used any more.
pub unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// An out-parameter that must be there. It is set to `empty` at once (invariant 1).
///
/// # Errors
/// For NULL.
///
/// # Safety
/// NULL, or space for a `T` that nothing else uses during the entry point.
pub unsafe fn out<'a, T>(pointer: *mut T, empty: T, what: &'static str) -> Checked<&'a mut T> {
    if pointer.is_null() {
        return bad(what, Problem::Null);
    }
    // SAFETY: not NULL, and space for a T as the caller promises; written before it is read.
    unsafe {
        pointer.write(empty);
        Ok(&mut *pointer)
    }
}

/// Writes an out-parameter that may be left out.
///
/// # Safety
/// NULL, or space for a `T`.
pub unsafe fn put_out<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not NULL, and space for a T as the caller promises.
        unsafe { pointer.write(value) };
    }
}

/// The caller's bytes. Any pointer with a length of 0 is the empty string.
///
/// # Errors
/// For NULL with a length, and for a length that no memory has.
///
/// # Safety
/// `data` has `len` readable bytes until the entry point returns, unless it is NULL or `len` is larger than any
/// memory.
#[inline]
pub unsafe fn slice<'a, T>(data: *const T, len: usize, what: &'static str) -> Checked<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return bad(what, Problem::NullBytes(len));
    }
    if len > isize::MAX as usize {
        return bad(what, Problem::TooManyBytes(len));
    }
    // SAFETY: invariant 2; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// The caller's array of `count` elements.
///
/// # Errors
/// For NULL with a count, and for a count that no memory has.
///
/// # Safety
/// As [`slice()`], for `count` elements.
pub unsafe fn array<'a, T>(data: *const T, count: usize, what: &'static str) -> Checked<&'a [T]> {
    check_array(data, count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: invariant 2; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// The caller's array of `count` out-parameters. All are set to `empty` at once (invariant 1).
///
/// # Errors
/// As [`array()`].
///
/// # Safety
/// As [`array()`], for space that nothing else uses during the entry point.
pub unsafe fn array_out<'a, T: Copy>(
    data: *mut T,
    count: usize,
    empty: T,
    what: &'static str,
) -> Checked<&'a mut [T]> {
    check_array(data, count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    for place in 0..count {
        // SAFETY: not NULL, and space for `count` elements as the caller promises.
        unsafe { data.add(place).write(empty) };
    }
    // SAFETY: invariant 2, and each element was written.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
}

fn check_array<T>(data: *const T, count: usize, what: &'static str) -> Checked<()> {
    if count > 0 && data.is_null() {
        return bad(what, Problem::NullArray(count));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return bad(what, Problem::TooManyElements(count));
    }
    Ok(())
}

/// The caller's text.
///
/// # Errors
/// For NULL.
///
/// # Safety
/// NULL, or a NUL-terminated string that stays until the entry point returns.
pub unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Checked<&'a CStr> {
    if text.is_null() {
        return bad(what, Problem::Null);
    }
    // SAFETY: not NULL; the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The caller's path.
///
/// # Errors
/// For NULL, and for the empty path, which names nothing.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(text: *const c_char, what: &'static str) -> Checked<&'a Path> {
    // SAFETY: the caller's promise.
    let text = unsafe { self::text(text, what) }?;
    if text.is_empty() {
        return bad(what, Problem::EmptyPath);
    }
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Writes a struct of which the caller's header knew `size` bytes: no byte beyond them, and zeros in what this
/// library does not know.
///
/// # Safety
/// `to` has space for `size` bytes.
pub unsafe fn put_sized<T: Copy>(to: *mut T, size: usize, value: T) {
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are there as the caller promises, and `value` has size_of::<T>() of them.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast::<u8>(), known);
        std::ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
    }
}

/// A copy of `bytes` for the caller: from malloc(), followed by one NUL that does not count. NULL without memory.
#[must_use]
pub fn allocate(bytes: &[u8]) -> *mut c_void {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn problem<T: std::fmt::Debug>(of: Checked<T>) -> Problem {
        let bad = of.unwrap_err();
        assert_eq!(bad.what, "it");
        bad.problem
    }

    #[test]
    fn null_is_refused_where_something_must_be() {
        // SAFETY: refused before anything is read.
        unsafe {
            assert_eq!(problem(handle(ptr::null::<u8>(), "it")), Problem::Null);
            assert_eq!(problem(handle_mut(ptr::null_mut::<u8>(), "it")), Problem::Null);
            assert_eq!(problem(out(ptr::null_mut(), 7, "it")), Problem::Null);
            assert_eq!(problem(text(ptr::null(), "it")), Problem::Null);
            assert_eq!(problem(path(ptr::null(), "it")), Problem::Null);
            assert_eq!(problem(slice(ptr::null::<u8>(), 1, "it")), Problem::NullBytes(1));
            assert_eq!(problem(array(ptr::null::<u8>(), 2, "it")), Problem::NullArray(2));
            assert_eq!(problem(array_out(ptr::null_mut(), 3, 0, "it")), Problem::NullArray(3));
            put_out(ptr::null_mut(), 7);
            take_back(ptr::null_mut::<u8>());
        }
    }

    #[test]
    fn lengths_that_were_negative_are_refused() {
        let mut word = 7_u64;
        let place = &raw mut word;
        // SAFETY: refused before anything is read or written.
        unsafe {
            assert_eq!(problem(slice(place, usize::MAX, "it")), Problem::TooManyBytes(usize::MAX));
            let count = isize::MAX as usize / 8 + 1;
            assert_eq!(problem(array(place, count, "it")), Problem::TooManyElements(count));
            assert_eq!(problem(array_out(place, count, 0, "it")), Problem::TooManyElements(count));
        }
        assert_eq!(word, 7);
    }

    #[test]
    fn each_problem_has_its_words() {
        for (problem, words) in [
            (Problem::Null, "'key' is NULL"),
            (Problem::NullBytes(3), "'key' is NULL, with a length of 3"),
            (Problem::TooManyBytes(3), "the length of 'key' is 3, more than memory has"),
            (Problem::NullArray(3), "'key' is NULL, with a count of 3"),
            (Problem::TooManyElements(3), "the count of 'key' is 3, more than memory has"),
            (Problem::NoSuchNumber(-3), "-3 is no key"),
        ] {
            assert_eq!(BadArgument { what: "key", problem }.to_string(), words);
        }
    }

    #[test]
    fn nothing_is_read_where_the_length_is_zero() {
        // SAFETY: no byte and no element.
        unsafe {
            assert_eq!(slice(ptr::null::<u8>(), 0, "it"), Ok(&b""[..]));
            assert_eq!(slice(ptr::without_provenance::<u8>(1), 0, "it"), Ok(&b""[..]));
            assert_eq!(array(ptr::null::<u64>(), 0, "it"), Ok(&[][..]));
            assert_eq!(array_out(ptr::null_mut(), 0, 7, "it"), Ok(&mut [][..]));
        }
    }

    #[test]
    fn out_parameters_are_set_at_once() {
        let mut words = [7_u64; 3];
        // SAFETY: three words.
        unsafe {
            assert_eq!(array_out(words.as_mut_ptr(), 2, 0, "it"), Ok(&mut [0, 0][..]));
            assert_eq!(out(&raw mut words[2], 5, "it"), Ok(&mut 5));
            put_out(words.as_mut_ptr(), 9);
        }
        assert_eq!(words, [9, 0, 5]);
    }

    #[test]
    fn sized_structs_stay_inside_what_the_caller_has() {
        let value = [1_u64, 2, 3, 4];
        for (size, expected) in [(16, [1, 2, 9, 9, 9, 9]), (24, [1, 2, 3, 9, 9, 9]), (40, [1, 2, 3, 4, 0, 9])]
        {
            let mut space = [9_u64; 6];
            // SAFETY: the space is larger than any size tried.
            unsafe { put_sized(space.as_mut_ptr().cast::<[u64; 4]>(), size, value) };
            assert_eq!(space, expected, "{size}");
        }
    }

    #[test]
    fn a_copy_is_followed_by_a_nul() {
        for bytes in [&b""[..], b"key", b"with\0NUL"] {
            let copy = allocate(bytes);
            // SAFETY: a block of malloc with one byte more than was asked for, freed after its last use.
            unsafe {
                assert_eq!(slice(copy, bytes.len() + 1, "it").unwrap(), [bytes, b"\0"].concat());
                libc::free(copy);
            }
        }
    }
}
