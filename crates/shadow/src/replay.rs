//! The replayer: applies published atomic groups to the durable copy, in the order of their numbers, and frees
//! their space.
//!
//! Source: Fig. 4 of the Mangosteen paper. Two fences a batch: the first makes the durable copy durable, the second
//! the heads. Deviations: a batch is many atomic groups, not one, so that a line that many of them changed is
//! flushed once; several logs are merged by number.
//!
//! Invariants:
//! 1. Only atomic groups up to the watermark are applied (`handover.rs`): each is durable, and so are all before
//!    it.
//! 2. Durable-order: the durable copy before the heads. Otherwise a crash would find records gone and the copy old.
//! 3. Durable-order: in each log's line `upto` before `head` (stores to one line persist in their order): whatever
//!    heads survive, the greatest `upto` among all logs is at least the number of every atomic group that is gone.
//!    Otherwise recovery would take such an atomic group for one that was never published, and drop all after it.

use crate::handover::Handover;
use crate::layout::{
    COMMIT_BYTES, IN_LOG_HEAD, IN_LOG_UPTO, KIND_REDO, KIND_SPILL, KIND_WORDS, ShadowLayout, Unit,
    WORD_BYTES, WORDS_BYTES, WORDS_COMMIT_BYTES, redo_total,
};
use crate::lines::LineSet;
use mangrove_pool::Region;
use std::sync::atomic::Ordering;

/// A batch ends after this share of a ring, so that log writers that wait for space get it in pieces.
const BATCH_SHARE: u64 = 4;

/// The state of replaying, for one thread at a time.
pub(crate) struct Replayer {
    /// For each log, the position of the next atomic group to be applied.
    positions: Vec<u64>,
    /// The number of the last atomic group applied, durably.
    applied: u64,
    lines: LineSet,
    /// Atomic groups, and bytes of ranges, applied; bytes of lines flushed; batches.
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) batches: u64,
}

impl Replayer {
    pub(crate) fn new(positions: Vec<u64>, applied: u64) -> Self {
        Self { positions, applied, lines: LineSet::new(), units: 0, bytes: 0, flushed_bytes: 0, batches: 0 }
    }

    /// The number of the last atomic group in the durable copy.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Applies some atomic groups; false when there are none.
    pub(crate) fn batch(&mut self, region: &Region, layout: &ShadowLayout, handover: &Handover) -> bool {
        let watermark = handover.watermark();
        if watermark <= self.applied {
            return false;
        }
        // After the watermark: every atomic group up to it lies before these.
        let tails: Vec<u64> = (0..self.positions.len()).map(|log| handover.tail(log)).collect();
        let mut budget = layout.ring_bytes / BATCH_SHARE;
        let (mut applied, mut flushed) = (self.applied, 0);
        let mut first = FirstUnits::read(region, layout, &self.positions, &tails);
        while applied < watermark && budget > 0 {
            let Some((log, unit)) = first.next(applied + 1) else { break };
            assert!(unit.seq() <= watermark, "a unit beyond the watermark comes first");
            let position = self.positions[log];
            let lines = &mut self.lines;
            self.bytes += apply(region, layout, log, position, &unit, |offset, len| {
                lines.insert(layout.image_start() + offset, len);
                if lines.is_full() {
                    flushed += flush(lines, region);
                }
            });
            self.positions[log] += unit.bytes();
            first.advance(region, layout, log, self.positions[log], tails[log]);
            self.units += 1;
            applied = unit.seq();
            budget = budget.saturating_sub(unit.bytes());
        }
        flushed += flush(&mut self.lines, region);
        region.fence();
        for (log, &position) in self.positions.iter().enumerate() {
            let at = layout.log(log);
            if position != handover.head(log) {
                store_head(region, at, applied, position);
            }
        }
        region.fence();
        for (log, &position) in self.positions.iter().enumerate() {
            handover.free(log, position);
        }
        self.flushed_bytes += flushed;
        self.batches += 1;
        self.applied = applied;
        true
    }
}

/// The first published atomic group of each log that has not been applied.
struct FirstUnits {
    units: Vec<Option<Unit>>,
    /// The log of the last one applied: with one busy thread, the next is there too.
    log: usize,
}

impl FirstUnits {
    fn read(region: &Region, layout: &ShadowLayout, positions: &[u64], tails: &[u64]) -> Self {
        let mut first = Self { units: vec![None; positions.len()], log: 0 };
        for (log, (&position, &tail)) in positions.iter().zip(tails).enumerate() {
            first.advance(region, layout, log, position, tail);
        }
        first
    }

    fn advance(&mut self, region: &Region, layout: &ShadowLayout, log: usize, position: u64, tail: u64) {
        self.log = log;
        self.units[log] = (position < tail).then(|| {
            let unit = read_unit(region, layout, log, position);
            unit.expect("a published unit starts with its commit record")
        });
    }

    /// The one with the least number. Numbers are dense, so that the search ends at `expected`.
    fn next(&self, expected: u64) -> Option<(usize, Unit)> {
        let logs = (self.log..self.units.len()).chain(0..self.log);
        let mut least: Option<(usize, Unit)> = None;
        for log in logs {
            let Some(unit) = self.units[log] else { continue };
            if unit.seq() == expected {
                return Some((log, unit));
            }
            if least.is_none_or(|(_, least)| unit.seq() < least.seq()) {
                least = Some((log, unit));
            }
        }
        least
    }
}

