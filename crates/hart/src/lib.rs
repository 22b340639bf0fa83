//! Floor 2: the durable ordered map, after HART (Pan, Xie, Song: "HART: A Concurrent Hash-Assisted
//! Radix Tree for DRAM-PM Hybrid Memory Systems").
//!
//! Leaves and values are durable, in chunks of 56 with a bitmap header (EPallocator); everything
//! else is volatile and rebuilt by recovery. docs/format/map.md tells the bytes, docs/decisions
//! what differs from the paper and why.
//!
//! ```
//! use mangrove_hart::{Hart, Options, WriteMode};
//! use mangrove_pmem::Emulated;
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
#[path = "recovery/check.rs"]
mod check;
#[path = "format/size_class.rs"]
mod class;
#[path = "operations/batch_commit.rs"]
mod commit;
mod error;
#[path = "concurrency/writer_gate.rs"]
mod gate;
mod hart;
mod index;
#[path = "concurrency/lane.rs"]
mod lane;
#[path = "format/layout.rs"]
mod layout;
#[path = "format/leaf.rs"]
mod leaf;
mod options;
#[path = "snapshot/pre_images.rs"]
mod overlay;
#[path = "snapshot/range.rs"]
mod range;
#[path = "operations/read.rs"]
mod read;
#[path = "operations/read_many.rs"]
mod read_many;
#[path = "recovery/recover.rs"]
mod recover;
#[path = "format/redo_list.rs"]
mod redo;
mod report;
#[path = "recovery/scan.rs"]
mod scan;
#[path = "snapshot/snapshot.rs"]
mod snapshot;
#[path = "format/space.rs"]
mod space;
#[path = "concurrency/read_gate.rs"]
mod visible;
#[path = "operations/write.rs"]
mod write;

pub use batch::Batch;
pub use error::{Error, Result};
pub use hart::Hart;
pub use options::{Locking, Options, WriteMode};
pub use range::Range;
pub use report::{Damage, RecoveryReport, Report, Stat};
pub use snapshot::Snapshot;

/// The longest key, in bytes. The empty key is a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
