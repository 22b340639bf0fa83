//! What a shadow says about itself.

use mangrove_pmem::PoolStat;

/// Counters of an open shadow, since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Those of the pool below.
    pub pool: PoolStat,
    /// Bytes that may be used.
    pub len: u64,
    /// Address space in bytes.
    pub capacity: u64,
    /// Logs.
    pub logs: usize,
    /// Units committed.
    pub units: u64,
    /// Bytes of the ranges in them.
    pub unit_bytes: u64,
}
