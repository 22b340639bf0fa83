//! Floor 1: bytes that survive. Pools, media, regions and logs.
//!
//! A [`Region`] is a byte-addressable durable range. The owner of durable data changes it only through the region's
//! store functions, asks with [`Region::flush`] for ranges to become durable, orders with [`Region::fence`] and
//! waits with [`Region::drain`]. The medium's [`MediumOps`] decide what these mean: cache-line write-back on
//! persistent memory, a redo log with group commit on a disk.
//!
//! ```
//! use mangrove_pool::{Create, PoolOptions};
//! use std::sync::atomic::Ordering;
//!
//! # fn main() -> mangrove_pool::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("counter");
//! let options = PoolOptions::new().create(Create::IfMissing).log_bytes(1 << 20).kind("counter");
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

mod appear;
mod check;
mod config;
mod create;
mod damage_check;
mod error;
mod file;
mod format;
mod limits;
mod log;
mod look;
mod mapped;
mod medium;
mod neighbours;
mod open_files;
mod opening;
mod options;
mod pool;
mod pool_files;
mod read_only;
mod region;
mod stat;
mod storage;
mod sync;
mod undo;

pub use appear::appear;
pub use config::{Create, Domain, Durability, Medium, PoolConfig};
pub use create::choose_address;
#[doc(hidden)]
pub use damage_check::DamageCheck;
#[cfg(feature = "left-out-checks")]
#[doc(hidden)]
pub use damage_check::left_out::leave_out;
pub use error::{Error, Result, named};
pub use file::closed::ClosedPool;
pub use file::left_index::LeftIndex;
pub use limits::{
    CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, KIND_BYTES_MAX, LOG_BYTES_DEFAULT,
    LOG_BYTES_MAX, LOG_BYTES_MIN, fits_memory,
};
pub use mapped::domain::PersistenceDomain;
pub use mapped::emulated::Emulated;
pub use mapped::latency::{FlushCost, Latency};
pub use medium::{ByteRange, Capabilities, Lsn, MediumOps, Observers, ReadObserver, Site, StoreObserver};
pub use opening::Opening;
pub use options::{AddressChoice, PoolOptions, Start};
pub use pool::Pool;
pub use region::Region;
pub use stat::{CheckReport, Damage, MediumKind, OpenReport, PoolInfo, PoolStat};
pub use storage::faulty::{Fault, FaultKind, Faulty, FaultyOperation};
pub use storage::os::OsStorage;
pub use storage::traits::{
    Device, FileMap, LockKind, OpenHow, PathKind, SECTOR_BYTES, Storage, StorageFile, here,
};

/// The instruction that flushes a cache line (re-exported from the machine floor).
pub use mangrove_sys::FlushInstruction;

/// CRC32C (Castagnoli) of `bytes`, continued from `seed` (0 to start).
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // The crate computes three streams at a time: faster for longer inputs, but its set-up costs more than a short
    // one.
    const SHORT_BYTES_MAX: usize = 256;
    if bytes.len() <= SHORT_BYTES_MAX
        && let Some(crc) = mangrove_sys::crc32c_short(seed, bytes)
    {
        return crc;
    }
    crc32c::crc32c_append(seed, bytes)
}
