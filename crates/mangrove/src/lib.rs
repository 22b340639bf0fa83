//! Durable in-memory data at close to memory speed.
//!
//! A [`Map`] is an ordered map from byte strings to byte strings. Programs read and write a working
//! copy in DRAM; a *pool* on a disk or on persistent memory keeps what survives. In the default
//! durability a call that returned `Ok`, and whose name does not end in `nowait`, is *acknowledged*:
//! SIGKILL, a kernel panic or a power cut a nanosecond later does not lose it.
//!
//! ```
//! # fn main() -> mangrove::Result<()> {
//! # let dir = mangrove_example_dir();
//! use mangrove::{Batch, Map};
//!
//! let map = Map::open(dir.join("words"))?; // created when it is not there
//! map.put("mangrove", "a tree that lives in two elements")?; // durable now
//! assert_eq!(map.get("mangrove")?.as_deref(), Some(&b"a tree that lives in two elements"[..]));
//!
//! let mut batch = Batch::new();
//! batch.put("root", "below").put("leaf", "above").delete("mangrove");
//! map.write(batch)?; // all of it or nothing, whatever happens
//!
//! for record in map.range("l".."z")? {
//!     let (key, value) = record?;
//!     println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
//! }
//! map.close()?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok(())
//! # }
//! # fn mangrove_example_dir() -> std::path::PathBuf {
//! #     let dir = std::env::temp_dir().join(format!("mangrove-doc-{}", std::process::id()));
//! #     std::fs::create_dir_all(&dir).unwrap();
//! #     dir
//! # }
//! ```
//!
//! # What survives what
//! | | the process dies (SIGKILL) | the machine dies (panic, power) |
//! |---|---|---|
//! | `Durability::Sync`, medium file or dax | every acknowledged write | every acknowledged write |
//! | `put_nowait`, `delete_nowait`, with `Sync` | a prefix, at most about 100 ms older than the last | the same |
//! | `Durability::Interval(t)`, medium file | a prefix, at most about `t` older than the last | the same |
//! | medium emulated on tmpfs | every acknowledged write | nothing: it is DRAM |

// `reading::owned` has the only exceptions.
#![deny(unsafe_code)]

mod batch;
mod convert;
mod error;
pub mod heap;
mod map;
mod opening;
mod reading;
mod stat;
mod upkeep;

pub use batch::Batch;
pub use error::{Error, Result};
pub use heap::Heap;
pub use mangrove_pool::{Create, Domain, Durability, FlushCost, Latency, Medium, PoolConfig};
pub use map::{KEY_BYTES_MAX, Map, VALUE_BYTES_MAX};
pub use opening::options::{Locking, MapOptions};
pub use reading::bounds::prefix_end;
pub use reading::range::Range;
pub use reading::snapshot::Snapshot;
pub use stat::{PoolInfo, RecoveryReport, Stat, pool_check, pool_info, pool_is_unfinished};
pub use upkeep::check::CheckReport;
pub use upkeep::compact::CompactReport;
pub use upkeep::copy::{BackupReport, Progress};
pub use upkeep::salvage::SalvageReport;
