//! The one source of locks, atomics, hardware transactions, barriers, event counts, waits and clocks, and the one way
//! to memory that transactions share. The models in `tests/` compile the rest of the crate with a `sync` module of
//! their own, which takes all of it from the model checker; a simulation on virtual time can do the same.

use mangrove_sys::Reservation;
pub(crate) use mangrove_sys::{
    AbortStatus, AsymmetricBarrier, EventCount, rtm, touch_module, xabort, xbegin, xend,
};
pub(crate) use parking_lot::lock_api::RawMutex as RawLock;
pub(crate) use parking_lot::{Mutex, MutexGuard, RawMutex};
use std::ptr::NonNull;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Bytes of a huge page: without them a random access to a large table also misses the TLB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A large table of zeros.
#[derive(Debug)]
pub(crate) struct Table {
    first: NonNull<AtomicU64>,
    count: usize,
    /// Unmapped with the table.
    _memory: Reservation,
}

// SAFETY: the table is atomics in a mapping that it owns.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// A table of `count` zeros. Memory is committed to what is touched.
    ///
    /// # Panics
    /// When the system has no addresses left for it.
    pub(crate) fn new(count: usize) -> Self {
        let bytes = count * size_of::<AtomicU64>();
        let memory = Reservation::anonymous(bytes + HUGE_PAGE_BYTES)
            .unwrap_or_else(|error| panic!("no memory for a table of {bytes} bytes: {error}"));
        let base = memory.base();
        let from = base.as_ptr().addr().next_multiple_of(HUGE_PAGE_BYTES) - base.as_ptr().addr();
        if bytes >= HUGE_PAGE_BYTES {
            memory.advise_huge(from, bytes);
        }
        // SAFETY: at most one huge page after the base, which the mapping is longer by.
        Self { first: unsafe { base.add(from) }.cast(), count, _memory: memory }
    }

    /// The table.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: inside the mapping, aligned, zeroed by the system, and only ever accessed as atomics.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Rounds of [`pause`] that only delay; later ones give the CPU away.
const SPIN_ROUNDS: u32 = 100;

/// Rounds of [`pause`] after which each one sleeps.
const YIELD_ROUNDS: u32 = 300;

/// The `round`-th pause of a wait for another thread: a delay, then the rest of the time slice, then a short sleep.
/// (Not by nanosleep(3), where pthread_cancel may end the thread: C waits here inside a function that nothing may
/// unwind.)
#[inline]
pub(crate) fn pause(round: u32) {
    if round < SPIN_ROUNDS {
        std::hint::spin_loop();
    } else if round < YIELD_ROUNDS {
        std::thread::yield_now();
    } else {
        let no_event = EventCount::new();
        no_event.wait_for(no_event.ticket(), std::time::Duration::from_micros(50));
    }
}

/// Microseconds since some moment of the process.
pub(crate) fn microseconds() -> u64 {
    static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(std::time::Instant::now).elapsed().as_micros() as u64
}

/// The time stamp counter, read after every earlier load of this thread has its value (RDTSCP).
#[inline(always)]
pub(crate) fn time_stamp() -> u64 {
    mangrove_sys::rdtscp()
}

/// Processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the body of a test that uses what this module gives.
#[cfg(test)]
pub(crate) fn run_once(body: fn()) {
    body();
}

/// Time as an event count's limit.
pub(crate) type Limit = std::time::Duration;

/// A wait on an event count that ends without an event after `milliseconds`.
pub(crate) const fn limit(milliseconds: u64) -> Limit {
    Limit::from_millis(milliseconds)
}

macro_rules! accesses {
    ($($load:ident $store:ident $value:ty, $atomic:ty;)*) => {$(
        /// One load that other threads' stores may race with.
        ///
        /// # Safety
        /// `at` is aligned for its type and valid for atomic access.
        #[inline(always)]
        pub(crate) unsafe fn $load(at: *mut $value) -> $value {
            // SAFETY: as the caller promises. Relaxed: the ownership records order it.
            unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Relaxed)
        }

        /// One store that other threads' loads may race with.
        ///
        /// # Safety
        /// As for the load.
        #[inline(always)]
        pub(crate) unsafe fn $store(at: *mut $value, value: $value) {
            // SAFETY: as the caller promises. Relaxed: the ownership records order it.
            unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Relaxed);
        }
    )*};
}

accesses! {
    load_u8 store_u8 u8, std::sync::atomic::AtomicU8;
    load_u16 store_u16 u16, std::sync::atomic::AtomicU16;
    load_u32 store_u32 u32, std::sync::atomic::AtomicU32;
    load_u64 store_u64 u64, std::sync::atomic::AtomicU64;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait inside an access of C: what pthread_cancel unwinds there would end the process.
    #[test]
    fn no_pause_is_a_cancellation_point() {
        let thread = std::thread::spawn(|| {
            // SAFETY: this thread, which lives; it ends by itself, because cancellation is off when it does.
            assert_eq!(unsafe { libc::pthread_cancel(libc::pthread_self()) }, 0);
            [0, SPIN_ROUNDS, YIELD_ROUNDS].into_iter().for_each(pause);
            mangrove_sys::set_cancelable(false);
        });
        thread.join().unwrap();
    }
}
