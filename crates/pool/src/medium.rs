//! The one interface to what a pool lies on.

use crate::Result;
use std::panic::Location;
use std::sync::Arc;

/// A call site: a place in the source that stores, flushes, fences or syncs. The crash simulator injects faults by
/// it: it suppresses every call of one site and demands that a check fails.
pub type Site = &'static Location<'static>;

/// A position in the medium's order of flushes; it stands for everything before it. On a medium with a log it is a
/// byte position in the log; elsewhere it stays 0.
pub type Lsn = u64;

/// A part of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// First byte, from the region's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What a medium can do. It stays the same while the medium lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// [`MediumOps::flush_unit`] works: the medium has a log of its own.
    pub has_units: bool,
    /// Nothing may be written: the region is a private copy, and flushes do nothing.
    pub read_only: bool,
    /// An acknowledged write waits for the log: `durable()` may lag behind `appended()`, and `wait` then blocks.
    /// False with durability by interval.
    pub has_log: bool,
    /// [`MediumOps::refuses`] can come to return true.
    pub may_refuse: bool,
}

/// Observes every store to a region (the crash simulator).
pub trait StoreObserver: Send + Sync {
    /// A store of `len` bytes at `offset` has just been executed.
    fn stored(&self, offset: u64, len: usize, site: Site);

    /// Stores to all `parts` have just become visible in one step, as those of a hardware transaction do: with
    /// persistent caches a crash keeps all of them or none.
    fn stored_in_one_step(&self, parts: &[ByteRange], site: Site) {
        for part in parts {
            self.stored(part.offset, part.len as usize, site);
        }
    }
}

/// Observes the reads of a region that its user reports (latency models).
pub trait ReadObserver: Send + Sync {
    /// The caller is about to load `len` bytes at `offset`.
    fn reading(&self, offset: u64, len: usize);
}

/// The observers of a region: usually none.
#[derive(Clone, Default)]
pub struct Observers {
    /// Every store is reported to it.
    pub stores: Option<Arc<dyn StoreObserver>>,
    /// Every reported read is passed to it.
    pub reads: Option<Arc<dyn ReadObserver>>,
}

/// What a region lies on: dax, file or emulated (and, in tests, the crash simulator).
///
/// A crash leaves, for a medium without log: each cache line at any value that it held since its
/// last fence-ordered flush. For a medium with a log: exactly the flushes of a prefix of the
/// order, and at least those before the last [`MediumOps::wait`] that returned `Ok`.
///
/// The first failure poisons the medium: from then on `flush` and `fence` do nothing, and `wait` fails.
pub trait MediumOps: Send + Sync {
    /// What the medium can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The observers of a region on it. A region asks once, when it is made.
    fn observers(self: Arc<Self>) -> Observers {
        Observers::default()
    }

