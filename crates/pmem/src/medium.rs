//! The one door to what a pool lies on.

use crate::{Range, Result};
use std::panic::Location;

/// A place in the source that stores, flushes, fences or syncs. The crash simulator uses it to
/// plant bugs: it suppresses every call of one site and demands that a check fails.
pub type Site = &'static Location<'static>;

/// Position in the medium's order of flushes: everything before it is named by it.
/// On a log-structured medium it is a byte position in the log; elsewhere it stays 0.
pub type Lsn = u64;

/// What a region lies on: dax, file or emulated (and, in tests, the crash simulator).
///
/// A crash leaves, for a medium without log: each cache line at any value that it held since its
/// last fence-ordered flush. For a medium with a log: exactly the flushes of a prefix of the
/// order, and at least those before the last [`Medium::wait`] that returned `Ok`.
///
/// Errors latch: after the first failure `flush` and `fence` do nothing, and `wait` fails for ever.
pub trait Medium: Send + Sync {
    /// Asks for `len` bytes at `offset` of the region to reach the persistence domain (pwb).
    /// May block while a log is full. `ptr` is the address of the first byte.
    ///
    /// A medium with a log copies exactly the range, each aligned 8-byte word at some instant of
    /// the call: words that others store meanwhile are each old or new, in no promised order.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `len` bytes; concurrent stores to them must be ordered by the caller.
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, site: Site);

    /// Stores `bytes` at `offset`, whose address is `to`, and flushes them, in a way that is cheaper than one after
    /// the other; false when there is none, and nothing has been done.
    ///
    /// # Safety
    /// `to` must be valid for writes of as many bytes, which nobody else uses meanwhile.
    unsafe fn write_through(&self, _offset: u64, _to: *mut u8, _bytes: &[u8], _site: Site) -> bool {
        false
    }

    /// True when [`Medium::flush_unit`] works: the medium has a log of its own.
    fn has_units(&self) -> bool {
        false
    }

    /// Logs `ranges` of the region, which begins at `base`, as one unit: after a crash all of them are there or
    /// none. Returns the position after it, for [`Medium::wait`]. Blocks while a log is full.
    ///
    /// # Errors
    /// `Unsupported` without [`Medium::has_units`]; `NoSpace` when a unit longer than half the log finds no room
    /// beside it (nothing is poisoned, the unit is not there); else as `wait`.
    ///
    /// # Safety
    /// The ranges must be valid for reads, and nobody may store to them during the call.
    unsafe fn flush_unit(&self, _base: *const u8, _ranges: &[Range], _site: Site) -> Result<Lsn> {
        Err(crate::Error::Unsupported { what: "this medium logs no units".into() })
    }

    /// Orders this thread's earlier flushes before its later stores and flushes (pfence).
    fn fence(&self, site: Site);

    /// The position after everything flushed so far by anybody.
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

    /// Waits until everything before `lsn` is durable, also where [`Medium::wait`] returns at once because
    /// durability is by interval.
    ///
    /// # Errors
    /// As `wait`.
    fn sync(&self, lsn: Lsn, site: Site) -> Result<()> {
        self.wait(lsn, site)
    }

    /// True when nothing may be written: the region is a private copy, flushes go nowhere.
    fn read_only(&self) -> bool {
        false
    }

    /// True when an acknowledged write waits for the log: `appended() > durable()` can be, and
    /// `wait` then blocks. False with durability by interval.
    fn has_log(&self) -> bool {
        false
    }

    /// Makes the first `bytes` bytes of the region usable and durable-able.
    ///
    /// # Errors
    /// `NoSpace` when the medium is full, `FileLimit` when a file may not grow: nothing is poisoned, the caller reports
    /// and goes on.
    fn grow(&self, bytes: u64) -> Result<()>;

    /// Bytes of the region that may be used already, where the medium knows and its user does not.
    fn grown(&self) -> u64 {
        0
    }

    /// Brings the image up to date and frees the log. Nothing to do where there is none.
    ///
    /// # Errors
    /// The first I/O error, which also latches.
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// The error that latched, if any.
    fn poisoned(&self) -> Option<crate::Error> {
        None
    }

    /// True when [`Medium::refuses`] can come to answer true.
    fn may_refuse(&self) -> bool {
        false
    }

    /// True when `flush` does nothing any more, or not in this process: [`Medium::poisoned`] says why. Cheap: whoever
    /// is about to write asks. Called only if `may_refuse`.
    fn refuses(&self) -> bool {
        false
    }

    /// True when every store must be reported through [`Medium::stored`] (the crash simulator).
    fn records_stores(&self) -> bool {
        false
    }

    /// A store of `len` bytes at `offset` has just been executed. Called only if `records_stores`.
    fn stored(&self, _offset: u64, _len: usize, _site: Site) {}

    /// True when reads of the region should be reported through [`Medium::reading`] (latency models).
    fn records_reads(&self) -> bool {
        false
    }

    /// The caller is about to load `len` bytes at `offset`. Called only if `records_reads`.
    fn reading(&self, _offset: u64, _len: usize) {}
}
