//! How many threads recovery uses.

/// Shorter logs take one thread less time than it takes to start another.
const BYTES_MIN: u64 = 2 << 20;
/// More threads than this wait for memory.
const THREADS_MAX: usize = 8;

/// The threads that recovery may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    most: usize,
    bytes_min: u64,
}

impl Threads {
    /// As many as this thread may use processors, and a power of two.
    pub(crate) fn of_machine() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { most: 1 << processors.min(THREADS_MAX).ilog2(), bytes_min: BYTES_MIN }
    }

    /// So many, a power of two, however little there is to do.
    #[cfg(test)]
    pub(crate) fn exactly(most: usize) -> Self {
        assert!(most.is_power_of_two());
        Self { most, bytes_min: 0 }
    }

    /// The number of threads for work on so many bytes.
    pub(crate) fn for_bytes(&self, bytes: u64) -> usize {
        if bytes < self.bytes_min { 1 } else { self.most }
    }
}
