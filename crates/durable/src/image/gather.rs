//! What of a write set a commit takes: the ranges that lie in the region, sorted and joined.
//!
//! A batch of an event loop writes thousands of small blocks. Sorting them was the dearest part of its commit. So each
//! page that was written gets a bitmap of its blocks, and only the pages are sorted.

use mangrove_arena::{FreeBytes, PAGE_BYTES};
use mangrove_sys::sort_by_upper_bits;
use mangrove_tracker::WriteSet;

/// Blocks of a page at most: those of 16 bytes.
const PAGE_BLOCKS_MAX: usize = PAGE_BYTES / 16;
/// So many pages before it is needed, what the arena knows of a page is asked to come near.
const PAGES_AHEAD: usize = 8;
/// Up to so many blocks are sorted one by one, which is cheaper than the table of pages.
const FEW_BLOCKS: usize = 32;

/// The blocks of a page that were written.
struct PageBlocks {
    /// Counted from the region's beginning.
    page: usize,
    /// Its place in the table.
    slot: usize,
    bits: [u64; PAGE_BLOCKS_MAX / 64],
}

/// Gathers the ranges of commits, and keeps its lists for the next.
#[derive(Default)]
pub(crate) struct Gatherer {
    pages: Vec<PageBlocks>,
    /// One more than the index among `pages`, by the hash of the page; 0: free. A power of two, at least twice as long
    /// as `pages`.
    table: Vec<u32>,
    /// Pages in order, each with its index among `pages` in the low half; and memory to sort them with.
    order: Vec<u64>,
    spare: Vec<u64>,
    few: Vec<usize>,
    large: Vec<(usize, usize)>,
    blocks: Vec<(usize, usize)>,
}

impl Gatherer {
    /// Writes to `out` the ranges of the write set that lie in `len` bytes at `base`, sorted and joined. If the batch
    /// freed blocks, ranges that no longer lie in a block are left out.
    pub(crate) fn gather(
        &mut self,
        writes: &WriteSet,
        base: usize,
        len: usize,
        mut free: Option<FreeBytes<'_>>,
        out: &mut Vec<(usize, usize)>,
    ) {
        out.clear();
        let inside = writes
            .blocks()
            .iter()
            .map(|&block| block as usize)
            .filter(|block| block.wrapping_sub(base) < len);
        let block_bytes = writes.block_bytes();
        self.blocks.clear();
        if writes.blocks().len() <= FEW_BLOCKS {
            self.few.clear();
            self.few.extend(inside);
            self.few.sort_unstable();
            for &block in &self.few {
                keep(&mut self.blocks, (block, block_bytes), &mut free);
            }
        } else {
            inside.for_each(|block| self.mark(block - base, block_bytes));
            self.collect(base, block_bytes, &mut free);
        }
        self.large.clear();
        self.large.extend(writes.large().iter().filter_map(|&(from, bytes)| {
            let (from, until) = (from.max(base), (from + bytes).min(base + len));
            (from < until).then(|| (from, until - from))
        }));
        if self.large.is_empty() {
            return std::mem::swap(&mut self.blocks, out);
        }
        self.large.sort_unstable();
        let mut blocks = self.blocks.iter().copied().peekable();
        for &range in &self.large {
            while let Some(block) = blocks.next_if(|block| *block <= range) {
                join(out, block);
            }
            keep(out, range, &mut free);
        }
        blocks.for_each(|block| join(out, block));
    }

    /// Sets the bit of the block at `offset`.
    #[inline]
    fn mark(&mut self, offset: usize, block_bytes: usize) {
        let (page, block) = (offset / PAGE_BYTES, offset % PAGE_BYTES / block_bytes);
        // A command's stores are near each other.
        let at = match self.pages.last() {
            Some(last) if last.page == page => self.pages.len() - 1,
            _ => self.find(page),
        };
        self.pages[at].bits[block / 64] |= 1 << (block % 64);
    }

