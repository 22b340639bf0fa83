//! The page bitmaps: one bit a page.

use crate::bytes::layout::{GROUP_PAGES, PageBitmap};
use crate::heap::ArenaHeap;
use crate::space::Words;

impl ArenaHeap {
    /// Whether a page's bit is set, in the owner's snapshot.
    #[inline]
    pub(crate) fn bit_in<W: Words>(&self, w: &mut W, map: PageBitmap, page: u64) -> Result<bool, W::Stop> {
        let at = (page % GROUP_PAGES) as usize;
        let word = &self.view.group_of(w, page)?.bits(map)[at / 64];
        Ok(w.load(word)? >> (at % 64) & 1 == 1)
    }

    pub(crate) fn set_bit<W: Words>(
        &mut self,
        w: &mut W,
        map: PageBitmap,
        page: u64,
        on: bool,
    ) -> Result<(), W::Stop> {
        let at = (page % GROUP_PAGES) as usize;
        let word = &self.view.group_of(w, page)?.bits(map)[at / 64];
        let old = w.load(word)?;
        let new = if on { old | 1 << (at % 64) } else { old & !(1 << (at % 64)) };
        if new != old {
            w.store(word, new)?;
        }
        Ok(())
    }

    /// Marks pages as allocated. Returns whether they are zero, because none of them ever was before.
    pub(crate) fn touch<W: Words>(&mut self, w: &mut W, first: u64, pages: u64) -> Result<bool, W::Stop> {
        let mut untouched = true;
        let (mut page, end) = (first, first + pages);
        while page < end {
            let at = page % 64;
            let count = (64 - at).min(end - page);
            let mask = (!0u64 >> (64 - count)) << at;
            let word = &self.view.group_of(w, page)?.touched[((page % GROUP_PAGES) / 64) as usize];
            let old = w.load(word)?;
            untouched &= old & mask == 0;
            if old | mask != old {
                w.store(word, old | mask)?;
            }
            page += count;
        }
        // A transaction that was undone may have written to pages that count as untouched again.
        Ok(untouched && W::ALONE)
    }
}
