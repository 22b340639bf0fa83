//! What a map and its pool are made of.

use crate::{Durability, Medium, Result};
use std::path::{Path, PathBuf};

/// Figures of an open map. Counters count since the map was opened. Costs a few microseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Records in the map.
    pub records: u64,
    /// DRAM of the index, in bytes.
    pub index_bytes: u64,
    /// DRAM of the allocator's bookkeeping, in bytes.
    pub allocator_bytes: u64,
    /// Bytes of the pool's image that are in use (with slack inside chunks).
    pub durable_bytes: u64,
    /// Bytes of the pool's image that were made usable so far.
    pub image_bytes: u64,
    /// The most bytes that the image can grow to.
    pub capacity: u64,
    /// Bytes of the redo log; 0 where there is none.
    pub log_bytes: u64,
    /// Bytes of the redo log that wait for a checkpoint.
    pub log_bytes_used: u64,
    /// What the pool lies on.
    pub medium: Medium,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// True when the map was opened read-only.
    pub read_only: bool,
    /// Group commits (device writes of the log).
    pub group_commits: u64,
    /// Bytes written to the log, headers and padding included.
    pub log_bytes_written: u64,
    /// Bytes written to the image and its checksums by checkpoints.
    pub image_bytes_written: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Times a write waited for the checkpointer to free log space.
    pub log_full_waits: u64,
    /// Snapshots and walks alive.
    pub snapshots: u64,
    /// DRAM held for them, in bytes.
    pub snapshot_bytes: u64,
    /// The error that latched, if any.
    pub poisoned: Option<String>,
}

/// What opening the map had to do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// True when this opening created the map.
    pub created: bool,
    /// True when the pool had been closed in order: nothing had to be replayed.
    pub clean: bool,
    /// Bytes of image read and verified.
    pub image_bytes: u64,
    /// Groups of the log replayed.
    pub log_groups: u64,
    /// Records found.
    pub records: u64,
    /// Wall time of reading the pool, in seconds.
    pub pool_seconds: f64,
    /// Wall time of rebuilding the index, in seconds.
    pub index_seconds: f64,
    /// Wall time of the whole opening, in seconds.
    pub seconds: f64,
}

/// What a pool says about itself, without opening it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolInfo {
    /// The pool.
    pub path: PathBuf,
    /// Format version.
    pub version: u32,
    /// Name of this one pool, never used twice.
    pub uuid: String,
    /// Kind of object in it.
    pub kind: String,
    /// What it lies on.
    pub medium: Medium,
    /// The most bytes that the image can grow to.
    pub capacity: u64,
    /// Bytes of the image that were made usable so far.
    pub image_bytes: u64,
    /// Bytes of the redo log; 0 where there is none.
    pub log_bytes: u64,
    /// True when the pool was closed in order.
    pub clean: bool,
    /// True when another process holds it now.
    pub busy: bool,
}

/// Reads what the pool at `path` says about itself. Takes no lock, writes nothing.
///
/// # Errors
/// [`crate::Error::NotFound`], [`crate::Error::Foreign`], [`crate::Error::Newer`],
/// [`crate::Error::Corrupt`] or [`crate::Error::Io`].
pub fn pool_info(path: impl AsRef<Path>) -> Result<PoolInfo> {
    crate::temporary::pool_info(path.as_ref())
}

/// Reads every byte of the pool at `path` against its checksums, without recovering what is in it.
/// Returns one sentence for each damaged place. Opens read-only, writes nothing.
///
/// # Errors
/// As [`pool_info`], and [`crate::Error::Busy`].
pub fn pool_check(path: impl AsRef<Path>) -> Result<Vec<String>> {
    crate::temporary::pool_check(path.as_ref())
}
