//! Runs of pages: allocated from the bins, split, freed, merged with their free neighbours.
//!
//! Invariants:
//! 1. Spans cover pages 0 to `pages` without gaps; each has its start bit.
//! 2. No two free runs are neighbours.
//! 3. The last page of a free run, and no other, has its free-end bit.
//! 4. Every page that was ever handed out lies in the usable part of the region. The others need no space on the
//!    medium: the region grows as runs are taken out of their bins.

use crate::bytes::layout::{
    GROUP_BITMAPS_BYTES, GROUP_BYTES, GROUP_PAGES, PAGE_BYTES, PageBitmap, PageGroup, kind, kind_of, what,
};
use crate::heap::ArenaHeap;
use crate::space::Words;

/// What grows grows by this share of itself, within bounds: larger shares leave more of an image unused.
const GROW_SHARE: u64 = 8;

/// Bytes by which the usable part of the region grows.
const SPACE_STEP_BYTES_MIN: u64 = 64 << 10;
const SPACE_STEP_BYTES_MAX: u64 = 64 << 20;

/// Groups that a growth adds at least, if so many are left: 16 MiB, or one in a region that cannot hold so much.
fn grow_groups_min(groups_max: u64) -> u64 {
    if groups_max < 4 { 1 } else { 4 }
}

/// Groups that one growth adds at most unless more are needed: 1 GiB.
const GROW_GROUPS_MAX: u64 = 256;

impl ArenaHeap {
    /// A run of exactly `pages`. Its start bit is set; the caller fills its entry. Also returns whether it is known to
    /// be zero, because no page of it was ever allocated before. `None` when the region cannot grow any more.
    pub(crate) fn alloc_run<W: Words>(
        &mut self,
        w: &mut W,
        pages: u64,
    ) -> Result<Option<(u64, bool)>, W::Stop> {
        let Some((page, has)) = self.find_run(w, pages)? else { return Ok(None) };
        self.split_run(w, page, has, pages)?;
        Ok(Some((page, self.touch(w, page, pages)?)))
    }

    /// A run of `pages` that starts at a multiple of `align` pages.
    pub(crate) fn alloc_run_aligned<W: Words>(
        &mut self,
        w: &mut W,
        pages: u64,
        align: u64,
    ) -> Result<Option<(u64, bool)>, W::Stop> {
        if align <= 1 {
            return self.alloc_run(w, pages);
        }
        let Some(room) = pages.checked_add(align) else { return Ok(None) };
        let Some((page, has)) = self.find_run(w, room - 1)? else { return Ok(None) };
        // Addresses, not offsets, are aligned.
        let base = (self.base_address() / PAGE_BYTES) as u64;
        let at = (base + page).next_multiple_of(align) - base;
        self.carve_run(w, page, has, at, pages)?;
        Ok(Some((at, self.touch(w, at, pages)?)))
    }

    /// Keeps `pages`, from page `at` on, of a run of `has` pages that was taken out of its bin, and frees the rest.
    pub(crate) fn carve_run<W: Words>(
        &mut self,
        w: &mut W,
        page: u64,
        has: u64,
        at: u64,
        pages: u64,
    ) -> Result<(), W::Stop> {
        if at > page {
            self.set_bit(w, PageBitmap::FreeEnds, at - 1, true)?;
            self.bin_add(w, page, at - page)?;
            self.set_bit(w, PageBitmap::Starts, at, true)?;
        }
        self.split_run(w, at, has - (at - page), pages)
    }

    /// Takes a run of at least `pages` out of its bin. If there is none, grows the region; if that fails, frees the
    /// empty slabs that are kept for the next block.
    fn find_run<W: Words>(&mut self, w: &mut W, pages: u64) -> Result<Option<(u64, u64)>, W::Stop> {
        if let Some(run) = self.take_run(w, pages)? {
            return Ok(Some(run));
        }
        if self.grow(w, pages)?.is_none() {
            self.release_empty_slabs(w)?;
        }
        self.take_run(w, pages)
    }

