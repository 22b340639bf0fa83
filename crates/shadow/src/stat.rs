//! What can be asked about a shadow: the report of opening, and counters.

use crate::order::Order;
use mangrove_pool::PoolStat;

/// What opening did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// This call created the shadow.
    pub created: bool,
    /// The last owner closed it.
    pub was_clean: bool,
    /// Atomic groups applied (log groups, on the file medium).
    pub units: u64,
    /// Bytes of the ranges in them (dax and emulated).
    pub unit_bytes: u64,
    /// Atomic groups found in a log after one that was missing: they were never acknowledged.
    pub dropped: u64,
    /// Bytes of the durable copy.
    pub image_bytes: u64,
    /// The order of the opening for writing before this one, and how many there were (dax and emulated).
    pub last: Option<LastOpening>,
    /// Time that opening took, in nanoseconds.
    pub nanoseconds: u64,
}

/// The opening for writing before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastOpening {
    /// Which of its atomic groups survived a crash.
    pub order: Order,
    /// Its number, counted from 1.
    pub generation: u64,
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
    /// Atomic groups committed.
    pub units: u64,
    /// Bytes of all logs.
    pub log_bytes: u64,
    /// Bytes of them in use.
    pub log_used: u64,
    /// Bytes written to the logs, headers and padding included.
    pub log_written: u64,
    /// Times a commit waited for space in its log.
    pub full_waits: u64,
    /// Atomic groups applied to the durable copy (dax and emulated; in a child of fork it and what follows is 0 there).
    pub applied_units: u64,
    /// Bytes of the ranges in them.
    pub applied_bytes: u64,
    /// How often log space was freed, with two fences each time.
    pub batches: u64,
    /// Bytes written to the durable copy: whole lines, or whole pages with their checksums. (Lines for each word: this
    /// by 64, over `applied_bytes` by 8.)
    pub image_written: u64,
}
