//! The logs as one sequence: finds the published atomic group with the next number.
//!
//! Each log has at most one candidate, its first atomic group that was not applied. Dense numbers are found in a table
//! by number, in the same time however many logs there are. Those with gaps are in a heap.
//!
//! Invariants:
//! 1. A candidate is in exactly one of table, list of distant ones, and heap.
//! 2. Numbers in the table lie less than `TABLE_LEN` above the last one that was taken, so no two share an entry.

use crate::layout::{GroupHead, ShadowLayout};
use crate::replay::apply::read_unit;
use mangrove_pool::Region;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries of the table: a log whose next atomic group is so far ahead was idle for as long.
const TABLE_LEN: u64 = 1024;
const _: () = assert!(crate::LOG_COUNT_MAX < u8::MAX as usize);

/// By number, then by log.
type Heap = BinaryHeap<Reverse<(u64, usize)>>;

/// The logs by the numbers of their candidates.
enum ByNumber {
    Dense {
        /// For numbers that follow soon: at the number modulo its length the log + 1, or 0.
        table: Box<[u8; TABLE_LEN as usize]>,
        /// For the others.
        distant: Heap,
    },
    Gaps(Heap),
}

/// The first published atomic group of each log that has not been applied.
pub(crate) struct FirstUnits {
    units: Vec<Option<GroupHead>>,
    by_number: ByNumber,
    /// The number of the last one taken.
    taken: u64,
}

impl FirstUnits {
    /// Of logs without candidates. `has_gaps`: numbers may be missing or equal.
    pub(crate) fn new(logs: usize, has_gaps: bool) -> Self {
        let by_number = if has_gaps {
            ByNumber::Gaps(Heap::new())
        } else {
            ByNumber::Dense { table: Box::new([0; TABLE_LEN as usize]), distant: Heap::new() }
        };
        Self { units: vec![None; logs], by_number, taken: 0 }
    }

    /// Reads the candidates anew: the first atomic groups from `positions` on, before `tails`. All numbers up to
    /// `taken` were taken.
    pub(crate) fn read(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        (positions, tails): (&[u64], &[u64]),
        taken: u64,
    ) {
        self.taken = taken;
        match &mut self.by_number {
            ByNumber::Dense { table, distant } => {
                table.fill(0);
                distant.clear();
            }
            ByNumber::Gaps(heap) => heap.clear(),
        }
        for (log, (&position, &tail)) in positions.iter().zip(tails).enumerate() {
            self.advance(region, layout, log, position, tail);
        }
    }

    /// Makes the atomic group at `position` the candidate of its log, if it lies before `tail`.
    pub(crate) fn advance(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        log: usize,
        position: u64,
        tail: u64,
    ) {
        let unit = (position < tail).then(|| {
            let unit = read_unit(region, layout, log, position);
            unit.expect("a published unit starts with its commit record")
        });
        self.put(log, unit);
    }

    fn put(&mut self, log: usize, unit: Option<GroupHead>) {
        self.units[log] = unit;
        let Some(unit) = unit else { return };
        match &mut self.by_number {
            ByNumber::Dense { table, .. }
                if (1..=TABLE_LEN).contains(&unit.seq().wrapping_sub(self.taken)) =>
            {
                table[(unit.seq() % TABLE_LEN) as usize] = log as u8 + 1;
            }
            ByNumber::Dense { distant: heap, .. } | ByNumber::Gaps(heap) => {
                heap.push(Reverse((unit.seq(), log)));
            }
        }
    }

    /// Takes the candidate with the least number.
    pub(crate) fn next(&mut self) -> Option<(usize, GroupHead)> {
        let log = match &mut self.by_number {
            ByNumber::Dense { table, distant } => {
                let entry = &mut table[((self.taken + 1) % TABLE_LEN) as usize];
                match std::mem::take(entry) {
                    0 => Self::search(table, distant, self.taken)?,
                    log => usize::from(log) - 1,
                }
            }
            ByNumber::Gaps(heap) => heap.pop()?.0.1,
        };
        let unit = self.units[log].take().expect("a log that is listed has a candidate");
        self.taken = unit.seq();
        Some((log, unit))
    }

