//! A filter for compiled code: it passes every address to the transaction, those of its own frames too.
//!
//! An executor refuses addresses outside of its memory, and [`TxAccess`] is safe because of that. A compiler's
//! instrumentation (GCC's transactional memory) cannot always tell a local variable from shared memory. The frames of a
//! transaction's body die with each attempt, and no other thread uses them: accesses there go to memory as they are,
//! without conflict, undo or redo. It costs the executors nothing: a caller that needs the filter puts it in front of
//! one.

use crate::access::{Interrupted, TxAccess, write_in_pieces};
use crate::memory::{load, store};
use std::ops::Range;

/// A transaction whose body may also read and write its own frames.
///
/// What was written there is neither undone nor redone, not even by a nested transaction that halts: a variable that
/// outlives the body, or an attempt of it, lies outside of the frames.
#[derive(Debug)]
pub struct OwnStack<'a, X> {
    tx: &'a mut X,
    first: usize,
    bytes: usize,
}

impl<'a, X: TxAccess> OwnStack<'a, X> {
    /// Puts the filter before `tx`, for the frames at these addresses: from the end of the thread's stack to the frame
    /// that began the transaction.
    ///
    /// # Safety
    /// As long as this value lives, the calling thread alone uses what it accesses there through this value, and the
    /// addresses are mapped, writable memory with exposed provenance. None of them lies in the executor's memory.
    pub unsafe fn new(tx: &'a mut X, frames: Range<usize>) -> Self {
        Self { tx, first: frames.start, bytes: frames.end.saturating_sub(frames.start) }
    }

    /// The place of an access that lies in the frames as a whole.
    #[inline(always)]
    fn own(&self, address: usize, size: usize) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.first);
        (offset < self.bytes && size <= self.bytes - offset)
            .then(|| std::ptr::with_exposed_provenance_mut(address))
    }
}

impl<X: TxAccess> TxAccess for OwnStack<'_, X> {
    #[inline(always)]
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        match self.own(address, size) {
            // SAFETY: inside an aligned word of the frames, which `new`'s caller vouches for.
            Some(at) => Ok(unsafe { load(at, size) }),
            None => self.tx.read_piece(address, size),
        }
    }

    #[inline(always)]
    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        match self.own(address, size) {
            Some(at) => {
                // SAFETY: as above.
                unsafe { store(at, size, value) };
                Ok(())
            }
            None => self.tx.write_piece(address, size, value),
        }
    }

    /// The executor may take long writes as a whole.
    #[inline]
    fn write_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<(), Interrupted> {
        match self.own(address, bytes.len()) {
            Some(_) => write_in_pieces(self, address, bytes),
            None => self.tx.write_bytes(address, bytes),
        }
    }

    fn privatise(&mut self) {
        self.tx.privatise();
    }

    fn begin_nested(&mut self) {
        self.tx.begin_nested();
    }

    fn end_nested(&mut self, keeps: bool) {
        self.tx.end_nested(keeps);
    }
}
