//! The one door to atomics: the model check of `tests/index_lock_model.rs` puts loom's behind it.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Rounds that a waiter spins before it gives its processor away: the holder may be descheduled.
const SPIN_ROUNDS_MAX: u32 = 64;

/// Waits a moment; longer, the more `rounds` it has been called for.
#[cold]
pub(super) fn relax(rounds: &mut u32) {
    *rounds += 1;
    if *rounds < SPIN_ROUNDS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