    /// The log with the next number where it is distant. Where that number is missing, which only a failed medium
    /// leaves, the log with the least one.
    #[cold]
    fn search(table: &mut [u8; TABLE_LEN as usize], distant: &mut Heap, taken: u64) -> Option<usize> {
        let far = distant.peek().map_or(u64::MAX, |next| next.0.0);
        if far != taken + 1 {
            let near = (taken + 2..=taken + TABLE_LEN).take_while(|&number| number < far);
            let entries = near.map(|number| (number % TABLE_LEN) as usize);
            if let Some(at) = entries.into_iter().find(|&at| table[at] != 0) {
                return Some(usize::from(std::mem::take(&mut table[at])) - 1);
            }
        }
        distant.pop().map(|next| next.0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::CommitRecord;
    use std::collections::VecDeque;

    fn next(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) % below
    }

    fn unit(seq: u64) -> GroupHead {
        GroupHead::Records(CommitRecord { bytes: 64, seq, position: 0, records: 0, crc: 0 })
    }

    /// Deals `numbers` to logs, of which some rest for long, and takes them out again.
    fn merged(logs: usize, numbers: &[u64], has_gaps: bool, seed: &mut u64) -> Vec<(u64, usize)> {
        let mut queues = vec![VecDeque::new(); logs];
        let mut busy = 1;
        for &number in numbers {
            if next(seed, 900) == 0 {
                busy = 1 + next(seed, logs as u64);
            }
            queues[next(seed, busy) as usize].push_back(number);
        }
        let mut first = FirstUnits::new(logs, has_gaps);
        first.taken = numbers[0] - 1;
        for (log, queue) in queues.iter_mut().enumerate() {
            first.put(log, queue.pop_front().map(unit));
        }
        let mut found = Vec::new();
        while let Some((log, unit)) = first.next() {
            found.push((unit.seq(), log));
            first.put(log, queues[log].pop_front().map(self::unit));
        }
        found
    }

    /// Runs of one log longer than the table, in which the next number of another log is distant.
    #[test]
    fn the_next_number_is_found_whatever_the_logs() {
        let mut seed = 3;
        for (round, logs) in [1, 2, 8, 64, 3, 64].into_iter().enumerate() {
            let start = 1 + next(&mut seed, 5000);
            let dense: Vec<u64> = (start..start + 20_000).collect();
            let found = merged(logs, &dense, false, &mut seed);
            assert!(found.iter().map(|of| of.0).eq(dense), "round {round}");
        }
    }

    /// Gaps, short ones and such that are longer than the table: dense numbers have them when the medium has failed.
    #[test]
    fn where_numbers_are_missing_the_least_comes_next() {
        let mut seed = 4;
        for (logs, has_gaps) in [(5, false), (64, false), (5, true), (64, true)] {
            let (mut number, mut numbers) = (1, Vec::new());
            for _ in 0..5_000 {
                number += 1 + if next(&mut seed, 50) == 0 { next(&mut seed, 3000) } else { 0 };
                numbers.push(number);
            }
            let found = merged(logs, &numbers, has_gaps, &mut seed);
            assert!(found.iter().map(|of| of.0).eq(numbers), "{logs} logs");
        }
    }

    #[test]
    fn equal_numbers_come_by_log() {
        let mut first = FirstUnits::new(3, true);
        for (log, number) in [(2, 7), (0, 9), (1, 7)] {
            first.put(log, Some(unit(number)));
        }
        let order: Vec<_> =
            std::iter::from_fn(|| first.next()).map(|(log, unit)| (unit.seq(), log)).collect();
        assert_eq!(order, [(7, 1), (7, 2), (9, 0)]);
    }
}
