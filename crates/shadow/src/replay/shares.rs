//! Lines of the durable copy that hold applied bytes and are not flushed, by the share of the logs whose atomic groups
//! changed them first.
//!
//! The logs are freed share by share, the oldest first. What the oldest share changed is then flushed, with everything
//! that later shares did to the same lines: so a line is flushed once for all that came while its first change went
//! through the log, whole rings later.
//!
//! Where several threads apply, each has the lines of its own stripes. Shares are closed and taken for all of them in
//! one step of the replayer, so the n-th share of each thread's lines is the n-th of `Shares`.
//!
//! Invariants:
//! 1. A line that was stored to since it was last flushed is in `all`, and in exactly one share: the one during which
//!    it came into `all`.
//! 2. Every change of an atomic group lies in lines of its share, or of an older one, or was flushed after it.

use crate::replay::lines::LineSet;
use std::collections::VecDeque;

/// Atomic groups that follow each other in the order of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Where each log's atomic groups of it end.
    pub(crate) positions: Vec<u64>,
    /// The number of its last one.
    pub(crate) upto: u64,
}

/// The shares that were applied and not freed.
#[derive(Default)]
pub(crate) struct Shares {
    closed: VecDeque<Share>,
    /// Bytes of log that belong to the open share.
    open_bytes: u64,
}

impl Shares {
    /// Adds bytes of log to the open share.
    #[inline]
    pub(crate) fn grow(&mut self, log_bytes: u64) {
        self.open_bytes += log_bytes;
    }

    /// Bytes of log of the open share.
    #[inline]
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// True when every share was freed.
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open_bytes == 0
    }

    /// Whether a share can be taken.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Shares that can be taken.
    pub(crate) fn closed_count(&self) -> usize {
        self.closed.len()
    }

    /// Ends the open share, if it has atomic groups; true if it had some.
    pub(crate) fn close(&mut self, positions: &[u64], upto: u64) -> bool {
        let has_some = self.open_bytes > 0;
        if has_some {
            self.closed.push_back(Share { positions: positions.to_vec(), upto });
            self.open_bytes = 0;
        }
        has_some
    }

    /// Takes the oldest of the closed shares.
    pub(crate) fn take_oldest(&mut self) -> Option<Share> {
        self.closed.pop_front()
    }

    /// Takes all closed shares as one. There is no open one.
    pub(crate) fn take_all(&mut self) -> Option<Share> {
        assert!(self.open_bytes == 0, "the open share was closed");
        let last = self.closed.pop_back();
        self.closed.clear();
        last
    }
}

/// The lines of the shares, of one thread.
#[derive(Default)]
pub(crate) struct ShareLines {
    all: LineSet,
    closed: VecDeque<LineSet>,
    open: LineSet,
    /// Empty sets with the memory that they had grown to.
    spare: Vec<LineSet>,
}

impl ShareLines {
    /// Adds a range that was stored to; it belongs to the open share.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, len: u64) {
        self.all.insert_into(offset, len, &mut self.open);
    }

    /// Ends the open share.
    pub(crate) fn close(&mut self) {
        let lines = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        self.closed.push_back(lines);
    }

    /// Takes the oldest of the closed shares, and passes its lines (offset, bytes) to `flush` by address.
    pub(crate) fn take_oldest(&mut self, flush: impl FnMut(u64, u64)) {
        let mut lines = self.closed.pop_front().expect("a closed share");
        lines.drain_from(&mut self.all, flush);
        self.spare.push(lines);
    }

    /// Takes all closed shares, as `take_oldest`. There is no open one.
    pub(crate) fn take_all(&mut self, flush: impl FnMut(u64, u64)) {
        self.closed.clear();
        // Of one share the lines need not be found twice.
        self.all.drain(flush);
        self.spare.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(take: impl FnOnce(&mut dyn FnMut(u64, u64))) -> Vec<(u64, u64)> {
        let mut lines = Vec::new();
        take(&mut |offset, len| lines.push((offset, len)));
        lines
    }

    #[test]
    fn a_line_is_flushed_with_the_first_share_that_changed_it_and_again_when_changed_after() {
        let mut lines = ShareLines::default();
        let change = |lines: &mut ShareLines, offset| lines.insert(offset, 8);
        change(&mut lines, 0);
        change(&mut lines, 640);
        lines.close();
        change(&mut lines, 8);
        change(&mut lines, 128);
        lines.close();
        assert_eq!(taken(|flush| lines.take_oldest(flush)), [(0, 64), (640, 64)]);
        change(&mut lines, 0);
        lines.close();
        assert_eq!(taken(|flush| lines.take_oldest(flush)), [(128, 64)], "line 0 went with share 1");
        assert_eq!(taken(|flush| lines.take_oldest(flush)), [(0, 64)]);
        change(&mut lines, 64);
        lines.close();
        change(&mut lines, 0);
        change(&mut lines, 64);
        lines.close();
        assert_eq!(taken(|flush| lines.take_all(flush)), [(0, 128)]);
        change(&mut lines, 64);
        lines.close();
        assert_eq!(taken(|flush| lines.take_oldest(flush)), [(64, 64)]);
    }

    #[test]
    fn shares_are_freed_in_order_and_an_empty_one_is_none() {
        let mut shares = Shares::default();
        assert!(shares.is_empty() && !shares.close(&[0], 0) && shares.take_all().is_none());
        for upto in 1..=4 {
            shares.grow(64);
            assert!(shares.close(&[upto * 64], upto) && !shares.close(&[upto * 64], upto));
        }
        assert_eq!(shares.take_oldest(), Some(Share { positions: vec![64], upto: 1 }));
        assert_eq!(shares.take_all(), Some(Share { positions: vec![256], upto: 4 }));
        assert!(shares.is_empty() && shares.take_oldest().is_none());
    }
}
