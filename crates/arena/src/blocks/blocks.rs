//! The arena's blocks for any owner of the writes: any size, any alignment, zeroed, freed. `plain.rs` has the same
//! calls for owners that nothing stops.

use crate::blocks::slab::BadFree;
use crate::bytes::class::{ALIGN_MIN, SMALL_BYTES_MAX, class_of};
use crate::bytes::layout::{PAGE_BYTES, class_of_span, kind, kind_of, what};
use crate::heap::ArenaHeap;
use crate::space::Words;

impl ArenaHeap {
    /// A block of at least `bytes`, at a multiple of `align`, a power of two, and of 16; null when the region is full.
    /// Its content is undefined. Zero bytes give a block of their own. O(1); up to 16 KiB two to five words are read,
    /// and one is written, of the handle's own shard.
    ///
    /// # Errors
    /// [`Words::Stop`].
    #[inline]
    pub fn alloc_in<W: Words>(&mut self, w: &mut W, bytes: usize, align: usize) -> Result<*mut u8, W::Stop> {
        debug_assert!(align.is_power_of_two());
        if align <= ALIGN_MIN && bytes <= SMALL_BYTES_MAX {
            return self.slab_alloc(w, class_of(bytes));
        }
        self.alloc_odd(w, bytes, align)
    }

    fn alloc_odd<W: Words>(&mut self, w: &mut W, bytes: usize, align: usize) -> Result<*mut u8, W::Stop> {
        match Self::class_aligned(bytes, align) {
            Some(class) => self.slab_alloc(w, class),
            None => Ok(self.large(w, bytes, align)?.map_or(std::ptr::null_mut(), |(at, _)| at)),
        }
    }

    /// As [`ArenaHeap::alloc_in`], every byte zero. Pages that were never allocated are zero already, and cost nothing
    /// where nothing is undone; others are filled.
    ///
    /// # Errors
    /// As there.
    pub fn alloc_zeroed_in<W: Words>(
        &mut self,
        w: &mut W,
        bytes: usize,
        align: usize,
    ) -> Result<*mut u8, W::Stop> {
        let (at, zero) = if bytes <= SMALL_BYTES_MAX && align <= PAGE_BYTES {
            (self.alloc_in(w, bytes, align)?, false)
        } else {
            match self.large(w, bytes, align)? {
                Some(got) => got,
                None => return Ok(std::ptr::null_mut()),
            }
        };
        if !at.is_null() && !zero {
            // SAFETY: the block is ours and at least this long.
            unsafe { w.zero(at, bytes) }?;
        }
        Ok(at)
    }

    fn large<W: Words>(
        &mut self,
        w: &mut W,
        bytes: usize,
        align: usize,
    ) -> Result<Option<(*mut u8, bool)>, W::Stop> {
        let Some(bytes) = bytes.checked_add(PAGE_BYTES - 1) else { return Ok(None) };
        let pages = (bytes / PAGE_BYTES).max(1) as u64;
        let run = if align <= PAGE_BYTES {
            self.alloc_shard_run(w, pages)?
        } else {
            self.alloc_run_aligned(w, pages, (align / PAGE_BYTES) as u64)?
        };
        let Some((page, zero)) = run else { return Ok(None) };
        self.describe(w, page, pages, kind::LARGE)?;
        Ok(Some((self.address(page), zero)))
    }

    pub(crate) fn describe<W: Words>(
        &mut self,
        w: &mut W,
        page: u64,
        pages: u64,
        kind: u8,
    ) -> Result<(), W::Stop> {
        let view = self.view;
        let entry = view.span_of(w, page)?;
        w.store_all(&entry.links, &[what(kind, 0), pages, 0, 0])
    }

    /// Frees the block at `address`. O(1) for small blocks, O(pages / 64) for others. A block that this or another
    /// handle allocated; the slab of a small one stays in its shard, or comes to this handle's if it was full.
    ///
    /// The block may be allocated again as soon as the owner's writes are visible. Their owner makes sure that no
    /// transaction that began before that still reads the block.
    ///
    /// # Errors
    /// [`Words::Stop`]; inside, why there is no block in use to be freed: nothing changed.
    #[inline]
    pub fn free_in<W: Words>(&mut self, w: &mut W, address: usize) -> Result<Result<(), BadFree>, W::Stop> {
        let view = self.view;
        let Some(page) = view.page_in(w, address)? else { return Ok(Err(BadFree::Outside)) };
        let (start, span) = view.start_span(w, page)?;
        let what = w.load(span.what())?;
        if kind_of(what) == kind::SLAB {
            return self.slab_free(w, (start, span), what, address);
        }
        self.free_large(w, start, kind_of(what), address)
    }

    #[cold]
    fn free_large<W: Words>(
        &mut self,
        w: &mut W,
        start: u64,
        kind: u8,
        address: usize,
    ) -> Result<Result<(), BadFree>, W::Stop> {
        if matches!(kind, kind::FREE | kind::RESERVE) && address.is_multiple_of(ALIGN_MIN) {
            return Ok(Err(BadFree::Double));
        }
        if kind != kind::LARGE || self.address(start) as usize != address {
            return Ok(Err(BadFree::NotABlock));
        }
        let view = self.view;
        let entry = view.span_of(w, start)?;
        let pages = w.load(entry.pages())?;
        self.free_run(w, start, pages)?;
        Ok(Ok(()))
    }

    /// Bytes that may be used of the block at `address`; `None` if no block in use starts there.
    ///
    /// # Errors
    /// [`Words::Stop`].
    pub fn usable_bytes_in<W: Words>(&self, w: &mut W, address: usize) -> Result<Option<usize>, W::Stop> {
        let view = self.view;
        let Some(page) = view.page_in(w, address)? else { return Ok(None) };
        let (start, span) = view.start_span(w, page)?;
        let (what, pages) = (w.load(span.what())?, w.load(span.pages())?);
        let bytes = view.usable_of(start, what, pages, address, view.pages_in(w)?);
        if kind_of(what) == kind::SLAB
            && bytes.is_some()
            && !self.slab_in_use(w, start, class_of_span(what), address)?
        {
            return Ok(None);
        }
        Ok(bytes)
    }

    /// Why no block in use starts at `address`.
    #[cold]
    pub(crate) fn why_no_block<W: Words>(&self, w: &mut W, address: usize) -> Result<BadFree, W::Stop> {
        let view = self.view;
        let Some(page) = view.page_in(w, address)? else { return Ok(BadFree::Outside) };
        let (start, span) = view.start_span(w, page)?;
        let (what, pages) = (w.load(span.what())?, w.load(span.pages())?);
        let was_block = match kind_of(what) {
            kind::FREE | kind::RESERVE => address.is_multiple_of(ALIGN_MIN),
            kind::SLAB => view.usable_of(start, what, pages, address, view.pages_in(w)?).is_some(),
            _ => false,
        };
        Ok(if was_block { BadFree::Double } else { BadFree::NotABlock })
    }
}