    /// Takes a run of at least `pages` out of its bin, whose first `pages` are usable now. Where the medium has no
    /// space for a run, it tries longer ones, which may have kept theirs. `None` also where it has none for any.
    pub(crate) fn take_run<W: Words>(
        &mut self,
        w: &mut W,
        pages: u64,
    ) -> Result<Option<(u64, u64)>, W::Stop> {
        let mut at_least = pages;
        while let Some((page, has)) = self.bin_take(w, at_least)? {
            if self.make_usable(page + pages) && self.provide(page, pages) {
                return Ok(Some((page, has)));
            }
            self.bin_add(w, page, has)?;
            at_least = has + 1;
        }
        Ok(None)
    }

    /// Makes the first `pages` pages of the region usable, and some more if the medium has space for them. False where
    /// it has not even space for these.
    pub(crate) fn make_usable(&mut self, pages: u64) -> bool {
        let (to, len) = (pages * PAGE_BYTES as u64, self.space_len());
        if len >= to {
            return true;
        }
        let step = (len / GROW_SHARE).clamp(SPACE_STEP_BYTES_MIN, SPACE_STEP_BYTES_MAX);
        let more = (len + step).next_multiple_of(PAGE_BYTES as u64).min(self.space_capacity());
        (more > to && self.space_grow(more).is_some()) || self.space_grow(to).is_some()
    }

    /// Keeps `pages` of a run of `has` pages that was taken out of its bin, and frees the rest.
    pub(crate) fn split_run<W: Words>(
        &mut self,
        w: &mut W,
        page: u64,
        has: u64,
        pages: u64,
    ) -> Result<(), W::Stop> {
        if has > pages {
            let rest = page + pages;
            self.set_bit(w, PageBitmap::Starts, rest, true)?;
            self.bin_add(w, rest, has - pages)
        } else {
            self.set_bit(w, PageBitmap::FreeEnds, page + pages - 1, false)
        }
    }

    /// Frees a run and merges it with its free neighbours. Its start bit may be set or not.
    pub(crate) fn free_run<W: Words>(&mut self, w: &mut W, page: u64, pages: u64) -> Result<(), W::Stop> {
        self.note_freed(self.address(page) as usize, pages as usize * PAGE_BYTES);
        let view = self.view;
        let (mut first, mut all) = (page, pages);
        let end = page + pages;
        let mut merges = false;
        if end < view.pages_in(w)? {
            let after = view.span_of(w, end)?;
            if kind_of(w.load(after.what())?) == kind::FREE {
                merges = true;
                all += w.load(after.pages())?;
                self.bin_remove(w, end)?;
                self.set_bit(w, PageBitmap::Starts, end, false)?;
            }
        }
        if !merges {
            self.set_bit(w, PageBitmap::FreeEnds, end - 1, true)?;
        }
        if page > 0 && self.bit_in(w, PageBitmap::FreeEnds, page - 1)? {
            let entry = view.span_of(w, page - 1)?;
            let before = w.load(&entry.free[0])?;
            first -= before;
            all += before;
            self.bin_remove(w, first)?;
            self.set_bit(w, PageBitmap::FreeEnds, page - 1, false)?;
            self.set_bit(w, PageBitmap::Starts, page, false)?;
        } else {
            self.set_bit(w, PageBitmap::Starts, page, true)?;
        }
        self.bin_add(w, first, all)
    }

    /// Lengthens the allocated run at `page` by `more` pages if the pages after it are free and enough. Returns
    /// `None` if they are not, else whether the new pages are known to be zero.
    pub(crate) fn extend_run<W: Words>(
        &mut self,
        w: &mut W,
        page: u64,
        pages: u64,
        more: u64,
    ) -> Result<Option<bool>, W::Stop> {
        let view = self.view;
        let next = page + pages;
        if next >= view.pages_in(w)? {
            return Ok(None);
        }
        let after = view.span_of(w, next)?;
        let has = w.load(after.pages())?;
        if kind_of(w.load(after.what())?) != kind::FREE
            || has < more
            || !self.make_usable(next + more)
            || !self.provide(next, more)
        {
            return Ok(None);
        }
        self.bin_remove(w, next)?;
        self.set_bit(w, PageBitmap::Starts, next, false)?;
        self.split_run(w, next, has, more)?;
        Ok(Some(self.touch(w, next, more)?))
    }

