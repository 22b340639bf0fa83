//! A transaction that reads and writes memory itself, and notes what its writes replace: where one lock, or the
//! hardware, keeps the others out.

use super::undo::UndoLog;
use crate::access::{Interrupted, TxAccess};
use crate::memory::{TxMemory, load, store};

/// A transaction of [`Sgl`](crate::Sgl) or [`Htm`](crate::Htm).
#[derive(Debug)]
pub struct InPlaceTx {
    pub(super) memory: TxMemory,
    /// Also in hardware: for bodies that abort, nested transactions, and to find what was written.
    pub(super) undo: UndoLog,
    /// The transaction has the lock, and memory is itself durable: each store needs an undo entry on the medium first.
    undo_first: bool,
}

impl InPlaceTx {
    pub(super) fn new(memory: TxMemory) -> Self {
        Self { memory, undo: UndoLog::new(), undo_first: false }
    }

    /// The next attempt has the lock, or runs in hardware.
    #[inline(always)]
    pub(super) fn begin(&mut self, has_lock: bool) {
        self.undo_first = has_lock && self.memory.stores().is_some();
    }

    /// A write to memory that is itself durable.
    #[cold]
    #[inline(never)]
    fn write_undone_first(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        let at = self.memory.at(address, size);
        // SAFETY: checked by `at`.
        let old = unsafe { load(at, size) };
        self.undo.note(address, size, old);
        // SAFETY: as above.
        let written = self.memory.stores().is_none_or(|stores| unsafe { stores.write(at, size, old, value) });
        if written { Ok(()) } else { Err(Interrupted(())) }
    }
}

impl TxAccess for InPlaceTx {
    #[inline(always)]
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        // SAFETY: checked by `at`.
        Ok(unsafe { load(self.memory.at(address, size), size) })
    }

    #[inline(always)]
    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        if self.undo_first {
            return self.write_undone_first(address, size, value);
        }
        let at = self.memory.at(address, size);
        // SAFETY: checked by `at`.
        unsafe {
            self.undo.note(address, size, load(at, size));
            store(at, size, value);
        }
        Ok(())
    }

    /// Nothing to wait for: no other transaction runs, or the commit aborts those that have read what it wrote; what
    /// they wrote never reaches memory.
    fn privatise(&mut self) {}

    #[inline]
    fn begin_nested(&mut self) {
        self.undo.nest();
    }

    #[inline]
    fn end_nested(&mut self, keeps: bool) {
        self.undo.unnest(keeps, &self.memory);
    }
}
