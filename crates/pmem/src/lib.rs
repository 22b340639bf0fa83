//! Floor 1: bytes that survive. Pools, media, regions and logs.
//!
//! A [`Region`] is a byte-addressable durable range. Who owns durable data changes it only through
//! the region's store functions, asks with [`Region::flush`] for ranges to become durable, orders
//! with [`Region::fence`] and waits with [`Region::drain`]. What these mean is the [`Medium`]'s
//! business: cache-line write-back on persistent memory, a redo log with group commit on a disk.

mod emulated;
mod error;
mod medium;
mod region;

pub use emulated::{Emulated, Latency};
pub use error::{Error, Result};
pub use medium::{Lsn, Medium, Site};
pub use region::Region;

/// CRC32C (Castagnoli) of `bytes`, continued from `seed` (0 to start).
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}