    /// Puts more of the region under management, so that a run of `pages` fits.
    pub(crate) fn grow<W: Words>(&mut self, w: &mut W, pages: u64) -> Result<Option<()>, W::Stop> {
        let view = self.view;
        let old = view.pages_in(w)?;
        let groups_max = w.load(&view.head().groups_max)?;
        // A process that got fewer addresses than the state was made with reaches the end earlier.
        let groups_most = groups_max.min(self.space_capacity() / GROUP_BYTES);
        let groups_left = groups_most.saturating_sub(old / GROUP_PAGES);
        let step = (old / GROUP_PAGES / GROW_SHARE).clamp(grow_groups_min(groups_max), GROW_GROUPS_MAX);
        // Each group needs the pages of its own description as well.
        let groups_for = |pages: u64| {
            let needed = |extra: u64| (pages + extra).div_ceil(GROUP_PAGES);
            needed(meta_pages(needed(meta_pages(needed(0))) + 1))
        };
        // A free run at the end joins the new pages, if the description finds place in it (or in another run).
        let last = self.last_run(w, old)?;
        let joined = groups_for(pages.saturating_sub(last)).max(1);
        let fits_in_run = meta_pages(joined.max(step)) <= last;
        let groups = if fits_in_run { joined } else { groups_for(pages) };
        if groups > groups_left {
            return Ok(None);
        }
        let groups = groups.max(step).min(groups_left);
        // Groups without space for the run would not serve the request.
        let needed = old - last + meta_pages(groups) + pages;
        if !self.make_usable(needed.min(old + groups * GROUP_PAGES)) {
            return Ok(None);
        }
        // The description goes into a free run if there is one, so that the new pages join those before them.
        let meta = meta_pages(groups);
        let mut inside = None;
        if let Some((page, has)) = self.take_run(w, meta)? {
            self.split_run(w, page, has, meta)?;
            let is_zero = self.touch(w, page, meta)?;
            if W::ALONE && !is_zero {
                self.zero(w, page, meta)?;
            }
            inside = Some(page);
        } else if !self.make_usable(old + meta) || !self.provide(old, meta) {
            return Ok(None);
        }
        let meta_page = inside.unwrap_or(old);
        for i in 0..groups {
            let offset = meta_page * PAGE_BYTES as u64 + i * size_of::<PageGroup>() as u64;
            if !W::ALONE {
                // Entries are written before they are read; bits are not.
                // SAFETY: the description's first bytes, in the pages taken above.
                unsafe { w.zero(view.base.wrapping_add(offset as usize), GROUP_BITMAPS_BYTES) }?;
            }
            w.store(view.directory_entry(old / GROUP_PAGES + i), offset)?;
        }
        w.store(&view.head().pages, old + groups * GROUP_PAGES)?;
        let entry = view.span_of(w, meta_page)?;
        w.store_all(&entry.links, &[what(kind::META, 0), meta, 0, 0])?;
        let first = if inside.is_some() {
            old
        } else {
            self.set_bit(w, PageBitmap::Starts, old, true)?;
            self.touch(w, old, meta)?;
            old + meta
        };
        self.free_run(w, first, old + groups * GROUP_PAGES - first)?;
        Ok(Some(()))
    }

    /// Pages of the free run that ends with the last page of all; 0 if that page is in use.
    fn last_run<W: Words>(&mut self, w: &mut W, pages: u64) -> Result<u64, W::Stop> {
        if pages == 0 || !self.bit_in(w, PageBitmap::FreeEnds, pages - 1)? {
            return Ok(0);
        }
        let view = self.view;
        let entry = view.span_of(w, pages - 1)?;
        w.load(&entry.free[0])
    }

    /// Fills pages with zeroes.
    pub(crate) fn zero<W: Words>(&mut self, w: &mut W, page: u64, pages: u64) -> Result<(), W::Stop> {
        // SAFETY: the pages lie inside the region (the caller allocated them as a run), and no block holds them.
        unsafe { w.zero(self.address(page), pages as usize * PAGE_BYTES) }
    }
}

/// Pages that describe `groups` groups.
pub(crate) const fn meta_pages(groups: u64) -> u64 {
    (groups * size_of::<PageGroup>() as u64).div_ceil(PAGE_BYTES as u64)
}

const _: () = assert!(GROUP_BYTES > 2 * size_of::<PageGroup>() as u64);
