//! What a heap says about itself without being opened for writing.

use super::error::HeapResult;
use super::heap::Heap;
use super::options::HeapOptions;
use super::plan::Plan;
use super::roots::Root;
use crate::commit::Protocol;
use mangrove_shadow::{LastOpening, Order};
use std::path::Path;

/// What a heap says about itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapInfo {
    /// The first byte's address, in every process.
    pub base: usize,
    /// The most bytes that it can grow to.
    pub capacity: u64,
    /// Bytes under management so far.
    pub bytes: u64,
    /// Bytes of blocks in use.
    pub used_bytes: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Its roots.
    pub roots: Vec<Root>,
    /// The last opening for writing (dax and emulated).
    pub last: Option<LastOpening>,
    /// The commit protocol of that opening.
    pub protocol: &'static str,
    /// What an opening for writing would use, on this machine and with default options.
    pub plan: Plan,
}

impl Heap {
    /// What the heap at `path` says about itself: it is opened read-only, and nothing is changed. O(bytes).
    ///
    /// # Errors
    /// Those of a read-only opening: `Busy` while a process has it open for writing, `Corrupt`, `AddressTaken`.
    pub fn inspect(path: impl AsRef<Path>) -> HeapResult<HeapInfo> {
        let heap = HeapOptions::new().read_only(true).open(path)?;
        let (stat, last) = (heap.stat()?, heap.shadow().report().last);
        let plan = HeapOptions::new().plan(heap.shadow().medium())?;
        let order = last.map_or(Order::Dense, |last| last.order);
        Ok(HeapInfo {
            base: heap.base(),
            capacity: heap.shadow().capacity(),
            bytes: stat.arena.bytes,
            used_bytes: stat.arena.used_bytes,
            blocks: stat.arena.blocks,
            roots: heap.roots()?,
            last,
            plan,
            protocol: Protocol::Automatic.tells(heap.shadow().medium(), order),
        })
    }
}
