//! The clock of the protocols with time stamps: numbers that grow from opening to opening, whatever the counter of the
//! machine says. A restart, another machine or a smaller counter do not matter: stamps of two openings are never
//! compared by the counter.
//!
//! RDTSCP, not RDTSC (Algorithm 2, l.8 and l.14; "RDTSCF" in l.11 of Algorithm 3 and l.15 of Algorithm 4 means it,
//! too): the CPU may execute RDTSC before earlier loads. A transaction that has read another one's words could then
//! hold the smaller stamp, and recovery would apply the two in the wrong order.

use crate::sync::time_stamp;

/// Counts on from the last number of the opening before.
#[derive(Debug)]
pub(crate) struct StampClock {
    first: u64,
    begun: u64,
    /// For the crash simulator: it counts instead.
    #[cfg(feature = "silenced-steps")]
    counted: Option<std::sync::atomic::AtomicU64>,
}

impl StampClock {
    /// A clock whose stamps are larger than `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self {
            first: last + 1,
            begun: time_stamp(),
            #[cfg(feature = "silenced-steps")]
            counted: crate::lab::counts_stamps().then(Default::default),
        }
    }

    /// A stamp: larger than that of any transaction whose words this thread has loaded.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        #[cfg(feature = "silenced-steps")]
        if let Some(counted) = &self.counted {
            return self.first + counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        self.first + time_stamp().saturating_sub(self.begun)
    }
}
