//! A transaction as the owner of the arena's state.

use crate::access::{Interrupted, TxAccess};
use mangrove_arena::Words;
use std::sync::atomic::AtomicU64;

/// Zeros are written in pieces of this size.
const ZEROS: [u8; 4096] = [0; 4096];

/// Loads and stores of the arena go through the transaction.
pub(super) struct TxWords<'a, T>(pub(super) &'a mut T);

impl<T: TxAccess> Words for TxWords<'_, T> {
    type Stop = Interrupted;
    const ALONE: bool = false;

    #[inline]
    fn load(&mut self, word: &AtomicU64) -> Result<u64, Interrupted> {
        self.0.read_piece(word.as_ptr().addr(), 8)
    }

    #[inline]
    #[track_caller]
    fn store(&mut self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        self.0.write_piece(word.as_ptr().addr(), 8, value)
    }

    #[track_caller]
    fn store_all(&mut self, words: &[AtomicU64], values: &[u64]) -> Result<(), Interrupted> {
        words.iter().zip(values).try_for_each(|(word, &value)| self.store(word, value))
    }

    #[track_caller]
    unsafe fn zero(&mut self, at: *mut u8, len: usize) -> Result<(), Interrupted> {
        let mut done = 0;
        while done < len {
            let count = ZEROS.len().min(len - done);
            self.0.write_bytes(at.addr() + done, &ZEROS[..count])?;
            done += count;
        }
        Ok(())
    }

    #[track_caller]
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) -> Result<(), Interrupted> {
        let mut piece = [0; 512];
        let mut done = 0;
        while done < len {
            let count = piece.len().min(len - done);
            self.0.read_bytes(from.addr() + done, &mut piece[..count])?;
            self.0.write_bytes(to.addr() + done, &piece[..count])?;
            done += count;
        }
        Ok(())
    }
}
