//! Parts of the region that were given back and not provided again: the checkpoint makes holes of their pages.
//!
//! Invariants:
//! 1. A page becomes a hole only under the lock, and while it is in the list; the thread that provides a part reserves
//!    space and takes the part out of the list under the lock. So no space is taken that was reserved for a later
//!    write, and what could not be reserved stays in the list: a checkpoint writes no zeros where there may be no
//!    space.
//! 2. Parts in the list have whole pages, and do not overlap.
//! 3. A checkpoint makes holes of a part only if it applies everything that was written there before the part was
//!    given back. Otherwise an older record that gave the part back would make a hole of it, although space was
//!    reserved since for a write that the next checkpoint applies.

use crate::sync::Mutex;
use crate::{Lsn, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part in the list.
#[derive(Clone, Copy)]
struct Part {
    end: u64,
    /// A checkpoint beyond this position of the log applies everything that was written to the part before it was given
    /// back; each that applies the record which gives it back is one.
    position: Lsn,
}

/// The parts, by their first byte.
#[derive(Default)]
pub(crate) struct Released {
    parts: Mutex<BTreeMap<u64, Part>>,
}

impl Released {
    /// Puts a part into the list. Its record lies at `position` or behind; what was written to it before lies before
    /// `position`, or in the group of its record.
    pub(crate) fn add(&self, part: Range<u64>, position: Lsn) {
        let mut parts = self.parts.lock();
        cut(&mut parts, &part);
        parts.insert(part.start, Part { end: part.end, position });
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
        self.parts.lock().iter().map(|(start, part)| *start..part.end).collect()
    }

    /// Calls `visit` with pieces of `range`, in order, and whether each is in the list with a position before `target`.
    /// Meanwhile no part leaves it.
    pub(crate) fn pieces(
        &self,
        range: Range<u64>,
        target: Lsn,
        mut visit: impl FnMut(Range<u64>, bool) -> Result<()>,
    ) -> Result<()> {
        let parts = self.parts.lock();
        let mut at = range.start;
        for (start, part) in overlapping(&parts, &range) {
            if part.position >= target {
                continue;
            }
            let (start, end) = (start.max(range.start), part.end.min(range.end));
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
fn overlapping(parts: &BTreeMap<u64, Part>, range: &Range<u64>) -> Vec<(u64, Part)> {
    let before = parts.range(..range.start).next_back().filter(|(_, part)| part.end > range.start);
    before.into_iter().chain(parts.range(range.clone())).map(|(start, part)| (*start, *part)).collect()
}

fn cut(parts: &mut BTreeMap<u64, Part>, range: &Range<u64>) {
    for (start, part) in overlapping(parts, range) {
        parts.remove(&start);
        if start < range.start {
            parts.insert(start, Part { end: range.start, ..part });
        }
        if part.end > range.end {
            parts.insert(range.end, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn pieces(released: &Released, range: Range<u64>, target: Lsn) -> Vec<(Range<u64>, bool)> {
        let mut found = Vec::new();
        released
            .pieces(range, target, |piece, is_released| {
                found.push((piece, is_released));
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn what_is_provided_leaves_the_list() {
        let released = Released::default();
        released.add(10..50, 0);
        released.add(50..60, 0);
        released.remove_if(20..30, || Ok(())).unwrap();
        let full = || Err::<(), _>(Error::NoSpace { path: "p".into(), wanted: 1 });
        released.remove_if(0..100, full).unwrap_err();
        assert_eq!(released.parts(), [10..20, 30..50, 50..60]);
        assert_eq!(
            pieces(&released, 15..55, 1),
            [(15..20, true), (20..30, false), (30..50, true), (50..55, true)]
        );
        assert_eq!(pieces(&released, 0..5, 1), [(0..5, false)]);
        assert_eq!(pieces(&released, 55..70, 1), [(55..60, true), (60..70, false)]);
        released.add(15..35, 0);
        assert_eq!(released.parts(), [10..15, 15..35, 35..50, 50..60]);
        released.forget(34..36);
        assert_eq!(released.parts(), [10..15, 50..60]);
    }

    #[test]
    fn a_part_is_no_hole_for_a_checkpoint_that_ends_before_its_position() {
        let released = Released::default();
        released.add(0..40, 100);
        released.add(10..20, 300);
        assert_eq!(pieces(&released, 0..50, 100), [(0..50, false)]);
        let older = [(0..10, true), (10..20, false), (20..40, true), (40..50, false)];
        assert_eq!(pieces(&released, 0..50, 101), older);
        assert_eq!(pieces(&released, 0..50, 300), older);
        let all = [(0..10, true), (10..20, true), (20..40, true), (40..50, false)];
        assert_eq!(pieces(&released, 0..50, 301), all);
        assert_eq!(released.parts(), [0..10, 10..20, 20..40], "whatever their positions");
    }
}
