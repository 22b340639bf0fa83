//! Figures of a map and of its pool, and what can be asked of a pool without opening it.

use crate::{Durability, Error, Heap, Latency, Medium, Result};
use mangrove_pool::{MediumKind, Pool};
use std::path::{Path, PathBuf};

/// Figures of an open map. Counters count since the map was opened. Costs a few microseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Records in the map, those included that a crash could still undo; [`crate::Map::len`] waits for these.
    pub records: u64,
    /// DRAM of the index, in bytes.
    pub index_bytes: u64,
    /// DRAM of the allocator's bookkeeping, in bytes.
    pub allocator_bytes: u64,
    /// Bytes of the pool's data file that are in use (with slack inside chunks).
    pub durable_bytes: u64,
    /// Bytes of the pool's data file that were made usable so far.
    pub image_bytes: u64,
    /// The most bytes that the data file can grow to.
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
    /// Bytes that checkpoints wrote to the data file and its page checksums.
    pub image_bytes_written: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Times a write waited for the checkpointer to free log space.
    pub log_full_waits: u64,
    /// Live snapshots and walks.
    pub snapshots: u64,
    /// DRAM held for them, in bytes.
    pub snapshot_bytes: u64,
    /// The error that poisoned the pool, if any.
    pub poisoned: Option<String>,
}

/// What opening the map did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// True when this opening created the map.
    pub created: bool,
    /// True when the pool had been closed in order: nothing had to be replayed.
    pub clean: bool,
    /// Bytes of the data file read and verified.
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

/// What a pool states about itself, without being opened.
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
    /// The most bytes that the data file can grow to.
    pub capacity: u64,
    /// Bytes of the data file that were made usable so far.
    pub image_bytes: u64,
    /// Bytes of the redo log; 0 where there is none.
    pub log_bytes: u64,
    /// Bytes that the redo log grows to at most.
    pub log_bytes_max: u64,
    /// True when the pool was closed in order.
    pub clean: bool,
    /// True when a process, perhaps this one, has it open for writing.
    pub busy: bool,
}

/// Reads what the pool at `path` states about itself. Writes nothing; holds a shared lock for an instant to see
/// whether another process has the pool. Openers wait that long.
///
/// # Errors
/// [`crate::Error::NotFound`], [`crate::Error::Foreign`], [`crate::Error::Newer`], [`crate::Error::Corrupt`] or
/// [`crate::Error::Io`].
pub fn pool_info(path: impl AsRef<Path>) -> Result<PoolInfo> {
    let path = path.as_ref();
    let info = Pool::inspect(path)?;
    Ok(PoolInfo::new(&info, Pool::is_busy(path)))
}

/// True when the creation of a pool at `path` was interrupted before anything could be stored in it, and no process
/// is creating it now: [`pool_info`] then fails, and a creation begins anew.
#[must_use]
pub fn pool_is_unfinished(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    Pool::is_unfinished(path) && !Pool::is_busy(path)
}

/// Reads every byte of the pool at `path` against its checksums, without recovering what is in it; of a heap, also what
/// [`Heap::check_path`](crate::Heap::check_path) compares. Returns one message for each damaged place. Opens
/// read-only, writes nothing.
///
/// # Errors
/// As [`pool_info`], and [`crate::Error::Busy`]; of a heap, [`crate::Error::Unsupported`] where this process has
/// something else at its address.
pub fn pool_check(path: impl AsRef<Path>) -> Result<Vec<String>> {
    if matches!(Pool::inspect(&path), Ok(info) if info.kind == mangrove_txn::KIND) {
        return Ok(Heap::check_path(path)?);
    }
    Ok(Pool::check(path)?.damage.iter().map(ToString::to_string).collect())
}

impl PoolInfo {
    pub(crate) fn new(info: &mangrove_pool::PoolInfo, busy: bool) -> Self {
        Self {
            path: info.path.clone(),
            version: info.version,
            uuid: info.uuid_text(),
            kind: info.kind.clone(),
            medium: medium(info.medium, Medium::Auto),
            capacity: info.capacity,
            image_bytes: info.image_bytes,
            log_bytes: info.log_bytes,
            log_bytes_max: info.log_bytes_max,
            clean: info.clean,
            busy,
        }
    }
}

impl Stat {
    pub(crate) fn new(
        pool: &mangrove_pool::PoolStat,
        info: &mangrove_pool::PoolInfo,
        map: &mangrove_hart::Stat,
        durability: Durability,
        asked: Medium,
    ) -> Self {
        Self {
            records: map.records,
            index_bytes: map.index_dram_bytes,
            allocator_bytes: map.allocator_dram_bytes,
            durable_bytes: map.durable_bytes,
            // A read-only map has a private copy and no log of its own: it reports what the pool states.
            image_bytes: if pool.read_only { info.image_bytes } else { pool.grown },
            capacity: pool.capacity,
            log_bytes: if pool.read_only { info.log_bytes } else { pool.log_bytes },
            log_bytes_used: pool.log_used,
            medium: medium(pool.medium, asked),
            durability,
            read_only: pool.read_only,
            group_commits: pool.groups,
            log_bytes_written: pool.log_written,
            image_bytes_written: pool.image_written,
            checkpoints: pool.checkpoints,
            log_full_waits: pool.log_full_waits,
            snapshots: map.snapshots,
            snapshot_bytes: map.snapshot_bytes,
            poisoned: pool.poisoned.clone(),
        }
    }
}

impl Stat {
    /// Of a map that could not be recovered.
    pub(crate) fn unrecovered(
        info: &mangrove_pool::PoolInfo,
        why: &Error,
        durability: Durability,
        asked: Medium,
    ) -> Self {
        Self {
            records: 0,
            index_bytes: 0,
            allocator_bytes: 0,
            durable_bytes: 0,
            image_bytes: info.image_bytes,
            capacity: info.capacity,
            log_bytes: info.log_bytes,
            log_bytes_used: 0,
            medium: medium(info.medium, asked),
            durability,
            read_only: false,
            group_commits: 0,
            log_bytes_written: 0,
            image_bytes_written: 0,
            checkpoints: 0,
            log_full_waits: 0,
            snapshots: 0,
            snapshot_bytes: 0,
            poisoned: Some(why.to_string()),
        }
    }
}

/// The medium found; its latencies are those of the option that opened it.
fn medium(found: MediumKind, asked: Medium) -> Medium {
    match (found, asked) {
        (MediumKind::File, _) => Medium::File,
        (MediumKind::Dax, _) => Medium::Dax,
        (_, Medium::Emulated(latency)) => Medium::Emulated(latency),
        _ => Medium::Emulated(Latency::default()),
    }
}
