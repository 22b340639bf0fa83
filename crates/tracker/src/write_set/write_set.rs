//! What a batch of calls wrote: the instrumentation state machine of the Mangosteen paper, Fig. 3.
//!
//! Small writes become blocks, which a table deduplicates. Large ones (one memcpy, one read(2)) become ranges.
//! Writes into *exact* ranges keep their bytes. Changes of mappings become events. A `WriteSet` never calls the
//! global allocator in a tracked call, so a tracker may fill it in the middle of `malloc`.

use crate::error::{Error, Result};
use crate::own_memory;
use crate::write_set::block_table::BlockTable;
use crate::write_set::exact::ExactRanges;
use crate::write_set::own_vec::OwnVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The block of the paper: 32 bytes.
pub const BLOCK_BYTES_DEFAULT: usize = 32;

/// Writes of up to this many bytes become blocks, longer ones ranges.
pub(crate) const SMALL_BYTES_MAX: usize = 64;
/// Fewer bytes between two writes are no reason for two ranges.
const GAP_BYTES: usize = 16;
/// A list of ranges is merged when it has this many more than after its last merge, or twice as many if that is more.
const RANGE_COUNT_MAX: usize = 1 << 16;
/// Slots of the small cache of recent (address, length) pairs.
const RECENT_SLOTS: usize = 64;

/// A change of the address space, in the order in which the calls made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are those of the system calls")]
pub enum Event {
    /// mmap(2) put something at [addr, addr + len): zeros, or the file's bytes.
    Map { addr: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: i64 },
    /// munmap(2), or the part of it that mremap(2) and brk(2) do.
    Unmap { addr: usize, len: usize },
    /// mprotect(2).
    Protect { addr: usize, len: usize, prot: i32 },
    /// mremap(2) moved or resized: `old_len` bytes at `old` are now `len` bytes at `addr`.
    Remap { old: usize, old_len: usize, addr: usize, len: usize },
    /// brk(2) moved the end of the heap.
    Break { old: usize, new: usize },
    /// madvise(2) with an advice that drops the contents.
    Discard { addr: usize, len: usize },
}

/// The addresses that a batch of calls wrote. One thread at a time.
///
/// ```
/// let mut writes = mangrove_tracker::WriteSet::new(32)?;
/// writes.record(0x1004, 8);
/// writes.record(0x1008, 4);
/// writes.record(0x101c, 8);
/// assert_eq!(writes.ranges(), [(0x1000, 64)]);
/// # Ok::<(), mangrove_tracker::Error>(())
/// ```
pub struct WriteSet {
    block_bytes: usize,
    table: BlockTable,
    /// Block addresses; each is here once while the table remembers it.
    blocks: OwnVec<u64>,
    ranges: OwnVec<(usize, usize)>,
    /// Ranges that the last merge left.
    ranges_from: usize,
    recent: [(usize, usize); RECENT_SLOTS],
    recent_used: bool,
    exact_ranges: ExactRanges,
    exact: OwnVec<(usize, usize)>,
    exact_from: usize,
    events: OwnVec<Event>,
    /// Stacks of the calling threads. Writes to them are not reported.
    stacks: OwnVec<(usize, usize)>,
    merged: OwnVec<(usize, usize)>,
    scratch: OwnVec<(usize, usize)>,
    holes: OwnVec<(usize, usize)>,
    sealed: OwnVec<(usize, usize)>,
    keeps_calls_apart: bool,
    id: u64,
    generation: u64,
}

