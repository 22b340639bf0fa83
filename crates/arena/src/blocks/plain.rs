//! The calls of malloc(3) for an owner that nothing stops: one thread at a time stores and reports.

use crate::blocks::slab::BadFree;
use crate::bytes::class::ALIGN_MIN;
use crate::heap::ArenaHeap;
use crate::space::{Writes, certain};
use crate::view::NoWrites;

impl ArenaHeap {
    /// A block of at least `bytes`, at a multiple of 16; null when the region is full. Its content is
    /// undefined. Zero bytes give a block of their own. O(1); a few nanoseconds up to 16 KiB.
    #[inline]
    pub fn alloc<W: Writes>(&mut self, w: &mut W, bytes: usize) -> *mut u8 {
        certain(self.alloc_in(w, bytes, ALIGN_MIN))
    }

    /// As [`ArenaHeap::alloc`], at a multiple of `align`, a power of two.
    pub fn alloc_aligned<W: Writes>(&mut self, w: &mut W, bytes: usize, align: usize) -> *mut u8 {
        certain(self.alloc_in(w, bytes, align))
    }

    /// As [`ArenaHeap::alloc_aligned`], every byte zero. Pages that were never allocated are zero already, and cost
    /// nothing; others are filled and reported.
    pub fn alloc_zeroed<W: Writes>(&mut self, w: &mut W, bytes: usize, align: usize) -> *mut u8 {
        certain(self.alloc_zeroed_in(w, bytes, align))
    }

    /// Frees the block at `address`. O(1) for small blocks, O(pages / 64) for others.
    ///
    /// # Errors
    /// Why there is no block in use; nothing changed.
    #[inline]
    pub fn free<W: Writes>(&mut self, w: &mut W, address: usize) -> Result<(), BadFree> {
        certain(self.free_in(w, address))
    }

    /// Makes the block at `address` at least `bytes` long and returns its address. The block stays in place if the
    /// size class stays the same, if a large block shrinks, or if the pages after a large one are free. Null when
    /// the region is full; the block is then as before.
    ///
    /// # Errors
    /// Why there is no block in use; nothing changed.
    pub fn resize<W: Writes>(&mut self, w: &mut W, address: usize, bytes: usize) -> Result<*mut u8, BadFree> {
        certain(self.resize_in(w, address, bytes, ALIGN_MIN))
    }

    /// Bytes that may be used of the block at `address`; `None` if no block in use starts there.
    #[must_use]
    pub fn usable_bytes(&self, address: usize) -> Option<usize> {
        certain(self.usable_bytes_in(&mut NoWrites, address))
    }
}
