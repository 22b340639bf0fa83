//! Parts of the region for which the medium may have reserved no space, as recovery finds them.
//!
//! A medium that has space for a page with bytes keeps it over a crash. So only pages that have no bytes in the data
//! file are here: they were given back, or reserved and not written to since, or the log has what was written.

use mangrove_pool::Region;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Parts of a region, by their bytes, in order; no two touch.
pub(crate) struct WithoutSpace {
    parts: Vec<Range<u64>>,
}

impl WithoutSpace {
    /// What the medium of `region` says. O(pages).
    pub(crate) fn of(region: &Region) -> Self {
        let parts = region.medium().without_space().into_iter();
        Self::merged(parts.map(|part| part.offset..part.offset + part.len).collect())
    }

    fn merged(mut parts: Vec<Range<u64>>) -> Self {
        parts.sort_unstable_by_key(|part| part.start);
        parts.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        Self { parts }
    }

    /// The pieces of `range` that lie in parts, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.parts.partition_point(|part| part.end <= range.start);
        let (start, end) = (range.start, range.end);
        let parts = self.parts[first..].iter().take_while(move |part| part.start < end);
        // An empty range has none.
        parts.map(move |part| part.start.max(start)..part.end.min(end)).filter(|piece| !piece.is_empty())
    }
}

/// True when memory shows zeros in `part`, whose ends are multiples of 8.
pub(super) fn is_blank(region: &Region, part: &Range<u64>) -> bool {
    // Relaxed: only recovery's thread uses the region.
    part.clone().step_by(8).all(|at| region.word(at).load(Ordering::Relaxed) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_overlap_or_touch_are_one() {
        let without = WithoutSpace::merged(vec![50..60, 10..30, 20..25, 30..40, 55..58, 80..90]);
        assert_eq!(without.parts, [10..40, 50..60, 80..90]);
        let within = |range| without.within(range).collect::<Vec<_>>();
        assert_eq!(within(0..100), [10..40, 50..60, 80..90]);
        assert_eq!(within(20..55), [20..40, 50..55]);
        for empty in [40..50, 90..95, 5..5, 25..25] {
            assert_eq!(within(empty), []);
        }
    }
}
