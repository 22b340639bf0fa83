//! Floor 2: the durable ordered map, after HART (Pan, Xie, Song: "HART: A Concurrent Hash-Assisted Radix Tree for
//! DRAM-PM Hybrid Memory Systems").
//!
//! Leaves and values are durable, in chunks of 56 with a bitmap header (EPallocator). Everything else is volatile;
//! recovery rebuilds it. docs/format/map.md specifies the bytes, docs/decisions what differs from the paper and why.
//!
//! ```
//! use mangrove_hart::{Hart, Options, WriteMode};
//! use mangrove_pool::Emulated;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Emulated::region(1 << 26)?;
//! let map = Hart::create(region.clone(), &Options::default())?;
//! map.put(b"key", b"value", WriteMode::Durable)?;
//! drop(map);
//! let (map, report) = Hart::recover(region, &Options::default())?;
//! assert_eq!(report.records, 1);
//! assert_eq!(map.get(b"key")?, Some(b"value".to_vec()));
//! # Ok(())
//! # }
//! ```

mod alloc;
mod batch;
mod bounds;
mod concurrency;
mod error;
mod format;
mod hart;
mod index;
mod operations;
mod options;
mod recovery;
mod report;
mod snapshot;

pub use batch::Batch;
pub use error::{Error, Result};
pub use hart::Hart;
pub use options::{Locking, Options, WriteMode};
pub use recovery::closed_map::ClosedMap;
pub use report::{CheckReport, Compaction, Damage, RecoveryReport, Stat};
pub use snapshot::range::Range;
pub use snapshot::snapshot::Snapshot;

/// The longest key, in bytes. The empty key is a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
