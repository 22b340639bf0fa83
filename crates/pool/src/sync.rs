//! The one source of locks, atomics, event counts and clocks for code that is model-checked: `tests/handover.rs`
//! compiles that code with a `sync` module of its own, which takes them from the model checker.

pub(crate) use mangrove_sys::EventCount;
pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;

/// Nanoseconds since some fixed moment.
pub(crate) fn nanoseconds() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}
