//! Look-ups that any thread may make while another one allocates.

use crate::class::{CLASSES, SlabShape};
use crate::layout::{ARENA_HEAD_BYTES, GROUP_PAGES, Group, Head, PAGE_BYTES, PageBitmap, Span, kind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The addresses of an arena's parts. Reads only what does not change while the block in question lives: the kind,
/// class and length of its span, and, atomically, the bitmap that finds it.
#[derive(Clone, Copy)]
pub struct ArenaView {
    pub(crate) base: *mut u8,
    pub(crate) head: *mut Head,
    pub(crate) directory: *mut u64,
}

// SAFETY: plain addresses of the region; the comment above says what other threads read there.
unsafe impl Send for ArenaView {}
// SAFETY: as above.
unsafe impl Sync for ArenaView {}

impl ArenaView {
    pub(crate) fn new(base: *mut u8, head_offset: u64) -> Self {
        let head = base.wrapping_add(head_offset as usize);
        Self { base, head: head.cast(), directory: head.wrapping_add(ARENA_HEAD_BYTES).cast() }
    }

    /// The description of the group that `page` lies in; `page` is under management.
    #[inline]
    pub(crate) fn group_ptr(&self, page: u64) -> *mut Group {
        // SAFETY: the directory has an entry for every group under management (`grow`, `format`), checked
        // by `open` to lie inside the space.
        unsafe { self.base.add(*self.directory.add((page / GROUP_PAGES) as usize) as usize).cast() }
    }

    #[inline]
    pub(crate) fn span_ptr(&self, page: u64) -> *mut Span {
        // SAFETY: as in `group_ptr`; the index is below the length of the array.
        unsafe { (&raw mut (*self.group_ptr(page)).spans).cast::<Span>().add((page % GROUP_PAGES) as usize) }
    }

    #[inline]
    pub(crate) fn bits(&self, map: PageBitmap, page: u64) -> &[AtomicU64; 16] {
        let group = self.group_ptr(page);
        // SAFETY: bitmaps of a group under management, only ever used through atomics.
        unsafe {
            match map {
                PageBitmap::Starts => &(*group).starts,
                PageBitmap::Touched => &(*group).touched,
                PageBitmap::FreeEnds => &(*group).free_ends,
            }
        }
    }

    /// The page of an address, if it lies under management.
    #[inline]
    pub(crate) fn page_of(&self, address: usize) -> Option<u64> {
        let page = (address.wrapping_sub(self.base as usize) / PAGE_BYTES) as u64;
        (page < self.pages()).then_some(page)
    }

    /// Pages under management.
    #[inline]
    fn pages(&self) -> u64 {
        // SAFETY: the head is in the region's first pages. Relaxed: a thread that has a block sees the growth that
        // made it.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.head).pages) }.load(Ordering::Relaxed)
    }

    /// The first page of the span that `page` belongs to. O(pages of the span / 64).
    #[inline]
    pub(crate) fn start_of(&self, page: u64) -> u64 {
        let mut number = page / GROUP_PAGES;
        let mut at = ((page % GROUP_PAGES) / 64) as usize;
        let mut bits =
            self.bits(PageBitmap::Starts, page)[at].load(Ordering::Relaxed) & (!0 >> (63 - page % 64));
        while bits == 0 {
            // Page 0 starts a span, so this ends.
            if at == 0 {
                number -= 1;
                at = 16;
            }
            at -= 1;
            bits = self.bits(PageBitmap::Starts, number * GROUP_PAGES)[at].load(Ordering::Relaxed);
        }
        number * GROUP_PAGES + at as u64 * 64 + (63 - u64::from(bits.leading_zeros()))
    }

    /// Bytes that may be used of the block that starts at `address`; `None` if none can start there, also because
    /// its span's entry is damaged. Does not check whether the block is in use.
    pub fn usable_bytes(&self, address: usize) -> Option<usize> {
        let start = self.start_of(self.page_of(address)?);
        let offset = address - self.base as usize - start as usize * PAGE_BYTES;
        let span = self.span_ptr(start);
        // SAFETY: a span under management; these fields stay as they are while it holds a block in use.
        let (kind, class, pages) = unsafe { ((*span).kind, (*span).class, (*span).pages) };
        match kind {
            kind::SLAB => {
                let shape = self.shape(start, class, pages)?;
                let slot = shape.slot_of(offset);
                (slot * shape.bytes as usize == offset && slot < shape.slots as usize)
                    .then_some(shape.bytes as usize)
            }
            kind::LARGE if offset == 0 && self.has_room(start, pages) => Some(pages as usize * PAGE_BYTES),
            _ => None,
        }
    }

    /// The shape of the slab at page `start` whose entry has this class and length, if it can be a slab.
    #[inline]
    pub(crate) fn shape(&self, start: u64, class: u8, pages: u64) -> Option<&'static SlabShape> {
        let shape = CLASSES.get(class as usize)?;
        (pages == u64::from(shape.pages) && self.has_room(start, pages)).then_some(shape)
    }

    /// Whether a span of `pages` can start at page `start`, which is under management.
    #[inline]
    pub(crate) fn has_room(&self, start: u64, pages: u64) -> bool {
        pages != 0 && pages <= self.pages() - start
    }
}
