//! The arena's handle: where its bytes are, and the one access to each of them.
//!
//! The handle is volatile and holds nothing that the region does not hold: opening the region again gives the same
//! arena.

use crate::layout::{CLASS_COUNT, Head, PAGE_BYTES, Span};
use crate::space::{ArenaSpace, Writes};
use crate::view::ArenaView;

/// Free runs of at least this length return their memory to the system: 256 KiB.
pub(crate) const DISCARD_PAGES_MIN: u64 = 64;
const DISCARDS_MAX: usize = 64;

/// The slab that a class allocates from: the first of its list.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) span: *mut Span,
    pub(crate) first_block: *mut u8,
    pub(crate) page: u64,
}

impl Current {
    pub(crate) const NONE: Self =
        Self { span: std::ptr::null_mut(), first_block: std::ptr::null_mut(), page: 0 };
}

/// An allocator in a region. One thread at a time uses it; others have a [`ArenaView`].
pub struct Heap {
    pub(crate) view: ArenaView,
    space: Box<dyn ArenaSpace>,
    /// The slab that each class allocates from; a cache of the class lists' heads.
    pub(crate) current: [Current; CLASS_COUNT],
    /// Runs freed lately, to be discarded if they stay free. The array never grows: this code must not allocate.
    discards: [(u64, u64); DISCARDS_MAX],
    discards_len: usize,
    /// Blocks and runs freed since the handle was made.
    pub(crate) frees: u64,
}

// SAFETY: the pointers are to the region, which outlives the handle and never moves.
unsafe impl Send for Heap {}

impl Heap {
    /// A handle to the arena whose head lies at `head_offset` of the space. The caller has formatted or
    /// verified it ([`Heap::format`], [`Heap::open`]).
    pub(crate) fn attach(space: Box<dyn ArenaSpace>, head_offset: u64) -> Self {
        Self {
            view: ArenaView::new(space.base(), head_offset),
            space,
            current: [Current::NONE; CLASS_COUNT],
            discards: [(0, 0); DISCARDS_MAX],
            discards_len: 0,
            frees: 0,
        }
    }

    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the head lies in the space's first pages, aligned to a page, and is plain numbers.
        unsafe { &*self.view.head }
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`; `&mut self` is the only writer.
        unsafe { &mut *self.view.head }
    }

    /// The addresses of the arena's parts, for other threads.
    pub fn view(&self) -> ArenaView {
        self.view
    }

    #[inline]
    pub(crate) fn span(&self, page: u64) -> &Span {
        // SAFETY: a span of a group under management; plain numbers.
        unsafe { &*self.view.span_ptr(page) }
    }

    #[inline]
    pub(crate) fn span_mut(&mut self, page: u64) -> &mut Span {
        // SAFETY: as in `span`; `&mut self` is the only writer, and readers on other threads look at fields
        // of their own blocks' spans that do not change while the block lives.
        unsafe { &mut *self.view.span_ptr(page) }
    }

    /// Reports the half of an entry that holds kind, pages and links.
    #[inline]
    pub(crate) fn report_links<W: Writes>(&self, w: &mut W, page: u64) {
        w.wrote(self.view.span_ptr(page) as usize, 32);
    }

    /// Takes a page's entry out of the list that holds it. If it was the first, returns the new head of the list.
    #[inline]
    pub(crate) fn unlink<W: Writes>(&mut self, w: &mut W, page: u64) -> Option<u64> {
        let (next, prev) = (self.span(page).next, self.span(page).prev);
        if next != 0 {
            self.span_mut(next - 1).prev = prev;
            self.report_links(w, next - 1);
        }
        if prev == 0 {
            return Some(next);
        }
        self.span_mut(prev - 1).next = next;
        self.report_links(w, prev - 1);
        None
    }

    pub(crate) fn directory_entry(&self, group: u64) -> u64 {
        assert!(group < self.head().groups_max);
        // SAFETY: the directory has `groups_max` entries, in pages that `format` reserved.
        unsafe { *self.view.directory.add(group as usize) }
    }

    pub(crate) fn set_directory<W: Writes>(&mut self, w: &mut W, group: u64, offset: u64) {
        assert!(group < self.head().groups_max);
        let at = self.view.directory.wrapping_add(group as usize);
        // SAFETY: as in `directory_entry`.
        unsafe { *at = offset };
        w.wrote(at as usize, 8);
    }

    /// The address of the region's first byte.
    #[inline]
    pub fn base_address(&self) -> usize {
        self.view.base as usize
    }

    /// The address after the last page under management.
    #[cfg(test)]
    pub fn end_address(&self) -> usize {
        self.view.base as usize + self.head().pages as usize * PAGE_BYTES
    }

    #[inline]
    pub(crate) fn address(&self, page: u64) -> *mut u8 {
        self.view.base.wrapping_add(page as usize * PAGE_BYTES)
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

    pub(crate) fn remember_discard(&mut self, page: u64, pages: u64) {
        if self.discards_len < DISCARDS_MAX {
            self.discards[self.discards_len] = (page, pages);
            self.discards_len += 1;
        }
    }

    pub(crate) fn discards_len(&self) -> usize {
        self.discards_len
    }

    pub(crate) fn forget_discards(&mut self, keep: usize) {
        self.discards_len = self.discards_len.min(keep);
    }

    /// Returns the memory of long runs to the system that were freed since the last call and are still free. Called
    /// between batches, and seldom: a run that is used again soon costs page faults. Returns the number of bytes.
    pub fn trim(&mut self) -> u64 {
        let mut bytes = 0;
        for i in 0..self.discards_len {
            let (page, pages) = self.discards[i];
            let start = self.start_of(page);
            let span = self.span(start);
            if span.kind == crate::layout::kind::FREE && page + pages <= start + span.pages {
                let len = pages * PAGE_BYTES as u64;
                self.space.discard(page * PAGE_BYTES as u64, len);
                bytes += len;
            }
        }
        self.discards_len = 0;
        bytes
    }
}
