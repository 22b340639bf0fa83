//! The replayer: applies published atomic groups to the durable copy, in the order of their numbers, and frees
//! their space.
//!
//! Source: Fig. 4 of the Mangosteen paper. Two fences each time that space is freed: the first makes the durable copy
//! durable, the second the heads. Deviations: applying and freeing are apart. Atomic groups are applied soon after they
//! were published, and stay in the log until it is nearly full, or its writers rest; a line that many of them changed
//! is flushed once (`shares.rs`). Several logs are merged by number. Several threads may apply (`crew.rs`): one merges
//! and frees, and each applies, flushes and fences what lies in its own stripes of the durable copy.
//!
//! Invariants:
//! 1. Only atomic groups up to the watermark are applied (`handover.rs`): each is durable, and so are all before
//!    it. A crash that keeps some of what was applied and not flushed harms nothing: recovery applies it again.
//! 2. Durable-order: the durable copy before the heads, whichever thread flushed it (`part.rs`). Otherwise a crash
//!    would find records gone and the copy old.
//! 3. Durable-order: in each log's line `upto` before `head` (stores to one line persist in their order): whatever
//!    heads survive, the greatest `upto` among all logs is at least the number of every atomic group that is gone.
//!    Otherwise recovery would take such an atomic group for one that was never published, and drop all after it.

use crate::layout::{IN_LOG_HEAD, IN_LOG_UPTO, ShadowLayout};
use crate::replay::crew::Crew;
use crate::replay::handover::Handover;
use crate::replay::merge::FirstUnits;
use crate::replay::part::{Done, Frees, ReplayPart, StepEnd};
use crate::replay::shares::{Share, Shares};
use crate::replay::stripes::AllStripes;
use mangrove_pool::Region;
use std::sync::atomic::Ordering;

/// A share has so many bytes of the logs: one part in 16 of a ring. Space is freed in such pieces.
pub(crate) const SHARES: u64 = 16;
/// Shares of a ring in use above which the oldest is freed.
const SHARES_KEPT: u64 = 13;

/// What a step of the replayer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Logs with space for their writers; as few flushes as possible.
    Space,
    /// Empty logs.
    Empty,
}

/// What a step of the replayer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayStep {
    /// There was nothing to do.
    Nothing,
    /// It applied all that was published.
    AllApplied,
    /// It applied or freed a whole share: there may be more.
    Share,
}

/// Who applies.
enum Appliers {
    /// The thread that merges, while it does.
    One(Box<ReplayPart<AllStripes>>),
    /// Several threads, what was merged before.
    Many(Crew),
}

/// The state of replaying, for one thread at a time.
pub(crate) struct Replayer {
    /// For each log, the position of the next atomic group to be applied.
    positions: Vec<u64>,
    /// The number of the last atomic group applied.
    reached: u64,
    /// The callers number the atomic groups: numbers have gaps, and those of two logs may be equal.
    stamped: bool,
    /// The number of the last atomic group applied, durably.
    applied: u64,
    first: FirstUnits,
    shares: Shares,
    appliers: Appliers,
    /// Atomic groups, and bytes of ranges, applied; bytes of lines flushed; how often space was freed.
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) batches: u64,
}

impl Replayer {
    pub(crate) fn new(positions: Vec<u64>, applied: u64, stamped: bool) -> Self {
        Self {
            first: FirstUnits::new(positions.len(), stamped),
            positions,
            reached: applied,
            stamped,
            applied,
            shares: Shares::default(),
            appliers: Appliers::One(Box::new(ReplayPart::new(AllStripes))),
            units: 0,
            bytes: 0,
            flushed_bytes: 0,
            batches: 0,
        }
    }

    /// Before the first step: several threads apply.
    pub(crate) fn set_crew(&mut self, crew: Crew) {
        self.appliers = Appliers::Many(crew);
    }

    /// Ends the threads. Steps may follow.
    pub(crate) fn stop_crew(&mut self) {
        if let Appliers::Many(crew) = &mut self.appliers {
            crew.stop();
        }
    }

    /// The number of the last atomic group in the durable copy, durably.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// True when all that was applied is durable in the durable copy.
    pub(crate) fn is_settled(&self) -> bool {
        self.shares.is_empty()
    }

    /// True when something was published that was not applied.
    pub(crate) fn is_behind(&self, handover: &Handover) -> bool {
        self.positions.iter().enumerate().any(|(log, &position)| position < handover.tail(log))
    }

