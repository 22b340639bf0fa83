//! The arena's handle: where its bytes are, and the one access to each of them.
//!
//! The handle is volatile and holds nothing that the region does not hold: opening the region again gives the same
//! arena. Transactions have a handle for each thread; what such a handle remembers is never more than a hint.

use crate::audit::freed_pages::FreedPages;
use crate::bytes::layout::{CLASS_COUNT, Head, PAGE_BYTES, Shard, Span};
use crate::space::{ArenaSpace, Words};
use crate::view::ArenaView;
use std::sync::atomic::AtomicU64;

/// So many blocks freed last are known one by one.
pub(crate) const FREED_KEPT: usize = 8;

/// The slab that a class allocates from: the first of its list.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) span: *const Span,
    pub(crate) first_block: *mut u8,
    pub(crate) page: u64,
}

impl Current {
    pub(crate) const NONE: Self = Self { span: std::ptr::null(), first_block: std::ptr::null_mut(), page: 0 };
}

/// An allocator in a region. One thread at a time uses the handle; others have an [`ArenaView`], or handles of their
/// own if each of them writes in transactions ([`Words`]).
pub struct ArenaHeap {
    pub(crate) view: ArenaView,
    space: Box<dyn ArenaSpace>,
    /// Groups that the directory is for, as the head said when the handle was made.
    pub(crate) groups_max: u64,
    /// Whose slabs the handle allocates from: null is shard 0; see `shards.rs`.
    pub(crate) shard: *const Shard,
    /// The slab that each class allocates from; a cache of the class lists' heads, for an owner that is alone.
    pub(crate) current: [Current; CLASS_COUNT],
    /// Blocks and runs freed since the handle was made.
    pub(crate) frees: u64,
    /// The last of them, each at its number modulo the length.
    pub(crate) freed: [(usize, usize); FREED_KEPT],
    /// The pages that they lay in.
    pub(crate) freed_pages: FreedPages,
}

// SAFETY: the pointers are to the region, which outlives the handle and never moves.
unsafe impl Send for ArenaHeap {}

impl ArenaHeap {
    /// A handle to the arena whose head lies at `head_offset` of the space. The caller has formatted or
    /// verified it ([`ArenaHeap::format`], [`ArenaHeap::open`]).
    pub(crate) fn attach(space: Box<dyn ArenaSpace>, head_offset: u64) -> Self {
        Self {
            view: ArenaView::new(space.base(), head_offset),
            space,
            groups_max: 0,
            shard: std::ptr::null(),
            current: [Current::NONE; CLASS_COUNT],
            frees: 0,
            freed: [(0, 0); FREED_KEPT],
            freed_pages: FreedPages::new(),
        }
    }

    #[inline]
    pub(crate) fn head(&self) -> &Head {
        self.view.head()
    }

    /// The addresses of the arena's parts, for other threads.
    pub fn view(&self) -> ArenaView {
        self.view
    }

    /// Takes a page's entry out of the list that holds it. If it was the first, returns the new head of the list.
    #[inline]
    pub(crate) fn unlink<W: Words>(&mut self, w: &mut W, page: u64) -> Result<Option<u64>, W::Stop> {
        let view = self.view;
        let span = view.span_of(w, page)?;
        let (next, prev) = (w.load(span.next())?, w.load(span.prev())?);
        if next != 0 {
            let entry = view.span_of(w, next - 1)?;
            w.store(entry.prev(), prev)?;
        }
        if prev == 0 {
            return Ok(Some(next));
        }
        let entry = view.span_of(w, prev - 1)?;
        w.store(entry.next(), next)?;
        Ok(None)
    }

    /// The word with the first slab of a class that this handle allocates from.
    #[inline]
    pub(crate) fn list(&self, class: usize) -> &AtomicU64 {
        match self.shard() {
            None => &self.head().lists[class],
            Some(shard) => &shard.lists[class],
        }
    }

    /// The handle's shard, unless that is shard 0.
    #[inline]
    pub(crate) fn shard(&self) -> Option<&Shard> {
        // SAFETY: null, or a shard of the table, which never moves (`enter_shard`).
        unsafe { self.shard.as_ref() }
    }

    /// The address of the region's first byte.
    #[inline]
    pub fn base_address(&self) -> usize {
        self.view.base as usize
    }

    /// The address after the last page under management.
    #[cfg(test)]
    pub fn end_address(&self) -> usize {
        self.view.base as usize + self.view.pages() as usize * PAGE_BYTES
    }

    #[inline]
    pub(crate) fn address(&self, page: u64) -> *mut u8 {
        self.view.address(page)
    }

    /// The page of an address, if it lies under management.
    #[inline]
    pub(crate) fn page_of(&self, address: usize) -> Option<u64> {
        self.view.page_of(address)
    }

    /// The first page of the span that `page` belongs to.
    #[inline]
    pub(crate) fn start_of(&self, page: u64) -> u64 {
        self.view.start_of(page)
    }

    /// Whether the address lies in this arena.
    #[inline]
    pub fn holds(&self, address: usize) -> bool {
        self.page_of(address).is_some()
    }

    pub(crate) fn space_len(&self) -> u64 {
        self.space.len()
    }

    pub(crate) fn space_capacity(&self) -> u64 {
        self.space.capacity()
    }

    pub(crate) fn space_grow(&mut self, len: u64) -> Option<()> {
        self.space.grow(len).ok()
    }

    /// Makes pages, which are usable, such that something may be stored to them. False where the medium has no space.
    pub(crate) fn provide(&mut self, first: u64, pages: u64) -> bool {
        self.space.provide(first * PAGE_BYTES as u64, pages * PAGE_BYTES as u64).is_ok()
    }
}