impl WriteSet {
    /// An empty set of blocks of `block_bytes` (16, 32, 64 or 128).
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other size, and where the process may not reserve the address space.
    pub fn new(block_bytes: usize) -> Result<Self> {
        static ID: AtomicU64 = AtomicU64::new(1);
        if !own_memory::prepare() {
            let what = format!(
                "cannot reserve {} bytes of address space to note writes in; raise the limit (ulimit -v)",
                own_memory::LEAST_BYTES
            );
            return Err(Error::Invalid { what });
        }
        if !matches!(block_bytes, 16 | 32 | 64 | 128) {
            return Err(Error::Invalid {
                what: format!("blocks of {block_bytes} bytes: use 16, 32, 64 or 128"),
            });
        }
        Ok(Self {
            block_bytes,
            table: BlockTable::new(),
            blocks: OwnVec::new(),
            ranges: OwnVec::new(),
            ranges_from: 0,
            recent: [(0, 0); RECENT_SLOTS],
            recent_used: false,
            exact_ranges: ExactRanges::default(),
            exact: OwnVec::new(),
            exact_from: 0,
            events: OwnVec::new(),
            stacks: OwnVec::new(),
            merged: OwnVec::new(),
            scratch: OwnVec::new(),
            holes: OwnVec::new(),
            sealed: OwnVec::new(),
            keeps_calls_apart: false,
            id: ID.fetch_add(1, Relaxed),
            generation: 0,
        })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Sets the ranges (address, length) whose written bytes are wanted exactly: see [`WriteSet::exact`]. Replaces
    /// earlier ones; bytes recorded for those stay recorded. It allocates, so never call it in a tracked call.
    pub fn set_exact(&mut self, ranges: &[(usize, usize)]) {
        self.exact_ranges = ExactRanges::new(ranges);
        self.generation += 1;
    }

    /// Adds [addr, addr + len). Takes a few nanoseconds for a write that was recorded lately. O(blocks touched) up
    /// to 64 bytes, O(1) beyond.
    #[inline]
    pub fn record(&mut self, addr: usize, len: usize) {
        if len == 0 {
            return;
        }
        if self.exact_ranges.may_touch(addr, addr + len) {
            return self.record_split(addr, len);
        }
        if len > SMALL_BYTES_MAX && self.continues_last(addr, len) {
            return;
        }
        self.record_plain(addr, len);
    }

    /// Makes the last range longer, if this one, which touches no exact range, begins where it ends, or after the rest
    /// of an allocator's block. So records that are written one after another are few ranges.
    #[inline]
    fn continues_last(&mut self, addr: usize, len: usize) -> bool {
        let Some((last, last_len)) = self.ranges.last_mut() else { return false };
        let end = *last + *last_len;
        let continues =
            addr.wrapping_sub(end) < GAP_BYTES && !self.exact_ranges.may_touch(end, addr.wrapping_add(1));
        if continues {
            *last_len = addr + len - *last;
        }
        continues
    }

    #[inline]
    fn record_plain(&mut self, addr: usize, len: usize) {
        if len > SMALL_BYTES_MAX {
            return self.record_range(addr, len);
        }
        let mask = !(self.block_bytes - 1);
        let (mut block, last) = (addr & mask, (addr + len - 1) & mask);
        loop {
            // Block 0 is page 0, which no program can write.
            if block != 0 && self.table.insert(block as u64) {
                self.blocks.push(block as u64);
            }
            if block == last {
                break;
            }
            block += self.block_bytes;
        }
    }

    #[cold]
    fn record_split(&mut self, addr: usize, len: usize) {
        let ranges = std::mem::take(&mut self.exact_ranges);
        ranges.split(addr, addr + len, |lo, hi, exact| {
            if exact { self.record_exact(lo, hi - lo) } else { self.record_plain(lo, hi - lo) }
        });
        self.exact_ranges = ranges;
    }

    fn record_range(&mut self, addr: usize, len: usize) {
        if self.is_recent(addr, len) {
            return;
        }
        self.ranges.push((addr, len));
        limit(&mut self.ranges, &mut self.ranges_from);
    }

    /// Bytes inside the exact ranges.
    pub(crate) fn record_exact(&mut self, addr: usize, len: usize) {
        if self.is_recent(addr, len) {
            return;
        }
        self.exact.push((addr, len));
        limit(&mut self.exact, &mut self.exact_from);
    }

    #[inline]
    fn is_recent(&mut self, addr: usize, len: usize) -> bool {
        let slot = &mut self.recent[((addr >> 3) ^ (addr >> 12) ^ len) % RECENT_SLOTS];
        if *slot == (addr, len) {
            return true;
        }
        *slot = (addr, len);
        self.recent_used = true;
        false
    }

    /// The bytes of the exact ranges that were written, as (address, length); unsorted, may repeat.
    #[must_use]
    pub fn exact(&self) -> &[(usize, usize)] {
        &self.exact
    }

    /// Changes of mappings, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Adds an event. Trackers do; so may a hook that serves mappings itself.
    pub fn record_event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Distinct blocks, unsorted. After an overflow of the table a block can be here twice. Neither the exact bytes
    /// nor the large ranges are among them.
    #[must_use]
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Writes of more than 64 bytes, as (address, length), unsorted, may overlap.
    #[must_use]
    pub fn large(&self) -> &[(usize, usize)] {
        &self.ranges
    }

    /// Whether the caller seals the set after each call of a batch: then bytes that several calls wrote are there
    /// once for each call.
    pub fn keep_calls_apart(&mut self, yes: bool) {
        self.keeps_calls_apart = yes;
    }

    /// See [`WriteSet::keep_calls_apart`].
    #[must_use]
    pub fn keeps_calls_apart(&self) -> bool {
        self.keeps_calls_apart
    }

    /// Moves blocks and large ranges to [`WriteSet::sealed`], joined. What is written again is recorded again.
    pub fn seal(&mut self) {
        self.merged.clear();
        for &block in self.blocks.iter() {
            self.merged.push((block as usize, self.block_bytes));
        }
        self.merged.extend(&self.ranges);
        merge(&mut self.merged);
        self.sealed.extend(&self.merged);
        self.forget_blocks();
    }

    /// What was sealed since the last [`WriteSet::clear`], in the order of the seals. Neither [`WriteSet::ranges`] nor
    /// the lists of blocks and large ranges have it.
    #[must_use]
    pub fn sealed(&self) -> &[(usize, usize)] {
        &self.sealed
    }

    /// True if nothing was recorded since the last [`WriteSet::clear`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.ranges.is_empty()
            && self.exact.is_empty()
            && self.events.is_empty()
            && self.sealed.is_empty()
    }

