//! A set of pages of the working copy.

use mangrove_pool::Region;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// Words of a part of a set, for 128 MiB of pages.
const PART_WORDS: usize = 512;

/// What is known of pages that the owner does not use.
pub(crate) struct FreeSpace {
    /// They may have no space. Changed only by the holder of the lock.
    pub(crate) without_space: PageSet,
    /// They were released since opening, and not provided again.
    pub(crate) released: Mutex<PageSet>,
}

impl FreeSpace {
    pub(crate) fn of(region: &Region) -> Self {
        let without_space = PageSet::new(region.len());
        let parts = region.medium().without_space().into_iter();
        parts.for_each(|part| without_space.add(part.offset..part.offset + part.len));
        Self { without_space, released: Mutex::new(PageSet::new(region.len())) }
    }
}

/// A set of pages: a bit for each, in parts that exist once they have a page. One thread at a time changes it; others
/// may ask meanwhile.
pub(crate) struct PageSet(Box<[OnceLock<Box<[AtomicU64; PART_WORDS]>>]>);

impl PageSet {
    /// No page of a region of so many bytes.
    fn new(bytes: u64) -> Self {
        let parts = bytes.div_ceil(64 * PAGE).div_ceil(PART_WORDS as u64);
        Self((0..parts).map(|_| OnceLock::new()).collect())
    }

    /// The word of a page; none if no page of its part was ever in the set.
    #[inline]
    fn word(&self, page: u64) -> Option<&AtomicU64> {
        let at = page as usize / 64;
        self.0[at / PART_WORDS].get().map(|part| &part[at % PART_WORDS])
    }

    fn has(&self, page: u64) -> bool {
        // Relaxed: the lock orders the changes; see `meets` for those who have none.
        self.word(page).is_some_and(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
    }

    /// Whether a page of `part` is in the set.
    #[inline]
    pub(crate) fn meets(&self, part: Range<u64>) -> bool {
        let Range { start, end } = pages(part);
        let mut from = start;
        while from < end {
            let next = (from / 64 + 1) * 64;
            let mask = u64::MAX << (from % 64) & u64::MAX >> (next - end.min(next));
            // Acquire pairs with the Release in `remove`: what was done before a page left the set has happened.
            if self.word(from).is_some_and(|word| word.load(Ordering::Acquire) & mask != 0) {
                return true;
            }
            from = next;
        }
        false
    }

    pub(crate) fn add(&self, part: Range<u64>) {
        for page in pages(part) {
            let at = page as usize / 64;
            let part =
                self.0[at / PART_WORDS].get_or_init(|| Box::new([const { AtomicU64::new(0) }; PART_WORDS]));
            // Relaxed: the owner, who uses nothing of it meanwhile, tells its other threads.
            part[at % PART_WORDS].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, part: Range<u64>) {
        for page in pages(part) {
            if let Some(word) = self.word(page) {
                // Release pairs with the Acquire in `meets`.
                word.fetch_and(!(1 << (page % 64)), Ordering::Release);
            }
        }
    }

    /// The longest runs of pages of `part` that are in the set, or are not.
    pub(crate) fn runs(&self, part: Range<u64>, in_set: bool) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in pages(part).filter(|&page| self.has(page) == in_set) {
            match runs.last_mut() {
                Some(run) if run.end == page * PAGE => run.end += PAGE,
                _ => runs.push(page * PAGE..(page + 1) * PAGE),
            }
        }
        runs
    }
}

fn pages(part: Range<u64>) -> Range<u64> {
    part.start / PAGE..part.end.div_ceil(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(page: u64, pages: u64) -> Range<u64> {
        page * PAGE..(page + pages) * PAGE
    }

    #[test]
    fn runs_are_the_longest_inside_and_outside() {
        let set = PageSet::new(1000 * PAGE);
        set.add(part(3, 130));
        set.remove(part(60, 10));
        assert_eq!(set.runs(part(0, 200), true), [part(3, 57), part(70, 63)]);
        assert_eq!(set.runs(part(0, 200), false), [part(0, 3), part(60, 10), part(133, 67)]);
        assert_eq!(set.runs(part(100, 5), true), [part(100, 5)]);
        set.remove(part(0, 1000));
        assert_eq!(set.runs(part(0, 200), true), []);
    }

    #[test]
    fn a_part_meets_the_set_where_it_has_a_page_of_it() {
        const PART_PAGES: u64 = 64 * PART_WORDS as u64;
        let set = PageSet::new((PART_PAGES + 100) * PAGE);
        for page in [0, 63, 64, 130, 299].map(|page| page + PART_PAGES - 200) {
            set.add(part(page, 1));
            for from in PART_PAGES - 210..PART_PAGES + 100 {
                let fits = |count: &u64| from + count <= PART_PAGES + 100;
                for count in [0, 1, 2, 63, 64, 65, 200].into_iter().filter(fits) {
                    let expected = (from..from + count).contains(&page);
                    assert_eq!(set.meets(part(from, count)), expected, "{page} in {count} from {from}");
                }
            }
            set.remove(part(page, 1));
        }
    }
}