    /// Asks for `len` bytes at `offset` of the region to reach the persistence domain (pwb). May block while a log
    /// is full. `ptr` is the address of the first byte.
    ///
    /// A medium with a log copies exactly the range, each aligned 8-byte word at some instant of the call: a word
    /// that another thread stores meanwhile is copied old or new, in no promised order.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `len` bytes; the caller must order concurrent stores to them.
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, site: Site);

    /// Stores `bytes` at `offset`, whose address is `to`, and flushes them, more cheaply than by a store and a
    /// flush. Returns false when the medium has no such way; then nothing has been done.
    ///
    /// # Safety
    /// `to` must be valid for writes of as many bytes, and no other thread may use them meanwhile.
    unsafe fn write_through(&self, _offset: u64, _to: *mut u8, _bytes: &[u8], _site: Site) -> bool {
        false
    }

    /// Logs `ranges` of the region, which begins at `base`, as one atomic group: a crash keeps all of them or none.
    /// Returns the position after it, for [`MediumOps::wait`]. Blocks while a log is full.
    ///
    /// # Errors
    /// `Unsupported` without [`Capabilities::has_units`]. `NoSpace` when an atomic group longer than half the log
    /// finds no space for its spill file; then nothing is poisoned and nothing was logged. Else as `wait`.
    ///
    /// # Safety
    /// The ranges must be valid for reads, and no thread may store to them during the call.
    unsafe fn flush_unit(&self, _base: *const u8, _ranges: &[ByteRange], _site: Site) -> Result<Lsn> {
        Err(crate::Error::Unsupported { what: "this medium logs no units".into() })
    }

    /// Orders this thread's earlier flushes before its later stores and flushes (pfence).
    fn fence(&self, site: Site);

    /// As `fence`; true where the fence completes what [`wait`](MediumOps::wait) waits for, and the medium has not
    /// failed: then `wait` would return `Ok` at once. One call in place of two.
    fn fence_completes(&self, site: Site) -> bool {
        self.fence(site);
        false
    }

    /// The caller does not wait for what it has flushed so far. A medium on which waiting makes durable sees to it by
    /// itself, soon ([`PoolConfig::nowait_within`](crate::PoolConfig::nowait_within)).
    fn leave_unawaited(&self) {}

    /// The position after everything that any thread has flushed so far.
    fn appended(&self) -> Lsn {
        0
    }

    /// Everything before this position is durable.
    fn durable(&self) -> Lsn {
        0
    }

    /// Waits until everything before `lsn` is durable (psync). Returns at once where a fence suffices.
    ///
    /// # Errors
    /// `Poisoned` (or the first error itself) when the medium failed: nothing may be acknowledged.
    fn wait(&self, lsn: Lsn, site: Site) -> Result<()>;

    /// Waits until everything before `lsn` is durable, also where [`MediumOps::wait`] returns at once because
    /// durability is by interval.
    ///
    /// # Errors
    /// As `wait`.
    fn sync(&self, lsn: Lsn, site: Site) -> Result<()> {
        self.wait(lsn, site)
    }

    /// Makes the first `bytes` bytes of the region usable and reserves space on the medium for them.
    ///
    /// # Errors
    /// `NoSpace` when the medium is full, `FileLimit` when a file may not grow. Neither poisons the medium: the
    /// caller reports the error and continues.
    fn grow(&self, bytes: u64) -> Result<()>;

    /// As `grow` up to the end of `range`, but space is reserved for the range alone: what was not usable before it
    /// may stay without space, and must be provided before it is used. A part that was given back needs this, too.
    ///
    /// # Errors
    /// As `grow`.
    fn provide(&self, range: ByteRange) -> Result<()> {
        self.grow(range.offset + range.len)
    }

    /// Gives a part of the region back, in whole pages: it reads as zeros from now on. That becomes durable in the
    /// order of the flushes, and then the medium gives its space back. False where the medium gives nothing back; then
    /// nothing has changed.
    ///
    /// # Errors
    /// `Poisoned` (or the first error itself) when the medium failed.
    ///
    /// # Safety
    /// No thread stores to the part or flushes it before it has been provided again; threads that read it meanwhile
    /// can do with any bytes.
    unsafe fn give_back(&self, _range: ByteRange, _site: Site) -> Result<bool> {
        Ok(false)
    }

    /// As `give_back`, for a part that the owner stores to before it reads there again: until then its bytes in memory
    /// are undefined. So this works where memory shows the data file, too.
    ///
    /// # Errors
    /// As `give_back`.
    ///
    /// # Safety
    /// As `give_back`.
    unsafe fn release(&self, range: ByteRange, site: Site) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.give_back(range, site) }
    }

    /// Parts of the usable region for which no space may be reserved, in any order: an owner that does not know what it
    /// released provides them before it uses them again.
    fn without_space(&self) -> Vec<ByteRange> {
        Vec::new()
    }

    /// Bytes of the region that may be used already, where the medium knows and its user does not.
    fn grown(&self) -> u64 {
        0
    }

    /// The parts of a range of the region that may not be zero, in order; all of it where that is not known. Right only
    /// while no thread stores. It reads none of the bytes: O(parts).
    fn data_ranges(&self, range: ByteRange) -> Vec<ByteRange> {
        vec![range]
    }

    /// Applies the log to the data file and frees the log. Does nothing on a medium without log.
    ///
    /// # Errors
    /// The first I/O error, which also poisons the medium.
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Gives the memory of a part of the region back: it shows the data file again, and a page of it takes memory of
    /// its own only when it is next stored to. False where that cannot be: the log holds what the data file lacks, or
    /// the region is no working copy of a file. A pool that is filled without a log gives back what it has written of
    /// the part; false when it is writing. O(pages that were stored to).
    ///
    /// # Errors
    /// The operating system's, or that which poisoned the medium. The region then shows what it showed before.
    ///
    /// # Safety
    /// No thread stores to the region or flushes meanwhile, and what was stored there and never flushed may be lost.
    unsafe fn page_out(&self, _range: ByteRange) -> Result<bool> {
        Ok(false)
    }

    /// The error that poisoned the medium, if any.
    fn poisoned(&self) -> Option<crate::Error> {
        None
    }

    /// True when `flush` does nothing any more, or nothing in this process; [`MediumOps::poisoned`] returns the
    /// reason. Cheap, because every writer asks before it writes. Called only with [`Capabilities::may_refuse`].
    fn refuses(&self) -> bool {
        false
    }
}