    /// Everything written, as sorted, disjoint, non-adjacent (address, length).
    ///
    /// Outside the exact ranges the borders are those of blocks, so unwritten bytes next to a written one may be
    /// reported. Inside them exactly the written bytes are. Not reported: the stacks of the calling threads, and
    /// memory that was unmapped or made unreadable and not mapped again. O(n log n).
    pub fn ranges(&mut self) -> &[(usize, usize)] {
        self.merged.clear();
        for &block in self.blocks.iter() {
            self.merged.push((block as usize, self.block_bytes));
        }
        self.merged.extend(&self.ranges);
        merge(&mut self.merged);
        if !self.exact_ranges.spans().is_empty() {
            for &(lo, hi) in self.exact_ranges.spans() {
                subtract(&mut self.merged, &mut self.scratch, lo, hi);
            }
            self.merged.extend(&self.exact);
            merge(&mut self.merged);
        }
        for idx in 0..self.stacks.len() {
            let (lo, hi) = self.stacks[idx];
            subtract(&mut self.merged, &mut self.scratch, lo, hi);
        }
        self.find_holes();
        for idx in 0..self.holes.len() {
            let (lo, len) = self.holes[idx];
            subtract(&mut self.merged, &mut self.scratch, lo, lo + len);
        }
        merge(&mut self.merged);
        &self.merged
    }

    /// Collects the memory that the events took away and did not bring back.
    fn find_holes(&mut self) {
        self.holes.clear();
        for idx in 0..self.events.len() {
            let (gone, back) = match self.events[idx] {
                Event::Unmap { addr, len } => ((addr, addr + len), (0, 0)),
                Event::Protect { addr, len, prot } | Event::Map { addr, len, prot, .. } => {
                    let span = (addr, addr + len);
                    if prot & libc::PROT_READ == 0 { (span, (0, 0)) } else { ((0, 0), span) }
                }
                Event::Remap { old, old_len, addr, len } => ((old, old + old_len), (addr, addr + len)),
                Event::Break { old, new } if new < old => ((new, old), (0, 0)),
                Event::Break { old, new } => ((0, 0), (old, new)),
                Event::Discard { .. } => continue,
            };
            if gone.1 > gone.0 {
                self.holes.push((gone.0, gone.1 - gone.0));
                merge(&mut self.holes);
            }
            if back.1 > back.0 {
                subtract(&mut self.holes, &mut self.scratch, back.0, back.1);
            }
        }
    }

