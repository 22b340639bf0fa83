//! Small blocks: slabs of up to 256 equal ones, each slab with a bitmap.
//!
//! Invariants:
//! 1. A slab with a free block is in its class's list of one shard; a full one is in none.
//! 2. Only a list's first slab may have all its blocks free.

use crate::bytes::class::{CLASSES, class_of};
use crate::bytes::layout::{PAGE_BYTES, Span, class_of_span, kind, what};
use crate::heap::{ArenaHeap, Current};
use crate::space::Words;
use std::sync::atomic::AtomicU64;

/// Why a block was not freed or resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFree {
    /// The block, or the pages that it once lay in, are free already.
    Double,
    /// The address lies in the arena, and no block starts there: it is misaligned, inside a block, in a mapping, or in
    /// what the arena keeps for itself.
    NotABlock,
    /// The address does not lie in the arena.
    Outside,
}

/// Whether a slab's bitmap is `all`, of which word `at` is known to agree.
#[inline]
fn agrees<W: Words>(w: &mut W, free: &[AtomicU64; 4], at: usize, all: &[u64; 4]) -> Result<bool, W::Stop> {
    for other in 0..4 {
        if other != at && w.load(&free[other])? != all[other] {
            return Ok(false);
        }
    }
    Ok(true)
}

impl ArenaHeap {
    /// A block of `class`, or null when the region is full.
    #[inline]
    pub(crate) fn slab_alloc<W: Words>(&mut self, w: &mut W, class: usize) -> Result<*mut u8, W::Stop> {
        let current = self.current[class];
        if !W::ALONE || current.span.is_null() {
            return self.slab_alloc_slow(w, class);
        }
        // SAFETY: `current` is the first slab of the class's list, in the region, with a free block.
        let span = unsafe { &*current.span };
        self.slab_take(w, class, span, current.page, current.first_block)
    }

    /// The first free block of a slab that has one.
    #[inline]
    pub(crate) fn slab_take<W: Words>(
        &mut self,
        w: &mut W,
        class: usize,
        span: &Span,
        page: u64,
        first_block: *mut u8,
    ) -> Result<*mut u8, W::Stop> {
        for at in 0..4 {
            let word = w.load(&span.free[at])?;
            if word != 0 {
                let left = word & (word - 1);
                w.store(&span.free[at], left)?;
                if left == 0 && agrees(w, &span.free, at, &[0; 4])? {
                    self.class_remove(w, class, page)?;
                }
                let slot = at * 64 + word.trailing_zeros() as usize;
                return Ok(first_block.wrapping_add(slot * CLASSES[class].bytes as usize));
            }
        }
        unreachable!("a slab of a class's list is full")
    }

    /// As [`ArenaHeap::slab_alloc`], by way of the list.
    #[cold]
    fn slab_alloc_cold<W: Words>(&mut self, w: &mut W, class: usize) -> Result<*mut u8, W::Stop> {
        if !self.slab_new(w, class)? {
            return Ok(std::ptr::null_mut());
        }
        self.slab_alloc_slow(w, class)
    }

    fn slab_alloc_slow<W: Words>(&mut self, w: &mut W, class: usize) -> Result<*mut u8, W::Stop> {
        let first = w.load(self.list(class))?;
        let Some(page) = first.checked_sub(1) else { return self.slab_alloc_cold(w, class) };
        let view = self.view;
        let span = view.span_of(w, page)?;
        let first_block = view.address(page);
        if !self.provide(page, u64::from(CLASSES[class].pages)) {
            return self.slab_alloc_after(w, class, page);
        }
        if W::ALONE {
            self.current[class] = Current { span, first_block, page };
        }
        self.slab_take(w, class, span, page, first_block)
    }

    /// A block of a slab that comes after the one at `page` in its list, for which the medium has no space. Null when
    /// it has none for any of them. O(slabs of the list).
    #[cold]
    fn slab_alloc_after<W: Words>(&mut self, w: &mut W, class: usize, page: u64) -> Result<*mut u8, W::Stop> {
        let view = self.view;
        let mut span = view.span_of(w, page)?;
        while let Some(page) = w.load(span.next())?.checked_sub(1) {
            span = view.span_of(w, page)?;
            if self.provide(page, u64::from(CLASSES[class].pages)) {
                return self.slab_take(w, class, span, page, view.address(page));
            }
        }
        Ok(std::ptr::null_mut())
    }

    /// Gives the handle's empty list of `class` a slab. Returns false when the region is full.
    fn slab_new<W: Words>(&mut self, w: &mut W, class: usize) -> Result<bool, W::Stop> {
        // What shard 0 has is there for all: slabs from before there were shards.
        if self.shard().is_some() && self.adopt(w, class, 0)? {
            return Ok(true);
        }
        let pages = u64::from(CLASSES[class].pages);
        let Some((page, _)) = self.alloc_shard_run(w, pages)? else { return self.adopt_any(w, class) };
        let view = self.view;
        let span = view.span_of(w, page)?;
        w.store_all(&span.links, &[what(kind::SLAB, class as u8), pages, 0, 0])?;
        w.store_all(&span.free, &CLASSES[class].all_free)?;
        self.set_class(w, class, page + 1)?;
        Ok(true)
    }

    /// Moves the first slab of another shard's list to this handle's list, which is empty.
    fn adopt<W: Words>(&mut self, w: &mut W, class: usize, from: u64) -> Result<bool, W::Stop> {
        let view = self.view;
        let theirs = &view.lists(from)[class];
        let first = w.load(theirs)?;
        if first == 0 || std::ptr::eq(theirs, self.list(class)) {
            return Ok(false);
        }
        let span = view.span_of(w, first - 1)?;
        let next = w.load(span.next())?;
        if next != 0 {
            let entry = view.span_of(w, next - 1)?;
            w.store(entry.prev(), 0)?;
            w.store(span.next(), 0)?;
        }
        w.store(theirs, next)?;
        self.set_class(w, class, first)?;
        Ok(true)
    }

