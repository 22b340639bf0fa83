//! Runs of pages: allocated from the bins, split, freed, merged with their free neighbours.
//!
//! Invariants:
//! 1. Spans cover pages 0 to `pages` without gaps; each has its start bit.
//! 2. No two free runs are neighbours.
//! 3. The last page of a free run, and no other, has its free-end bit.

use crate::heap::{DISCARD_PAGES_MIN, Heap};
use crate::layout::{GROUP_BYTES, GROUP_PAGES, Group, PAGE_BYTES, PageBitmap, kind};
use crate::space::Writes;

/// Groups that a growth adds at least, if so many are left: 16 MiB, or one in a region that cannot hold so much.
pub(crate) fn grow_groups_min(groups_max: u64) -> u64 {
    if groups_max < 4 { 1 } else { 4 }
}

/// Groups that one growth adds at most unless more are needed: 1 GiB.
const GROW_GROUPS_MAX: u64 = 256;

impl Heap {
    /// A run of exactly `pages`. Its start bit is set; the caller fills its entry. Also returns whether no page of
    /// it was ever allocated before, so that it is zero. `None` when the region cannot grow any more.
    pub(crate) fn alloc_run<W: Writes>(&mut self, w: &mut W, pages: u64) -> Option<(u64, bool)> {
        let (page, has) = self.find_run(w, pages)?;
        self.split_run(w, page, has, pages);
        Some((page, self.touch(w, page, pages)))
    }

    /// A run of `pages` that starts at a multiple of `align` pages.
    pub(crate) fn alloc_run_aligned<W: Writes>(
        &mut self,
        w: &mut W,
        pages: u64,
        align: u64,
    ) -> Option<(u64, bool)> {
        if align <= 1 {
            return self.alloc_run(w, pages);
        }
        let room = pages.checked_add(align)?.checked_sub(1)?;
        let (page, has) = self.find_run(w, room)?;
        // Addresses, not offsets, are aligned.
        let base = (self.base_address() / PAGE_BYTES) as u64;
        let at = (base + page).next_multiple_of(align) - base;
        if at > page {
            self.set_bit(w, PageBitmap::FreeEnds, at - 1, true);
            self.bin_add(w, page, at - page);
            self.set_bit(w, PageBitmap::Starts, at, true);
        }
        self.split_run(w, at, has - (at - page), pages);
        Some((at, self.touch(w, at, pages)))
    }

    /// Takes a run of at least `pages` out of its bin. If there is none, grows the region; if that fails, frees the
    /// empty slabs that are kept for the next block.
    fn find_run<W: Writes>(&mut self, w: &mut W, pages: u64) -> Option<(u64, u64)> {
        if let Some(run) = self.bin_take(w, pages) {
            return Some(run);
        }
        if self.grow(w, pages).is_none() {
            self.release_empty_slabs(w);
        }
        self.bin_take(w, pages)
    }

    /// Keeps `pages` of a run of `has` pages that was taken out of its bin, and frees the rest.
    fn split_run<W: Writes>(&mut self, w: &mut W, page: u64, has: u64, pages: u64) {
        if has > pages {
            let rest = page + pages;
            self.set_bit(w, PageBitmap::Starts, rest, true);
            self.bin_add(w, rest, has - pages);
        } else {
            self.set_bit(w, PageBitmap::FreeEnds, page + pages - 1, false);
        }
    }

    /// Frees a run and merges it with its free neighbours. Its start bit may be set or not.
    pub(crate) fn free_run<W: Writes>(&mut self, w: &mut W, page: u64, pages: u64) {
        self.frees += 1;
        if pages >= DISCARD_PAGES_MIN {
            self.remember_discard(page, pages);
        }
        let (mut first, mut all) = (page, pages);
        let end = page + pages;
        if end < self.head().pages && self.span(end).kind == kind::FREE {
            all += self.span(end).pages;
            self.bin_remove(w, end);
            self.set_bit(w, PageBitmap::Starts, end, false);
        } else {
            self.set_bit(w, PageBitmap::FreeEnds, end - 1, true);
        }
        if page > 0 && self.bit(PageBitmap::FreeEnds, page - 1) {
            let before = self.span(page - 1).free[0];
            first -= before;
            all += before;
            self.bin_remove(w, first);
            self.set_bit(w, PageBitmap::FreeEnds, page - 1, false);
            self.set_bit(w, PageBitmap::Starts, page, false);
        } else {
            self.set_bit(w, PageBitmap::Starts, page, true);
        }
        self.bin_add(w, first, all);
    }

