//! Waiting for nanoseconds without yielding the CPU.

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

/// Ticks of [`ticks`] in a thousand nanoseconds, measured once against the system's clock.
#[must_use]
pub fn ticks_per_microsecond() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        // The median of five short measurements: a reschedule only makes one of them longer.
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

/// Spins for `count` ticks. Without PAUSE, which aborts a hardware transaction that the caller may be in.
#[inline]
pub fn spin_ticks(count: u64) {
    let begun = ticks();
    while ticks().wrapping_sub(begun) < count {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_millisecond_of_ticks_takes_about_a_millisecond() {
        let rate = ticks_per_microsecond();
        let begun = Instant::now();
        spin_ticks(rate * 1000);
        let took = begun.elapsed().as_micros();
        assert!(took >= 900, "{took} us");
    }
}
