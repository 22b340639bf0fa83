//! Shards: what threads allocate from side by side, so that their transactions do not write the same words.
//!
//! A shard has a list of slabs for each class, as the head of the arena has (that is shard 0, all that a durable
//! application uses), and a *reserve*: a run of free pages from which its next slabs and its blocks of some pages
//! are cut. A reserve begins as 64 pages at a multiple of 64, so that one word of each page bitmap describes it and
//! no other shard writes that word while it lasts. Which thread uses which shard is not recorded, and need not be:
//! no block is taken from a slab before it is allocated, so an unused shard holds free memory and nothing else.
//!
//! Invariants:
//! 1. A reserve is a span of its own kind; its shard names it, and no other shard does.
//! 2. The table of shards never moves and never changes its length.

use crate::bytes::layout::{
    CLASS_COUNT, PAGE_BYTES, PageBitmap, SHARD_COUNT_MAX, Shard, kind, shard_table_pages,
};
use crate::heap::{ArenaHeap, Current};
use crate::space::Words;
use std::sync::atomic::Ordering;

/// Pages of a new reserve: as many as one word of a page bitmap describes.
const RESERVE_PAGES: u64 = 64;
/// The longest run that is cut from a reserve; more come from the free runs of all shards.
const RESERVE_CUT_PAGES_MAX: u64 = RESERVE_PAGES / 4;
/// A free run of this length contains [`RESERVE_PAGES`] at a multiple of them.
const RESERVE_ROOM_PAGES: u64 = 2 * RESERVE_PAGES - 1;

impl ArenaHeap {
    /// Makes a table of `count` shards (1 to 1,024), besides shard 0. An arena that has one keeps it. Returns the
    /// number of shards that the arena has then: 0 when the region is full. No other transaction runs meanwhile:
    /// handles look the table up outside of transactions.
    ///
    /// # Errors
    /// [`Words::Stop`].
    pub fn make_shards<W: Words>(&mut self, w: &mut W, count: u64) -> Result<u64, W::Stop> {
        assert!((1..=SHARD_COUNT_MAX).contains(&count));
        let view = self.view;
        if w.load(&view.head().shards)? != 0 {
            return w.load(&view.head().shard_count);
        }
        let pages = shard_table_pages(count);
        let Some((page, is_zero)) = self.alloc_run(w, pages)? else { return Ok(0) };
        if !is_zero {
            self.zero(w, page, pages)?;
        }
        self.describe(w, page, pages, kind::META)?;
        w.store(&view.head().shard_count, count)?;
        w.store(&view.head().shards, page + 1)?;
        Ok(count)
    }

    /// Shards that the arena has besides shard 0.
    #[must_use]
    pub fn shard_count(&self) -> u64 {
        self.view.shard_count()
    }

    /// From now on the handle allocates from shard `shard`; 0 is the shard of a new handle. Several handles may use one
    /// shard, as several may use one arena: their transactions then meet.
    ///
    /// # Panics
    /// The arena has no such shard.
    pub fn enter_shard(&mut self, shard: u64) {
        let place = self.view.shard(shard).map(std::ptr::from_ref);
        assert!(shard == 0 || place.is_some(), "the arena has {} shards", self.shard_count());
        self.shard = place.unwrap_or(std::ptr::null());
        self.current = [Current::NONE; CLASS_COUNT];
    }

    /// As [`ArenaHeap::alloc_run`], from the shard's reserve if the run is short enough.
    pub(crate) fn alloc_shard_run<W: Words>(
        &mut self,
        w: &mut W,
        pages: u64,
    ) -> Result<Option<(u64, bool)>, W::Stop> {
        if self.shard.is_null() || pages > RESERVE_CUT_PAGES_MAX {
            return self.alloc_run(w, pages);
        }
        // SAFETY: a shard of the table, which never moves.
        let shard = unsafe { &*self.shard };
        let first = w.load(&shard.reserve)?;
        if let Some(page) = first.checked_sub(1) {
            let entry = self.view.span_of(w, page)?;
            let has = w.load(entry.pages())?;
            // A crash takes the space of what was never used out of a reserve, and its pages may have been given back.
            if has >= pages && self.make_usable(page + pages) && self.provide(page, pages) {
                return Ok(Some((page, self.cut(w, shard, page, has, pages)?)));
            }
            self.give_back(w, shard)?;
        }
        let mut room = self.take_run(w, RESERVE_ROOM_PAGES)?;
        if room.is_none() {
            // Holes are used before the region grows.
            if let Some((page, has)) = self.take_run(w, pages)? {
                self.split_run(w, page, has, pages)?;
                return Ok(Some((page, self.touch(w, page, pages)?)));
            }
            if self.grow(w, RESERVE_ROOM_PAGES)?.is_some() {
                room = self.take_run(w, RESERVE_ROOM_PAGES)?;
            }
        }
        let Some((page, has)) = room else { return self.alloc_run(w, pages) };
        let at = page.next_multiple_of(RESERVE_PAGES);
        self.carve_run(w, page, has, at, RESERVE_PAGES)?;
        Ok(Some((at, self.cut(w, shard, at, RESERVE_PAGES, pages)?)))
    }

    /// Takes the first `pages` of a run of `has` pages; the rest becomes the shard's reserve. Returns whether they are
    /// known to be zero.
    fn cut<W: Words>(
        &mut self,
        w: &mut W,
        shard: &Shard,
        page: u64,
        has: u64,
        pages: u64,
    ) -> Result<bool, W::Stop> {
        let mut reserve = 0;
        if has > pages {
            let rest = page + pages;
            self.set_bit(w, PageBitmap::Starts, rest, true)?;
            self.describe(w, rest, has - pages, kind::RESERVE)?;
            reserve = rest + 1;
        }
        w.store(&shard.reserve, reserve)?;
        self.touch(w, page, pages)
    }

    /// Returns a shard's reserve to the free runs.
    pub(crate) fn give_back<W: Words>(&mut self, w: &mut W, shard: &Shard) -> Result<(), W::Stop> {
        let Some(page) = w.load(&shard.reserve)?.checked_sub(1) else { return Ok(()) };
        let entry = self.view.span_of(w, page)?;
        let pages = w.load(entry.pages())?;
        w.store(&shard.reserve, 0)?;
        self.free_run(w, page, pages)
    }

    /// Checks that the table of shards lies in the arena.
    ///
    /// # Errors
    /// A message, when it does not.
    pub(crate) fn check_shard_table(&self) -> Result<(), String> {
        let head = self.head();
        // Relaxed: opening, no other thread writes.
        let (table, count, pages) = (
            head.shards.load(Ordering::Relaxed),
            head.shard_count.load(Ordering::Relaxed),
            self.view.pages(),
        );
        if table != 0
            && (!(1..=SHARD_COUNT_MAX).contains(&count)
                || table > pages
                || shard_table_pages(count) > pages - (table - 1))
        {
            return Err(format!("the arena's table of {count} shards cannot be at page {}", table - 1));
        }
        Ok(())
    }
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(size_of::<Shard>()));
