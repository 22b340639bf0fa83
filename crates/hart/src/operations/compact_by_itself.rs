//! Compaction by itself, in the background, when it would give back a good part of the space in use.
//!
//! It runs while no snapshot lives, so that it takes nothing from one, and only where the medium gives space back. It
//! pauses three times as long as a batch took, and its batches are a third of those of [`Hart::compact`]: a writer
//! seldom waits for one.

use crate::hart::Hart;
use crate::operations::compact::Pace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of the space in use, the part that must come back.
const PART: u64 = 4;
/// Time from the wake-up of the thread to its look at the map: a caller that deletes usually deletes more.
const SETTLE: Duration = Duration::from_millis(200);
/// Time between two looks at whether a snapshot lives, while a compaction waits.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(10);
/// A compaction that has begun waits for snapshots so many times, and then ends.
const SNAPSHOT_PAUSES: u32 = 200;
/// Pause after a batch, in times that it took.
const REST: u32 = 3;

impl Hart {
    /// Compacts as [`Hart::compact`] does whenever at least `bytes_min` bytes, and a quarter of the space in use, would
    /// come back. Returns when `ended` is true (see [`Hart::wake_compaction`]), or when the medium fails. For a thread
    /// of its own.
    pub fn compact_by_itself(&self, bytes_min: u64, ended: &AtomicBool) {
        let has_ended = || ended.load(Ordering::Acquire);
        let garbage = &self.alloc.garbage;
        let segment_bytes = self.space.geometry.segment_bytes();
        garbage.pause(SETTLE, has_ended);
        while !has_ended() {
            let seen = garbage.freed();
            let gain = self.alloc.gain();
            let wanted = bytes_min.max(gain.used * segment_bytes / PART);
            let gained = (gain.sparse + gain.free) * segment_bytes;
            if gained >= wanted {
                while self.has_snapshots() {
                    if has_ended() {
                        return;
                    }
                    garbage.pause(SETTLE, has_ended);
                }
                match self.compact_gently(&has_ended) {
                    Ok(true) => {}
                    Ok(false) => {
                        garbage.pause(SETTLE, has_ended);
                        continue;
                    }
                    Err(_) => return,
                }
            }
            // Also where a compaction gained less than it seemed to: a damaged record stays where it is.
            garbage.wait(seen.saturating_add(wanted / 2), has_ended);
            garbage.pause(SETTLE, has_ended);
        }
    }

    /// Has the thread in [`Hart::compact_by_itself`] look whether it is to return.
    pub fn wake_compaction(&self) {
        self.alloc.garbage.notify();
    }

    /// A compaction with pauses. False when it ended before it was done.
    fn compact_gently(&self, has_ended: &dyn Fn() -> bool) -> crate::Result<bool> {
        let is_whole = Cell::new(true);
        let between = |took: Duration| {
            let pause = |time| self.alloc.garbage.pause(time, has_ended);
            pause(took * REST);
            let mut left = SNAPSHOT_PAUSES;
            while left > 0 && self.has_snapshots() && !self.is_to_end(has_ended) {
                pause(SNAPSHOT_PAUSE);
                left -= 1;
            }
            is_whole.set(left > 0 && !self.is_to_end(has_ended));
            is_whole.get()
        };
        let _alone = self.compacting.lock();
        self.compact_alone(&Pace { moves_max: 16, seen_max: 500, between: &between })?;
        // It may have ended before a writer found room: then it is not done.
        Ok(is_whole.get() && !self.alloc.moving().is_cut_off)
    }

    fn has_snapshots(&self) -> bool {
        self.snapshots.figures().0 > 0
    }

    /// True when a caller waits for a compaction of its own, too.
    fn is_to_end(&self, has_ended: &dyn Fn() -> bool) -> bool {
        // Relaxed: late is soon enough.
        has_ended() || self.compactions_asked.load(Ordering::Relaxed) > 0
    }
}
