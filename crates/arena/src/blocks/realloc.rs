//! Blocks that change their size, in place where they can.

use crate::blocks::slab::BadFree;
use crate::bytes::class::SMALL_BYTES_MAX;
use crate::bytes::layout::{PAGE_BYTES, kind, kind_of};
use crate::heap::ArenaHeap;
use crate::space::Words;

impl ArenaHeap {
    /// As [`ArenaHeap::resize`], for any owner of the writes. A block that moves goes to a multiple of `align`, a power
    /// of two, at which it was allocated.
    ///
    /// # Errors
    /// [`Words::Stop`]; inside, why there is no block in use: nothing changed.
    pub fn resize_in<W: Words>(
        &mut self,
        w: &mut W,
        address: usize,
        bytes: usize,
        align: usize,
    ) -> Result<Result<*mut u8, BadFree>, W::Stop> {
        let view = self.view;
        let (Some(has), Some(page)) = (self.usable_bytes_in(w, address)?, view.page_in(w, address)?) else {
            return Ok(Err(self.why_no_block(w, address)?));
        };
        let start = view.start_in(w, page)?;
        let at = self.address(0).wrapping_add(address - self.base_address());
        let entry = view.span_of(w, start)?;
        if kind_of(w.load(entry.what())?) == kind::SLAB {
            // A block that shrinks moves only if that saves half of it.
            if bytes <= has && (has <= 64 || bytes > has / 2) {
                return Ok(Ok(at));
            }
        } else if bytes > SMALL_BYTES_MAX && self.resize_large(w, start, bytes)? {
            return Ok(Ok(at));
        }
        let new = self.alloc_in(w, bytes, align)?;
        if !new.is_null() {
            // SAFETY: two different blocks in use, each at least this long, the second one fresh.
            unsafe { w.copy(at, new, has.min(bytes)) }?;
            if let Err(why) = self.free_in(w, address)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(new))
    }

    fn resize_large<W: Words>(&mut self, w: &mut W, start: u64, bytes: usize) -> Result<bool, W::Stop> {
        let view = self.view;
        let span = view.span_of(w, start)?;
        let has = w.load(span.pages())?;
        let Some(bytes) = bytes.checked_add(PAGE_BYTES - 1) else { return Ok(false) };
        let pages = (bytes / PAGE_BYTES) as u64;
        if pages > has && self.extend_run(w, start, has, pages - has)?.is_none() {
            return Ok(false);
        }
        if pages != has {
            let kind = kind_of(w.load(span.what())?);
            self.describe(w, start, pages, kind)?;
        }
        if pages < has {
            self.free_run(w, start + pages, has - pages)?;
        }
        Ok(true)
    }
}
