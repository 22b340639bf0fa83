//! The last error of a thread: a message and the system's error number.
//!
//! Both stand in place, in the thread's own storage. A durable application's command may be running, and memory that
//! it allocates would be part of the application's state.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_char;

/// The last error of one thread: a `thread_local!` with a `const` initializer. The message has at most
/// `BYTES_MAX - 1` bytes, and a NUL after them.
#[derive(Debug)]
pub struct LastError<const BYTES_MAX: usize> {
    message: UnsafeCell<[c_char; BYTES_MAX]>,
    os_error: Cell<i32>,
}

impl<const BYTES_MAX: usize> LastError<BYTES_MAX> {
    /// No error yet: the empty message, and 0.
    #[must_use]
    pub const fn none() -> Self {
        Self { message: UnsafeCell::new([0; BYTES_MAX]), os_error: Cell::new(0) }
    }

    /// Replaces the error.
    pub fn set(&self, message: &str, os_error: i32) {
        // SAFETY: not `Sync`, so this thread's alone, and no reference to the array lives longer than a call here.
        put_text(unsafe { &mut *self.message.get() }, message);
        self.os_error.set(os_error);
    }

    /// The message, NUL-terminated; valid until the next `set`, or the end of the thread.
    #[must_use]
    pub fn message(&self) -> *const c_char {
        self.message.get().cast_const().cast()
    }

    /// The system's error number; 0 when there is none.
    #[must_use]
    pub fn os_error(&self) -> i32 {
        self.os_error.get()
    }
}

/// Writes `text` and one NUL to `to`: without NULs of its own, and cut between characters where `to` is too short.
fn put_text(to: &mut [c_char], text: &str) {
    let Some(bytes_max) = to.len().checked_sub(1) else { return };
    let mut len = 0;
    for character in text.chars().filter(|character| *character != '\0') {
        let mut utf8 = [0; 4];
        let bytes = character.encode_utf8(&mut utf8).as_bytes();
        if bytes.len() > bytes_max - len {
            break;
        }
        for byte in bytes {
            to[len] = *byte as c_char;
            len += 1;
        }
    }
    to[len] = 0;
}

/// Text for a fixed array of the caller's struct: without NULs of its own, cut between characters where
/// it is too long, and zeros after it.
#[must_use]
pub fn text_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut to = [0; N];
    put_text(&mut to, text);
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message<const N: usize>(last: &LastError<N>) -> &str {
        // SAFETY: NUL-terminated, and the tests replace it only after their last use of it.
        unsafe { CStr::from_ptr(last.message()) }.to_str().unwrap()
    }

    #[test]
    fn an_error_stays_until_the_next_one() {
        let last = LastError::<32>::none();
        assert_eq!((message(&last), last.os_error()), ("", 0));
        last.set("cannot listen on x", 13);
        assert_eq!((message(&last), last.os_error()), ("cannot listen on x", 13));
        last.set("no", 0);
        assert_eq!((message(&last), last.os_error()), ("no", 0));
    }

    #[test]
    fn a_message_has_no_nul_in_it_and_ends_between_characters() {
        let last = LastError::<6>::none();
        for (text, expected) in [
            ("with\0NUL", "withN"),
            ("abcde", "abcde"),
            ("abcdef", "abcde"),
            ("abcd\u{e9}", "abcd"),
            ("abcd\u{e9}f", "abcd"),
            ("abc\u{e9}", "abc\u{e9}"),
            ("\0\0\0\0\0\0ab", "ab"),
        ] {
            last.set(text, 0);
            assert_eq!(message(&last), expected, "{text:?}");
        }
    }

    #[test]
    fn text_in_an_array_has_zeros_after_it() {
        let bytes = |text| text_array::<6>(text).map(|byte| byte as u8);
        assert_eq!(bytes("abc"), *b"abc\0\0\0");
        assert_eq!(bytes("abcdef"), *b"abcde\0");
        assert_eq!(bytes("abcd\u{e9}"), *b"abcd\0\0");
        assert_eq!(bytes(""), [0; 6]);
    }
}