    /// The index of a page among `pages`, where it is put if it is new.
    fn find(&mut self, page: usize) -> usize {
        if (self.pages.len() + 1) * 2 > self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut slot = hash(page) & mask;
        loop {
            match self.table[slot] {
                0 => break,
                taken if self.pages[taken as usize - 1].page == page => return taken as usize - 1,
                _ => slot = (slot + 1) & mask,
            }
        }
        self.pages.push(PageBlocks { page, slot, bits: [0; PAGE_BLOCKS_MAX / 64] });
        self.table[slot] = self.pages.len() as u32;
        self.pages.len() - 1
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.table.len() * 2).max(256);
        self.table.clear();
        self.table.resize(len, 0);
        for (at, page) in self.pages.iter_mut().enumerate() {
            let mut slot = hash(page.page) & (len - 1);
            while self.table[slot] != 0 {
                slot = (slot + 1) & (len - 1);
            }
            page.slot = slot;
            self.table[slot] = at as u32 + 1;
        }
    }

    /// Moves the marked blocks to `blocks`, in order, and forgets the pages.
    fn collect(&mut self, base: usize, block_bytes: usize, free: &mut Option<FreeBytes<'_>>) {
        // A region has at most 2^32 pages: 16 TiB.
        let order = self.pages.iter().enumerate().map(|(at, page)| (page.page as u64) << 32 | at as u64);
        self.order.clear();
        self.order.extend(order);
        sort_by_upper_bits(&mut self.order, &mut self.spare, 32);
        for (at, &entry) in self.order.iter().enumerate() {
            if let (Some(free), Some(&ahead)) = (&free, self.order.get(at + PAGES_AHEAD)) {
                let from = base + (ahead >> 32) as usize * PAGE_BYTES;
                if free.may_hold(from, PAGE_BYTES) {
                    free.prefetch(from);
                }
            }
            let page = &self.pages[entry as u32 as usize];
            self.table[page.slot] = 0;
            let from = base + page.page * PAGE_BYTES;
            // Most pages have nothing that the batch freed.
            let has_freed = free.as_ref().is_some_and(|free| free.may_hold(from, PAGE_BYTES));
            for (word, &bits) in page.bits.iter().enumerate() {
                let mut left = bits;
                while left != 0 {
                    let first = left.trailing_zeros() as usize;
                    // Where no block is asked about, a run of blocks is one range.
                    let count = if has_freed { 1 } else { (!(left >> first)).trailing_zeros() as usize };
                    let range = (from + (word * 64 + first) * block_bytes, count * block_bytes);
                    if has_freed {
                        keep(&mut self.blocks, range, free);
                    } else {
                        join(&mut self.blocks, range);
                    }
                    left &= if first + count < 64 { !0 << (first + count) } else { 0 };
                }
            }
        }
        self.pages.clear();
    }
}

fn hash(page: usize) -> usize {
    // The upper half of the product depends on all bits of the number.
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Adds a range that begins no earlier than the last one, unless it lies in free memory.
#[inline]
fn keep(out: &mut Vec<(usize, usize)>, range: (usize, usize), free: &mut Option<FreeBytes<'_>>) {
    if free.as_mut().is_none_or(|free| !free.hold(range.0, range.1)) {
        join(out, range);
    }
}

/// Adds a range that begins no earlier than the last one, which it may touch.
#[inline]
fn join(out: &mut Vec<(usize, usize)>, (from, bytes): (usize, usize)) {
    match out.last_mut() {
        Some((last, len)) if from <= *last + *len => *len = (*len).max(from + bytes - *last),
        _ => out.push((from, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::Gatherer;
    use mangrove_tracker::WriteSet;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const BASE: usize = 0x7000_0000;
    const LEN: usize = 64 * 4096;

    /// As the write set itself says, and by one list that is sorted and joined.
    fn expected(writes: &WriteSet) -> Vec<(usize, usize)> {
        let block = |&at: &u64| (at as usize, writes.block_bytes());
        let mut all: Vec<_> =
            writes.blocks().iter().map(block).chain(writes.large().iter().copied()).collect();
        all.sort_unstable();
        let mut joined = Vec::<(usize, usize)>::new();
        for (from, bytes) in all {
            let (from, until) = (from.max(BASE), (from + bytes).min(BASE + LEN));
            match joined.last_mut() {
                _ if from >= until => {}
                Some(last) if from <= last.0 + last.1 => last.1 = last.1.max(until - last.0),
                _ => joined.push((from, until - from)),
            }
        }
        joined
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn ranges_are_those_of_one_sorted_list(
            shift in 4usize..8,
            batches in prop::collection::vec(
                prop::collection::vec((0usize..LEN + 8192, 1usize..200), 0..400), 1..4),
        ) {
            let mut gatherer = Gatherer::default();
            let mut writes = WriteSet::new(1 << shift).unwrap();
            let mut found = Vec::new();
            for batch in batches {
                writes.clear();
                for (at, bytes) in batch {
                    writes.record(BASE - 4096 + at, bytes);
                }
                gatherer.gather(&writes, BASE, LEN, None, &mut found);
                prop_assert_eq!(&found, &expected(&writes));
            }
        }
    }
}
