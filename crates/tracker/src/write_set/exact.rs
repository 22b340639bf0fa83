//! Address ranges in which the caller wants the written bytes exactly, not as blocks.
//!
//! The variables of a module lie side by side: some are written by commands, and others must never be restored. A
//! block that covers both would restore both.

/// Sorted, disjoint ranges, and a table of pages that answers most questions with a quick "no".
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactRanges {
    /// (first byte, byte after the last), sorted, disjoint.
    ranges: Vec<(usize, usize)>,
    /// One byte for each page number modulo the length; empty if there are no ranges.
    pages: Vec<u8>,
    /// Differs for every new content; 0 only for no ranges at all.
    version: u64,
}

const PAGE_SLOTS: usize = 4096;

impl ExactRanges {
    pub(crate) fn new(ranges: &[(usize, usize)]) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        static VERSION: AtomicU64 = AtomicU64::new(1);
        let mut sorted: Vec<_> =
            ranges.iter().filter(|r| r.1 > 0).map(|&(addr, len)| (addr, addr.saturating_add(len))).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(sorted.len());
        for (lo, hi) in sorted {
            match merged.last_mut() {
                Some(last) if lo <= last.1 => last.1 = last.1.max(hi),
                _ => merged.push((lo, hi)),
            }
        }
        let mut pages = Vec::new();
        if !merged.is_empty() {
            pages = vec![0; PAGE_SLOTS];
            for &(lo, hi) in &merged {
                for page in lo >> 12..=(hi - 1) >> 12 {
                    pages[page % PAGE_SLOTS] = 1;
                }
            }
        }
        let version = if merged.is_empty() { 0 } else { VERSION.fetch_add(1, Relaxed) };
        Self { ranges: merged, pages, version }
    }

    /// The ranges as (first byte, byte after the last).
    pub(crate) fn spans(&self) -> &[(usize, usize)] {
        &self.ranges
    }

    /// The range that has this byte; an empty one if there is none.
    pub(crate) fn span_of(&self, byte: usize) -> (usize, usize) {
        let at = self.ranges.partition_point(|range| range.1 <= byte);
        self.ranges.get(at).copied().filter(|range| range.0 <= byte).unwrap_or((usize::MAX, 0))
    }

    /// Names this content.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// False only if [lo, hi) surely touches no exact range.
    #[inline]
    pub(crate) fn may_touch(&self, lo: usize, hi: usize) -> bool {
        if self.pages.is_empty() {
            return false;
        }
        let (first, last) = (lo >> 12, (hi - 1) >> 12);
        last - first >= PAGE_SLOTS || (first..=last).any(|page| self.pages[page % PAGE_SLOTS] != 0)
    }

    /// Does [lo, hi) touch an exact range?
    pub(crate) fn touch(&self, lo: usize, hi: usize) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= lo);
        self.ranges.get(at).is_some_and(|range| range.0 < hi)
    }

    /// Cuts [lo, hi) at the borders of the exact ranges: `each(lo, hi, exact)`.
    pub(crate) fn split(&self, mut lo: usize, hi: usize, mut each: impl FnMut(usize, usize, bool)) {
        let mut idx = self.ranges.partition_point(|r| r.1 <= lo);
        while lo < hi {
            match self.ranges.get(idx) {
                Some(&(from, to)) if from < hi => {
                    if lo < from {
                        each(lo, from, false);
                    }
                    let (a, b) = (lo.max(from), hi.min(to));
                    each(a, b, true);
                    lo = b;
                    idx += 1;
                }
                _ => {
                    each(lo, hi, false);
                    break;
                }
            }
        }
    }
}
