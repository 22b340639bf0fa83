//! Parts of the region that were given back and not provided again: the checkpoint makes holes of their pages.
//!
//! Invariants:
//! 1. A page becomes a hole only under the lock, and while it is in the list; the thread that provides a part reserves
//!    space and takes the part out of the list under the lock. So no space is taken that was reserved for a later
//!    write, and what could not be reserved stays in the list: a checkpoint writes no zeros where there may be no
//!    space.
//! 2. Parts in the list have whole pages, and do not overlap.

use crate::Result;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// The parts, by their first byte; the value is the end.
#[derive(Default)]
pub(crate) struct Released {
    parts: Mutex<BTreeMap<u64, u64>>,
}

impl Released {
    /// Puts a part into the list.
    pub(crate) fn add(&self, part: Range<u64>) {
        let mut parts = self.parts.lock();
        cut(&mut parts, &part);
        parts.insert(part.start, part.end);
    }

    /// Takes a part out of the list if `reserve` succeeds, during which no page becomes a hole. No page of the part
    /// becomes one from then on.
    pub(crate) fn remove_if<T>(&self, part: Range<u64>, reserve: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut parts = self.parts.lock();
        let reserved = reserve()?;
        cut(&mut parts, &part);
        Ok(reserved)
    }

    /// Takes every part out of the list that has bytes in `range`, whole. For recovery, which does not know what was
    /// provided before the crash: the owner provides a part as a whole before it writes there.
    pub(crate) fn forget(&self, range: Range<u64>) {
        let mut parts = self.parts.lock();
        for (start, _) in overlapping(&parts, &range) {
            parts.remove(&start);
        }
    }

    /// All parts, in order.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        self.parts.lock().iter().map(|(start, end)| *start..*end).collect()
    }

    /// Calls `visit` with pieces of `range`, in order, and whether each is in the list. Meanwhile no part leaves it.
    pub(crate) fn pieces(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Range<u64>, bool) -> Result<()>,
    ) -> Result<()> {
        let parts = self.parts.lock();
        let mut at = range.start;
        for (start, end) in overlapping(&parts, &range) {
            let (start, end) = (start.max(range.start), end.min(range.end));
            if start > at {
                visit(at..start, false)?;
            }
            visit(start..end, true)?;
            at = end;
        }
        if at < range.end { visit(at..range.end, false) } else { Ok(()) }
    }
}

/// The parts that have bytes in `range`.
fn overlapping(parts: &BTreeMap<u64, u64>, range: &Range<u64>) -> Vec<(u64, u64)> {
    let before = parts.range(..range.start).next_back().filter(|(_, end)| **end > range.start);
    before.into_iter().chain(parts.range(range.clone())).map(|(start, end)| (*start, *end)).collect()
}

fn cut(parts: &mut BTreeMap<u64, u64>, range: &Range<u64>) {
    for (start, end) in overlapping(parts, range) {
        parts.remove(&start);
        if start < range.start {
            parts.insert(start, range.start);
        }
        if end > range.end {
            parts.insert(range.end, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn pieces(released: &Released, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut found = Vec::new();
        released
            .pieces(range, |piece, is_released| {
                found.push((piece, is_released));
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn what_is_provided_leaves_the_list() {
        let released = Released::default();
        released.add(10..50);
        released.add(50..60);
        released.remove_if(20..30, || Ok(())).unwrap();
        let full = || Err::<(), _>(Error::NoSpace { path: "p".into(), wanted: 1 });
        released.remove_if(0..100, full).unwrap_err();
        assert_eq!(released.parts(), [10..20, 30..50, 50..60]);
        assert_eq!(
            pieces(&released, 15..55),
            [(15..20, true), (20..30, false), (30..50, true), (50..55, true)]
        );
        assert_eq!(pieces(&released, 0..5), [(0..5, false)]);
        assert_eq!(pieces(&released, 55..70), [(55..60, true), (60..70, false)]);
        released.add(15..35);
        assert_eq!(released.parts(), [10..15, 15..35, 35..50, 50..60]);
        released.forget(34..36);
        assert_eq!(released.parts(), [10..15, 50..60]);
    }
}
