//! What the three C libraries share: `mangrove.h`, `mangrove_app.h` and LevelDB's C API.
//!
//! Each of them turns these results into statuses and messages of its own:
//!
//! ```
//! use mangrove_cabi::{LastError, handle, stop_panics};
//!
//! thread_local! {
//!     static LAST: LastError<1024> = const { LastError::none() };
//! }
//!
//! /// The number behind the handle; -1 after an error, which is then the thread's last one.
//! unsafe extern "C" fn number(pointer: *const i32) -> i32 {
//!     // SAFETY: the C caller's contract: NULL, or a live handle.
//!     let read = stop_panics(|| unsafe { handle(pointer, "pointer") }.copied());
//!     let message = match read {
//!         Ok(Ok(number)) => return number,
//!         Ok(Err(bad)) => format!("'{}' cannot be used", bad.what),
//!         Err(panic) => panic,
//!     };
//!     LAST.with(|last| last.set(&message, 0));
//!     -1
//! }
//!
//! // SAFETY: NULL.
//! assert_eq!(unsafe { number(std::ptr::null()) }, -1);
//! ```

mod arguments;
mod last_error;
mod own_thread;
mod panic_wall;
mod setter;

pub use arguments::{
    BadArgument, Checked, Problem, allocate, array, array_out, give, handle, handle_mut, out, path, put_out,
    put_sized, slice, take_back, text,
};
pub use last_error::{LastError, text_array};
pub use own_thread::{on_own_thread, on_own_thread_asking};
pub use panic_wall::{stop_panics, stop_panics_and_cancellation};
