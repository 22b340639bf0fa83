//! Lines of the durable copy that hold applied bytes and are not flushed, by the share of the logs whose atomic groups
//! changed them first.
//!
//! The logs are freed share by share, the oldest first. What the oldest share changed is then flushed, with everything
//! that later shares did to the same lines: so a line is flushed once for all that came while its first change went
//! through the log, whole rings later.
//!
//! Invariants:
//! 1. A line that was stored to since it was last flushed is in `all`, and in exactly one share: the one during which
//!    it came into `all`.
//! 2. Every change of an atomic group lies in lines of its share, or of an older one, or was flushed after it.

use crate::lines::LineSet;
use std::collections::VecDeque;

/// Atomic groups that follow each other in the order of numbers.
pub(crate) struct Share {
    /// Where each log's atomic groups of it end.
    pub(crate) positions: Vec<u64>,
    /// The number of its last one.
    pub(crate) upto: u64,
    lines: LineSet,
}

/// The shares that were applied and not freed.
#[derive(Default)]
pub(crate) struct Shares {
    all: LineSet,
    closed: VecDeque<Share>,
    open: LineSet,
    /// Bytes of log that belong to the open share.
    open_bytes: u64,
    /// Empty sets with the memory that they had grown to.
    spare: Vec<LineSet>,
}

impl Shares {
    /// Adds a range that was stored to; it belongs to the open share.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, len: u64) {
        self.all.insert_into(offset, len, &mut self.open);
    }

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

    /// Ends the open share, if it has atomic groups.
    pub(crate) fn close(&mut self, positions: &[u64], upto: u64) {
        if self.open_bytes > 0 {
            let lines = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
            self.closed.push_back(Share { positions: positions.to_vec(), upto, lines });
            self.open_bytes = 0;
        }
    }

    /// Takes the oldest of the closed shares, and passes its lines (offset, bytes) to `flush` by address.
    pub(crate) fn take_oldest(&mut self, flush: impl FnMut(u64, u64)) -> Option<Share> {
        let mut share = self.closed.pop_front()?;
        share.lines.drain_from(&mut self.all, flush);
        self.spare.push(std::mem::take(&mut share.lines));
        Some(share)
    }

    /// Takes all closed shares as one, as `take_oldest`. There is no open one.
    pub(crate) fn take_all(&mut self, flush: impl FnMut(u64, u64)) -> Option<Share> {
        assert!(self.open_bytes == 0, "the open share was closed");
        let last = self.closed.pop_back()?;
        self.closed.clear();
        // Of one share the lines need not be found twice.
        self.all.drain(flush);
        self.spare.clear();
        Some(Share { lines: LineSet::default(), ..last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(take: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Option<Share>) -> (u64, Vec<(u64, u64)>) {
        let mut lines = Vec::new();
        let share = take(&mut |offset, len| lines.push((offset, len)));
        (share.expect("a share").upto, lines)
    }

    #[test]
    fn a_line_is_flushed_with_the_first_share_that_changed_it_and_again_when_changed_after() {
        let mut shares = Shares::default();
        let change = |shares: &mut Shares, offset| {
            shares.insert(offset, 8);
            shares.grow(64);
        };
        change(&mut shares, 0);
        change(&mut shares, 640);
        shares.close(&[64], 1);
        change(&mut shares, 8);
        change(&mut shares, 128);
        shares.close(&[128], 2);
        assert_eq!(freed(|flush| shares.take_oldest(flush)), (1, vec![(0, 64), (640, 64)]));
        change(&mut shares, 0);
        shares.close(&[192], 3);
        shares.close(&[192], 3);
        assert_eq!(
            freed(|flush| shares.take_oldest(flush)),
            (2, vec![(128, 64)]),
            "line 0 went with share 1"
        );
        assert_eq!(freed(|flush| shares.take_oldest(flush)), (3, vec![(0, 64)]));
        assert!(shares.is_empty() && shares.take_oldest(|_, _| {}).is_none());
        change(&mut shares, 64);
        shares.close(&[256], 4);
        change(&mut shares, 0);
        change(&mut shares, 64);
        shares.close(&[320], 5);
        assert_eq!(freed(|flush| shares.take_all(flush)), (5, vec![(0, 128)]));
        change(&mut shares, 64);
        shares.close(&[384], 6);
        assert_eq!(freed(|flush| shares.take_oldest(flush)), (6, vec![(64, 64)]));
    }
}
