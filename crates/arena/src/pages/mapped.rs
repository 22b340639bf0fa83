//! Memory that a command mapped: whole pages, zero at first, unmapped in any parts. Transactions map nothing, so these
//! calls are for an owner that nothing stops.

use crate::bytes::layout::{PAGE_BYTES, PageBitmap, kind, kind_of};
use crate::heap::ArenaHeap;
use crate::space::{Words, Writes, certain};
use std::sync::atomic::Ordering;

/// Why a mapping was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The region cannot hold it (ENOMEM).
    Full,
    /// The range is not memory that a command mapped (EINVAL).
    NotMapped,
}

impl ArenaHeap {
    /// Maps `len` bytes, rounded up to pages, all zero, at a multiple of `align`.
    ///
    /// # Errors
    /// The region is full.
    pub fn map<W: Writes>(&mut self, w: &mut W, len: usize, align: usize) -> Result<*mut u8, MapError> {
        let pages = pages_of(len).ok_or(MapError::Full)?;
        let (page, zero) =
            certain(self.alloc_run_aligned(w, pages, (align / PAGE_BYTES) as u64)).ok_or(MapError::Full)?;
        certain(self.describe(w, page, pages, kind::MAPPED));
        if !zero {
            certain(self.zero(w, page, pages));
        }
        Ok(self.address(page))
    }

    /// Unmaps the range, which may cover parts of mappings, several of them and free pages.
    ///
    /// # Errors
    /// The range has other memory than mapped or free; nothing changed.
    pub fn unmap<W: Writes>(&mut self, w: &mut W, address: usize, len: usize) -> Result<(), MapError> {
        let (first, end) = self.mapped_pages(address, len, true)?;
        let mut page = first;
        while page < end {
            let start = self.start_of(page);
            let (kind, pages) = self.span_at(start);
            let span_end = start + pages;
            let until = span_end.min(end);
            if kind == kind::MAPPED {
                if until < span_end {
                    certain(self.set_bit(w, PageBitmap::Starts, until, true));
                    certain(self.describe(w, until, span_end - until, kind::MAPPED));
                }
                if page > start {
                    certain(self.describe(w, start, page - start, kind::MAPPED));
                }
                certain(self.free_run(w, page, until - page));
            }
            page = until;
        }
        Ok(())
    }

    /// Makes a mapped range zero again, as a fixed anonymous mapping over it or MADV_DONTNEED does.
    ///
    /// # Errors
    /// The range is not all mapped; nothing changed.
    pub fn map_again<W: Writes>(&mut self, w: &mut W, address: usize, len: usize) -> Result<(), MapError> {
        let (first, end) = self.mapped_pages(address, len, false)?;
        certain(self.zero(w, first, end - first));
        Ok(())
    }

    /// Changes a mapping's length, in place or, if `may_move`, elsewhere; returns its address. Added bytes are zero.
    ///
    /// # Errors
    /// The range is not mapped, or there is no space; nothing changed.
    pub fn remap<W: Writes>(
        &mut self,
        w: &mut W,
        address: usize,
        old_len: usize,
        new_len: usize,
        may_move: bool,
    ) -> Result<*mut u8, MapError> {
        let (first, end) = self.mapped_pages(address, old_len, false)?;
        let pages = pages_of(new_len).ok_or(MapError::Full)?;
        let has = end - first;
        if pages <= has {
            if pages < has {
                self.unmap(w, self.address(first + pages) as usize, (has - pages) as usize * PAGE_BYTES)?;
            }
            return Ok(self.address(first));
        }
        let start = self.start_of(first);
        let (_, whole) = self.span_at(start);
        if start + whole == end
            && let Some(zero) = certain(self.extend_run(w, start, whole, pages - has))
        {
            certain(self.describe(w, start, whole + pages - has, kind::MAPPED));
            if !zero {
                certain(self.zero(w, end, pages - has));
            }
            return Ok(self.address(first));
        }
        if !may_move {
            return Err(MapError::Full);
        }
        let new = self.map(w, new_len, PAGE_BYTES)?;
        let copy = has as usize * PAGE_BYTES;
        // SAFETY: two mappings that do not overlap, each at least `copy` bytes long.
        certain(unsafe { w.copy(self.address(first), new, copy) });
        self.unmap(w, address, copy)?;
        Ok(new)
    }

    /// The pages of a range that is mapped, or, if `or_free`, mapped or free.
    fn mapped_pages(&self, address: usize, len: usize, or_free: bool) -> Result<(u64, u64), MapError> {
        let first = self.page_of(address).ok_or(MapError::NotMapped)?;
        // Compared as pages: the address of the last one does not fit into a word for the longest lengths.
        let end = first + pages_of(len).ok_or(MapError::NotMapped)?;
        if !address.is_multiple_of(PAGE_BYTES) || end > self.view.pages() {
            return Err(MapError::NotMapped);
        }
        let mut page = first;
        while page < end {
            let start = self.start_of(page);
            let (kind, pages) = self.span_at(start);
            if kind != kind::MAPPED && !(or_free && kind == kind::FREE) {
                return Err(MapError::NotMapped);
            }
            page = start + pages;
        }
        Ok((first, end))
    }

    /// Kind and length of the span that starts at `page`.
    fn span_at(&self, page: u64) -> (u8, u64) {
        let span = self.view.span(page);
        // Relaxed: no other thread writes while this one does.
        (kind_of(span.what().load(Ordering::Relaxed)), span.pages().load(Ordering::Relaxed))
    }
}

fn pages_of(len: usize) -> Option<u64> {
    if len == 0 {
        return None;
    }
    Some((len.checked_add(PAGE_BYTES - 1)? / PAGE_BYTES) as u64)
}