/// Flushes every line and empties the set; returns the bytes flushed.
pub(crate) fn flush(lines: &mut LineSet, region: &Region) -> u64 {
    let mut flushed = 0;
    lines.drain(|offset, len| {
        region.flush(offset, len as usize);
        flushed += len;
    });
    flushed
}

/// Stores where a log begins, and the number up to which everything is in the durable copy. Flushed, not fenced.
pub(crate) fn store_head(region: &Region, log_words: u64, upto: u64, head: u64) {
    region.store(log_words + IN_LOG_UPTO, upto, Ordering::Release);
    region.store(log_words + IN_LOG_HEAD, head, Ordering::Release);
    region.flush(log_words + IN_LOG_UPTO, 16);
}

/// The word at a position of a log.
#[inline]
pub(crate) fn word(region: &Region, layout: &ShadowLayout, log: usize, position: u64) -> u64 {
    // Relaxed: published, or not in use yet.
    region.word(layout.ring(log, position)).load(Ordering::Relaxed)
}

/// The head of the atomic group at a position, if there is one.
pub(crate) fn read_unit(region: &Region, layout: &ShadowLayout, log: usize, position: u64) -> Option<Unit> {
    region.reading(layout.ring(log, position), 8);
    // Version 1: the head may wrap around the ring's end.
    let words = [0, 8, 16, 24].map(|at| word(region, layout, log, position + at));
    Unit::decode(words, position, layout.unit_align())
}

/// Copies the atomic group's ranges into the durable copy, and passes each to `touched`; returns the bytes copied.
/// The atomic group is one that was published, or that recovery has verified.
pub(crate) fn apply(
    region: &Region,
    layout: &ShadowLayout,
    log: usize,
    position: u64,
    unit: &Unit,
    mut touched: impl FnMut(u64, u64),
) -> u64 {
    let commit = match unit {
        Unit::Records(commit) => commit,
        Unit::Words(commit) => {
            let first = position + WORDS_COMMIT_BYTES;
            return apply_words(region, layout, log, first, commit.count, &mut touched);
        }
    };
    let (mut at, mut bytes) = (position + COMMIT_BYTES, 0);
    for _ in 0..commit.records {
        let (first, offset) = (word(region, layout, log, at), word(region, layout, log, at + 8));
        match first & 0xff {
            KIND_REDO => {
                let len = first >> 8;
                copy_from_ring(region, layout, log, at + 16, layout.image_start() + offset, len);
                touched(offset, len);
                bytes += len;
                at += redo_total(len);
            }
            KIND_WORDS => {
                let count = first >> 8;
                bytes += apply_words(region, layout, log, at + WORDS_BYTES, count, &mut touched);
                at += WORDS_BYTES + count * WORD_BYTES;
            }
            KIND_SPILL => {
                let total = word(region, layout, log, at + 16);
                bytes += apply_spilled(region, layout, offset, total, &mut touched);
            }
            kind => panic!("a published unit holds a record of kind {kind:#x}"),
        }
    }
    bytes
}

/// As `apply`, for `count` words from the position `at` on.
fn apply_words(
    region: &Region,
    layout: &ShadowLayout,
    log: usize,
    at: u64,
    count: u64,
    touched: &mut impl FnMut(u64, u64),
) -> u64 {
    region.reading(layout.ring(log, at), 8);
    for at in (at..at + count * WORD_BYTES).step_by(WORD_BYTES as usize) {
        let (offset, value) = (word(region, layout, log, at), word(region, layout, log, at + 8));
        region.store(layout.image_start() + offset, value, Ordering::Relaxed);
        touched(offset, 8);
    }
    count * 8
}

/// As `apply`, for the spilled records of an atomic group, which lie in one piece at `start` of the region: ranges,
/// and words as ranges of 8 bytes.
fn apply_spilled(
    region: &Region,
    layout: &ShadowLayout,
    start: u64,
    total: u64,
    touched: &mut impl FnMut(u64, u64),
) -> u64 {
    let (mut at, mut bytes) = (start, 0);
    while at < start + total {
        // Relaxed: published, or not in use yet.
        let (first, offset) =
            (region.word(at).load(Ordering::Relaxed), region.word(at + 8).load(Ordering::Relaxed));
        assert_eq!(first & 0xff, KIND_REDO, "a unit aside holds REDO records only");
        let len = first >> 8;
        copy(region, at + 16, layout.image_start() + offset, len);
        touched(offset, len);
        bytes += len;
        at += redo_total(len);
    }
    bytes
}

fn copy_from_ring(region: &Region, layout: &ShadowLayout, log: usize, position: u64, to: u64, len: u64) {
    let left = layout.ring_bytes - position % layout.ring_bytes;
    copy(region, layout.ring(log, position), to, len.min(left));
    if len > left {
        copy(region, layout.ring(log, position + left), to + left, len - left);
    }
}

fn copy(region: &Region, from: u64, to: u64, len: u64) {
    region.reading(from, len as usize);
    assert!(from + len <= region.len() && (to + len <= from || from + len <= to));
    // SAFETY: inside the region (asserted), and not written meanwhile: it is published, or no thread uses the
    // region yet. `write` copies into another part of it.
    let bytes = unsafe { std::slice::from_raw_parts(region.at(from), len as usize) };
    region.write(to, bytes);
}
