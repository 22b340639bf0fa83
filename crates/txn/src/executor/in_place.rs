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
}

impl InPlaceTx {
    pub(super) fn new(memory: TxMemory) -> Self {
        Self { memory, undo: UndoLog::new() }
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
