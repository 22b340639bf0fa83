//! What an attempt does after it was undone, before the next one.

use crate::sync::pause;

/// The longest delay, in pauses, is 2 to this power.
const DELAY_BITS_MAX: u32 = 11;

/// Attempts that follow at once; most conflicts are over by then.
const FREE_ATTEMPTS: u32 = 1;

/// Attempts after which a thread gives the CPU away: the thread that it met may be waiting for one.
const YIELD_AFTER: u32 = 6;

/// Delays of random length, which grow with each attempt.
#[derive(Debug)]
pub(crate) struct Backoff {
    random: u64,
}

impl Backoff {
    /// The delays of a thread; the same seed gives the same delays.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// Delays before the attempt after the `attempts`-th.
    #[cold]
    pub(crate) fn wait(&mut self, attempts: u32) {
        if attempts <= FREE_ATTEMPTS {
            return;
        }
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let longest = 1 << attempts.min(DELAY_BITS_MAX);
        for _ in 0..(self.random >> 32) % longest {
            pause(0);
        }
        if attempts > YIELD_AFTER {
            // A round that gives the CPU away.
            pause(150);
        }
    }
}
