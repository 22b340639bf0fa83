//! Stops panics at the entry points: a panic must not unwind into C. A cancellation waits until the call has ended: it
//! would unwind the engines' frames, which the Rust runtime answers by ending the process.

use mangrove_sys::set_cancelable;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// While it lives pthread_cancel does not end this thread.
struct Uncancelled {
    was_cancelable: bool,
}

impl Uncancelled {
    fn begin() -> Self {
        Self { was_cancelable: set_cancelable(false) }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        set_cancelable(self.was_cancelable);
    }
}

/// As [`stop_panics`], for a call that may wait or use files: pthread_cancel takes effect after it.
///
/// # Errors
/// When the body panics.
pub fn stop_panics_and_cancellation<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    let _uncancelled = Uncancelled::begin();
    stop_panics(body)
}

/// Runs the body of an entry point and returns its result. If the body panics, the error is the message that the
/// door reports in its own form.
///
/// # Errors
/// When the body panics.
#[inline]
pub fn stop_panics<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // AssertUnwindSafe: the engines refuse further writes after a panic that left one half done, and the doors' handles
    // hold no invariants across a call into an engine.
    catch_unwind(AssertUnwindSafe(body)).map_err(message_of)
}

#[cold]
fn message_of(panic: Box<dyn Any + Send>) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    // The payload's destructor is code like any other: it may panic too.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(panic)));
    format!("a bug in Mangrove: {words}; please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(stop_panics(|| 7), Ok(7));
        let expected = |words: &str| Err(format!("a bug in Mangrove: {words}; please report it"));
        assert_eq!(stop_panics::<()>(|| panic!("seven is not eight")), expected("seven is not eight"));
        let seven = 7;
        assert_eq!(stop_panics::<()>(|| panic!("{seven} is not 8")), expected("7 is not 8"));
    }

    #[test]
    fn a_payload_whose_destructor_panics_is_stopped_too() {
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("and again");
            }
        }
        let stopped = stop_panics::<()>(|| std::panic::panic_any(Nasty));
        assert_eq!(stopped, Err("a bug in Mangrove: ; please report it".into()));
    }
}
