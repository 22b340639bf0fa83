//! Work on a thread of its own.
//!
//! Opening a database starts threads, and Rust then notes 48 bytes about the thread that starts them,
//! which it frees when that thread ends. For a main thread of C's that is never, and every run under
//! memcheck would report them. So what opens databases runs aside, while the caller waits.

use std::panic::resume_unwind;
use std::thread::Builder;

/// Runs `work` on a new thread and returns its answer; here, when there is no thread to be had.
pub(crate) fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Clone + Send + 'static) -> T {
    // Not a scoped thread: a scope notes the calling thread too.
    match Builder::new().spawn(work.clone()) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => work(),
    }
}
