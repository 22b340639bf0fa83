//! Floor 1: bytes that survive. Pools, media, regions and logs.
//!
//! A [`Region`] is a byte-addressable durable range. Who owns durable data changes it only through
//! the region's store functions, asks with [`Region::flush`] for ranges to become durable, orders
//! with [`Region::fence`] and waits with [`Region::drain`]. What these mean is the [`Medium`]'s
//! business: cache-line write-back on persistent memory, a redo log with group commit on a disk.
//!
//! ```
//! use mangrove_pmem::{CreateMode, PoolOptions};
//! use std::sync::atomic::Ordering;
//!
//! # fn main() -> mangrove_pmem::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("counter");
//! let options = PoolOptions::new().create(CreateMode::CreateIfMissing).log_bytes(1 << 20).kind("counter");
//! let pool = options.open(&path)?;
//! let region = pool.region();
//! region.grow(4096)?; // give the first page space on the medium
//! region.store(0, 41, Ordering::Relaxed);
//! region.flush(0, 8); // ask for it,
//! region.drain()?; //    and wait until it is durable
//! drop(pool); //         a crash, as far as the data can tell
//!
//! let pool = options.open(&path)?;
//! assert_eq!(pool.region().word(0).load(Ordering::Relaxed), 41);
//! pool.close()
//! # }
//! ```
//!
//! What a crash may do: docs/fault-model.md. The bytes: docs/format/pool.md and docs/format/log.md.

#[path = "log/spill.rs"]
mod aside;
mod check;
#[path = "file/checkpoint.rs"]
mod checkpoint;
#[path = "log/group_commit.rs"]
mod commit;
mod create;
#[path = "mapped/domain.rs"]
mod domain;
#[path = "mapped/emulated.rs"]
mod emulated;
mod error;
#[path = "storage/faulty.rs"]
mod faulty;
#[path = "file/medium.rs"]
mod file_medium;
#[path = "file/finish_recovery.rs"]
mod finish;
#[path = "mapped/latency.rs"]
mod latency;
#[path = "log/ring.rs"]
mod log;
#[path = "format/log.rs"]
mod log_format;
#[path = "log/scan.rs"]
mod log_scan;
#[path = "mapped/medium.rs"]
mod mapped;
mod medium;
#[path = "mapped/open.rs"]
mod open_mapped;
mod options;
#[path = "storage/os.rs"]
mod os_storage;
mod pool;
mod read_only;
#[path = "file/recover.rs"]
mod recover;
mod region;
mod stat;
#[path = "storage/traits.rs"]
mod storage;
#[path = "format/page_sums.rs"]
mod sums;
#[path = "format/superblock.rs"]
mod superblock;
mod sync;
#[path = "file/scrub.rs"]
mod verify_later;

pub use create::choose_address;
pub use domain::Domain;
pub use emulated::{Emulated, Latency};
pub use error::{Error, Result};
pub use faulty::{Fault, FaultKind, Faulty, Operation};
pub use medium::{Lsn, Medium, Site};
pub use options::{
    AddressChoice, CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, CreateMode, DomainChoice,
    Durability, KIND_BYTES_MAX, LOG_BYTES_DEFAULT, LOG_BYTES_MAX, LOG_BYTES_MIN, MediumChoice, PoolOptions,
    Start,
};
pub use os_storage::OsStorage;
pub use pool::Pool;
pub use region::{Range, Region};
pub use stat::{CheckReport, Damage, MediumKind, OpenReport, PoolInfo, PoolStat};
pub use storage::{LockKind, OpenHow, PathKind, SECTOR_BYTES, Storage, StorageFile, here};

/// The instruction that flushes a cache line (re-exported from the machine floor).
pub use mangrove_sys::FlushInstruction;

/// CRC32C (Castagnoli) of `bytes`, continued from `seed` (0 to start).
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // Longer inputs gain from the crate's three streams at a time, shorter ones lose by its set-up.
    const SHORT_BYTES_MAX: usize = 256;
    if bytes.len() <= SHORT_BYTES_MAX
        && let Some(crc) = mangrove_sys::crc32c_short(seed, bytes)
    {
        return crc;
    }
    crc32c::crc32c_append(seed, bytes)
}
