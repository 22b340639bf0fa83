//! Options with which a map is opened.

use crate::{Error, Result};
use mangrove_pool::{Durability, MediumKind, PoolConfig, PoolOptions, Storage};
use std::sync::Arc;

/// Tag of this engine in a pool's superblock.
const KIND: &str = "map";

/// A map on the file medium lies in DRAM: this is more than most machines have, and its directory of segments takes 4
/// MiB.
const CAPACITY_BYTES_DEFAULT: u64 = 128 << 30;
/// A smaller map has no space for its directory.
const CAPACITY_BYTES_MIN: u64 = 1 << 20;
/// A map grows by 16 MiB at a time while it is small, and what it has reserved is no garbage.
const BACKGROUND_COMPACTION_FROM: u64 = 32 << 20;

/// A smaller data file is read and its map recovered in about 10 ms.
const BACKGROUND_RECOVERY_FROM: u64 = 16 << 20;
/// Snapshots may keep this part of the memory that the process may have: overwriting records grows nothing else, and
/// is never refused for lack of memory.
const SNAPSHOTS_PART: u64 = 4;

/// How writers of one tree exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locking {
    /// Optimistic lock coupling: readers take no lock, writers lock single nodes.
    #[default]
    Optimistic,
    /// One reader-writer lock per tree (all keys that share their first two bytes), as in the HART paper.
    PerTree,
}

/// Options to open a [`crate::Map`] with. Start from [`crate::Map::options`].
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// use mangrove::{Durability, Map};
///
/// let map = Map::options()
///     .durability(Durability::interval_ms(10))
///     .capacity(1 << 30)
///     .open(dir.join("pool"))?;
/// map.put("k", "v")?; // written to the disk after 10 ms
/// map.sync()?; // durable now
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MapOptions {
    pub(crate) config: PoolConfig,
    pub(crate) locking: Locking,
    pub(crate) snapshot_bytes_max: Option<u64>,
    pub(crate) recovery_threads: Option<usize>,
    pub(crate) background_compaction: Option<bool>,
    pub(crate) background_compaction_from: Option<u64>,
    pub(crate) background_recovery: Option<bool>,
    pub(crate) background_recovery_from: Option<u64>,
    pub(crate) storage: Option<Arc<dyn Storage>>,
}