    /// As [`ArenaHeap::adopt`], of any shard that has one: the region is full.
    fn adopt_any<W: Words>(&mut self, w: &mut W, class: usize) -> Result<bool, W::Stop> {
        for from in 0..=self.view.shard_count() {
            if self.adopt(w, class, from)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the block at `address`, which lies in the slab that starts at `page` and whose entry begins with
    /// `what`.
    #[inline]
    pub(crate) fn slab_free<W: Words>(
        &mut self,
        w: &mut W,
        (page, span): (u64, &Span),
        what: u64,
        address: usize,
    ) -> Result<Result<(), BadFree>, W::Stop> {
        let offset = address - self.address(page) as usize;
        let class = class_of_span(what) as usize;
        let shape = &CLASSES[class];
        let slot = shape.slot_of(offset);
        if slot * shape.bytes as usize != offset || slot >= shape.slots as usize {
            return Ok(Err(BadFree::NotABlock));
        }
        // A bitmap has four words; saying so spares two comparisons.
        let (at, bit) = (slot / 64 % 4, 1 << (slot % 64));
        let old = w.load(&span.free[at])?;
        if old & bit != 0 {
            return Ok(Err(BadFree::Double));
        }
        let new = old | bit;
        w.store(&span.free[at], new)?;
        self.note_freed(address, shape.bytes as usize);
        if old == 0 && agrees(w, &span.free, at, &[0; 4])? {
            self.class_add(w, class, page)?;
        } else if new == shape.all_free[at]
            && agrees(w, &span.free, at, &shape.all_free)?
            && w.load(span.prev())? != 0
        {
            self.class_remove(w, class, page)?;
            self.free_run(w, page, u64::from(shape.pages))?;
        }
        Ok(Ok(()))
    }

    /// Whether the block at `address` of the slab at `page` is in use, if one of this shape starts there.
    pub(crate) fn slab_in_use<W: Words>(
        &self,
        w: &mut W,
        page: u64,
        class: u8,
        address: usize,
    ) -> Result<bool, W::Stop> {
        let Some(shape) = CLASSES.get(class as usize) else { return Ok(false) };
        let slot = shape.slot_of(address - self.address(page) as usize);
        if slot >= shape.slots as usize {
            return Ok(false);
        }
        let view = self.view;
        let span = view.span_of(w, page)?;
        Ok(w.load(&span.free[slot / 64])? >> (slot % 64) & 1 == 0)
    }

    /// Frees the slabs that have no block in use and were kept for the next one, and what shards keep for slabs.
    #[cold]
    pub(crate) fn release_empty_slabs<W: Words>(&mut self, w: &mut W) -> Result<(), W::Stop> {
        let view = self.view;
        for shard in 0..=view.shard_count() {
            for (class, shape) in CLASSES.iter().enumerate() {
                let list = &view.lists(shard)[class];
                let first = w.load(list)?;
                if first == 0 {
                    continue;
                }
                let span = view.span_of(w, first - 1)?;
                if w.load(&span.free[0])? == shape.all_free[0] && agrees(w, &span.free, 0, &shape.all_free)? {
                    if let Some(head) = self.unlink(w, first - 1)? {
                        w.store(list, head)?;
                        self.current[class] = Current::NONE;
                    }
                    self.free_run(w, first - 1, u64::from(shape.pages))?;
                }
            }
            if let Some(shard) = view.shard(shard) {
                self.give_back(w, shard)?;
            }
        }
        Ok(())
    }

    /// Puts a slab after the first of its class's list, so that the first is used up before it.
    fn class_add<W: Words>(&mut self, w: &mut W, class: usize, page: u64) -> Result<(), W::Stop> {
        let view = self.view;
        let span = view.span_of(w, page)?;
        let first = w.load(self.list(class))?;
        if first == 0 {
            w.store_all(&span.links[2..], &[0, 0])?;
            return self.set_class(w, class, page + 1);
        }
        let before = view.span_of(w, first - 1)?;
        let second = w.load(before.next())?;
        w.store_all(&span.links[2..], &[second, first])?;
        w.store(before.next(), page + 1)?;
        if second != 0 {
            let entry = view.span_of(w, second - 1)?;
            w.store(entry.prev(), page + 1)?;
        }
        Ok(())
    }

    fn class_remove<W: Words>(&mut self, w: &mut W, class: usize, page: u64) -> Result<(), W::Stop> {
        match self.unlink(w, page)? {
            Some(head) => self.set_class(w, class, head),
            None => Ok(()),
        }
    }

    fn set_class<W: Words>(&mut self, w: &mut W, class: usize, first: u64) -> Result<(), W::Stop> {
        w.store(self.list(class), first)?;
        self.current[class] = Current::NONE;
        Ok(())
    }

    /// The class whose blocks hold `bytes` and start at multiples of `align`, if there is one. `align` is a
    /// power of two.
    pub(crate) fn class_aligned(bytes: usize, align: usize) -> Option<usize> {
        if align > PAGE_BYTES || bytes.max(align) > crate::bytes::class::SMALL_BYTES_MAX {
            return None;
        }
        (class_of(bytes.max(align))..CLASSES.len())
            .find(|&c| (CLASSES[c].bytes as usize).is_multiple_of(align))
    }
}
