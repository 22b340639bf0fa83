//! The arena's handle: where its bytes are, and the one way to each of them.
//!
//! The handle itself is volatile and holds nothing that the region does not say: an opened region gives
//! the same arena as the one that wrote it.

use super::class::CLASS_COUNT;
use super::layout::{GROUP_PAGES, Group, Head, PAGE_BYTES, Span};
use super::slab::Current;
use super::space::{Space, Writes};

/// Free runs from this length on give their memory back to the system: 256 KiB.
pub(super) const DISCARD_PAGES_MIN: u64 = 64;
const DISCARDS_MAX: usize = 64;

/// An allocator in a region. One thread at a time allocates; only [`Heap::usable_bytes`] may run beside it.
pub(crate) struct Heap {
    base: *mut u8,
    head: *mut Head,
    directory: *mut u64,
    space: Box<dyn Space>,
    /// The slab that each class allocates from; a cache of the class lists' heads.
    pub(super) current: [Current; CLASS_COUNT],
    /// Runs freed lately, to be discarded if they stay free. Never grows: this code must not allocate.
    discards: [(u64, u64); DISCARDS_MAX],
    discards_len: usize,
}

// SAFETY: the pointers are to the region, which outlives the handle and moves with nobody.
unsafe impl Send for Heap {}

impl Heap {
    /// A handle to the arena whose head lies at `head_offset` of the space. The caller has formatted or
    /// verified it ([`Heap::format`], [`Heap::open`]).
    pub(super) fn attach(space: Box<dyn Space>, head_offset: u64) -> Self {
        let base = space.base();
        let head = base.wrapping_add(head_offset as usize);
        Self {
            base,
            head: head.cast(),
            directory: head.wrapping_add(super::layout::ARENA_HEAD_BYTES).cast(),
            space,
            current: [Current::NONE; CLASS_COUNT],
            discards: [(0, 0); DISCARDS_MAX],
            discards_len: 0,
        }
    }

    #[inline]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: the head lies in the space's first pages, aligned to a page, and is plain numbers.
        unsafe { &*self.head }
    }

    #[inline]
    pub(super) fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`; `&mut self` is the only writer.
        unsafe { &mut *self.head }
    }

    /// The description of the group that `page` lies in; `page` is under management.
    #[inline]
    pub(super) fn group(&self, page: u64) -> &Group {
        // SAFETY: the directory has an entry for every group under management (`grow`, `format`), checked
        // by `open` to lie inside the space.
        unsafe {
            let offset = *self.directory.add((page / GROUP_PAGES) as usize);
            &*self.base.add(offset as usize).cast::<Group>()
        }
    }

    #[inline]
    fn span_ptr(&self, page: u64) -> *mut Span {
        // SAFETY: as in `group`; the index is below the length of the array.
        unsafe {
            let offset = *self.directory.add((page / GROUP_PAGES) as usize);
            let group = self.base.add(offset as usize).cast::<Group>();
            (&raw mut (*group).spans).cast::<Span>().add((page % GROUP_PAGES) as usize)
        }
    }

    #[inline]
    pub(super) fn span(&self, page: u64) -> &Span {
        // SAFETY: a span of a group under management; plain numbers.
        unsafe { &*self.span_ptr(page) }
    }

    #[inline]
    pub(super) fn span_mut(&mut self, page: u64) -> &mut Span {
        // SAFETY: as in `span`; `&mut self` is the only writer, and readers on other threads look at fields
        // of their own blocks' spans that do not change while the block lives.
        unsafe { &mut *self.span_ptr(page) }
    }

    /// Reports the half of an entry that holds kind, pages and links.
    #[inline]
    pub(super) fn report_links<W: Writes>(&self, w: &mut W, page: u64) {
        w.wrote(self.span_ptr(page) as usize, 32);
    }

    pub(super) fn directory_entry(&self, group: u64) -> u64 {
        assert!(group < self.head().groups_max);
        // SAFETY: the directory has `groups_max` entries, in pages that `format` reserved.
        unsafe { *self.directory.add(group as usize) }
    }

    pub(super) fn set_directory<W: Writes>(&mut self, w: &mut W, group: u64, offset: u64) {
        assert!(group < self.head().groups_max);
        let at = self.directory.wrapping_add(group as usize);
        // SAFETY: as in `directory_entry`.
        unsafe { *at = offset };
        w.wrote(at as usize, 8);
    }

    /// The address of the region's first byte.
    #[inline]
    pub(crate) fn base_address(&self) -> usize {
        self.base as usize
    }

    /// The address behind the last page under management.
    pub(crate) fn end_address(&self) -> usize {
        self.base as usize + self.head().pages as usize * PAGE_BYTES
    }

    #[inline]
    pub(super) fn address(&self, page: u64) -> *mut u8 {
        self.base.wrapping_add(page as usize * PAGE_BYTES)
    }

    /// The page of an address, if it lies under management.
    #[inline]
    pub(super) fn page_of(&self, address: usize) -> Option<u64> {
        let page = (address.wrapping_sub(self.base as usize) / PAGE_BYTES) as u64;
        (page < self.head().pages).then_some(page)
    }

    pub(super) fn space_len(&self) -> u64 {
        self.space.len()
    }

    pub(super) fn space_grow(&mut self, len: u64) -> Option<()> {
        self.space.grow(len).ok()
    }

    pub(super) fn remember_discard(&mut self, page: u64, pages: u64) {
        if self.discards_len < DISCARDS_MAX {
            self.discards[self.discards_len] = (page, pages);
            self.discards_len += 1;
        }
    }

    pub(super) fn discards_len(&self) -> usize {
        self.discards_len
    }

    pub(super) fn forget_discards(&mut self, keep: usize) {
        self.discards_len = self.discards_len.min(keep);
    }

    /// Gives the memory of long runs that were freed since the last call, and are still free, back to the
    /// system. To be called between batches, seldom: a run that is used again soon costs page faults.
    /// Returns the bytes given back.
    pub(crate) fn trim(&mut self) -> u64 {
        let mut bytes = 0;
        for i in 0..self.discards_len {
            let (page, pages) = self.discards[i];
            let start = self.start_of(page);
            let span = self.span(start);
            if span.kind == super::layout::kind::FREE && page + pages <= start + span.pages {
                let len = pages * PAGE_BYTES as u64;
                self.space.discard(page * PAGE_BYTES as u64, len);
                bytes += len;
            }
        }
        self.discards_len = 0;
        bytes
    }
}