impl MapOptions {
    /// Options that do what [`Map::open`](crate::Map::open) does: create the pool when it is missing, read and
    /// write, and acknowledge what is durable.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    mangrove_pool::pool_config_setters! { config:
        config, create, read_only, medium, devdax, durability, nowait_within, busy_wait, keeps_recent, memory_bytes_max,
        capacity("1 MiB to 64 TiB. The data file's first 32 KiB for each GiB are a directory, which takes space as it is used. Default: 128 GiB. A map that is there grows to a greater one, in place, when it is opened for writing; a smaller one is refused. Values of each size class that is used take at least a segment of 256 KiB: with values of many lengths a map of a few MiB is full when it holds little, so give it 16 MiB at least."),
        log_bytes, domain, bulk_load,
    }

    /// How writers exclude each other. Default: [`Locking::Optimistic`].
    #[must_use]
    pub fn locking(mut self, locking: Locking) -> Self {
        self.locking = locking;
        self
    }

    /// Bytes of DRAM that the pre-images of all snapshots together, ranges included, may take before all of them
    /// expire; but no more than a quarter of [`memory_bytes_max`](Self::memory_bytes_max), or of its default.
    /// `u64::MAX`: they never expire, whatever memory they take. Default: 1 GiB.
    #[must_use]
    pub fn snapshot_bytes_max(mut self, bytes: u64) -> Self {
        self.snapshot_bytes_max = Some(bytes);
        self
    }

    /// Threads that rebuild the index when the pool is opened. Default: one per CPU.
    #[must_use]
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads);
        self
    }

    /// Whether a map on the file medium compacts itself, in a thread of its own, when at least 32 MiB and a quarter of
    /// the space in use would come back. It does what [`Map::compact`](crate::Map::compact) does, in smaller steps and
    /// with pauses, and only while no snapshot and no range lives. Default: true.
    #[must_use]
    pub fn background_compaction(mut self, yes: bool) -> Self {
        self.background_compaction = Some(yes);
        self
    }

    /// Bytes in place of the 32 MiB: for tests with few records.
    #[doc(hidden)]
    #[must_use]
    pub fn background_compaction_from(mut self, bytes: u64) -> Self {
        self.background_compaction_from = Some(bytes);
        self
    }

    /// Whether opening a map returns before the map is recovered, if it lies on the file medium, was closed, has a data
    /// file of at least 16 MiB, and is opened for writing. A thread then reads the data file and builds the index.
    /// Meanwhile gets of records that are there are answered from the files; every other call waits for the thread: a
    /// write, a walk, a get of a key that is absent. Damage that the thread finds, and other errors that it meets,
    /// these calls report, and not the opening ([`Map::wait_recovered`](crate::Map::wait_recovered)). Closing a map
    /// leaves what such gets need, in the pool's file `index`, of 5 bytes a record. Loading, a backup and a salvage
    /// leave none: opening what they made takes its whole time, the first time. Default: true.
    #[must_use]
    pub fn background_recovery(mut self, yes: bool) -> Self {
        self.background_recovery = Some(yes);
        self
    }

    /// Bytes in place of the 16 MiB: for tests with few records.
    #[doc(hidden)]
    #[must_use]
    pub fn background_recovery_from(mut self, bytes: u64) -> Self {
        self.background_recovery_from = Some(bytes);
        self
    }

    /// Where the files live, instead of the operating system's file systems: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// From how many bytes on a map is recovered in the background, if it is.
    pub(crate) fn recovers_in_background_from(&self) -> Option<u64> {
        let does = self.background_recovery.unwrap_or(true) && !self.config.read_only;
        does.then(|| self.background_recovery_from.unwrap_or(BACKGROUND_RECOVERY_FROM))
    }

    /// From how many bytes on a map on this medium compacts itself, if it does.
    pub(crate) fn compacts_itself_from(&self, medium: MediumKind) -> Option<u64> {
        let config = &self.config;
        let does = self.background_compaction.unwrap_or(true) && !config.read_only && !config.bulk_load;
        // The others give no space back.
        (does && medium == MediumKind::File)
            .then(|| self.background_compaction_from.unwrap_or(BACKGROUND_COMPACTION_FROM))
    }

    /// These options, with the limit on memory that this machine gives where none was chosen.
    pub(crate) fn memory_limited(&self) -> Self {
        Self { config: self.config.clone().memory_limited(), ..self.clone() }
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        let options = PoolOptions::new().config(self.config.clone()).new_capacity(CAPACITY_BYTES_DEFAULT);
        let options = options.kind(KIND).finish_later(true);
        match &self.storage {
            Some(storage) => options.storage(Arc::clone(storage)),
            None => options,
        }
    }

    /// Checks the options themselves, before a pool is created with them.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn validate(&self) -> Result<()> {
        match self.config.capacity {
            Some(bytes) if bytes < CAPACITY_BYTES_MIN => Err(Error::Unsupported {
                what: format!("a map's capacity is at least {CAPACITY_BYTES_MIN} bytes, and {bytes} is less"),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn engine(&self, image_verified: bool) -> mangrove_hart::Options {
        let mut options = mangrove_hart::Options {
            locking: match self.locking {
                Locking::Optimistic => mangrove_hart::Locking::Optimistic,
                Locking::PerTree => mangrove_hart::Locking::PerTree,
            },
            read_only: self.config.read_only,
            // With interval durability no reader was promised that what it reads survives.
            gate_reads: matches!(self.config.durability, Durability::Interval(_)).then_some(false),
            verify_values: !image_verified,
            memory_bytes_max: self.config.memory_bytes_max,
            ..mangrove_hart::Options::default()
        };
        if let Some(bytes) = self.snapshot_bytes_max {
            options.snapshot_bytes_max = bytes;
        }
        if let Some(limit) = self.config.memory_bytes_max
            && options.snapshot_bytes_max != u64::MAX
        {
            options.snapshot_bytes_max = options.snapshot_bytes_max.min(limit / SNAPSHOTS_PART);
        }
        if let Some(threads) = self.recovery_threads {
            options.recovery_threads = threads;
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_take_no_more_than_a_part_of_the_memory_limit() {
        let most = |options: MapOptions| options.engine(true).snapshot_bytes_max;
        assert_eq!(most(MapOptions::new()), 1 << 30);
        let limited = MapOptions::new().memory_bytes_max(200 << 20);
        assert_eq!(most(limited.clone()), 50 << 20);
        assert_eq!(most(limited.clone().snapshot_bytes_max(60 << 20)), 50 << 20);
        assert_eq!(most(limited.clone().snapshot_bytes_max(40 << 20)), 40 << 20);
        assert_eq!(most(limited.snapshot_bytes_max(u64::MAX)), u64::MAX);
    }
}
