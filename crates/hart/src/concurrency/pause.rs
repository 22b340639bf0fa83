//! How a thread waits for another one that is mostly done at once.

use mangrove_sys::EventCount;
use std::time::Duration;

/// Pauses in which a thread only spins. Then it yields its processor: the other thread may need one.
const SPINS: u32 = 64;
/// Pauses before it sleeps: the other thread waits too, for space in a full log above all, or copies a long value.
const WAKEFUL: u32 = 10_000;
/// Time of a sleep.
const NAP: Duration = Duration::from_micros(100);

/// Waits a moment; the more `tries` there were before, the longer.
#[cold]
pub(crate) fn pause(tries: &mut u32) {
    *tries = tries.saturating_add(1);
    if *tries < SPINS {
        std::hint::spin_loop();
    } else if *tries < WAKEFUL {
        std::thread::yield_now();
    } else {
        // Not by the C library's sleep, at which pthread_cancel ends a thread.
        let never = EventCount::new();
        never.wait_for(never.ticket(), NAP);
    }
}
