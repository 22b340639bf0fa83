//! The atomics of the index; the model check of `tests/index_lock_model.rs` replaces them by loom's.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Rounds that a waiter spins before it yields its processor: the lock's holder may have been descheduled.
const SPIN_ROUNDS_MAX: u32 = 64;

/// Waits a moment; the more `rounds` there were before, the longer.
#[cold]
pub(super) fn relax(rounds: &mut u32) {
    *rounds += 1;
    if *rounds < SPIN_ROUNDS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
