//! Sets of cache lines, as bitmaps by the address: adding a line costs two loads, and taking all out costs by what is
//! in, in the order of addresses (a medium writes neighbours back several times faster than lines at random).

/// Bytes of a line.
const LINE: u64 = 64;
/// Words of a block: its summary has a bit for each.
const BLOCK_WORDS: usize = 64;
/// Lines of a block: 256 KiB of addresses.
const BLOCK_LINES: u64 = BLOCK_WORDS as u64 * 64;

struct Block {
    /// A bit for each word that is not zero.
    summary: u64,
    words: [u64; BLOCK_WORDS],
    /// Its number is in `listed`.
    is_listed: bool,
}

/// A set of lines, by number from 0.
#[derive(Default)]
pub(crate) struct LineSet {
    /// By number; those that no line was ever added to are not there.
    blocks: Vec<Option<Box<Block>>>,
    /// The blocks that may hold lines.
    listed: Vec<u32>,
}

impl LineSet {
    /// Adds the lines of a range of bytes.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, len: u64) {
        for_each_word(offset, len, |block, word, mask| {
            self.add(block, word, mask);
        });
    }

    /// Adds the lines of a range of bytes, and those of them that were not there also to `new`.
    #[inline]
    pub(crate) fn insert_into(&mut self, offset: u64, len: u64, new: &mut Self) {
        for_each_word(offset, len, |block, word, mask| {
            let added = self.add(block, word, mask);
            if added != 0 {
                new.add(block, word, added);
            }
        });
    }

    /// Adds the lines `mask` of a word; returns those that were not there.
    #[inline]
    fn add(&mut self, number: usize, word: usize, mask: u64) -> u64 {
        let Some(Some(block)) = self.blocks.get_mut(number) else {
            self.make(number);
            return self.add(number, word, mask);
        };
        let new = mask & !block.words[word];
        if new != 0 {
            block.words[word] |= new;
            block.summary |= 1 << word;
            if !block.is_listed {
                block.is_listed = true;
                self.listed.push(number as u32);
            }
        }
        new
    }

    #[cold]
    fn make(&mut self, number: usize) {
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, || None);
        }
        let empty = || Box::new(Block { summary: 0, words: [0; BLOCK_WORDS], is_listed: false });
        self.blocks[number].get_or_insert_with(empty);
    }

    /// Takes the lines `mask` of a word out.
    fn remove(&mut self, number: usize, word: usize, mask: u64) {
        let Some(Some(block)) = self.blocks.get_mut(number) else { return };
        block.words[word] &= !mask;
        if block.words[word] == 0 {
            block.summary &= !(1 << word);
        }
    }

    /// Passes every range of lines (offset, length in bytes) to `each` once, by address, and empties the set.
    pub(crate) fn drain(&mut self, each: impl FnMut(u64, u64)) {
        self.drain_from(&mut Self::default(), each);
    }

    /// As `drain`; what comes out leaves `all` too.
    pub(crate) fn drain_from(&mut self, all: &mut Self, mut each: impl FnMut(u64, u64)) {
        self.listed.sort_unstable();
        // The lines found last: a run may go on in the next word.
        let mut run = 0..0;
        for &number in &self.listed {
            let number = number as usize;
            let Some(Some(block)) = self.blocks.get_mut(number) else { continue };
            while block.summary != 0 {
                let word = block.summary.trailing_zeros() as usize;
                block.summary &= block.summary - 1;
                let mut left = std::mem::take(&mut block.words[word]);
                all.remove(number, word, left);
                let base = number as u64 * BLOCK_LINES + word as u64 * 64;
                while left != 0 {
                    let from = left.trailing_zeros();
                    let count = (!(left >> from)).trailing_zeros();
                    let first = base + u64::from(from);
                    if first != run.end {
                        if !run.is_empty() {
                            each(run.start * LINE, (run.end - run.start) * LINE);
                        }
                        run.start = first;
                    }
                    run.end = first + u64::from(count);
                    left &= u64::MAX.checked_shl(from + count).unwrap_or(0);
                }
            }
            block.is_listed = false;
        }
        self.listed.clear();
        if !run.is_empty() {
            each(run.start * LINE, (run.end - run.start) * LINE);
        }
    }
}

/// Passes block, word and bits of the lines of a range of bytes to `each`.
#[inline]
fn for_each_word(offset: u64, len: u64, mut each: impl FnMut(usize, usize, u64)) {
    if len == 0 {
        return;
    }
    let (mut first, last) = (offset / LINE, (offset + len - 1) / LINE);
    loop {
        let end = (first | 63).min(last);
        let mask = (u64::MAX >> (63 - (end - first))) << (first & 63);
        each((first / BLOCK_LINES) as usize, (first % BLOCK_LINES / 64) as usize, mask);
        if end == last {
            return;
        }
        first = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *seed >> 24
    }

    fn lines_of(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / LINE..if len == 0 { offset / LINE } else { (offset + len).div_ceil(LINE) }
    }

    fn drained(drain: impl FnOnce(&mut dyn FnMut(u64, u64))) -> Vec<u64> {
        let mut found = Vec::new();
        let mut end = 0;
        drain(&mut |offset, len| {
            assert!(found.is_empty() || offset > end, "neighbours come as one range, in order");
            end = offset + len;
            found.extend(lines_of(offset, len));
        });
        found
    }

    #[test]
    fn every_line_comes_out_once_and_by_address() {
        let (mut lines, mut seed) = (LineSet::default(), 7);
        for round in 0..40 {
            let mut wanted = BTreeSet::new();
            let (count, longest) = [(300, 200), (5_000, 200), (10, 2 << 20), (0, 1)][round % 4];
            for _ in 0..count {
                let (offset, len) = (next(&mut seed) % 40_000_000, next(&mut seed) % longest);
                lines.insert(offset, len);
                wanted.extend(lines_of(offset, len));
            }
            let found = drained(|each| lines.drain(each));
            assert!(found.iter().eq(wanted.iter()), "round {round}");
        }
    }

    /// Of two sets that share what was in neither before, each line is in one, and in the whole until it comes out.
    #[test]
    fn a_line_is_new_until_it_has_come_out() {
        let (mut all, mut seed) = (LineSet::default(), 3);
        let mut parts = [LineSet::default(), LineSet::default()];
        let mut models = [BTreeSet::new(), BTreeSet::new()];
        for round in 0..200 {
            let part = round % 2;
            for _ in 0..100 {
                let (offset, len) = (next(&mut seed) % 600_000, next(&mut seed) % 700);
                all.insert_into(offset, len, &mut parts[part]);
                let other = models[1 - part].clone();
                models[part].extend(lines_of(offset, len).filter(|line| !other.contains(line)));
            }
            if round % 3 == 0 {
                let found = drained(|each| parts[part].drain_from(&mut all, each));
                assert!(found.iter().eq(models[part].iter()), "round {round}");
                models[part].clear();
            }
        }
    }
}
