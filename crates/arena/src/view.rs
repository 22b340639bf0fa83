//! Look-ups that any thread may make while another one allocates.

use crate::bytes::class::{CLASSES, SlabShape};
use crate::bytes::layout::{
    ARENA_HEAD_BYTES, GROUP_PAGES, Head, PAGE_BYTES, PageBitmap, PageGroup, Shard, SlabLists, Span,
    class_of_span, kind, kind_of,
};
use crate::space::{Words, Writes, certain};
use std::sync::atomic::{AtomicU64, Ordering};

/// The addresses of an arena's parts. What other threads ask it reads only what does not change while the block in
/// question lives: the kind, class and length of its span, and its bit in the bitmap that finds it.
#[derive(Clone, Copy)]
pub struct ArenaView {
    pub(crate) base: *mut u8,
    pub(crate) head: *const Head,
    pub(crate) directory: *const AtomicU64,
    /// Groups that the directory has entries for, and this run addresses.
    pub(crate) groups_max: u64,
}

// SAFETY: plain addresses of the region; the comment above says what other threads read there.
unsafe impl Send for ArenaView {}
// SAFETY: as above.
unsafe impl Sync for ArenaView {}

impl ArenaView {
    pub(crate) fn new(base: *mut u8, head_offset: u64) -> Self {
        let head = base.wrapping_add(head_offset as usize);
        Self { base, head: head.cast(), directory: head.wrapping_add(ARENA_HEAD_BYTES).cast(), groups_max: 0 }
    }

    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the head lies in the space's first pages, aligned to a page, and is atomic words.
        unsafe { &*self.head }
    }

    /// Whether nothing stands between the head and the directory.
    pub(crate) fn is_head_zero_behind(&self) -> bool {
        let words = (ARENA_HEAD_BYTES - size_of::<Head>()) / 8;
        // SAFETY: in the head's page, which holds atomic words only; a `Head` ends at a multiple of 8.
        let behind: &[AtomicU64] = unsafe { std::slice::from_raw_parts(self.head.add(1).cast(), words) };
        behind.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// The directory's entry of a group that it has an entry for.
    #[inline]
    fn directory_word(&self, group: u64) -> &AtomicU64 {
        // SAFETY: the directory has an entry for every group that can be under management, in pages that `format`
        // reserved and `open` checked.
        unsafe { &*self.directory.add(group as usize) }
    }

    /// The directory's entry of a group.
    pub(crate) fn directory_entry(&self, group: u64) -> &AtomicU64 {
        assert!(group < self.head().groups_max.load(Ordering::Relaxed));
        self.directory_word(group)
    }

    /// The description that lies at `offset`, which an entry of the directory names.
    #[inline]
    fn group_at(&self, offset: u64) -> &PageGroup {
        // SAFETY: an offset that `format` or `grow` put into the directory, or `open` checked to lie inside the
        // space; only atomic words lie there.
        unsafe { &*self.base.add(offset as usize).cast() }
    }

    /// The description of the group that `page` lies in; `page` is under management.
    #[inline]
    pub(crate) fn group(&self, page: u64) -> &PageGroup {
        // Relaxed: a group's entry changes once, before a page of it can be anyone's.
        self.group_at(self.directory_word(page / GROUP_PAGES).load(Ordering::Relaxed))
    }

    /// As [`ArenaView::group`], for the owner of the writes.
    #[inline]
    pub(crate) fn group_of<W: Words>(&self, w: &mut W, page: u64) -> Result<&PageGroup, W::Stop> {
        let group = page / GROUP_PAGES;
        // A transaction may follow a word that a wrong pointer has changed.
        assert!(W::ALONE || group < self.groups_max, "the allocator's lists are damaged: page {page}");
        let entry = self.directory_word(group);
        // Relaxed: as in `group`. An owner that grew the arena and whose writes are not in place yet still finds 0.
        let mut offset = entry.load(Ordering::Relaxed);
        if !W::ALONE && offset == 0 {
            offset = w.load(entry)?;
        }
        Ok(self.group_at(offset))
    }

    #[inline]
    pub(crate) fn span(&self, page: u64) -> &Span {
        &self.group(page).spans[(page % GROUP_PAGES) as usize]
    }

    /// As [`ArenaView::span`], for the owner of the writes.
    #[inline]
    pub(crate) fn span_of<W: Words>(&self, w: &mut W, page: u64) -> Result<&Span, W::Stop> {
        Ok(&self.group_of(w, page)?.spans[(page % GROUP_PAGES) as usize])
    }

    /// Whether a page's bit is set.
    pub(crate) fn bit(&self, map: PageBitmap, page: u64) -> bool {
        let at = (page % GROUP_PAGES) as usize;
        self.group(page).bits(map)[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
    }

    /// The lists of shard `shard`, which is 0 or in the table of shards.
    pub(crate) fn lists(&self, shard: u64) -> &SlabLists {
        match self.shard(shard) {
            None => &self.head().lists,
            Some(shard) => &shard.lists,
        }
    }

    /// A shard of the table, if there is one of this number; shard 0 is none of them.
    pub(crate) fn shard(&self, shard: u64) -> Option<&Shard> {
        // Relaxed: both words change once, from 0, and a table never moves.
        let (table, count) =
            (self.head().shards.load(Ordering::Relaxed), self.head().shard_count.load(Ordering::Relaxed));
        if table == 0 || shard == 0 || shard > count {
            return None;
        }
        // SAFETY: the table has `count` shards, in pages of their own (`make_shards`; `open` checked it).
        Some(unsafe { &*self.address(table - 1).cast::<Shard>().add(shard as usize - 1) })
    }

    /// Shards besides shard 0.
    pub(crate) fn shard_count(&self) -> u64 {
        let head = self.head();
        if head.shards.load(Ordering::Relaxed) == 0 { 0 } else { head.shard_count.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn address(&self, page: u64) -> *mut u8 {
        self.base.wrapping_add(page as usize * PAGE_BYTES)
    }

    /// The page of an address, if it lies under management.
    #[inline]
    pub(crate) fn page_of(&self, address: usize) -> Option<u64> {
        let page = (address.wrapping_sub(self.base as usize) / PAGE_BYTES) as u64;
        (page < self.pages()).then_some(page)
    }

    /// As [`ArenaView::page_of`], for the owner of the writes.
    #[inline]
    pub(crate) fn page_in<W: Words>(&self, w: &mut W, address: usize) -> Result<Option<u64>, W::Stop> {
        if W::ALONE {
            return Ok(self.page_of(address));
        }
        let page = (address.wrapping_sub(self.base as usize) / PAGE_BYTES) as u64;
        let group = page / GROUP_PAGES;
        // Not by the number of pages: it lies beside words that each change of the free runs writes.
        Ok((group < self.groups_max && w.load(self.directory_word(group))? != 0).then_some(page))
    }

    /// As [`ArenaView::pages`], for the owner of the writes.
    #[inline]
    pub(crate) fn pages_in<W: Words>(&self, w: &mut W) -> Result<u64, W::Stop> {
        w.load(&self.head().pages)
    }

    /// Pages under management.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        // Relaxed: a thread that has a block sees the growth that made it.
        self.head().pages.load(Ordering::Relaxed)
    }

    /// The first page of the span that `page` belongs to. O(pages of the span / 64).
    #[inline]
    pub(crate) fn start_of(&self, page: u64) -> u64 {
        certain(self.start_in(&mut NoWrites, page))
    }

    /// As [`ArenaView::start_of`], for the owner of the writes.
    #[inline]
    pub(crate) fn start_in<W: Words>(&self, w: &mut W, page: u64) -> Result<u64, W::Stop> {
        Ok(self.start_span(w, page)?.0)
    }

    /// The first page of the span that `page` belongs to, and the span's entry. (Words are atomic, so the compiler
    /// would find the way to the entry a second time.)
    #[inline]
    pub(crate) fn start_span<W: Words>(&self, w: &mut W, page: u64) -> Result<(u64, &Span), W::Stop> {
        let mut number = page / GROUP_PAGES;
        let mut at = ((page % GROUP_PAGES) / 64) as usize;
        let mut group = self.group_of(w, page)?;
        let mut bits = w.load(&group.starts[at])? & (!0 >> (63 - page % 64));
        while bits == 0 {
            // Page 0 starts a span, so this ends.
            if at == 0 {
                number -= 1;
                group = self.group_of(w, number * GROUP_PAGES)?;
                at = 16;
            }
            at -= 1;
            bits = w.load(&group.starts[at])?;
        }
        let within = at * 64 + (63 - bits.leading_zeros() as usize);
        Ok((number * GROUP_PAGES + within as u64, &group.spans[within]))
    }

    /// Bytes that may be used of the block that starts at `address`; `None` if none can start there, also because
    /// its span's entry is damaged. Does not check whether the block is in use.
    pub fn usable_bytes(&self, address: usize) -> Option<usize> {
        let (start, span) = certain(self.start_span(&mut NoWrites, self.page_of(address)?));
        // Relaxed: these words stay as they are while the span holds a block in use.
        let (what, pages) = (span.what().load(Ordering::Relaxed), span.pages().load(Ordering::Relaxed));
        self.usable_of(start, what, pages, address, self.pages())
    }

    /// As [`ArenaView::usable_bytes`], for an address in the span at page `start` whose entry has this first word and
    /// length, in an arena that ends before page `end`.
    pub(crate) fn usable_of(
        &self,
        start: u64,
        what: u64,
        pages: u64,
        address: usize,
        end: u64,
    ) -> Option<usize> {
        let offset = address - self.address(start) as usize;
        match kind_of(what) {
            kind::SLAB => {
                let shape = self.shape(start, class_of_span(what), pages, end)?;
                let slot = shape.slot_of(offset);
                (slot * shape.bytes as usize == offset && slot < shape.slots as usize)
                    .then_some(shape.bytes as usize)
            }
            kind::LARGE if offset == 0 && Self::has_room(start, pages, end) => {
                Some(pages as usize * PAGE_BYTES)
            }
            _ => None,
        }
    }

    /// The shape of the slab at page `start` whose entry has this class and length, if it can be a slab.
    #[inline]
    pub(crate) fn shape(&self, start: u64, class: u8, pages: u64, end: u64) -> Option<&'static SlabShape> {
        let shape = CLASSES.get(class as usize)?;
        (pages == u64::from(shape.pages) && Self::has_room(start, pages, end)).then_some(shape)
    }

    /// Whether a span of `pages` can start at page `start` of an arena that ends before page `end`.
    #[inline]
    pub(crate) fn has_room(start: u64, pages: u64, end: u64) -> bool {
        pages != 0 && pages <= end.saturating_sub(start)
    }
}

/// Reads without an owner.
pub(crate) struct NoWrites;

impl Writes for NoWrites {
    fn wrote(&mut self, _: usize, _: usize) {}
}
