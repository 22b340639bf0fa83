//! Floor 2: an allocator in a region, whose every byte of state lies in that region.
//!
//! An arena is what `malloc` works on in memory that outlives the process: an [`ArenaHeap`] hands out blocks of one
//! range of addresses, and everything that it knows stands in that range, in spans and bitmaps. It makes nothing
//! durable and undoes nothing. It reports every range of bytes that it writes to the caller's [`Writes`]; a durable
//! application commits those ranges in one batch with the program's own. The same bytes at the same address, in this
//! run or a later one, are the same arena.
//!
//! ```
//! use mangrove_arena::{ArenaSpace, ArenaHeap, Writes};
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
//! let mut heap = ArenaHeap::format(Box::new(memory), 0, &mut written)?;
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
//! # In transactions
//!
//! A transaction owns its writes by the trait [`Words`], whose every load and store may stop the call with `Err`. Here
//! is one that keeps its writes to itself until it commits, and has to stop after so many loads; a real one stops
//! where it meets another. Each thread has a handle of its own (the [`ArenaSpace`] is then one that several handles
//! share) in a shard of its own, and the arena says whatever it has to say by words that the transaction owns.
//!
//! ```
//! use mangrove_arena::{ArenaSpace, BadFree, ArenaHeap, Words, Writes};
//! use std::collections::BTreeMap;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! # use std::io;
//! # #[derive(Clone)]
//! # #[repr(align(4096))]
//! # struct Page([u8; 4096]);
//! # struct Memory(*mut u8);
//! # // SAFETY: no thread but the arena's has the address.
//! # unsafe impl Send for Memory {}
//! # impl ArenaSpace for Memory {
//! #     fn base(&self) -> *mut u8 { self.0 }
//! #     fn len(&self) -> u64 { 16 << 20 }
//! #     fn capacity(&self) -> u64 { self.len() }
//! #     fn grow(&mut self, _: u64) -> io::Result<()> { Err(io::Error::other("it does not grow")) }
//! # }
//! # struct InPlace;
//! # impl Writes for InPlace {
//! #     fn wrote(&mut self, _: usize, _: usize) {}
//! # }
//!
//! /// A word of the region.
//! fn word<'a>(at: usize) -> &'a AtomicU64 {
//!     // SAFETY: the arena names words of its region only, which outlives every transaction.
//!     unsafe { AtomicU64::from_ptr(at as *mut u64) }
//! }
//!
//! struct Tx {
//!     writes: BTreeMap<usize, u64>,
//!     loads_left: u32,
//! }
//!
//! impl Tx {
//!     fn begin(loads_left: u32) -> Self {
//!         Self { writes: BTreeMap::new(), loads_left }
//!     }
//!
//!     fn commit(self) {
//!         for (at, value) in self.writes {
//!             word(at).store(value, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! #[derive(Debug, PartialEq)]
//! struct Stop;
//!
//! impl Words for Tx {
//!     type Stop = Stop;
//!     // Calls can be undone, so the handle remembers nothing between them.
//!     const ALONE: bool = false;
//!
//!     fn load(&mut self, from: &AtomicU64) -> Result<u64, Stop> {
//!         self.loads_left = self.loads_left.checked_sub(1).ok_or(Stop)?;
//!         let own = self.writes.get(&(from.as_ptr() as usize));
//!         Ok(own.copied().unwrap_or_else(|| from.load(Ordering::Relaxed)))
//!     }
//!
//!     fn store(&mut self, to: &AtomicU64, value: u64) -> Result<(), Stop> {
//!         self.writes.insert(to.as_ptr() as usize, value);
//!         Ok(())
//!     }
//!
//!     fn store_all(&mut self, to: &[AtomicU64], values: &[u64]) -> Result<(), Stop> {
//!         to.iter().zip(values).try_for_each(|(to, &value)| self.store(to, value))
//!     }
//!
//!     unsafe fn zero(&mut self, at: *mut u8, len: usize) -> Result<(), Stop> {
//!         // Blocks are whole words.
//!         (0..len).step_by(8).try_for_each(|offset| self.store(word(at as usize + offset), 0))
//!     }
//!
//!     unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) -> Result<(), Stop> {
//!         (0..len).step_by(8).try_for_each(|offset| {
//!             let value = self.load(word(from as usize + offset))?;
//!             self.store(word(to as usize + offset), value)
//!         })
//!     }
//! }
//!
//! # fn main() -> Result<(), String> {
//! # let memory = Memory(vec![Page([0; 4096]); 4096].leak().as_mut_ptr().cast());
//! let mut heap = ArenaHeap::format(Box::new(memory), 0, &mut InPlace)?;
//! // The number of shards is chosen when the arena is made; every opening finds it.
//! let shards = heap.make_shards(&mut InPlace, 8).map_err(|_| "nothing stops here")?;
//! assert_eq!(shards, 8);
//! heap.enter_shard(3);
//!
//! // A transaction that has to stop leaves nothing, wherever it was.
//! let mut tx = Tx::begin(4);
//! assert_eq!(heap.alloc_in(&mut tx, 100, 16), Err(Stop));
//! drop(tx);
//! assert_eq!(heap.live().count(), 0);
//!
//! let mut tx = Tx::begin(1000);
//! let block = heap.alloc_zeroed_in(&mut tx, 100, 64).map_err(|_| "it stopped")?;
//! let longer = heap.resize_in(&mut tx, block as usize, 300, 64).map_err(|_| "it stopped")?;
//! let longer = longer.map_err(|why| format!("{why:?}"))? as usize;
//! assert!(longer.is_multiple_of(64));
//! tx.commit();
//!
//! // A wrong pointer is refused.
//! let mut tx = Tx::begin(1000);
//! assert_eq!(heap.free_in(&mut tx, block as usize), Ok(Err(BadFree::Double)));
//! assert_eq!(heap.free_in(&mut tx, longer + 8), Ok(Err(BadFree::NotABlock)));
//! assert_eq!(heap.free_in(&mut tx, 64), Ok(Err(BadFree::Outside)));
//! assert!(tx.writes.is_empty());
//!
//! // What is in use, for a comparison with what the program can reach; and the check of the arena's own rules.
//! let live: Result<Vec<_>, _> = heap.live().collect();
//! assert_eq!(live?, [(longer, 320)]);
//! assert!(heap.check().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! The bytes: docs/format/arena.md. The reasons: docs/decisions/arena.md.

mod audit;
mod blocks;
mod bytes;
mod heap;
mod pages;
mod space;
mod view;

#[cfg(test)]
mod tests;

pub use audit::check::ArenaStat;
pub use audit::free_bytes::FreeBytes;
pub use audit::live::Live;
pub use blocks::slab::BadFree;
pub use blocks::sparse::{MovePlan, SlabSurvey};
pub use bytes::class::SMALL_BYTES_MAX;
pub use bytes::layout::PAGE_BYTES;
pub use heap::ArenaHeap;
pub use pages::mapped::MapError;
pub use space::{ArenaSpace, Words, Writes};
pub use view::ArenaView;
