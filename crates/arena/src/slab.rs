//! Small blocks: slabs of up to 256 equal ones, each slab with a bitmap.
//!
//! Invariants:
//! 1. A slab with a free block is in its class's list; a full one is not.
//! 2. Only the list's first slab may have all its blocks free.

use crate::class::{CLASSES, class_of};
use crate::heap::{Current, Heap};
use crate::layout::{PAGE_BYTES, kind};
use crate::space::Writes;

/// Why a block was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFree {
    /// The block is free already.
    Double,
    /// No block starts at the address.
    NotABlock,
}

impl Heap {
    /// A block of `class`, or null when the region is full.
    #[inline]
    pub(crate) fn slab_alloc<W: Writes>(&mut self, w: &mut W, class: usize) -> *mut u8 {
        let current = self.current[class];
        if current.span.is_null() {
            return self.slab_alloc_slow(w, class);
        }
        // SAFETY: `current` is the first slab of the class's list, in the region, with a free block.
        let free = unsafe { &mut (*current.span).free };
        for at in 0..4 {
            let word = free[at];
            if word != 0 {
                free[at] = word & (word - 1);
                let slot = at * 64 + word.trailing_zeros() as usize;
                w.wrote(std::ptr::from_ref(free) as usize, 32);
                if free[at] == 0 && *free == [0; 4] {
                    self.class_remove(w, class, current.page);
                }
                return current.first_block.wrapping_add(slot * CLASSES[class].bytes as usize);
            }
        }
        unreachable!("a slab of a class's list is full")
    }

    #[cold]
    fn slab_alloc_slow<W: Writes>(&mut self, w: &mut W, class: usize) -> *mut u8 {
        if self.head().classes[class] == 0 {
            let Some((page, _)) = self.alloc_run(w, u64::from(CLASSES[class].pages)) else {
                return std::ptr::null_mut();
            };
            let span = self.span_mut(page);
            (span.kind, span.class, span.zero) = (kind::SLAB, class as u8, [0; 6]);
            (span.pages, span.next, span.prev) = (u64::from(CLASSES[class].pages), 0, 0);
            span.free = CLASSES[class].all_free;
            let at = std::ptr::from_ref(span) as usize;
            w.wrote(at, 64);
            self.set_class(w, class, page + 1);
        }
        let page = self.head().classes[class] - 1;
        self.current[class] =
            Current { span: std::ptr::from_mut(self.span_mut(page)), first_block: self.address(page), page };
        self.slab_alloc(w, class)
    }

    /// Frees the block at `address`, which lies in the slab that starts at `page`.
    #[inline]
    pub(crate) fn slab_free<W: Writes>(
        &mut self,
        w: &mut W,
        page: u64,
        address: usize,
    ) -> Result<(), BadFree> {
        let offset = address - self.address(page) as usize;
        let class = self.span(page).class as usize;
        let shape = &CLASSES[class];
        let slot = shape.slot_of(offset);
        if slot * shape.bytes as usize != offset || slot >= shape.slots as usize {
            return Err(BadFree::NotABlock);
        }
        let free = &mut self.span_mut(page).free;
        let bit = 1 << (slot % 64);
        if free[slot / 64] & bit != 0 {
            return Err(BadFree::Double);
        }
        let was_full = free[slot / 64] == 0 && *free == [0; 4];
        free[slot / 64] |= bit;
        let now_empty = free[slot / 64] == shape.all_free[slot / 64] && *free == shape.all_free;
        let at = std::ptr::from_ref(free) as usize;
        w.wrote(at, 32);
        self.frees += 1;
        if was_full {
            self.class_add(w, class, page);
        } else if now_empty && self.span(page).prev != 0 {
            self.class_remove(w, class, page);
            self.free_run(w, page, u64::from(shape.pages));
        }
        Ok(())
    }

    /// Whether the block at `address` of the slab at `page` is in use.
    pub(crate) fn slab_in_use(&self, page: u64, address: usize) -> bool {
        let span = self.span(page);
        let Some(shape) = self.view.shape(page, span.class, span.pages) else { return false };
        let offset = address - self.address(page) as usize;
        let slot = shape.slot_of(offset);
        slot * shape.bytes as usize == offset
            && slot < shape.slots as usize
            && span.free[slot / 64] >> (slot % 64) & 1 == 0
    }

    /// Frees the slabs that have no block in use and were kept for the next one.
    #[cold]
    pub(crate) fn release_empty_slabs<W: Writes>(&mut self, w: &mut W) {
        for (class, shape) in CLASSES.iter().enumerate() {
            let first = self.head().classes[class];
            if first != 0 && self.span(first - 1).free == shape.all_free {
                self.class_remove(w, class, first - 1);
                self.free_run(w, first - 1, u64::from(shape.pages));
            }
        }
    }

    /// Puts a slab after the first of its class's list, so that the first is used up before it.
    fn class_add<W: Writes>(&mut self, w: &mut W, class: usize, page: u64) {
        let first = self.head().classes[class];
        if first == 0 {
            let span = self.span_mut(page);
            (span.next, span.prev) = (0, 0);
            self.report_links(w, page);
            self.set_class(w, class, page + 1);
            return;
        }
        let second = self.span(first - 1).next;
        let span = self.span_mut(page);
        (span.next, span.prev) = (second, first);
        self.report_links(w, page);
        self.span_mut(first - 1).next = page + 1;
        self.report_links(w, first - 1);
        if second != 0 {
            self.span_mut(second - 1).prev = page + 1;
            self.report_links(w, second - 1);
        }
    }

    fn class_remove<W: Writes>(&mut self, w: &mut W, class: usize, page: u64) {
        if let Some(head) = self.unlink(w, page) {
            self.set_class(w, class, head);
        }
    }

    fn set_class<W: Writes>(&mut self, w: &mut W, class: usize, first: u64) {
        let slot = &mut self.head_mut().classes[class];
        *slot = first;
        let at = std::ptr::from_ref(slot) as usize;
        w.wrote(at, 8);
        self.current[class] = Current::NONE;
    }

    /// The class whose blocks hold `bytes` and start at multiples of `align`, if there is one. `align` is a
    /// power of two.
    pub(crate) fn class_aligned(bytes: usize, align: usize) -> Option<usize> {
        if align > PAGE_BYTES || bytes.max(align) > crate::class::SMALL_BYTES_MAX {
            return None;
        }
        (class_of(bytes.max(align))..CLASSES.len())
            .find(|&c| (CLASSES[c].bytes as usize).is_multiple_of(align))
    }
}
