//! Which of a few lanes a thread uses where threads should not share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lanes of every laned structure.
pub(crate) const LANE_COUNT: usize = 16;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The lane of the calling thread: threads take lanes in turn.
#[inline]
pub(crate) fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(NEXT.fetch_add(1, Ordering::Relaxed) % LANE_COUNT);
        }
        lane.get()
    })
}