    /// Lengthens the allocated run at `page` by `more` pages if the pages after it are free and enough. Returns
    /// `None` if they are not, else whether the new pages are zero.
    pub(crate) fn extend_run<W: Writes>(
        &mut self,
        w: &mut W,
        page: u64,
        pages: u64,
        more: u64,
    ) -> Option<bool> {
        let next = page + pages;
        if next >= self.head().pages || self.span(next).kind != kind::FREE || self.span(next).pages < more {
            return None;
        }
        let has = self.span(next).pages;
        self.bin_remove(w, next);
        self.set_bit(w, PageBitmap::Starts, next, false);
        self.split_run(w, next, has, more);
        Some(self.touch(w, next, more))
    }

    /// Makes the region larger, so that a run of `pages` fits.
    fn grow<W: Writes>(&mut self, w: &mut W, pages: u64) -> Option<()> {
        let old = self.head().pages;
        // A process that got fewer addresses than the state was made with reaches the end earlier.
        let groups_most = self.head().groups_max.min(self.space_capacity() / GROUP_BYTES);
        let groups_left = groups_most.saturating_sub(old / GROUP_PAGES);
        // Each group needs the pages of its own description as well.
        let needed = |extra: u64| (pages + extra).div_ceil(GROUP_PAGES);
        let groups = needed(meta_pages(needed(meta_pages(needed(0))) + 1));
        if groups > groups_left {
            return None;
        }
        let step = (old / GROUP_PAGES / 4).clamp(grow_groups_min(self.head().groups_max), GROW_GROUPS_MAX);
        let groups = self.grow_space(old, groups, groups.max(step).min(groups_left))?;
        // The description goes into a free run if there is one, so that the new pages join those before them.
        let meta = meta_pages(groups);
        let inside = self.bin_take(w, meta).map(|(page, has)| {
            self.split_run(w, page, has, meta);
            let untouched = self.touch(w, page, meta);
            if !untouched {
                self.zero(w, page, meta);
            }
            page
        });
        let meta_page = inside.unwrap_or(old);
        for i in 0..groups {
            let offset = meta_page * PAGE_BYTES as u64 + i * size_of::<Group>() as u64;
            self.set_directory(w, old / GROUP_PAGES + i, offset);
        }
        self.head_mut().pages = old + groups * GROUP_PAGES;
        let at = std::ptr::from_ref(&self.head().pages) as usize;
        w.wrote(at, 8);
        let span = self.span_mut(meta_page);
        (span.kind, span.pages, span.next, span.prev) = (kind::META, meta, 0, 0);
        self.report_links(w, meta_page);
        let first = if inside.is_some() {
            old
        } else {
            self.set_bit(w, PageBitmap::Starts, old, true);
            self.touch(w, old, meta);
            old + meta
        };
        self.free_run_silently(w, first, old + groups * GROUP_PAGES - first);
        Some(())
    }

    /// Makes the space larger by `most` groups or, where the medium lacks the space, by fewer, but at least `least`.
    /// Returns the number of groups.
    fn grow_space(&mut self, old: u64, least: u64, most: u64) -> Option<u64> {
        let mut groups = most;
        loop {
            let to = (old + groups * GROUP_PAGES) * PAGE_BYTES as u64;
            if self.space_len() >= to || self.space_grow(to).is_some() {
                return Some(groups);
            }
            if groups == least {
                return None;
            }
            groups = least.max(groups / 2);
        }
    }

    /// As [`Heap::free_run`], for pages that were never used: there is nothing to discard.
    pub(crate) fn free_run_silently<W: Writes>(&mut self, w: &mut W, page: u64, pages: u64) {
        let kept = self.discards_len();
        self.free_run(w, page, pages);
        self.forget_discards(kept);
    }

    /// Fills pages with zeroes and reports them.
    pub(crate) fn zero<W: Writes>(&mut self, w: &mut W, page: u64, pages: u64) {
        let (at, len) = (self.address(page), pages as usize * PAGE_BYTES);
        // SAFETY: the pages lie inside the region (the caller allocated them as a run), and no block holds them.
        unsafe { std::ptr::write_bytes(at, 0, len) };
        w.wrote(at as usize, len);
    }
}

/// Pages that describe `groups` groups.
pub(crate) const fn meta_pages(groups: u64) -> u64 {
    (groups * size_of::<Group>() as u64).div_ceil(PAGE_BYTES as u64)
}

const _: () = assert!(GROUP_BYTES > 2 * size_of::<Group>() as u64);
