//! What a panic inside a tracked call prints.
//!
//! The standard library's hook would print a backtrace where `RUST_BACKTRACE` asks for one. Inside a tracked call
//! that reads the program's symbols by translated code, into memory whose every write is recorded: it takes
//! minutes, in which signals wait for the call's end. Here such a panic prints its message alone, and then unwinds
//! as usual.

use crate::active::in_tracked_call;
use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// From now on panics inside tracked calls print no backtrace; others go to the hook that was there.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // The standard library refuses a thread that is panicking; a later call installs it.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(
            move |panic| if in_tracked_call() { notice(panic) } else { before(panic) },
        ));
    });
}

/// What `panic!` was given, if it is text.
fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Writes the message, whatever happens to it, past every buffer and lock.
fn notice(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let message = text(panic.payload()).unwrap_or("(its message is no text)");
    let line = format!(
        "\nthread panicked inside a tracked call{place}:\n{message}\n(no backtrace is printed there)\n"
    );
    // SAFETY: bytes that live through the call.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
