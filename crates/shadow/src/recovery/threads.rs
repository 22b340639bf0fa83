//! How many threads recovery and the replayer use.

/// Shorter logs take one thread less time than it takes to start another.
const BYTES_MIN: u64 = 2 << 20;
/// More threads than this wait for memory.
const THREADS_MAX: usize = 8;

/// Threads of the replayer on a machine with so many processors: a quarter of them, since the others run transactions.
pub(crate) fn replayers_for(processors: usize) -> usize {
    1 << (processors / 4).clamp(1, REPLAYER_COUNT_MAX).ilog2()
}

/// As `replayers_for`, on this machine.
pub(crate) fn replayers_of_machine() -> usize {
    replayers_for(std::thread::available_parallelism().map_or(1, usize::from))
}

/// Greatest number of threads that bring the durable copy up to date.
pub const REPLAYER_COUNT_MAX: usize = 8;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_processors_replay() {
        for (processors, threads) in
            [(1, 1), (2, 1), (4, 1), (7, 1), (8, 2), (15, 2), (16, 4), (31, 4), (32, 8), (512, 8)]
        {
            assert_eq!(replayers_for(processors), threads, "{processors} processors");
        }
    }
}
