//! The page bitmaps: one bit a page. A word that changes is reported.

use std::sync::atomic::Ordering;

use crate::heap::Heap;
use crate::layout::{GROUP_PAGES, PageBitmap};
use crate::space::Writes;

impl Heap {
    #[inline]
    pub(crate) fn bit(&self, map: PageBitmap, page: u64) -> bool {
        let at = (page % GROUP_PAGES) as usize;
        // Relaxed: only the thread that allocates changes them; other threads ask only about their own blocks'
        // pages.
        self.view.bits(map, page)[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
    }

    pub(crate) fn set_bit<W: Writes>(&mut self, w: &mut W, map: PageBitmap, page: u64, on: bool) {
        let at = (page % GROUP_PAGES) as usize;
        let word = &self.view.bits(map, page)[at / 64];
        let old = word.load(Ordering::Relaxed);
        let new = if on { old | 1 << (at % 64) } else { old & !(1 << (at % 64)) };
        if new != old {
            word.store(new, Ordering::Relaxed);
            w.wrote(word.as_ptr() as usize, 8);
        }
    }

    /// Marks pages as allocated. Returns whether none of them ever was before.
    pub(crate) fn touch<W: Writes>(&mut self, w: &mut W, first: u64, pages: u64) -> bool {
        let mut untouched = true;
        let (mut page, end) = (first, first + pages);
        while page < end {
            let at = page % 64;
            let count = (64 - at).min(end - page);
            let mask = (!0u64 >> (64 - count)) << at;
            let word = &self.view.bits(PageBitmap::Touched, page)[((page % GROUP_PAGES) / 64) as usize];
            let old = word.load(Ordering::Relaxed);
            untouched &= old & mask == 0;
            if old | mask != old {
                word.store(old | mask, Ordering::Relaxed);
                w.wrote(word.as_ptr() as usize, 8);
            }
            page += count;
        }
        untouched
    }
}
