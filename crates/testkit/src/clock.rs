//! A clock for tests that what must be soon is: it stands still while other programs have the processor, and while
//! a disk is waited for.

use std::time::Duration;

/// Processor time of the calling thread for `work`.
///
/// # Panics
/// Where threads have no such clock.
pub fn thread_time_of(work: impl FnOnce()) -> Duration {
    let begun = thread_time();
    work();
    thread_time().saturating_sub(begun)
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a time.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "this thread has no clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