    /// Applies at most a share, and frees space if `aim` asks for some.
    pub(crate) fn step(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        handover: &Handover,
        aim: Aim,
    ) -> ReplayStep {
        let share = (layout.ring_bytes / SHARES).max(1);
        let reached = self.reached;
        self.merge_share(region, layout, handover, share);
        let is_full = self.shares.open_bytes() >= share;
        // Everything that was published is applied first: what a line's first change waits for, more changes join.
        let wanted = aim == Aim::Space && !is_full && handover.wants_space(SHARES_KEPT * share);
        let closes = (is_full || aim == Aim::Empty || (wanted && !self.shares.has_closed()))
            && self.shares.close(&self.positions, self.reached);
        let (frees, count) = match aim {
            Aim::Empty if self.shares.has_closed() => (Frees::All, self.shares.closed_count()),
            Aim::Space if wanted && self.shares.has_closed() => (Frees::Oldest, 1),
            Aim::Empty | Aim::Space => (Frees::None, 0),
        };
        let end = StepEnd { closes, frees };
        let Done { applied, flushed } = match &mut self.appliers {
            Appliers::One(part) => {
                part.end(region, layout, end);
                part.done
            }
            Appliers::Many(crew) => crew.run(end, count as u64 * share),
        };
        self.bytes += applied;
        self.flushed_bytes += flushed;
        let freed = match frees {
            Frees::None => None,
            Frees::Oldest => self.shares.take_oldest(),
            Frees::All => self.shares.take_all(),
        };
        if let Some(freed) = &freed {
            self.free(region, layout, handover, freed);
        }
        if self.shares.is_empty() {
            // With time stamps there may be no atomic group with the last of these numbers.
            self.applied = self.reached;
        }
        match freed {
            Some(_) => ReplayStep::Share,
            None if is_full => ReplayStep::Share,
            None if self.reached > reached => ReplayStep::AllApplied,
            None => ReplayStep::Nothing,
        }
    }

    /// Applies or lists atomic groups until the open share has `share` bytes, or nothing is left.
    fn merge_share(&mut self, region: &Region, layout: &ShadowLayout, handover: &Handover, share: u64) {
        let watermark = handover.watermark();
        if watermark <= self.reached {
            return;
        }
        // After the watermark: every atomic group up to it lies before these.
        let tails: Vec<u64> = (0..self.positions.len()).map(|log| handover.tail(log)).collect();
        self.first.read(region, layout, (&self.positions, &tails), self.reached);
        let before = self.reached;
        let all_applied = loop {
            if !self.stamped && (self.reached == watermark || self.shares.open_bytes() >= share) {
                break false;
            }
            let Some((log, unit)) = self.first.next() else { break true };
            if self.stamped {
                assert!(unit.seq() > before, "a unit was published after a watermark that covers it");
                if unit.seq() > watermark {
                    break true;
                }
                // Equal numbers belong to one share: `upto` covers all of them or none.
                if self.shares.open_bytes() >= share && unit.seq() != self.reached {
                    break false;
                }
            } else {
                assert!(unit.seq() <= watermark, "a unit beyond the watermark comes first");
            }
            let position = self.positions[log];
            match &mut self.appliers {
                Appliers::One(part) => part.apply(region, layout, (log, position), &unit),
                Appliers::Many(crew) => crew.list(log, position, unit.bytes()),
            }
            self.shares.grow(unit.bytes());
            self.positions[log] += unit.bytes();
            self.first.advance(region, layout, log, self.positions[log], tails[log]);
            self.units += 1;
            self.reached = unit.seq();
        };
        if self.stamped && all_applied {
            self.reached = watermark;
        }
    }

    /// Frees the logs up to the end of a share whose lines were flushed, and fenced.
    fn free(&mut self, region: &Region, layout: &ShadowLayout, handover: &Handover, share: &Share) {
        for (log, &position) in share.positions.iter().enumerate() {
            if position != handover.head(log) {
                store_head(region, layout.log(log), share.upto, position);
            }
        }
        region.fence();
        for (log, &position) in share.positions.iter().enumerate() {
            handover.free(log, position);
        }
        self.batches += 1;
        self.applied = share.upto;
    }
}

/// Stores where a log begins, and the number up to which everything is in the durable copy. Flushed, not fenced.
pub(crate) fn store_head(region: &Region, log_words: u64, upto: u64, head: u64) {
    region.store(log_words + IN_LOG_UPTO, upto, Ordering::Release);
    region.store(log_words + IN_LOG_HEAD, head, Ordering::Release);
    region.flush(log_words + IN_LOG_UPTO, 16);
}
