//! Waiting for nanoseconds without giving up the CPU.

use std::sync::OnceLock;
use std::time::Instant;

/// A counter that runs at a constant rate, cheap to read.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc has no precondition.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Milliseconds since some moment, as of the system's last clock tick: up to some milliseconds late, but a few
/// nanoseconds to read, where a virtual machine may take twenty for [`ticks`].
#[must_use]
pub fn coarse_milliseconds() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // libc's, not rustix's: that one looks for the vdso by itself, and does not survive valgrind.
        // SAFETY: fills our variable; the clock exists since Linux 2.6.32.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}

/// Ticks of [`ticks`] in a thousand nanoseconds, measured once against the system's clock.
#[must_use]
pub fn ticks_per_microsecond() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        // The best of a few short measurements: a reschedule in one of them only makes it longer.
        let measure = || {
            let (begun, first) = (Instant::now(), ticks());
            while begun.elapsed().as_micros() < 500 {
                std::hint::spin_loop();
            }
            let (last, took) = (ticks(), begun.elapsed());
            (u128::from(last - first) * 1000 / took.as_nanos().max(1)) as u64
        };
        let mut rates = [measure(), measure(), measure(), measure(), measure()];
        rates.sort_unstable();
        rates[2].max(1)
    })
}

/// Spins for `count` ticks.
#[inline]
pub fn spin_ticks(count: u64) {
    let begun = ticks();
    while ticks().wrapping_sub(begun) < count {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_goes_forward() {
        let first = coarse_milliseconds();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let passed = coarse_milliseconds() - first;
        assert!((40..10_000).contains(&passed), "{passed} ms in a sleep of 50");
    }

    #[test]
    fn a_millisecond_of_ticks_takes_about_a_millisecond() {
        let rate = ticks_per_microsecond();
        let begun = Instant::now();
        spin_ticks(rate * 1000);
        let took = begun.elapsed().as_micros();
        assert!(took >= 900, "{took} us");
    }
}
