//! Checks an arena against its rules, and counts what is in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::bytes::class::{CLASS_BYTES, CLASSES};
use crate::bytes::layout::{
    BIN_COUNT, GROUP_PAGES, PAGE_BYTES, PageBitmap, PageGroup, Span, class_of_span, kind, kind_of,
    shard_table_pages, what,
};
use crate::heap::ArenaHeap;
use crate::pages::bins::bin_for_audit;
use crate::view::ArenaView;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an arena holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStat {
    /// Bytes under management.
    pub bytes: u64,
    /// Bytes of blocks in use, each counted with the size of its class.
    pub used_bytes: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes that commands have mapped.
    pub mapped_bytes: u64,
    /// Bytes of whole free pages, those that shards keep among them.
    pub free_bytes: u64,
    /// Bytes of the arena's own state.
    pub meta_bytes: u64,
}

/// A span's entry as it is now.
struct Entry {
    kind: u8,
    class: u8,
    pages: u64,
    free: [u64; 4],
}

/// A word as it is now: no other thread writes.
fn now(word: &AtomicU64) -> u64 {
    // Relaxed: there is no writer to be ordered with.
    word.load(Ordering::Relaxed)
}

impl Entry {
    fn of(span: &Span) -> Self {
        let what = now(span.what());
        Self {
            kind: kind_of(what),
            class: class_of_span(what),
            pages: now(span.pages()),
            free: [0, 1, 2, 3].map(|at| now(&span.free[at])),
        }
    }
}

impl ArenaHeap {
    /// Counts everything, up to the first span that cannot be one. O(spans). No other thread changes the arena.
    #[must_use]
    pub fn stat(&self) -> ArenaStat {
        let all = self.view.pages();
        let mut stat = ArenaStat { bytes: all * PAGE_BYTES as u64, ..ArenaStat::default() };
        let mut page = 0;
        while page < all {
            let span = Entry::of(self.view.span(page));
            if !ArenaView::has_room(page, span.pages, all) {
                break;
            }
            let bytes = span.pages * PAGE_BYTES as u64;
            match span.kind {
                kind::FREE | kind::RESERVE => stat.free_bytes += bytes,
                kind::META => stat.meta_bytes += bytes,
                kind::MAPPED => stat.mapped_bytes += bytes,
                kind::LARGE => {
                    stat.used_bytes += bytes;
                    stat.blocks += 1;
                }
                kind::SLAB => {
                    if let Some(shape) = self.view.shape(page, span.class, span.pages, all) {
                        let used = span.free.iter().zip(shape.all_free).map(|(free, may)| may & !free);
                        let blocks: u32 = used.map(u64::count_ones).sum();
                        stat.used_bytes += u64::from(blocks * shape.bytes);
                        stat.blocks += u64::from(blocks);
                    }
                }
                _ => {}
            }
            page += span.pages;
        }
        stat
    }

