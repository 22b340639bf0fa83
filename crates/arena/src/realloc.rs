//! Blocks that change their size, in place where they can.

use crate::class::SMALL_BYTES_MAX;
use crate::heap::Heap;
use crate::layout::{PAGE_BYTES, kind};
use crate::slab::BadFree;
use crate::space::Writes;

impl Heap {
    /// Makes the block at `address` at least `bytes` long and returns its address. The block stays in place if the
    /// size class stays the same, if a large block shrinks, or if the pages after a large one are free. Null when
    /// the region is full; the block is then as before.
    ///
    /// # Errors
    /// No block in use starts there; nothing changed.
    pub fn resize<W: Writes>(&mut self, w: &mut W, address: usize, bytes: usize) -> Result<*mut u8, BadFree> {
        let page = self.page_of(address).ok_or(BadFree::NotABlock)?;
        let start = self.start_of(page);
        let has = self.usable_bytes(address).ok_or(BadFree::NotABlock)?;
        let at = self.address(0).wrapping_add(address - self.base_address());
        if self.span(start).kind == kind::SLAB {
            // A block that shrinks moves only if that saves half of it.
            if bytes <= has && (has <= 64 || bytes > has / 2) {
                return Ok(at);
            }
        } else if bytes > SMALL_BYTES_MAX && self.resize_large(w, start, bytes) {
            return Ok(at);
        }
        let new = self.alloc(w, bytes);
        if !new.is_null() {
            let copy = has.min(bytes);
            // SAFETY: two different blocks in use, each at least `copy` bytes long.
            unsafe { std::ptr::copy_nonoverlapping(at, new, copy) };
            w.wrote(new as usize, copy);
            self.free(w, address)?;
        }
        Ok(new)
    }

    fn resize_large<W: Writes>(&mut self, w: &mut W, start: u64, bytes: usize) -> bool {
        let has = self.span(start).pages;
        let Some(bytes) = bytes.checked_add(PAGE_BYTES - 1) else { return false };
        let pages = (bytes / PAGE_BYTES) as u64;
        if pages > has && self.extend_run(w, start, has, pages - has).is_none() {
            return false;
        }
        if pages != has {
            let kind = self.span(start).kind;
            self.describe(w, start, pages, kind);
        }
        if pages < has {
            self.free_run(w, start + pages, has - pages);
        }
        true
    }
}
