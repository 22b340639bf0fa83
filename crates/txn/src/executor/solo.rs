//! When a thread asks for solo mode.
//!
//! A thread that has committed often enough asks the gate whether any other thread has begun a transaction since it
//! last asked. If not, it runs alone from then on, without ownership records, until another thread comes: ending
//! solo mode costs that one some microseconds. Each refusal doubles the time to the next question, and a solo mode that
//! has lasted makes it short again.

use super::gate::{Gate, Slot};

/// Commits between two questions at most.
const COMMITS_MAX: u32 = 1 << 16;

/// One thread's view on whether it is the only one.
#[derive(Debug)]
pub(crate) struct SoloWatch {
    /// Commits until the next question; the largest number is never.
    left: u32,
    first_interval: u32,
    interval: u32,
    /// Transactions that other threads had begun, when this thread asked.
    others: u64,
    /// This thread's solo commits, when it asked.
    solo_commits: u64,
}

impl SoloWatch {
    /// A thread that first asks after so many commits, or never.
    pub(crate) fn new(after: Option<u32>) -> Self {
        let first_interval = after.map_or(u32::MAX, |commits| commits.clamp(1, COMMITS_MAX));
        Self { left: first_interval, first_interval, interval: first_interval, others: 0, solo_commits: 0 }
    }

    /// Counts a commit beside others; true when it is time to ask.
    #[inline(always)]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= u32::from(self.left != u32::MAX);
        self.left == 0
    }

    /// Asks; the thread runs alone from then on if the answer is yes. It runs no transaction now, and has had
    /// `solo_commits` in all.
    #[cold]
    pub(crate) fn ask(&mut self, gate: &Gate, slot: &Slot, solo_commits: u64, sleeping: impl Fn() -> bool) {
        if solo_commits - self.solo_commits > u64::from(self.interval) {
            self.interval = self.first_interval;
        }
        self.solo_commits = solo_commits;
        if !gate.try_solo(slot, &mut self.others, sleeping) {
            self.interval = (self.interval * 2).min(COMMITS_MAX);
        }
        self.left = self.interval;
    }
}