    /// Forgets everything but the exact ranges.
    pub fn clear(&mut self) {
        self.forget_blocks();
        self.sealed.clear();
        self.exact.clear();
        self.exact_from = 0;
        self.events.clear();
        self.stacks.clear();
    }

    fn forget_blocks(&mut self) {
        self.table.clear();
        self.blocks.clear();
        if self.recent_used {
            self.recent.fill((0, 0));
            self.recent_used = false;
        }
        self.ranges.clear();
        self.ranges_from = 0;
        self.generation += 1;
    }

    // For the trackers of this crate.

    /// Identifies the set and its content: changes with every clear and seal.
    pub(crate) fn version(&self) -> (u64, u64) {
        (self.id, self.generation)
    }

    pub(crate) fn exact_ranges(&self) -> &ExactRanges {
        &self.exact_ranges
    }

    /// Blocks that a tracker's own table has deduplicated.
    pub(crate) fn add_blocks(&mut self, blocks: &[u64]) {
        // The set's own table does not know them: a caller that mixes both ways may get a block twice, but loses
        // none.
        self.blocks.extend(blocks);
    }

    pub(crate) fn add_ranges(&mut self, ranges: &[(usize, usize)]) {
        self.ranges.extend(ranges);
        limit(&mut self.ranges, &mut self.ranges_from);
    }

    pub(crate) fn add_exact(&mut self, ranges: &[(usize, usize)]) {
        self.exact.extend(ranges);
        limit(&mut self.exact, &mut self.exact_from);
    }

    /// The bytes [lo, hi), of which some may lie outside of the exact ranges. `span` is the exact range of the call
    /// before, or empty.
    #[inline]
    pub(crate) fn add_bytes(&mut self, lo: usize, hi: usize, span: &mut (usize, usize)) {
        if lo < span.0 || hi > span.1 {
            *span = self.exact_ranges.span_of(lo);
        }
        if lo < span.0 || hi > span.1 {
            return self.split_bytes(lo, hi);
        }
        self.exact.push((lo, hi - lo));
        limit(&mut self.exact, &mut self.exact_from);
    }

    #[cold]
    fn split_bytes(&mut self, lo: usize, hi: usize) {
        let exact_ranges = std::mem::take(&mut self.exact_ranges);
        exact_ranges.split(lo, hi, |lo, hi, exact| {
            if exact { self.add_exact(&[(lo, hi - lo)]) } else { self.add_ranges(&[(lo, hi - lo)]) }
        });
        self.exact_ranges = exact_ranges;
    }

    /// Excludes a stack from the report.
    pub(crate) fn add_stack(&mut self, lo: usize, hi: usize) {
        if !self.stacks.contains(&(lo, hi)) {
            self.stacks.push((lo, hi));
        }
    }
}

/// Merges a list that has doubled since its last merge, which left `from` ranges: however many ranges do not touch,
/// each is sorted a bounded number of times.
#[inline]
fn limit(ranges: &mut OwnVec<(usize, usize)>, from: &mut usize) {
    if ranges.len() - *from >= (*from).max(RANGE_COUNT_MAX) {
        merge(ranges);
        *from = ranges.len();
    }
}

/// Sorts and joins (address, length) pairs that touch.
fn merge(ranges: &mut OwnVec<(usize, usize)>) {
    #[cfg(test)]
    tests::SORTED.with(|sorted| sorted.set(sorted.get() + ranges.len()));
    ranges.sort_unstable();
    let mut kept = 0;
    for idx in 0..ranges.len() {
        let (addr, len) = ranges[idx];
        if len == 0 {
            continue;
        }
        if kept > 0 {
            let (last, last_len) = ranges[kept - 1];
            if addr <= last + last_len {
                ranges[kept - 1].1 = last_len.max(addr + len - last);
                continue;
            }
        }
        ranges[kept] = (addr, len);
        kept += 1;
    }
    ranges.truncate(kept);
}

