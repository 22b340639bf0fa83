//! The one source of locks, atomics, event counts and pauses for code that is model-checked: `tests/handover_model.rs`,
//! `tests/lease_model.rs` and `tests/rounds_model.rs` compile that code with a `sync` module of their own, which takes
//! them from the model checker.

pub(crate) use mangrove_sys::EventCount;
pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rounds of [`pause`] that only delay; later ones give the CPU away.
const SPIN_ROUNDS: u32 = 200;

/// The `round`-th pause of a wait for another thread.
#[inline]
pub(crate) fn pause(round: u32) {
    if round < SPIN_ROUNDS { std::hint::spin_loop() } else { give_way() }
}

/// Lets other threads run first.
#[inline]
pub(crate) fn give_way() {
    std::thread::yield_now();
}
