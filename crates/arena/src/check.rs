//! Checks an arena against its rules, and counts what is in it.

use std::collections::BTreeMap;

use crate::bins::bin_for_audit;
use crate::class::{CLASS_BYTES, CLASSES};
use crate::heap::Heap;
use crate::layout::{BIN_COUNT, PAGE_BYTES, PageBitmap, kind};

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
    /// Bytes of whole free pages.
    pub free_bytes: u64,
    /// Bytes of the arena's own state.
    pub meta_bytes: u64,
}

impl Heap {
    /// Counts everything. O(spans).
    pub fn stat(&self) -> ArenaStat {
        let mut stat = ArenaStat { bytes: self.head().pages * PAGE_BYTES as u64, ..ArenaStat::default() };
        let mut page = 0;
        while page < self.head().pages {
            let span = self.span(page);
            let bytes = span.pages * PAGE_BYTES as u64;
            match span.kind {
                kind::FREE => stat.free_bytes += bytes,
                kind::META => stat.meta_bytes += bytes,
                kind::MAPPED => stat.mapped_bytes += bytes,
                kind::LARGE => {
                    stat.used_bytes += bytes;
                    stat.blocks += 1;
                }
                _ => {
                    let shape = &CLASSES[span.class as usize];
                    let free: u32 = span.free.iter().map(|w| w.count_ones()).sum();
                    stat.used_bytes += u64::from((shape.slots - free) * shape.bytes);
                    stat.blocks += u64::from(shape.slots - free);
                }
            }
            page += span.pages.max(1);
        }
        stat
    }

    /// Calls `f` with address and length of every block in use and every mapped range.
    ///
    /// # Errors
    /// A message, at the first span that cannot be one.
    pub fn for_each_live(&self, mut f: impl FnMut(usize, usize)) -> Result<(), String> {
        let mut page = 0;
        while page < self.head().pages {
            let span = self.span(page);
            let at = self.address(page) as usize;
            if !self.view.has_room(page, span.pages) {
                return Err(format!("the span at page {page} says it has {} pages", span.pages));
            }
            match span.kind {
                kind::LARGE | kind::MAPPED => f(at, span.pages as usize * PAGE_BYTES),
                kind::SLAB => {
                    let shape = self
                        .view
                        .shape(page, span.class, span.pages)
                        .ok_or_else(|| format!("the slab at page {page} is of no class"))?;
                    for slot in 0..shape.slots as usize {
                        if span.free[slot / 64] >> (slot % 64) & 1 == 0 {
                            f(at + slot * shape.bytes as usize, shape.bytes as usize);
                        }
                    }
                }
                _ => {}
            }
            page += span.pages;
        }
        Ok(())
    }

    /// What breaks the arena's rules, as messages; none if it is sound. O(pages).
    pub fn check(&self) -> Vec<String> {
        let mut bad = Vec::new();
        let (mut free, mut open_slabs) = (BTreeMap::new(), BTreeMap::new());
        self.check_spans(&mut bad, &mut free, &mut open_slabs);
        if bad.is_empty() {
            self.check_bins(&mut bad, free);
            self.check_classes(&mut bad, open_slabs);
        }
        bad
    }

    fn check_spans(
        &self,
        bad: &mut Vec<String>,
        free: &mut BTreeMap<u64, u64>,
        open_slabs: &mut BTreeMap<u64, u8>,
    ) {
        let mut page = 0;
        let mut after_free = false;
        while page < self.head().pages {
            let span = self.span(page);
            if span.pages == 0 || span.pages > self.head().pages - page {
                bad.push(format!("the span at page {page} says it has {} pages", span.pages));
                return;
            }
            let end = page + span.pages;
            for p in page..end {
                if self.bit(PageBitmap::Starts, p) != (p == page) {
                    bad.push(format!("page {p}: wrong start bit, in the span at page {page}"));
                }
                if self.bit(PageBitmap::FreeEnds, p) != (span.kind == kind::FREE && p == end - 1) {
                    bad.push(format!("page {p}: wrong free-end bit, in the span at page {page}"));
                }
                if span.kind != kind::FREE && !self.bit(PageBitmap::Touched, p) {
                    bad.push(format!("page {p} is in use and not marked as touched"));
                }
            }
            match span.kind {
                kind::FREE => {
                    if after_free {
                        bad.push(format!("the free run at page {page} follows another"));
                    }
                    if self.span(end - 1).free[0] != span.pages {
                        bad.push(format!("the free run at page {page} has a wrong length at its end"));
                    }
                    free.insert(page, span.pages);
                }
                kind::SLAB => self.check_slab(bad, page, open_slabs),
                kind::LARGE | kind::MAPPED | kind::META => {}
                other => bad.push(format!("the span at page {page} is of unknown kind {other}")),
            }
            after_free = span.kind == kind::FREE;
            page = end;
        }
    }

    fn check_slab(&self, bad: &mut Vec<String>, page: u64, open_slabs: &mut BTreeMap<u64, u8>) {
        let span = self.span(page);
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
            open_slabs.insert(page, span.class);
        }
    }

    fn check_bins(&self, bad: &mut Vec<String>, mut free: BTreeMap<u64, u64>) {
        for bin in 0..BIN_COUNT {
            let mut next = self.head().bins[bin];
            let used = self.head().bins_used[bin / 64] >> (bin % 64) & 1 == 1;
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
                if self.span(page).prev != prev {
                    bad.push(format!("bin {bin}: the run at page {page} has a wrong link back"));
                }
                prev = next;
                next = self.span(page).next;
            }
        }
        for (page, pages) in free {
            bad.push(format!("the free run of {pages} pages at page {page} is in no bin"));
        }
    }

    fn check_classes(&self, bad: &mut Vec<String>, mut open_slabs: BTreeMap<u64, u8>) {
        for (class, bytes) in CLASS_BYTES.iter().enumerate() {
            let mut next = self.head().classes[class];
            let mut prev = 0;
            while next != 0 {
                let page = next - 1;
                if open_slabs.remove(&page) != Some(class as u8) {
                    bad.push(format!("class {bytes} lists page {page}, which is no such slab, or twice"));
                    return;
                }
                if self.span(page).prev != prev {
                    bad.push(format!("class {bytes}: the slab at page {page} has a wrong link back"));
                }
                prev = next;
                next = self.span(page).next;
            }
        }
        for page in open_slabs.keys() {
            bad.push(format!("the slab at page {page} has free blocks and is in no list"));
        }
    }
}