/// Removes [lo, hi) from sorted, disjoint pairs.
fn subtract(ranges: &mut OwnVec<(usize, usize)>, scratch: &mut OwnVec<(usize, usize)>, lo: usize, hi: usize) {
    let first = ranges.partition_point(|&(addr, len)| addr + len <= lo);
    let last = first + ranges[first..].partition_point(|&(addr, _)| addr < hi);
    if first == last {
        return;
    }
    scratch.clear();
    let (addr, _) = ranges[first];
    if addr < lo {
        scratch.push((addr, lo - addr));
    }
    let (addr, len) = ranges[last - 1];
    if addr + len > hi {
        scratch.push((hi, addr + len - hi));
    }
    scratch.extend(&ranges[last..]);
    ranges.truncate(first);
    ranges.extend(scratch);
}

#[cfg(test)]
mod tests {
    use super::{Event, GAP_BYTES, RANGE_COUNT_MAX, WriteSet};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::cell::Cell;

    const SPAN: usize = 4096;
    const BASE: usize = 0x10_0000;

    thread_local! {
        /// Ranges that this thread's merges have sorted: the work of `merge`.
        pub(super) static SORTED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn what_was_sealed_is_recorded_again() {
        let mut writes = WriteSet::new(32).unwrap();
        for _ in 0..2 {
            writes.record(BASE, 8);
            writes.record(BASE + 32, 8);
            writes.record(BASE, 8);
            writes.record(BASE + 64, 100);
            writes.seal();
        }
        writes.record(BASE, 8);
        assert_eq!(writes.sealed(), [(BASE, 164), (BASE, 164)]);
        assert_eq!(writes.ranges(), [(BASE, 32)]);
        writes.clear();
        assert!(writes.is_empty() && writes.sealed().is_empty());
    }

    /// As an allocator gives them: 156 bytes of each 160.
    #[test]
    fn long_writes_that_follow_each_other_are_one_range() {
        let mut writes = WriteSet::new(32).unwrap();
        (0..100).for_each(|at| writes.record(BASE + 160 * at, 156));
        assert_eq!(writes.large(), [(BASE, 160 * 99 + 156)]);
        // A gap that no allocator leaves.
        writes.clear();
        writes.record(BASE, 96);
        writes.record(BASE + 96 + GAP_BYTES, 96);
        assert_eq!(writes.large(), [(BASE, 96), (BASE + 96 + GAP_BYTES, 96)]);
        // A short gap that has exact bytes, at the end of a page; the second write touches none of that page.
        let border = BASE + 0x1000;
        for (exact, expected) in [
            (vec![], vec![(border - 200, 296)]),
            (vec![(border - 4, 4)], vec![(border - 200, 192), (border, 96)]),
        ] {
            writes.set_exact(&exact);
            writes.clear();
            writes.record(border - 200, 192);
            writes.record(border, 96);
            assert_eq!(writes.large(), expected);
        }
    }

    proptest! {
        // The same cases in every run; a longer campaign sets PROPTEST_RNG_SEED and PROPTEST_CASES.
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        /// Against one flag a byte: outside the exact ranges whole blocks, inside them the bytes.
        #[test]
        fn ranges_agree_with_a_byte_map(
            shift in 4usize..8,
            writes in prop::collection::vec((0usize..SPAN - 600, 1usize..600), 0..80),
            exact in prop::collection::vec((0usize..SPAN - 100, 1usize..100), 0..4),
            rounds in 1usize..3,
        ) {
            let block = 1 << shift;
            let mut set = WriteSet::new(block).unwrap();
            set.set_exact(&exact.iter().map(|&(a, l)| (BASE + a, l)).collect::<Vec<_>>());
            let is_exact = |b: usize| exact.iter().any(|&(a, l)| (a..a + l).contains(&b));
            for _ in 0..rounds {
                set.clear();
                let mut must = vec![false; SPAN];
                let mut may = vec![false; SPAN];
                for &(addr, len) in &writes {
                    set.record(BASE + addr, len);
                    for byte in addr..addr + len {
                        must[byte] = true;
                        may[byte] = true;
                        if !is_exact(byte) {
                            let first = byte & !(block - 1);
                            (first..first + block).filter(|&b| !is_exact(b)).for_each(|b| may[b] = true);
                        }
                    }
                }
                let mut reported = vec![false; SPAN];
                let mut last = 0;
                for &(addr, len) in set.ranges() {
                    prop_assert!(addr > last, "sorted and apart");
                    last = addr + len;
                    (addr..addr + len).for_each(|b| reported[b - BASE] = true);
                }
                for byte in 0..SPAN {
                    prop_assert!(reported[byte] || !must[byte], "missed {byte}");
                    prop_assert!(may[byte] || !reported[byte], "reported {byte}");
                }
            }
        }

        /// Stacks, mappings that came and went, and exact ranges, with writes into all of them, against a byte map.
        #[test]
        fn stacks_and_holes_next_to_exact_ranges(
            writes in prop::collection::vec((0usize..16 * SPAN - 100, 1usize..100), 0..60),
            exact in prop::collection::vec((0usize..16 * SPAN - 100, 1usize..100), 0..6),
            stacks in prop::collection::vec((0usize..12, 1usize..4), 0..3),
            holes in prop::collection::vec((0usize..12, 1usize..4), 0..3),
        ) {
            let mut set = WriteSet::new(32).unwrap();
            set.set_exact(&exact.iter().map(|&(a, l)| (BASE + a, l)).collect::<Vec<_>>());
            let mut must = vec![false; 16 * SPAN];
            for &(addr, len) in &writes {
                set.record(BASE + addr, len);
                must[addr..addr + len].fill(true);
            }
            for &(page, count) in &stacks {
                set.add_stack(BASE + page * SPAN, BASE + (page + count) * SPAN);
            }
            for &(page, count) in &holes {
                set.record_event(Event::Unmap { addr: BASE + page * SPAN, len: count * SPAN });
            }
            for &(page, count) in stacks.iter().chain(&holes) {
                must[page * SPAN..(page + count) * SPAN].fill(false);
            }
            let is_exact = |b: usize| exact.iter().any(|&(a, l)| (a..a + l).contains(&b));
            let gone = |b: usize| {
                stacks.iter().chain(&holes).any(|&(page, count)| (page..page + count).contains(&(b / SPAN)))
            };
            let mut reported = vec![false; 16 * SPAN];
            let mut last = 0;
            for &(addr, len) in set.ranges() {
                prop_assert!(addr > last, "sorted and apart");
                last = addr + len;
                reported[addr - BASE..addr - BASE + len].fill(true);
            }
            for byte in 0..16 * SPAN {
                prop_assert!(reported[byte] || !must[byte], "missed {byte}");
                prop_assert!(!reported[byte] || must[byte] || !(is_exact(byte) || gone(byte)), "reported {byte}");
            }
        }

        /// Events against one flag a page.
        #[test]
        fn unmapped_memory_is_left_out(
            events in prop::collection::vec((0usize..16, 1usize..6, 0u8..4, 0usize..16), 0..12)
        ) {
            let mut set = WriteSet::new(32).unwrap();
            let mut mapped = [true; 40];
            set.record(BASE, 40 * 4096);
            for (page, count, what, other) in events {
                let (addr, len) = (BASE + page * 4096, count * 4096);
                match what {
                    0 => {
                        set.record_event(Event::Unmap { addr, len });
                        mapped[page..page + count].fill(false);
                    }
                    1 => {
                        set.record_event(Event::Map { addr, len, prot: 3, flags: 0, fd: -1, offset: 0 });
                        mapped[page..page + count].fill(true);
                    }
                    2 => {
                        set.record_event(Event::Protect { addr, len, prot: 0 });
                        mapped[page..page + count].fill(false);
                    }
                    _ => {
                        let to = BASE + (other + 20) * 4096;
                        set.record_event(Event::Remap { old: addr, old_len: len, addr: to, len: 4096 });
                        mapped[page..page + count].fill(false);
                        mapped[other + 20] = true;
                    }
                }
            }
            let mut reported = [false; 40];
            for &(addr, len) in set.ranges() {
                (addr..addr + len).step_by(4096).for_each(|b| reported[(b - BASE) / 4096] = true);
            }
            prop_assert_eq!(reported, mapped);
        }
    }

    #[test]
    fn stacks_are_left_out() {
        let mut set = WriteSet::new(64).unwrap();
        set.record(BASE, 1000);
        set.add_stack(BASE + 100, BASE + 200);
        assert_eq!(set.ranges(), [(BASE, 100), (BASE + 200, 800)]);
        set.clear();
        assert!(set.is_empty() && set.ranges().is_empty());
    }

    #[test]
    fn exact_bytes_below_a_stack_stay() {
        let mut set = WriteSet::new(32).unwrap();
        set.set_exact(&[(BASE, 64)]);
        set.record(BASE, 8);
        (0..4).for_each(|page| set.record(2 * BASE + page * 4096, 32));
        set.add_stack(2 * BASE, 3 * BASE);
        assert_eq!(set.ranges(), [(BASE, 8)]);
    }

    /// Records `count` ranges of 100 bytes that do not touch, in no order, by `record`. After each the merges may
    /// have sorted twice as many ranges as were recorded. Returns the set.
    fn record_apart(
        count: usize,
        mut record: impl FnMut(&mut WriteSet, usize, &[usize]),
        at_once: usize,
    ) -> WriteSet {
        let mut set = WriteSet::new(32).unwrap();
        let before = SORTED.get();
        // An odd factor visits each place below a power of two once.
        let places: Vec<usize> =
            (0..count).map(|number| BASE + number.wrapping_mul(0x9e37_79b1) % count * 128).collect();
        for (number, chunk) in places.chunks(at_once).enumerate() {
            record(&mut set, 100, chunk);
            let (recorded, sorted) = ((number + 1) * at_once, SORTED.get() - before);
            assert!(sorted <= 2 * recorded, "{recorded} ranges were recorded, and {sorted} sorted");
        }
        set
    }

    /// Ranges that do not merge: each further one used to sort all of them.
    #[test]
    fn many_ranges_are_each_sorted_a_bounded_number_of_times() {
        const COUNT: usize = 8 * RANGE_COUNT_MAX;
        let one_by_one = |set: &mut WriteSet, len, places: &[usize]| set.record(places[0], len);
        let from_a_tracker = |set: &mut WriteSet, len, places: &[usize]| {
            set.add_ranges(&places.iter().map(|&at| (at, len)).collect::<Vec<_>>());
        };
        let exactly = |set: &mut WriteSet, len, places: &[usize]| {
            set.add_exact(&places.iter().map(|&at| (at, len)).collect::<Vec<_>>());
        };
        let mut sets = [
            record_apart(COUNT, one_by_one, 1),
            record_apart(COUNT, from_a_tracker, 64),
            record_apart(COUNT, exactly, 64),
        ];
        let [_, _, exact] = &sets;
        assert!(exact.exact().len() == COUNT && exact.large().is_empty());
        let whole: Vec<_> = (0..COUNT).map(|number| (BASE + number * 128, 100)).collect();
        for set in &mut sets[..2] {
            assert!(set.ranges() == whole, "ranges were lost");
        }
        // A set that was emptied begins again.
        let set = &mut sets[0];
        set.clear();
        let before = SORTED.get();
        (0..RANGE_COUNT_MAX - 1).for_each(|number| set.record(BASE + number * 128, 100));
        assert_eq!(SORTED.get(), before);
    }

    /// Writes that repeat take no more memory than the greatest list that is not merged.
    #[test]
    fn ranges_that_repeat_stay_few() {
        let mut set = WriteSet::new(32).unwrap();
        for number in 0..4 * RANGE_COUNT_MAX {
            set.record(BASE + number % 1000 * 128, 100);
            assert!(set.large().len() <= RANGE_COUNT_MAX + 1000);
        }
        assert_eq!(set.ranges().len(), 1000);
    }
}
