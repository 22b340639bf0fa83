//! Free runs by length: exact up to 64 pages, eight bins to a doubling beyond.

use crate::bytes::layout::{BIN_COUNT, kind, what};
use crate::heap::ArenaHeap;
use crate::space::Words;

/// Runs that are looked at, in a bin that holds shorter and longer ones, before the region grows.
const LOOK_MAX: usize = 32;

/// The bin that a run of `pages` belongs in.
fn bin_of(pages: u64) -> usize {
    if pages <= 64 {
        return pages as usize - 1;
    }
    let e = pages.ilog2();
    let sub = (pages >> (e - 3)) & 7;
    (64 + (e as usize - 6) * 8 + sub as usize).min(BIN_COUNT - 1)
}

/// The first bin whose every run has at least `pages`.
fn bin_that_fits(pages: u64) -> usize {
    if pages <= 64 {
        return pages as usize - 1;
    }
    let below = (1 << (pages.ilog2() - 3)) - 1;
    bin_of(pages) + usize::from(pages & below != 0)
}

impl ArenaHeap {
    /// Takes a free run of at least `pages` out of its bin. O(1), apart from a look along one bin.
    pub(crate) fn bin_take<W: Words>(
        &mut self,
        w: &mut W,
        pages: u64,
    ) -> Result<Option<(u64, u64)>, W::Stop> {
        let view = self.view;
        // The last bin has runs of every length from its first one on.
        let first = if bin_of(pages) == BIN_COUNT - 1 { BIN_COUNT } else { bin_that_fits(pages) };
        let mut found = 0;
        for (word, used) in view.head().bins_used.iter().enumerate().skip(first / 64) {
            let has = w.load(used)?;
            let bits = if word == first / 64 { has & (!0 << (first % 64)) } else { has };
            if bits != 0 {
                found = w.load(&view.head().bins[word * 64 + bits.trailing_zeros() as usize])?;
                break;
            }
        }
        if found == 0 && bin_of(pages) != first {
            let mut next = w.load(&view.head().bins[bin_of(pages)])?;
            for _ in 0..LOOK_MAX {
                if next == 0 {
                    break;
                }
                let span = view.span_of(w, next - 1)?;
                if w.load(span.pages())? >= pages {
                    found = next;
                    break;
                }
                next = w.load(span.next())?;
            }
        }
        let Some(page) = found.checked_sub(1) else { return Ok(None) };
        let entry = view.span_of(w, page)?;
        let has = w.load(entry.pages())?;
        self.bin_remove(w, page)?;
        Ok(Some((page, has)))
    }

    /// Puts a free run in front of its bin. Kind and pages of its entry are set here.
    pub(crate) fn bin_add<W: Words>(&mut self, w: &mut W, page: u64, pages: u64) -> Result<(), W::Stop> {
        let view = self.view;
        let bin = bin_of(pages);
        let next = w.load(&view.head().bins[bin])?;
        let entry = view.span_of(w, page)?;
        w.store_all(&entry.links, &[what(kind::FREE, 0), pages, next, 0])?;
        let entry = view.span_of(w, page + pages - 1)?;
        w.store(&entry.free[0], pages)?;
        if next != 0 {
            let entry = view.span_of(w, next - 1)?;
            w.store(entry.prev(), page + 1)?;
        }
        self.set_bin(w, bin, page + 1)
    }

    pub(crate) fn bin_remove<W: Words>(&mut self, w: &mut W, page: u64) -> Result<(), W::Stop> {
        let entry = self.view.span_of(w, page)?;
        let pages = w.load(entry.pages())?;
        match self.unlink(w, page)? {
            Some(head) => self.set_bin(w, bin_of(pages), head),
            None => Ok(()),
        }
    }

    fn set_bin<W: Words>(&mut self, w: &mut W, bin: usize, first: u64) -> Result<(), W::Stop> {
        let head = self.head();
        w.store(&head.bins[bin], first)?;
        let bit = 1 << (bin % 64);
        let used = &head.bins_used[bin / 64];
        let old = w.load(used)?;
        let new = if first == 0 { old & !bit } else { old | bit };
        if new != old {
            w.store(used, new)?;
        }
        Ok(())
    }
}

/// The bin of a run of `pages`, for the check.
pub(crate) fn bin_for_audit(pages: u64) -> usize {
    bin_of(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitting_bin_holds_only_runs_that_fit() {
        for pages in (1..5000).chain((0..400).map(|i| 5000 + i * 7919)) {
            let fits = bin_that_fits(pages);
            assert!(bin_of(pages) <= fits && fits <= bin_of(pages) + 1);
            for more in [pages, pages + 1, pages + pages / 9, pages * 2, pages * 5] {
                assert!(bin_of(more) + 1 >= fits);
            }
            for less in [pages - 1, pages * 8 / 9, pages / 2] {
                assert!(less == 0 || less == pages || bin_of(less) < fits, "{less} {pages}");
            }
        }
    }
}
