//! Huge pages for the working copy, where its data are dense.
//!
//! A pool that gave space back has live parts between holes. On a huge page such a part takes 2 MiB of memory, however
//! small it is. So opening leaves blocks of 2 MiB on small pages of which less than three quarters are in use, and a
//! block gets a huge page when so much of it is in use again.

use crate::format::page_sums::{PAGE_BYTES, PageChecksums};
use crate::sync::Mutex;
use mangrove_sys::Reservation;
use std::collections::BTreeMap;
use std::ops::Range;

/// From this size on, the working copy asks for huge pages.
pub(super) const HUGE_PAGES_FROM_BYTES: u64 = 16 << 20;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// A block of which less is in use stays on small pages.
const DENSE_FROM_BYTES: u64 = HUGE_PAGE_BYTES / 4 * 3;
/// Ranges that stay on small pages, at most. Each splits a mapping, of which the kernel allows a process 65,530.
const SPARSE_RANGES_MAX: usize = 1024;

/// Which pages of a block are in use, a bit for each.
type Used = [u64; (HUGE_PAGE_BYTES / PAGE_BYTES as u64 / 64) as usize];

/// The blocks that are on small pages.
pub(crate) struct SparseBlocks {
    blocks: Mutex<BTreeMap<u64, Used>>,
}

impl SparseBlocks {
    /// Asks for huge pages for the first `bytes` bytes of `memory`, except where `sums` say that a good part is zero.
    pub(super) fn advise(memory: &Reservation, sums: &PageChecksums, bytes: u64) -> Self {
        let is_long = bytes >= HUGE_PAGES_FROM_BYTES;
        let blocks = if is_long { sparse_blocks(sums, bytes) } else { BTreeMap::new() };
        let mut from = 0;
        for block in blocks.keys().copied().chain([bytes.div_ceil(HUGE_PAGE_BYTES)]) {
            let to = block * HUGE_PAGE_BYTES;
            if is_long && from < to {
                memory.advise_huge(from as usize, (to.min(memory.len() as u64) - from) as usize);
            }
            from = to + HUGE_PAGE_BYTES;
        }
        Self { blocks: Mutex::new(blocks) }
    }

    /// Notes that `part` is in use from now on, and gives huge pages to blocks that are dense then.
    pub(super) fn note_use(&self, memory: &Reservation, part: Range<u64>) {
        let mut blocks = self.blocks.lock();
        let mut block = part.start / HUGE_PAGE_BYTES;
        while let Some((&next, used)) = blocks.range_mut(block..).next() {
            let first = next * HUGE_PAGE_BYTES;
            if first >= part.end {
                return;
            }
            let page = |at: u64| (at.clamp(first, first + HUGE_PAGE_BYTES) - first) / PAGE_BYTES as u64;
            for page in page(part.start)..page(part.end.next_multiple_of(PAGE_BYTES as u64)) {
                used[page as usize / 64] |= 1 << (page % 64);
            }
            if is_dense(used) {
                blocks.remove(&next);
                let len = HUGE_PAGE_BYTES.min(memory.len() as u64 - first);
                memory.advise_huge(first as usize, len as usize);
                memory.collapse(first as usize, len as usize);
            }
            block = next + 1;
        }
    }
}

fn is_dense(used: &Used) -> bool {
    let pages: u32 = used.iter().map(|word| word.count_ones()).sum();
    u64::from(pages) * PAGE_BYTES as u64 >= DENSE_FROM_BYTES
}

/// The blocks in which some pages are in use, but few.
fn sparse_blocks(sums: &PageChecksums, bytes: u64) -> BTreeMap<u64, Used> {
    let pages = HUGE_PAGE_BYTES / PAGE_BYTES as u64;
    let (mut blocks, mut ranges) = (BTreeMap::new(), 0);
    for block in 0..bytes.div_ceil(HUGE_PAGE_BYTES) {
        let first = block * pages;
        let mut used = Used::default();
        for page in (0..pages.min(sums.pages().saturating_sub(first))).filter(|at| sums.get(first + at) != 0)
        {
            used[page as usize / 64] |= 1 << (page % 64);
        }
        if used == Used::default() || is_dense(&used) {
            continue;
        }
        let follows = block > 0 && blocks.contains_key(&(block - 1));
        ranges += usize::from(!follows);
        if ranges > SPARSE_RANGES_MAX {
            break;
        }
        blocks.insert(block, used);
    }
    blocks
}

/// Asks for huge pages for the working copy, which grows from `from` to `to` bytes.
pub(super) fn advise_huge(memory: &Reservation, from: u64, to: u64) {
    if from < to && to >= HUGE_PAGES_FROM_BYTES {
        let from = if from < HUGE_PAGES_FROM_BYTES { 0 } else { from & !(HUGE_PAGE_BYTES - 1) };
        let end = to.next_multiple_of(HUGE_PAGE_BYTES).min(memory.len() as u64);
        memory.advise_huge(from as usize, (end - from) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks 0 to 9; in block 3 a page is in use, in block 5 less than three quarters, in block 6 as much, in the
    /// others all but none in block 9.
    fn sums() -> PageChecksums {
        let sums = PageChecksums::new(std::path::Path::new("p"), 32 << 20).unwrap();
        let pages = |block: u64| match block {
            3 => 1,
            5 => 383,
            6 => 384,
            9 => 0,
            _ => 512,
        };
        for block in 0..10 {
            (0..pages(block)).for_each(|page| sums.set(block * 512 + page, 1));
        }
        sums
    }

    #[test]
    fn a_sparse_block_waits_until_three_quarters_of_it_are_in_use() {
        const PAGE: u64 = PAGE_BYTES as u64;
        let memory = Reservation::anonymous(32 << 20).unwrap();
        let sparse = SparseBlocks::advise(&memory, &sums(), 20 << 20);
        let blocks = || sparse.blocks.lock().keys().copied().collect::<Vec<_>>();
        assert_eq!(blocks(), [3, 5]);
        sparse.note_use(&memory, 0..6 << 20);
        assert_eq!(blocks(), [3, 5], "a part before them");
        for _ in 0..3 {
            sparse.note_use(&memory, 10 << 20..(10 << 20) + 383 * PAGE);
        }
        assert_eq!(blocks(), [3, 5], "pages that were in use");
        sparse.note_use(&memory, (10 << 20) + 400 * PAGE..(10 << 20) + 401 * PAGE);
        assert_eq!(blocks(), [3]);
        sparse.note_use(&memory, 0..(6 << 20) + 383 * PAGE);
        assert_eq!(blocks(), [3]);
        sparse.note_use(&memory, (6 << 20) + 383 * PAGE..20 << 20);
        assert_eq!(blocks(), []);
        assert!(SparseBlocks::advise(&memory, &sums(), (16 << 20) - PAGE).blocks.lock().is_empty());
    }
}
