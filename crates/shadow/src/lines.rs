//! The set of cache lines that a batch of the replayer wrote. Each line is flushed once, however many atomic groups
//! of the batch changed it. (Deduplication as in Fig. 3 of the paper, across commits.)

/// Bytes of a line.
const LINE: u64 = 64;
/// Slots of the table, powers of two: at first, and at most (512 KiB, sized to the second-level cache).
const SLOTS_MIN: usize = 1 << 8;
const SLOTS_MAX: usize = 1 << 16;
/// Lines after which a batch ends: 60 % of the slots, as in the paper.
const LINES_MAX: usize = SLOTS_MAX / 10 * 6;
/// Ranges of so many lines and more are kept as ranges.
const LONG_LINES: u64 = 64;

/// A set of lines, by number from 0.
pub(crate) struct LineSet {
    /// Line numbers plus one; 0 is an empty slot. Linear probing.
    table: Vec<u64>,
    lines: Vec<u64>,
    long: Vec<(u64, u64)>,
}

impl LineSet {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new(), lines: Vec::new(), long: Vec::new() }
    }

    /// True when no more may be inserted before `drain`.
    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() >= LINES_MAX
    }

    /// Adds the lines of a range of bytes.
    pub(crate) fn insert(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, end) = (offset / LINE, (offset + len).div_ceil(LINE));
        if end - first >= LONG_LINES {
            // Adjacent ones become one; overlaps are flushed twice, which costs little and harms nothing.
            match self.long.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => self.long.push((first, end)),
            }
            return;
        }
        for line in first..end {
            if self.lines.len() >= self.table.len() / 10 * 6 {
                self.widen();
            }
            if put(&mut self.table, line) {
                self.lines.push(line);
            }
        }
    }

    /// Makes the table four times as large. (At the greatest size it only gets fuller, by the last range of a
    /// batch.)
    fn widen(&mut self) {
        let slots = (self.table.len() * 4).clamp(SLOTS_MIN, SLOTS_MAX);
        if slots > self.table.len() {
            self.table = vec![0; slots];
            for &line in &self.lines {
                put(&mut self.table, line);
            }
        }
    }

    /// Passes every range of lines (offset, length in bytes) to `each` once, and empties the set.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u64, u64)) {
        // Few lines are removed one by one; for many, clearing the table is cheaper.
        if self.lines.len() * 8 < self.table.len() {
            for &line in &self.lines {
                let mut at = slot(&self.table, line);
                // To the end of the cluster: the other lines in it are removed as well, now or already.
                while self.table[at] != 0 {
                    self.table[at] = 0;
                    at = (at + 1) & (self.table.len() - 1);
                }
            }
        } else {
            self.table.fill(0);
        }
        self.lines.sort_unstable();
        let mut lines = self.lines.drain(..).peekable();
        while let Some(first) = lines.next() {
            let mut end = first + 1;
            while lines.next_if_eq(&end).is_some() {
                end += 1;
            }
            each(first * LINE, (end - first) * LINE);
        }
        for (first, end) in self.long.drain(..) {
            each(first * LINE, (end - first) * LINE);
        }
    }
}

fn slot(table: &[u64], line: u64) -> usize {
    (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (table.len() - 1)
}

/// True when the line was not there.
fn put(table: &mut [u64], line: u64) -> bool {
    let mut at = slot(table, line);
    loop {
        match table[at] {
            0 => {
                table[at] = line + 1;
                return true;
            }
            found if found == line + 1 => return false,
            _ => at = (at + 1) & (table.len() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_comes_out_and_short_ones_once() {
        let mut lines = LineSet::new();
        let mut seed = 7u64;
        for round in 0..20 {
            let mut wanted = BTreeSet::new();
            let count = if round % 2 == 0 { 300 } else { 20_000 };
            for _ in 0..count {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (offset, len) = ((seed >> 33) % 4_000_000, (seed >> 20) % 200);
                if lines.is_full() {
                    break;
                }
                lines.insert(offset, len);
                if len > 0 {
                    wanted.extend(offset / LINE..(offset + len).div_ceil(LINE));
                }
            }
            let mut found = Vec::new();
            lines.drain(|offset, len| found.extend(offset / LINE..(offset + len) / LINE));
            assert!(found.iter().copied().eq(wanted.iter().copied()), "round {round}");
        }
    }

    #[test]
    fn long_ranges_stay_ranges() {
        let mut lines = LineSet::new();
        lines.insert(4096, 1 << 20);
        lines.insert(4096 + (1 << 20), 1 << 20);
        lines.insert(10, 20);
        let mut found = Vec::new();
        lines.drain(|offset, len| found.push((offset, len)));
        assert_eq!(found, [(0, 64), (4096, 2 << 20)]);
    }
}
