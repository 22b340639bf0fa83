//! In which pages something was freed: a filter that may say so of other pages, too.

use crate::bytes::layout::PAGE_BYTES;

/// Bits of the filter: 4 KiB of memory, for batches of some thousand frees.
const BITS: usize = 1 << 15;
/// A run of more pages counts as everything: its bits would cost more than they spare.
const RUN_PAGES_MAX: usize = 64;

/// One bit for each page, by its number modulo their count.
pub(crate) struct FreedPages {
    words: Box<[u64; BITS / 64]>,
    /// A long run was freed.
    everything: bool,
    is_empty: bool,
}

impl FreedPages {
    pub(crate) fn new() -> Self {
        Self { words: Box::new([0; BITS / 64]), everything: false, is_empty: true }
    }

    /// Something was freed in the pages of `[address, address + bytes)`.
    #[inline]
    pub(crate) fn note(&mut self, address: usize, bytes: usize) {
        let (first, last) = (address / PAGE_BYTES, (address + bytes.max(1) - 1) / PAGE_BYTES);
        self.is_empty = false;
        if last - first >= RUN_PAGES_MAX {
            self.everything = true;
            return;
        }
        for page in first..=last {
            self.words[page % BITS / 64] |= 1 << (page % 64);
        }
    }

    /// Whether something may have been freed in the pages of `[address, address + bytes)`.
    #[inline]
    pub(crate) fn may_hold(&self, address: usize, bytes: usize) -> bool {
        let (first, last) = (address / PAGE_BYTES, (address + bytes.max(1) - 1) / PAGE_BYTES);
        self.everything
            || last - first >= RUN_PAGES_MAX
            || (first..=last).any(|page| self.words[page % BITS / 64] >> (page % 64) & 1 == 1)
    }

    /// Nothing was freed.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty {
            self.words.fill(0);
            (self.everything, self.is_empty) = (false, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BITS, FreedPages, PAGE_BYTES, RUN_PAGES_MAX};

    #[test]
    fn it_knows_the_pages_of_what_was_freed() {
        let mut freed = FreedPages::new();
        let page = |number: usize| 0x1f80_0000_0000 + number * PAGE_BYTES;
        freed.note(page(5) + 100, 32);
        freed.note(page(70) + 4000, 200);
        let found = |freed: &FreedPages| -> Vec<usize> {
            (0..200).filter(|&number| freed.may_hold(page(number), PAGE_BYTES)).collect()
        };
        assert_eq!(found(&freed), [5, 70, 71]);
        assert!(freed.may_hold(page(3) + 8, 3 * PAGE_BYTES), "a range that reaches page 5");
        assert!(freed.may_hold(page(5 + BITS), 16), "pages so far apart share a bit");
        freed.clear();
        assert_eq!(found(&freed), [0; 0]);
        freed.note(page(1000), (RUN_PAGES_MAX + 1) * PAGE_BYTES);
        assert_eq!(found(&freed).len(), 200, "after a long run everything may be free");
        freed.clear();
        assert_eq!(found(&freed), [0; 0]);
    }
}
