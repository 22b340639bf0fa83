//! One bit for each page of a region: threads that flush set it, and the thread that writes the page takes it.
//!
//! Invariant: a page whose bit is taken after a thread has set it shows what that thread had stored before.

use crate::Result;
use crate::format::page_sums::PAGE_BYTES;
use crate::limits::cannot_map;
use mangrove_sys::Reservation;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages whose bits share a word.
pub(super) const WORD_PAGES: u64 = u64::BITS as u64;

/// The marks of a region's pages.
pub(super) struct PageMarks {
    memory: Reservation,
}

impl PageMarks {
    /// No page is marked, of a region of `capacity` bytes. `path` is the pool.
    ///
    /// # Errors
    /// `MemoryLimit`: the process may not have so much address space.
    pub(super) fn new(path: &Path, capacity: u64) -> Result<Self> {
        let words = capacity.div_ceil(PAGE_BYTES as u64 * WORD_PAGES);
        let len = (words as usize * size_of::<u64>()).next_multiple_of(PAGE_BYTES);
        let memory = Reservation::anonymous(len).map_err(|e| cannot_map(path, len as u64, &e))?;
        Ok(Self { memory })
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        let at = index as usize * size_of::<u64>();
        assert!(at + size_of::<u64>() <= self.memory.len(), "a mark beyond the region");
        // SAFETY: inside the reservation (asserted), aligned, and only accessed atomically.
        unsafe { AtomicU64::from_ptr(self.memory.base().as_ptr().add(at).cast()) }
    }

    /// Marks the pages of `len` bytes at `offset`; returns how many were not marked before.
    #[inline]
    pub(super) fn mark(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (mut page, last) = (offset / PAGE_BYTES as u64, (offset + len - 1) / PAGE_BYTES as u64);
        let mut marked = 0;
        while page <= last {
            let word = page / WORD_PAGES;
            let end = last.min(word * WORD_PAGES + WORD_PAGES - 1);
            let bits = u64::MAX >> (WORD_PAGES - 1 - (end - page)) << (page % WORD_PAGES);
            // Release pairs with the Acquire in `take`: what was stored to the pages before.
            let before = self.word(word).fetch_or(bits, Ordering::Release);
            marked += u64::from((bits & !before).count_ones());
            page = end + 1;
        }
        marked
    }

    /// The marks of 64 pages, which are not marked any more.
    pub(super) fn take(&self, word: u64) -> u64 {
        if self.get(word) == 0 {
            return 0;
        }
        // Acquire pairs with the Release in `mark`.
        self.word(word).swap(0, Ordering::Acquire)
    }

    /// The marks of 64 pages.
    pub(super) fn get(&self, word: u64) -> u64 {
        // Relaxed: `take` looks again.
        self.word(word).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_marks_its_pages_and_no_other() {
        let page = PAGE_BYTES as u64;
        for (offset, len, first, count) in [
            (0, 1, 0, 1),
            (page - 1, 2, 0, 2),
            (3 * page, page, 3, 1),
            (62 * page + 5, 3 * page, 62, 4),
            (64 * page, 128 * page, 64, 128),
            (7, 0, 0, 0),
        ] {
            let marks = PageMarks::new(Path::new("p"), 256 * page).unwrap();
            assert_eq!(marks.mark(offset, len), count);
            assert_eq!(marks.mark(offset, len), 0, "again");
            for at in 0..256 {
                let is_marked = marks.get(at / WORD_PAGES) >> (at % WORD_PAGES) & 1 == 1;
                assert_eq!(is_marked, (first..first + count).contains(&at), "page {at} of {offset}+{len}");
            }
            assert_eq!((0..4).map(|word| u64::from(marks.take(word).count_ones())).sum::<u64>(), count);
            assert!((0..4).all(|word| marks.get(word) == 0));
        }
    }
}
