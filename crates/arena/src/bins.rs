//! Free runs by length: exact up to 64 pages, eight bins to a doubling beyond.

use crate::heap::Heap;
use crate::layout::{BIN_COUNT, kind};
use crate::space::Writes;

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

impl Heap {
    /// Takes a free run of at least `pages` out of its bin. O(1), apart from a look along one bin.
    pub(crate) fn bin_take<W: Writes>(&mut self, w: &mut W, pages: u64) -> Option<(u64, u64)> {
        let first = bin_that_fits(pages);
        let used = self.head().bins_used;
        let mut found = None;
        for (word, &has) in used.iter().enumerate().skip(first / 64) {
            let bits = if word == first / 64 { has & (!0 << (first % 64)) } else { has };
            if bits != 0 {
                found = Some(self.head().bins[word * 64 + bits.trailing_zeros() as usize] - 1);
                break;
            }
        }
        if found.is_none() && bin_of(pages) != first {
            let mut next = self.head().bins[bin_of(pages)];
            for _ in 0..LOOK_MAX {
                if next == 0 {
                    break;
                }
                if self.span(next - 1).pages >= pages {
                    found = Some(next - 1);
                    break;
                }
                next = self.span(next - 1).next;
            }
        }
        let page = found?;
        let has = self.span(page).pages;
        self.bin_remove(w, page);
        Some((page, has))
    }

    /// Puts a free run in front of its bin. Kind and pages of its entry are set here.
    pub(crate) fn bin_add<W: Writes>(&mut self, w: &mut W, page: u64, pages: u64) {
        let bin = bin_of(pages);
        let next = self.head().bins[bin];
        let span = self.span_mut(page);
        (span.kind, span.class, span.pages, span.next, span.prev) = (kind::FREE, 0, pages, next, 0);
        self.report_links(w, page);
        let last = self.span_mut(page + pages - 1);
        last.free[0] = pages;
        let at = std::ptr::from_ref(&last.free) as usize;
        w.wrote(at, 8);
        if next != 0 {
            self.span_mut(next - 1).prev = page + 1;
            self.report_links(w, next - 1);
        }
        self.set_bin(w, bin, page + 1);
    }

    pub(crate) fn bin_remove<W: Writes>(&mut self, w: &mut W, page: u64) {
        let pages = self.span(page).pages;
        if let Some(head) = self.unlink(w, page) {
            self.set_bin(w, bin_of(pages), head);
        }
    }

    fn set_bin<W: Writes>(&mut self, w: &mut W, bin: usize, first: u64) {
        let head = self.head_mut();
        head.bins[bin] = first;
        let bit = 1 << (bin % 64);
        let used = &mut head.bins_used[bin / 64];
        let old = *used;
        *used = if first == 0 { old & !bit } else { old | bit };
        let (changed, at) = (*used != old, std::ptr::from_ref(used) as usize);
        let slot = std::ptr::from_ref(&head.bins[bin]) as usize;
        w.wrote(slot, 8);
        if changed {
            w.wrote(at, 8);
        }
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
