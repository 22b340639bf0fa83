//! The arena's blocks with the interface of malloc(3): any size, any alignment, zeroed, freed.

use crate::class::{ALIGN_MIN, SMALL_BYTES_MAX, class_of};
use crate::heap::Heap;
use crate::layout::{PAGE_BYTES, kind};
use crate::slab::BadFree;
use crate::space::Writes;

impl Heap {
    /// A block of at least `bytes`, at a multiple of 16; null when the region is full. Its content is
    /// undefined. Zero bytes give a block of their own. O(1); a few nanoseconds up to 16 KiB.
    #[inline]
    pub fn alloc<W: Writes>(&mut self, w: &mut W, bytes: usize) -> *mut u8 {
        if bytes <= SMALL_BYTES_MAX {
            self.slab_alloc(w, class_of(bytes))
        } else {
            self.large(w, bytes, PAGE_BYTES).map_or(std::ptr::null_mut(), |(at, _)| at)
        }
    }

    /// As [`Heap::alloc`], at a multiple of `align`, a power of two.
    pub fn alloc_aligned<W: Writes>(&mut self, w: &mut W, bytes: usize, align: usize) -> *mut u8 {
        debug_assert!(align.is_power_of_two());
        if align <= ALIGN_MIN {
            return self.alloc(w, bytes);
        }
        match Self::class_aligned(bytes, align) {
            Some(class) => self.slab_alloc(w, class),
            None => self.large(w, bytes, align).map_or(std::ptr::null_mut(), |(at, _)| at),
        }
    }

    /// As [`Heap::alloc_aligned`], every byte zero. Pages that were never allocated are zero already, and cost
    /// nothing; others are filled and reported.
    pub fn alloc_zeroed<W: Writes>(&mut self, w: &mut W, bytes: usize, align: usize) -> *mut u8 {
        let (at, zero) = if bytes <= SMALL_BYTES_MAX && align <= PAGE_BYTES {
            (self.alloc_aligned(w, bytes, align), false)
        } else {
            match self.large(w, bytes, align) {
                Some(got) => got,
                None => return std::ptr::null_mut(),
            }
        };
        if !at.is_null() && !zero {
            // SAFETY: the block is ours and at least this long.
            unsafe { std::ptr::write_bytes(at, 0, bytes) };
            w.wrote(at as usize, bytes);
        }
        at
    }

    fn large<W: Writes>(&mut self, w: &mut W, bytes: usize, align: usize) -> Option<(*mut u8, bool)> {
        let pages = (bytes.checked_add(PAGE_BYTES - 1)? / PAGE_BYTES).max(1) as u64;
        let (page, zero) = self.alloc_run_aligned(w, pages, (align / PAGE_BYTES) as u64)?;
        self.describe(w, page, pages, kind::LARGE);
        Some((self.address(page), zero))
    }

    pub(crate) fn describe<W: Writes>(&mut self, w: &mut W, page: u64, pages: u64, kind: u8) {
        let span = self.span_mut(page);
        (span.kind, span.class, span.zero) = (kind, 0, [0; 6]);
        (span.pages, span.next, span.prev) = (pages, 0, 0);
        self.report_links(w, page);
    }

    /// Frees the block at `address`. O(1) for small blocks, O(pages / 64) for others.
    ///
    /// # Errors
    /// No block starts there, or it is free already; nothing changed.
    #[inline]
    pub fn free<W: Writes>(&mut self, w: &mut W, address: usize) -> Result<(), BadFree> {
        let page = self.page_of(address).ok_or(BadFree::NotABlock)?;
        let start = self.start_of(page);
        let span = self.span(start);
        if span.kind == kind::SLAB {
            return self.slab_free(w, start, address);
        }
        let (kind, pages) = (span.kind, span.pages);
        self.free_large(w, start, kind, pages, address)
    }

    #[cold]
    fn free_large<W: Writes>(
        &mut self,
        w: &mut W,
        start: u64,
        kind: u8,
        pages: u64,
        address: usize,
    ) -> Result<(), BadFree> {
        if kind == kind::FREE {
            return Err(BadFree::Double);
        }
        if kind != kind::LARGE || self.address(start) as usize != address {
            return Err(BadFree::NotABlock);
        }
        self.free_run(w, start, pages);
        Ok(())
    }

    /// Bytes that may be used of the block at `address`; `None` if no block in use starts there.
    pub fn usable_bytes(&self, address: usize) -> Option<usize> {
        let start = self.start_of(self.page_of(address)?);
        if self.span(start).kind == kind::SLAB && !self.slab_in_use(start, address) {
            return None;
        }
        self.view.usable_bytes(address)
    }
}
