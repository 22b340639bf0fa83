//! Waiting without the interpreter's lock, also while the interpreter shuts down.
//!
//! Up to Python 3.13 a thread that wants the lock back after the interpreter has begun to shut down is ended on the
//! spot, by an unwinding that our frames do not survive. From 3.14 on it sleeps for ever. Here it sleeps in all of
//! them: a hook of `atexit`, which Python runs before it shuts down, raises a flag, and a thread that sees it does not
//! ask for the lock.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether the interpreter is about to shut down.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Threads that have seen that it is not, and have not got the lock yet.
static RETURNING: AtomicU64 = AtomicU64::new(0);
/// How long the hook waits for them. (A child of fork counts threads of its parent.)
const RETURN_MAX: Duration = Duration::from_millis(500);
/// Helpers that undo what an interrupted call had begun.
pub(crate) static UNDOING: AtomicU64 = AtomicU64::new(0);
/// How long the hook waits for them, at most: they remove files.
const UNDO_MAX: Duration = Duration::from_secs(20);

thread_local! {
    /// Whether this thread shuts the interpreter down.
    static SHUTS_DOWN: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` without the interpreter's lock. In place of `Python::detach`.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(move || {
        let result = work();
        // SeqCst, with the hook's: a thread that the hook does not count sees the flag.
        RETURNING.fetch_add(1, Ordering::SeqCst);
        if ENDS.load(Ordering::SeqCst) && !SHUTS_DOWN.get() {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        result
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// The hook.
#[pyfunction]
fn interpreter_ends(py: Python<'_>) {
    SHUTS_DOWN.set(true);
    ENDS.store(true, Ordering::SeqCst);
    py.detach(|| {
        for (count, max) in [(&UNDOING, UNDO_MAX), (&RETURNING, RETURN_MAX)] {
            let end = Instant::now() + max;
            while count.load(Ordering::SeqCst) > 0 && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
}

/// Has Python call the hook.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hook = pyo3::wrap_pyfunction!(interpreter_ends, module)?;
    module.py().import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}
