//! Runs code that may panic, without output, and returns the panic as a message.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CAUGHT: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `body`; a panic becomes an error that says where and what.
///
/// # Errors
/// What `body` returns, or its panic.
pub fn quietly<R>(body: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let mine = CAUGHT.with(|c| {
                let mut c = c.borrow_mut();
                let armed = c.is_some();
                if armed {
                    *c = Some(Some(info.to_string().replace('\n', " ")));
                }
                armed
            });
            if !mine {
                before(info);
            }
        }));
    });
    let outer = CAUGHT.with(|c| c.replace(Some(None)));
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let said = CAUGHT.with(|c| c.replace(outer)).flatten();
    result.unwrap_or_else(|_| Err(said.unwrap_or_else(|| "a thread of the engine panicked".to_owned())))
}
