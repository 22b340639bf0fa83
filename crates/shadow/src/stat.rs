//! What a shadow says about itself.

use mangrove_pmem::PoolStat;

/// What opening had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// It was made by this call.
    pub created: bool,
    /// The last owner closed it.
    pub was_clean: bool,
    /// Units applied (groups, on the file medium).
    pub units: u64,
    /// Bytes of the ranges in them (dax and emulated).
    pub unit_bytes: u64,
    /// Units that were in a log, but behind one that was not: nobody had been told that they are durable.
    pub dropped: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Time it all took, in nanoseconds.
    pub nanoseconds: u64,
}

/// Counters of an open shadow, since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stat {
    /// Those of the pool below.
    pub pool: Option<PoolStat>,
    /// Bytes that may be used.
    pub len: u64,
    /// Address space in bytes.
    pub capacity: u64,
    /// Logs.
    pub logs: usize,
    /// Units committed.
    pub units: u64,
    /// Bytes of all logs.
    pub log_bytes: u64,
    /// Bytes of them in use.
    pub log_used: u64,
    /// Bytes written to the logs, headers and padding included.
    pub log_written: u64,
    /// Times a commit waited for space in its log.
    pub full_waits: u64,
    /// Units applied to the image (dax and emulated).
    pub applied_units: u64,
    /// Bytes of the ranges in them.
    pub applied_bytes: u64,
    /// Batches in which they were applied, two fences each.
    pub batches: u64,
    /// Bytes written to the image (whole lines, or whole pages with their sums).
    pub image_written: u64,
}