    /// What breaks the arena's rules, as messages; none if it is sound. O(pages). No other thread changes the arena.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut bad = Vec::new();
        if let Err(what) = self.check_head(&mut bad) {
            // What the head names cannot be looked at.
            return vec![what];
        }
        let mut seen = Seen::default();
        self.check_spans(&mut bad, &mut seen);
        if bad.is_empty() {
            self.check_own_pages(&mut bad);
            self.check_bins(&mut bad, seen.free);
            self.check_lists(&mut bad, seen.open_slabs);
            self.check_reserves(&mut bad, seen.reserves);
        }
        bad
    }

    /// Checks the head again: the program may have overwritten it since the arena was opened.
    fn check_head(&self, bad: &mut Vec<String>) -> Result<(), String> {
        let (pages, groups_max) = self.check_sizes()?;
        if groups_max != self.groups_max {
            let before = self.groups_max;
            return Err(format!(
                "the arena's directory is for {groups_max} groups, and was for {before} when it was opened"
            ));
        }
        self.check_parts(pages)?;
        let (used, has) = (self.used_pages(pages)?, self.space_len() / PAGE_BYTES as u64);
        if has < used {
            return Err(format!("the arena says that {used} pages were allocated, but the region has {has}"));
        }
        if !self.view.is_head_zero_behind() {
            bad.push("bytes behind the arena's head are not zero".to_owned());
        }
        for (number, shard) in (1..).map_while(|number| Some((number, self.view.shard(number)?))) {
            if shard.zero.iter().any(|word| now(word) != 0) {
                bad.push(format!("bytes behind shard {number} are not zero"));
            }
        }
        Ok(())
    }

    fn check_spans(&self, bad: &mut Vec<String>, seen: &mut Seen) {
        let all = self.view.pages();
        let mut page = 0;
        let mut after_free = false;
        while page < all {
            let span = Entry::of(self.view.span(page));
            if span.pages == 0 || span.pages > all - page {
                bad.push(format!("the span at page {page} says it has {} pages", span.pages));
                return;
            }
            let end = page + span.pages;
            for p in page..end {
                if self.view.bit(PageBitmap::Starts, p) != (p == page) {
                    bad.push(format!("page {p}: wrong start bit, in the span at page {page}"));
                }
                if self.view.bit(PageBitmap::FreeEnds, p) != (span.kind == kind::FREE && p == end - 1) {
                    bad.push(format!("page {p}: wrong free-end bit, in the span at page {page}"));
                }
                if !matches!(span.kind, kind::FREE | kind::RESERVE) && !self.view.bit(PageBitmap::Touched, p)
                {
                    bad.push(format!("page {p} is in use and not marked as touched"));
                }
            }
            let class = if span.kind == kind::SLAB { span.class } else { 0 };
            if now(self.view.span(page).what()) != what(span.kind, class) {
                bad.push(format!("the span at page {page} says more than its kind and class"));
            }
            match span.kind {
                kind::FREE => {
                    if after_free {
                        bad.push(format!("the free run at page {page} follows another"));
                    }
                    if now(&self.view.span(end - 1).free[0]) != span.pages {
                        bad.push(format!("the free run at page {page} has a wrong length at its end"));
                    }
                    seen.free.insert(page, span.pages);
                }
                kind::SLAB => self.check_slab(bad, page, &span, seen),
                kind::RESERVE => {
                    seen.reserves.insert(page);
                }
                kind::LARGE | kind::MAPPED | kind::META => {}
                other => bad.push(format!("the span at page {page} is of unknown kind {other}")),
            }
            after_free = span.kind == kind::FREE;
            page = end;
        }
    }

    /// What the arena keeps for itself lies in spans of its own, and nothing lies there twice.
    fn check_own_pages(&self, bad: &mut Vec<String>) {
        let groups = self.view.pages() / GROUP_PAGES;
        let is_own = |from: u64, until: u64| {
            let page_bytes = PAGE_BYTES as u64;
            let start = self.start_of(from / page_bytes);
            let span = Entry::of(self.view.span(start));
            span.kind == kind::META && until <= (start + span.pages) * page_bytes
        };
        let groups_max = now(&self.head().groups_max);
        let directory = self.view.directory as u64 - self.base_address() as u64;
        if !is_own(0, directory + groups_max * 8) {
            bad.push(format!(
                "the directory of {groups_max} groups does not lie in pages of the arena's own"
            ));
            return;
        }
        let mut descriptions = BTreeMap::new();
        for group in 0..groups_max {
            let offset = now(self.view.directory_entry(group));
            if group >= groups {
                if offset != 0 {
                    bad.push(format!("the directory has an entry for group {group} of {groups}"));
                }
                continue;
            }
            let end = offset + size_of::<PageGroup>() as u64;
            if !is_own(offset, end) {
                bad.push(format!(
                    "the description of group {group} does not lie in pages of the arena's own"
                ));
            }
            descriptions.insert(offset, (end, group));
        }
        if descriptions.len() as u64 != groups {
            bad.push("two groups have one description".to_owned());
        }
        for ((_, (end, first)), (offset, (_, second))) in descriptions.iter().zip(descriptions.iter().skip(1))
        {
            if end > offset {
                bad.push(format!("the descriptions of groups {first} and {second} overlap"));
            }
        }
        let table = now(&self.head().shards);
        if let Some(page) = table.checked_sub(1) {
            let span = Entry::of(self.view.span(self.start_of(page)));
            let pages = shard_table_pages(now(&self.head().shard_count));
            if self.start_of(page) != page || span.kind != kind::META || span.pages != pages {
                bad.push("the table of shards is no span of the arena's own".to_owned());
            }
        } else if now(&self.head().shard_count) != 0 {
            bad.push("the arena counts shards and has no table of them".to_owned());
        }
    }

    fn check_slab(&self, bad: &mut Vec<String>, page: u64, span: &Entry, seen: &mut Seen) {
        let Some(shape) = CLASSES.get(span.class as usize) else {
            bad.push(format!("the slab at page {page} is of unknown class {}", span.class));
            return;
        };
        if span.pages != u64::from(shape.pages) {
            bad.push(format!("the slab at page {page} has {} pages instead of {}", span.pages, shape.pages));
        }
        if span.free.iter().zip(shape.all_free).any(|(&has, may)| has & !may != 0) {
            bad.push(format!("the slab at page {page} has free blocks behind its end"));
        }
        if span.free != [0; 4] {
            seen.open_slabs.insert(page, span.class);
        }
    }

    fn check_bins(&self, bad: &mut Vec<String>, mut free: BTreeMap<u64, u64>) {
        for bin in 0..BIN_COUNT {
            let mut next = now(&self.head().bins[bin]);
            let used = now(&self.head().bins_used[bin / 64]) >> (bin % 64) & 1 == 1;
            if used != (next != 0) {
                bad.push(format!("bin {bin}: its bit is wrong"));
            }
            let mut prev = 0;
            while next != 0 {
                let page = next - 1;
                match free.remove(&page) {
                    Some(pages) if bin_for_audit(pages) == bin => {}
                    Some(pages) => bad.push(format!("a free run of {pages} pages is in bin {bin}")),
                    None => {
                        bad.push(format!("bin {bin} lists page {page}, which starts no free run, or twice"));
                        return;
                    }
                }
                if now(self.view.span(page).prev()) != prev {
                    bad.push(format!("bin {bin}: the run at page {page} has a wrong link back"));
                }
                prev = next;
                next = now(self.view.span(page).next());
            }
        }
        for (page, pages) in free {
            bad.push(format!("the free run of {pages} pages at page {page} is in no bin"));
        }
    }

    fn check_lists(&self, bad: &mut Vec<String>, mut open_slabs: BTreeMap<u64, u8>) {
        for shard in 0..=self.view.shard_count() {
            for (class, bytes) in CLASS_BYTES.iter().enumerate() {
                let mut next = now(&self.view.lists(shard)[class]);
                let mut prev = 0;
                while next != 0 {
                    let page = next - 1;
                    if open_slabs.remove(&page) != Some(class as u8) {
                        bad.push(format!(
                            "class {bytes} of shard {shard} lists page {page}, which is no such slab, or twice"
                        ));
                        return;
                    }
                    let span = Entry::of(self.view.span(page));
                    if prev != 0 && span.free == CLASSES[class].all_free {
                        bad.push(format!(
                            "class {bytes} of shard {shard}: the empty slab at page {page} is kept"
                        ));
                    }
                    if now(self.view.span(page).prev()) != prev {
                        bad.push(format!(
                            "class {bytes} of shard {shard}: the slab at page {page} has a wrong link back"
                        ));
                    }
                    prev = next;
                    next = now(self.view.span(page).next());
                }
            }
        }
        for page in open_slabs.keys() {
            bad.push(format!("the slab at page {page} has free blocks and is in no list"));
        }
    }

    fn check_reserves(&self, bad: &mut Vec<String>, mut reserves: BTreeSet<u64>) {
        for (number, shard) in (1..).map_while(|number| Some((number, self.view.shard(number)?))) {
            if let Some(page) = now(&shard.reserve).checked_sub(1)
                && !reserves.remove(&page)
            {
                bad.push(format!(
                    "the reserve of shard {number} is at page {page}, which starts none, or twice"
                ));
            }
        }
        for page in reserves {
            bad.push(format!("the reserve at page {page} is no shard's"));
        }
    }
}

/// What the walk along the spans found, to be compared with the lists.
#[derive(Default)]
struct Seen {
    free: BTreeMap<u64, u64>,
    open_slabs: BTreeMap<u64, u8>,
    reserves: BTreeSet<u64>,
}
