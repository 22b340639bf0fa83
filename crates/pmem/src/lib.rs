//! Floor 1: bytes that survive. Pools, media, regions and logs.
//!
//! A [`Region`] is a byte-addressable durable range. Who owns durable data changes it only through
//! the region's store functions, asks with [`Region::flush`] for ranges to become durable, orders
//! with [`Region::fence`] and waits with [`Region::drain`]. What these mean is the [`Medium`]'s
//! business: cache-line write-back on persistent memory, a redo log with group commit on a disk.

mod check;
mod checkpoint;
mod commit;
mod create;
mod domain;
mod emulated;
mod error;
mod faulty;
mod file_medium;
mod latency;
mod log;
mod log_format;
mod log_scan;
mod mapped;
mod medium;
mod open_mapped;
mod options;
mod os_storage;
mod pool;
mod read_only;
mod recover;
mod region;
mod stat;
mod storage;
mod sums;
mod superblock;
mod sync;

pub use domain::Domain;
pub use emulated::{Emulated, Latency};
pub use error::{Error, Result};
pub use faulty::{Fault, FaultKind, Faulty, Operation};
pub use medium::{Lsn, Medium, Site};
pub use options::{
    CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, CreateMode, DomainChoice, Durability,
    KIND_BYTES_MAX, LOG_BYTES_DEFAULT, LOG_BYTES_MAX, LOG_BYTES_MIN, MediumChoice, PoolOptions,
};
pub use os_storage::OsStorage;
pub use pool::Pool;
pub use region::Region;
pub use stat::{CheckReport, Damage, MediumKind, OpenReport, PoolInfo, PoolStat};
pub use storage::{LockKind, OpenHow, PathKind, SECTOR_BYTES, Storage, StorageFile, here};

/// The instruction that flushes a cache line (re-exported from the machine floor).
pub use mangrove_sys::FlushInstruction;

/// CRC32C (Castagnoli) of `bytes`, continued from `seed` (0 to start).
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}
