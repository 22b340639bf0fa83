//! What the arena needs from outside: a region that only grows, and the owner of the writes to it.
//!
//! The arena reads and writes its state through [`Words`] alone. There are two kinds of owners. A durable application
//! has one writer at a time, which stores and reports what it stored: [`Writes`], and every such receiver is a
//! [`Words`]. A transaction reads a consistent snapshot, and its writes take effect together or not at all; it may
//! have to end in the middle of a call, which [`Words::Stop`] carries out.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives reports of changed bytes. The bytes themselves are read when the batch is committed, so a range may be
/// reported before or after it is written, and more than once.
pub trait Writes {
    /// `len` bytes from address `ptr` on were, or are about to be, written. The crash simulator can silence each
    /// call site.
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize);
}

/// Reads and writes the arena's state for its owner. A word is named by its place in the region; it is atomic because
/// threads that write nothing look blocks up meanwhile ([`crate::ArenaView`]).
///
/// After `Err(Stop)` of any method the arena's call ends with that error at once, and what it wrote so far must be
/// undone: the state in between breaks the arena's rules.
pub trait Words {
    /// Why a call ends early; [`Infallible`] where nothing is undone.
    type Stop;

    /// True: no other handle changes the arena while this owner does, and nothing is ever undone. So the handle may
    /// remember words, and pages that were never allocated read as zero.
    ///
    /// False for transactions: each call reads every word that it decides by, and a page of which the state says
    /// that it was never allocated may hold what a transaction wrote before it was undone.
    const ALONE: bool;

    /// The word's value, of the owner's snapshot and after its own writes.
    ///
    /// # Errors
    /// `Stop`: the owner has to be undone.
    fn load(&mut self, word: &AtomicU64) -> Result<u64, Self::Stop>;

    /// Changes the word.
    ///
    /// # Errors
    /// As [`Words::load`].
    #[track_caller]
    fn store(&mut self, word: &AtomicU64, value: u64) -> Result<(), Self::Stop>;

    /// Changes neighbouring words, as many as there are values.
    ///
    /// # Errors
    /// As [`Words::load`].
    #[track_caller]
    fn store_all(&mut self, words: &[AtomicU64], values: &[u64]) -> Result<(), Self::Stop>;

    /// Fills memory with zeroes. It was free, or is part of a mapping that its user gives up: no other thread uses
    /// it.
    ///
    /// # Errors
    /// As [`Words::load`].
    ///
    /// # Safety
    /// The range lies in the region, in memory that the caller allocated.
    #[track_caller]
    unsafe fn zero(&mut self, at: *mut u8, len: usize) -> Result<(), Self::Stop>;

    /// Copies the content of one block into another one, which was free until now.
    ///
    /// # Errors
    /// As [`Words::load`].
    ///
    /// # Safety
    /// Two ranges of the region that do not overlap; the caller owns the block at `from` and allocated that at `to`.
    #[track_caller]
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) -> Result<(), Self::Stop>;
}

impl<W: Writes> Words for W {
    type Stop = Infallible;
    const ALONE: bool = true;

    #[inline]
    fn load(&mut self, word: &AtomicU64) -> Result<u64, Infallible> {
        // Relaxed: the one writer reads what it wrote, or what its predecessor wrote, after which it came.
        Ok(word.load(Ordering::Relaxed))
    }

    #[inline]
    #[track_caller]
    fn store(&mut self, word: &AtomicU64, value: u64) -> Result<(), Infallible> {
        // Relaxed: see `ArenaView` for what other threads read, and when.
        word.store(value, Ordering::Relaxed);
        self.wrote(word.as_ptr() as usize, 8);
        Ok(())
    }

    #[inline]
    #[track_caller]
    fn store_all(&mut self, words: &[AtomicU64], values: &[u64]) -> Result<(), Infallible> {
        debug_assert_eq!(words.len(), values.len());
        for (word, &value) in words.iter().zip(values) {
            // Relaxed: as in `store`.
            word.store(value, Ordering::Relaxed);
        }
        self.wrote(words.as_ptr() as usize, size_of_val(words));
        Ok(())
    }

    #[inline]
    #[track_caller]
    unsafe fn zero(&mut self, at: *mut u8, len: usize) -> Result<(), Infallible> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(at, 0, len) };
        self.wrote(at as usize, len);
        Ok(())
    }

    #[inline]
    #[track_caller]
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) -> Result<(), Infallible> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        self.wrote(to as usize, len);
        Ok(())
    }
}

/// What a call returns that nothing can stop.
#[inline]
pub(crate) fn certain<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

/// The region: one range of addresses that never moves.
#[expect(clippy::len_without_is_empty, reason = "whether a region is empty is no question")]
pub trait ArenaSpace: Send {
    /// The first byte. The same in every run that opens this region.
    fn base(&self) -> *mut u8;

    /// Bytes that may be touched now.
    fn len(&self) -> u64;

    /// Bytes that the region can ever have.
    fn capacity(&self) -> u64;

    /// Makes the region at least `len` bytes long. New bytes read as zero, also after a crash that comes before the
    /// commit of the batch that uses them. It is not undone with the transaction that asked for it.
    ///
    /// # Errors
    /// No space, or the medium's failure; the region is then as before.
    fn grow(&mut self, len: u64) -> io::Result<()>;

    /// Reserves space for a usable range of whole pages in which something will be handed out: its content may have
    /// been taken away since it was last used ([`crate::ArenaHeap::free_pages`]).
    ///
    /// # Errors
    /// No space, or the medium's failure.
    fn provide(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }
}
