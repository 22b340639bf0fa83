//! The clock of the sections with one thread: wall time, or the thread's processor time where other programs
//! disturb the machine (`--cpu-time`). Processor time does not include waiting, so the sections on a disk and those
//! with several threads use wall time, except where more threads run than there are processors and a line says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set once, before the first section.
static CPU_TIME: AtomicBool = AtomicBool::new(false);

/// Chooses the clock for the rest of the run.
pub(crate) fn use_cpu_time(yes: bool) {
    CPU_TIME.store(yes, Ordering::Relaxed);
}

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

/// How long `body` takes.
pub(crate) fn time(body: impl FnOnce()) -> Duration {
    if CPU_TIME.load(Ordering::Relaxed) {
        let start = thread_time();
        body();
        return thread_time().saturating_sub(start);
    }
    let start = Instant::now();
    body();
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_does_not_count_sleep() {
        let start = thread_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(thread_time() - start < Duration::from_millis(40));
        assert!(time(|| std::thread::sleep(Duration::from_millis(20))) >= Duration::from_millis(20));
    }
}
