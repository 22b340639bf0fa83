//! The one door to atomics, gates and spinning of code that is model-checked: `tests/combiner_model.rs` and
//! `tests/combiner_loom.rs` compile that code against a `sync` module of their own.

pub(crate) use mangrove_sys::{AsymmetricBarrier, EventCount, barrier_after_rmw, thread_mark};
pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
pub(crate) use std::thread_local;

/// Clients whose reads a combiner sees by a flag of their own.
pub(crate) const OWN_FLAGS: usize = 64;
/// Counters that the other clients' reads share.
pub(crate) const SHARED_COUNTERS: usize = 64;

/// Counts the rounds of a wait that first spins and then sleeps.
pub(crate) struct Patience {
    left: u32,
}

/// Rounds of spinning before a thread sleeps; a pause is 10 to 140 cycles, so a few microseconds.
const SPIN_ROUNDS: u32 = 200;

impl Patience {
    /// A new wait. On a machine with one CPU no other thread can run while this one spins, so it does not.
    pub(crate) fn new() -> Self {
        static ROUNDS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let rounds = *ROUNDS.get_or_init(|| match std::thread::available_parallelism() {
            Ok(cpus) if cpus.get() > 1 => SPIN_ROUNDS,
            _ => 0,
        });
        Self { left: rounds }
    }

    /// Spins a little; false when it is time to sleep.
    #[inline]
    pub(crate) fn spin(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        std::hint::spin_loop();
        true
    }
}
