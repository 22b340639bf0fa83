//! Floor 2: an allocator in a region, whose every byte of state lies in that region.
//!
//! An arena is what `malloc` works on in memory that outlives the process: a [`Heap`] hands out blocks of one range of
//! addresses, and everything that it knows stands in that range, in spans and bitmaps. It makes nothing durable and
//! undoes nothing. It reports every range of bytes that it writes to the caller's [`Writes`]; a durable application
//! commits those ranges in one batch with the program's own. The same bytes at
//! the same address, in this run or a later one, are the same arena.
//!
//! ```
//! use mangrove_arena::{ArenaSpace, Heap, Writes};
//! use std::io;
//!
//! #[derive(Clone)]
//! #[repr(align(4096))]
//! struct Page([u8; 4096]);
//!
//! /// 16 MiB of zeroes that do not grow, for the life of the process.
//! struct Memory(*mut u8);
//! // SAFETY: no thread but the arena's has the address.
//! unsafe impl Send for Memory {}
//!
//! impl ArenaSpace for Memory {
//!     fn base(&self) -> *mut u8 {
//!         self.0
//!     }
//!     fn len(&self) -> u64 {
//!         16 << 20
//!     }
//!     fn capacity(&self) -> u64 {
//!         self.len()
//!     }
//!     fn grow(&mut self, _: u64) -> io::Result<()> {
//!         Err(io::Error::other("it does not grow"))
//!     }
//! }
//!
//! /// Counts what a log would take.
//! struct Count(usize);
//!
//! impl Writes for Count {
//!     fn wrote(&mut self, _: usize, len: usize) {
//!         self.0 += len;
//!     }
//! }
//!
//! # fn main() -> Result<(), String> {
//! let mut written = Count(0);
//! let memory = Memory(vec![Page([0; 4096]); 4096].leak().as_mut_ptr().cast());
//! let mut heap = Heap::format(Box::new(memory), 0, &mut written)?;
//! let first = heap.alloc(&mut written, 100);
//! written.0 = 0;
//! let second = heap.alloc(&mut written, 100);
//! assert!(written.0 <= 32); // one bitmap
//! heap.free(&mut written, first as usize).map_err(|e| format!("{e:?}"))?;
//! assert!(heap.free(&mut written, first as usize).is_err());
//! assert_eq!(heap.usable_bytes(second as usize), Some(112));
//! # Ok(())
//! # }
//! ```
//!
//! The bytes: docs/format/arena.md. The reasons: docs/decisions/arena.md.

mod bins;
mod bitmap;
mod blocks;
mod check;
mod class;
mod format;
mod free_bytes;
mod heap;
mod layout;
mod mapped;
mod pages;
mod plain;
mod realloc;
mod shards;
mod slab;
mod space;
mod view;

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy_transactions;

pub use check::ArenaStat;
pub use class::SMALL_BYTES_MAX;
pub use free_bytes::FreeBytes;
pub use heap::Heap;
pub use layout::PAGE_BYTES;
pub use mapped::MapError;
pub use slab::BadFree;
pub use space::{ArenaSpace, Words, Writes};
pub use view::ArenaView;
