//! How a map is created and recovered.

use crate::format::leaf::SLOT_BYTES_MAX;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How writers of one tree exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locking {
    /// Optimistic lock coupling: readers take no lock, writers lock single nodes.
    #[default]
    Optimistic,
    /// One reader-writer lock a tree (all keys that share their first two bytes), as the HART paper
    /// has it (section III-A.3).
    PerTree,
}

/// When a write returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Once the write is durable, as far as the medium's durability mode promises.
    #[default]
    Durable,
    /// Once the write took effect; [`crate::Hart::sync`] waits until it is durable.
    Buffered,
}

/// Options of a map. The defaults suit a pool of any size.
#[derive(Clone, Debug)]
pub struct Options {
    /// How writers exclude each other.
    pub locking: Locking,
    /// The map writes nothing to the medium; writes fail with [`crate::Error::ReadOnly`].
    pub read_only: bool,
    /// Readers wait until what they are about to return is durable. `None`: they do where the medium has a log. Set
    /// it to false in interval durability, where no wait makes anything durable.
    pub gate_reads: Option<bool>,
    /// Bytes of a segment as a power of two, 12 to 24; a property of a new map only.
    pub segment_shift: u32,
    /// The map asks the medium to grow by at most this many bytes at a time, and by a part of what it has.
    pub grow_bytes: u64,
    /// The most memory that this process may have for the map to be opened or to grow. `None`: as much as it gets,
    /// until the system ends it.
    pub memory_bytes_max: Option<u64>,
    /// The map's name in messages about memory.
    pub path: PathBuf,
    /// Threads that recovery and `check` may use; 0 means one per CPU.
    pub recovery_threads: usize,
    /// When another thread sets it, recovery ends with the medium's error `Closed`.
    pub ended: Option<Arc<AtomicBool>>,
    /// Verify the checksum of every out-of-line value during recovery. Every read verifies it anyway; set this to
    /// false where the medium has verified its whole data file already.
    pub verify_values: bool,
    /// Open a damaged map: leave out the records that do not verify and list them in the report.
    pub salvage: bool,
    /// With `salvage`: bytes of the region that may be read. A map whose root is damaged is then taken for one with
    /// segments of `segment_shift` in all of these bytes; 0: such a map is refused.
    pub salvage_bytes: u64,
    /// A batch whose redo list would have more entries than this marks the records that it removes in the headers of
    /// their chunks, which takes no space. 159 fill the page that every map has for a list.
    pub list_entries_max: usize,
    /// A value of more than 8 bytes lies behind its key, in the same slot, if the record then has at most so many
    /// bytes; a longer one has a block of its own. 512 at most; 0: as before format version 5.
    pub slot_bytes_max: usize,
    /// Bytes of DRAM that the pre-images of all snapshots together may take before snapshots expire.
    pub snapshot_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            locking: Locking::Optimistic,
            read_only: false,
            gate_reads: None,
            segment_shift: 18,
            grow_bytes: 64 << 20,
            memory_bytes_max: None,
            path: PathBuf::new(),
            recovery_threads: 0,
            ended: None,
            verify_values: true,
            salvage: false,
            salvage_bytes: 0,
            list_entries_max: 159,
            slot_bytes_max: SLOT_BYTES_MAX,
            snapshot_bytes_max: 1 << 30,
        }
    }
}
