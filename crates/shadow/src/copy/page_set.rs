//! A set of pages of the working copy.

use mangrove_pool::Region;
use std::ops::Range;

const PAGE: u64 = 4096;

/// What is known of pages that the owner does not use.
pub(crate) struct FreeSpace {
    /// They may have no space.
    pub(crate) without_space: PageSet,
    /// They were released since opening, and not provided again.
    pub(crate) released: PageSet,
}

impl FreeSpace {
    pub(crate) fn of(region: &Region) -> Self {
        Self { without_space: PageSet::without_space(region), released: PageSet::default() }
    }
}

/// A set of pages: a bit for each.
#[derive(Default)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    /// The pages of the region that may have no space.
    fn without_space(region: &Region) -> Self {
        let mut set = Self::default();
        region
            .medium()
            .without_space()
            .into_iter()
            .for_each(|part| set.add(part.offset..part.offset + part.len));
        set
    }

    fn has(&self, page: u64) -> bool {
        self.0.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    pub(crate) fn add(&mut self, part: Range<u64>) {
        for page in pages(part) {
            let at = page as usize / 64;
            if self.0.len() <= at {
                self.0.resize(at + 1, 0);
            }
            self.0[at] |= 1 << (page % 64);
        }
    }

    pub(crate) fn remove(&mut self, part: Range<u64>) {
        for page in pages(part) {
            if let Some(word) = self.0.get_mut(page as usize / 64) {
                *word &= !(1 << (page % 64));
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
        let mut set = PageSet::default();
        set.add(part(3, 130));
        set.remove(part(60, 10));
        assert_eq!(set.runs(part(0, 200), true), [part(3, 57), part(70, 63)]);
        assert_eq!(set.runs(part(0, 200), false), [part(0, 3), part(60, 10), part(133, 67)]);
        assert_eq!(set.runs(part(100, 5), true), [part(100, 5)]);
        set.remove(part(0, 1000));
        assert_eq!(set.runs(part(0, 200), true), []);
    }
}
