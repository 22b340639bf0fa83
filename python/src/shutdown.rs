//! Waiting without the interpreter's lock, also while the interpreter shuts down.
//!
//! Up to Python 3.13 a thread that wants the lock back after the interpreter has begun to shut down is ended on the
//! spot, by an unwinding that our frames do not survive. From 3.14 on it sleeps for ever. Here it sleeps in all of
//! them: a thread asks for the lock, or calls Python code, which lets go of the lock now and then, only while the
//! interpreter runs.
//!
//! Between that look and the lock the interpreter must not end. Python runs the functions of `atexit`, lets go of them,
//! and then shuts down, all with the lock. So [`AtExit`], which only `atexit` holds, is dropped at the last moment. It
//! raises a flag that has new threads wait until the interpreter has ended, and waits for those that have looked
//! before. Up to that moment threads go on: a function of `atexit` may wait for one, or for a lock of Python that one
//! has.

use crate::interpreter::is_running;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether the interpreter is about to shut down.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Threads that have seen that it is not, and have not got the lock yet, or are in Python code.
static AT_RISK: AtomicU64 = AtomicU64::new(0);
/// How long its end waits for them. (A child of fork counts threads of its parent.)
const RISK_MAX: Duration = Duration::from_millis(500);
/// Helpers that undo what an interrupted call had begun.
pub(crate) static UNDOING: AtomicU64 = AtomicU64::new(0);
/// How long the interpreter's end waits for them, at most: they remove files.
const UNDO_MAX: Duration = Duration::from_secs(20);
/// Threads that wait for the interpreter's end continue after this time if it has not come: a program may call the
/// functions of `atexit` by itself, as `multiprocessing` does.
const DOUBT_MAX: Duration = Duration::from_secs(2);

thread_local! {
    /// Whether this thread shuts the interpreter down.
    static SHUTS_DOWN: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` without the interpreter's lock. In place of `Python::detach`.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    if !is_running() {
        // No other thread has the lock then.
        SHUTS_DOWN.set(true);
    }
    let result = py.detach(move || {
        let result = work();
        if !may_return() {
            loop {
                std::thread::park();
            }
        }
        result
    });
    AT_RISK.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Does `work`, which calls Python code.
pub(crate) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    /// One of the threads at risk, also if `work` panics.
    struct Counted;

    impl Drop for Counted {
        fn drop(&mut self) {
            AT_RISK.fetch_sub(1, Ordering::SeqCst);
        }
    }

    if ENDS.load(Ordering::SeqCst) {
        // Sleeps there.
        detached(py, || ());
    }
    AT_RISK.fetch_add(1, Ordering::SeqCst);
    let _counted = Counted;
    work()
}

/// Does `work` with the interpreter's lock, on a thread that has not got it; nothing once the interpreter has ended.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if !may_return() {
        return None;
    }
    let mut is_counted = true;
    let done = Python::try_attach(|py| {
        AT_RISK.fetch_sub(1, Ordering::SeqCst);
        is_counted = false;
        work(py)
    });
    if is_counted {
        AT_RISK.fetch_sub(1, Ordering::SeqCst);
    }
    done
}

/// Whether this thread may ask for the lock; then it is one of [`AT_RISK`].
fn may_return() -> bool {
    // SeqCst, with `AtExit`'s: a thread that it does not count sees the flag.
    AT_RISK.fetch_add(1, Ordering::SeqCst);
    (!ENDS.load(Ordering::SeqCst) && is_running()) || SHUTS_DOWN.get() || goes_on()
}

/// Waits until the interpreter has ended, or has not.
#[cold]
fn goes_on() -> bool {
    AT_RISK.fetch_sub(1, Ordering::SeqCst);
    let end = Instant::now() + DOUBT_MAX;
    while is_running() {
        if Instant::now() >= end {
            ENDS.store(false, Ordering::SeqCst);
            AT_RISK.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// What `atexit` calls, and lets go of when it has called everything.
#[pyclass(frozen, module = "mangrove._native")]
struct AtExit {
    is_called: AtomicBool,
}

#[pymethods]
impl AtExit {
    /// Tells the interpreter's end from an `atexit` that was emptied, as `multiprocessing` does in a child of fork.
    fn __call__(&self) {
        self.is_called.store(true, Ordering::Relaxed);
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        if !*self.is_called.get_mut() {
            return;
        }
        SHUTS_DOWN.set(true);
        // Python drops its objects with the lock.
        Python::try_attach(|py| {
            until_none(py, &UNDOING, UNDO_MAX);
            ENDS.store(true, Ordering::SeqCst);
            until_none(py, &AT_RISK, RISK_MAX);
        });
    }
}

/// Waits until nothing is counted while this thread has the lock: a thread that has it may call Python code.
fn until_none(py: Python<'_>, count: &AtomicU64, max: Duration) {
    let end = Instant::now() + max;
    while count.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        py.detach(|| std::thread::sleep(Duration::from_micros(100)));
    }
}

/// Has Python tell when it ends.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hook = Bound::new(module.py(), AtExit { is_called: AtomicBool::new(false) })?;
    module.py().import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}
