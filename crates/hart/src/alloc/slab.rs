//! Slots of a class: which are free, which thread may allocate them, and when a segment is empty again.
//!
//! The paper reserves nothing and walks a list from its head (Algorithms 2 and 6). Here the medium records only
//! live leaves, and this file keeps the rest in DRAM:
//!
//! 1. Every slot is exactly one of these: live, in the cache of one lane, set in its chunk's free mask, or set aside by
//!    compaction (`evacuate.rs`).
//! 2. A chunk is listed in its segment's summary if its mask is not zero; the thread that makes a mask nonzero lists
//!    the chunk. Only `refill`, of listed chunks, and compaction's `set_free_aside` empty masks, under the class lock.
//! 3. A segment is recycled under its class lock when all its chunks are entirely free and listed. Then no slot is
//!    cached, live or set aside, and no thread is between freeing a slot of it and listing the chunk.
//! 4. Each class keeps one empty segment, so that an insert and a delete at the boundary do not allocate and recycle
//!    a segment each time.

use super::cache::{SlotCache, SlotCaches};
use super::garbage::Garbage;
use super::moving::MovingSegments;
use super::segments::{SegmentPool, set_kind};
use crate::concurrency::writer_gate::LaneToken;
use crate::format::layout::{
    CHUNK_BITMAP, CHUNK_IDENTITY, CHUNK_REMOVALS, CHUNK_REMOVALS_SEAL, SegmentKind, VALUE_HEADER_BYTES,
    chunk_identity, chunk_word,
};
use crate::format::size_class::{Class, Classes, Cut, is_leaf_class};
use crate::format::space::MapSpace;
use crate::{Error, Options, Result};
use mangrove_sys::Reservation;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Class numbers of segments that are not slabs.
const EXTENT_HEAD: u8 = 255;
pub(super) const EXTENT_TAIL: u8 = 254;

/// Offset of an allocated slot.
pub(crate) type SlotOffset = u64;

/// What DRAM records of a segment. All zero is a free segment.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) class: AtomicU8,
    /// Counted among its class's empty segments. Changed under the class lock.
    empty: AtomicBool,
    /// Compaction empties it. Set while the gate is closed, cleared under the lock of `moving`.
    pub(super) is_moving: AtomicBool,
    /// Chunks whose slots are all in their mask.
    pub(super) full_chunks: AtomicI32,
    /// Chunks in the summary. Changed under the class lock.
    pub(super) listed: AtomicU32,
    /// Index in the class's list while `listed` is not zero; in the head of an extent, its count of segments.
    extra: AtomicU32,
    /// A free mask for each chunk, then the summary with a bit for each chunk. Null unless the segment is a slab.
    masks: AtomicPtr<AtomicU64>,
}

/// All segments, used or not. The system provides a page when one of its segments is first used, so a region may be
/// larger than all memory.
pub(super) struct Segments {
    memory: Reservation,
    count: usize,
}

impl Segments {
    fn new(count: usize) -> Result<Self> {
        let bytes = count * size_of::<Segment>();
        let memory = Reservation::anonymous(bytes.max(1)).map_err(|e| Error::Unsupported {
            what: format!("cannot reserve {bytes} bytes for the list of {count} segments: {e}"),
        })?;
        Ok(Self { memory, count })
    }
}

impl std::ops::Deref for Segments {
    type Target = [Segment];

    #[inline]
    fn deref(&self) -> &[Segment] {
        // SAFETY: the memory holds that many segments. It is zeroed at first, which is a valid value of each: atomics
        // and a null pointer.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr().cast(), self.count) }
    }
}

/// The segments of a class that have free slots.
#[derive(Debug, Default)]
pub(super) struct ClassList {
    segments: Vec<u32>,
    empties: u32,
}

/// Segments and bytes, by use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllocatorUsage {
    pub(crate) leaf_segments: u64,
    pub(crate) value_segments: u64,
    pub(crate) extent_segments: u64,
    pub(crate) free_segments: u64,
    pub(crate) leaf_slots: u64,
    pub(crate) leaf_slots_free: u64,
    pub(crate) dram_bytes: u64,
}

/// The allocator of a map: slots of slabs, and extents.
pub(crate) struct SlabAllocator {
    space: Arc<MapSpace>,
    pub(crate) classes: Classes,
    pub(crate) pool: SegmentPool,
    pub(super) segments: Segments,
    pub(super) lists: Box<[Mutex<ClassList>]>,
    caches: SlotCaches,
    /// What compaction empties. Taken before the lock of a class.
    pub(super) moving: Mutex<MovingSegments>,
    /// What compaction in the background waits for.
    pub(crate) garbage: Garbage,
}

impl std::fmt::Debug for SlabAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlabAllocator").finish_non_exhaustive()
    }
}

impl Drop for SlabAllocator {
    fn drop(&mut self) {
        for segment in 0..self.pool.high_water() {
            self.drop_masks(segment);
        }
    }
}

impl SlabAllocator {
    pub(crate) fn new(space: Arc<MapSpace>, high_water: u32, options: &Options) -> Result<Self> {
        let classes = Classes::new(&space.geometry);
        let count = classes.count();
        Ok(Self {
            pool: SegmentPool::new(&space, high_water, options),
            lists: (0..count).map(|_| Mutex::default()).collect(),
            caches: SlotCaches::new(count),
            moving: Mutex::default(),
            garbage: Garbage::new(),
            classes,
            segments: Segments::new(space.geometry.segment_count as usize)?,
            space,
        })
    }

    /// The space whose segments this allocates.
    #[inline]
    pub(crate) fn space(&self) -> &MapSpace {
        &self.space
    }

    /// Allocates a slot for a leaf of so many bytes. For a thread's lane its bit is set and its meta
    /// word durably that of a free slot; the holder of the exclusive permit must look at the bit.
    #[inline]
    pub(crate) fn alloc_leaf(&self, lane: &LaneToken<'_>, bytes: usize) -> Result<SlotOffset> {
        self.alloc(lane, self.classes.of_leaf(bytes))
    }

    /// Allocates a block for a value of `len` bytes. The directory entry of an extent is flushed, not fenced.
    #[inline]
    pub(crate) fn alloc_value(&self, lane: &LaneToken<'_>, len: usize) -> Result<u64> {
        match self.classes.of_value(len) {
            Some(class) => self.alloc(lane, class),
            None => self.alloc_extent(VALUE_HEADER_BYTES + len as u64),
        }
    }

    #[inline]
    fn alloc(&self, lane: &LaneToken<'_>, class: Class) -> Result<u64> {
        self.caches.with(lane, class, |cache| {
            // Batches flush many leaves, and many values, at once: neighbours go into one flush.
            let in_row = lane.is_exclusive() || !is_leaf_class(class);
            if let Some(slot) = cache.alloc(in_row) {
                // Otherwise the next write would fetch the line of its slot while it waits for a fence.
                mangrove_sys::prefetch_write(self.space.region.base().wrapping_add(cache.next() as usize));
                return Ok(slot);
            }
            self.refill(lane, class, cache)?;
            Ok(cache.alloc(in_row).expect("a refilled cache has a slot"))
        })
    }

    /// Reserves all free slots of one chunk of the class.
    #[cold]
    #[inline(never)]
    fn refill(&self, lane: &LaneToken<'_>, class: Class, cache: &mut SlotCache) -> Result<()> {
        let cut = *self.classes.cut(class);
        let mut list = self.lists[usize::from(class)].lock();
        let segment = match list.segments.last() {
            Some(segment) => *segment,
            None => self.add_segment(lane, class, &cut, &mut list)?,
        };
        let state = &self.segments[segment as usize];
        let (masks, summary) = self.masks(segment, &cut);
        let (word, bits) = summary
            .iter()
            .enumerate()
            .find_map(|(i, w)| Some((i, w.load(Ordering::Relaxed))).filter(|(_, bits)| *bits != 0))
            .expect("a listed segment has a listed chunk");
        let chunk = word as u32 * 64 + bits.trailing_zeros();
        summary[word].store(bits & (bits - 1), Ordering::Relaxed);
        // Acquire: partner is the Release in `free_slots_of`. What the last owner did with the slots is over.
        let mask = masks[chunk as usize].swap(0, Ordering::AcqRel);
        if mask == cut.full_mask(chunk) {
            state.full_chunks.fetch_sub(1, Ordering::AcqRel);
        }
        if state.empty.load(Ordering::Relaxed) {
            state.empty.store(false, Ordering::Relaxed);
            list.empties -= 1;
        }
        let listed = state.listed.load(Ordering::Relaxed) - 1;
        state.listed.store(listed, Ordering::Relaxed);
        if listed == 0 {
            self.unlist(segment, &mut list);
        }
        let header = self.space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
        if is_leaf_class(class) && !lane.is_exclusive() {
            self.put_in_service(header, cut.slots(chunk), &cut, mask);
        }
        cache.mask = mask;
        cache.slot_bytes = cut.slot_bytes;
        cache.base = header + u64::from(cut.header_bytes);
        Ok(())
    }

    /// Slots of the chunk of leaves whose header is at `header`.
    pub(super) fn slots_of(&self, header: u64) -> u32 {
        let (segment, place) = self.space.geometry.locate(header);
        let cut = self.classes.cut(self.segments[segment as usize].class.load(Ordering::Relaxed));
        cut.slots(place / cut.chunk_bytes)
    }

    /// A fresh segment of the class (the paper's AllocMemChunk, Algorithm 2 lines 8-11).
    fn add_segment(
        &self,
        lane: &LaneToken<'_>,
        class: Class,
        cut: &Cut,
        list: &mut ClassList,
    ) -> Result<u32> {
        let segment = self.pool.alloc(&self.space, 1)?;
        let region = &self.space.region;
        if is_leaf_class(class) {
            for chunk in 0..cut.chunk_count {
                let header = self.space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
                region.store(header + CHUNK_BITMAP, chunk_word(0, cut.slots(chunk)), Ordering::Release);
                region.store(
                    header + CHUNK_IDENTITY,
                    chunk_identity(segment, class, chunk),
                    Ordering::Release,
                );
                region.store(header + CHUNK_REMOVALS, 0, Ordering::Release);
                region.store(header + CHUNK_REMOVALS_SEAL, 0, Ordering::Release);
                region.flush(header, 32);
            }
            // Durable-order: empty bitmaps, and no removals that an earlier use of the segment left, before the entry
            // that makes recovery read them.
            region.fence();
            set_kind(&self.space, segment, SegmentKind::Leaves { class });
        } else {
            set_kind(&self.space, segment, SegmentKind::Values { class });
        }
        // Durable-order: the entry before any thread commits a leaf in the segment, or one that refers to it. Slots of
        // leaves are put in service with a fence, before the class's lock opens.
        if lane.is_exclusive() || !is_leaf_class(class) {
            region.fence();
        }
        let masks = (0..cut.chunk_count).map(|chunk| cut.full_mask(chunk)).collect();
        self.adopt_listed(segment, class, masks, list);
        Ok(segment)
    }

    /// Allocates consecutive segments, whose durable entries are free.
    pub(crate) fn alloc_segments(&self, count: u32) -> Result<u32> {
        self.pool.alloc(&self.space, count)
    }

    fn alloc_extent(&self, bytes: u64) -> Result<u64> {
        let count = bytes.div_ceil(self.space.geometry.segment_bytes()) as u32;
        let head = self.alloc_segments(count)?;
        // Durable-order: the owner's fence before its leaf is committed covers this flush too.
        set_kind(&self.space, head, SegmentKind::Extent { count });
        self.adopt_extent(head, count);
        Ok(self.space.geometry.start(head))
    }

    /// Frees a slot that neither durable state nor a reader's validated result refers to.
    #[inline]
    pub(crate) fn free(&self, lane: &LaneToken<'_>, offset: u64) {
        let (segment, _) = self.space.geometry.locate(offset);
        let class = self.segments[segment as usize].class.load(Ordering::Acquire);
        if class == EXTENT_HEAD {
            return self.free_extent(segment);
        }
        if self.segments[segment as usize].is_moving.load(Ordering::Relaxed) && self.keep_aside(offset) {
            return;
        }
        // A leaf that a batch has freed keeps its meta word: it must not enter a thread's lane.
        if lane.is_exclusive() || !self.caches.with(lane, class, |cache| cache.keep(offset)) {
            self.free_many(lane, class, offset);
        }
    }

    /// Frees `offset`, and the slots that its lane kept, for all lanes.
    #[inline(never)]
    fn free_many(&self, lane: &LaneToken<'_>, class: Class, offset: u64) {
        let slot_bytes = u64::from(self.classes.cut(class).slot_bytes);
        if lane.is_exclusive() {
            self.garbage.add(slot_bytes);
            return self.free_shared(offset);
        }
        // Neighbours are freed together.
        let mut held: Option<(u32, u32, u64)> = None;
        let mut bytes = 0;
        for slot in self.caches.with(lane, class, SlotCache::take_spare).chain([offset]) {
            let (segment, chunk, bit) = self.place_of(slot);
            bytes += slot_bytes;
            match &mut held {
                Some(held) if (held.0, held.1) == (segment, chunk) => {
                    assert!(held.2 & bit == 0, "slot at {slot} freed twice");
                    held.2 |= bit;
                }
                _ => {
                    if let Some((segment, chunk, bits)) = held.replace((segment, chunk, bit)) {
                        self.free_slots_of(segment, chunk, bits);
                    }
                }
            }
        }
        if let Some((segment, chunk, bits)) = held {
            self.free_slots_of(segment, chunk, bits);
        }
        self.garbage.add(bytes);
    }

    /// Segment, chunk and bit of the slot at `offset`.
    #[inline]
    pub(super) fn place_of(&self, offset: u64) -> (u32, u32, u64) {
        let (segment, place) = self.space.geometry.locate(offset);
        let cut = self.classes.cut(self.segments[segment as usize].class.load(Ordering::Acquire));
        let (chunk, slot) = cut.slot_at(place).expect("a slot begins here");
        (segment, chunk, 1 << slot)
    }

    fn free_shared(&self, offset: u64) {
        let (segment, chunk, bit) = self.place_of(offset);
        self.free_slots_of(segment, chunk, bit);
    }

    /// Sets the bits of free slots in a chunk's mask.
    pub(super) fn free_slots_of(&self, segment: u32, chunk: u32, bits: u64) {
        let state = &self.segments[segment as usize];
        let class = state.class.load(Ordering::Acquire);
        let cut = self.classes.cut(class);
        let (masks, _) = self.masks(segment, cut);
        // Release: partner is the Acquire in `refill`. This thread's use of the slots is over.
        let before = masks[chunk as usize].fetch_or(bits, Ordering::AcqRel);
        assert!(before & bits == 0, "a slot of segment {segment} freed twice");
        let filled = before | bits == cut.full_mask(chunk);
        if filled {
            state.full_chunks.fetch_add(1, Ordering::AcqRel);
        }
        if before == 0 || filled {
            self.relist(segment, class, chunk, before == 0);
        }
    }

    #[cold]
    #[inline(never)]
    fn relist(&self, segment: u32, class: Class, chunk: u32, list_chunk: bool) {
        let state = &self.segments[segment as usize];
        let cut = *self.classes.cut(class);
        if !list_chunk && state.full_chunks.load(Ordering::Acquire) != cut.chunk_count as i32 {
            return;
        }
        let mut list = self.lists[usize::from(class)].lock();
        if list_chunk {
            let (_, summary) = self.masks(segment, &cut);
            summary[chunk as usize / 64].fetch_or(1 << (chunk % 64), Ordering::Relaxed);
            if state.listed.fetch_add(1, Ordering::Relaxed) == 0 {
                state.extra.store(list.segments.len() as u32, Ordering::Relaxed);
                list.segments.push(segment);
            }
        }
        // Invariant 3. The class is read again: the segment may have another by now.
        let empty = state.class.load(Ordering::Acquire) == class
            && state.full_chunks.load(Ordering::Acquire) == cut.chunk_count as i32
            && state.listed.load(Ordering::Relaxed) == cut.chunk_count
            && !state.empty.load(Ordering::Relaxed);
        if empty && list.empties > 0 {
            self.recycle(segment, &mut list);
        } else if empty {
            state.empty.store(true, Ordering::Relaxed);
            list.empties += 1;
        }
    }

    /// Frees an empty segment (the paper's EPRecycle, Algorithm 6).
    fn recycle(&self, segment: u32, list: &mut ClassList) {
        self.unlist(segment, list);
        self.segments[segment as usize].class.store(0, Ordering::Release);
        self.drop_masks(segment);
        set_kind(&self.space, segment, SegmentKind::Free);
        // Durable-order: the entry is clear before the segment gets another use.
        self.space.region.fence();
        self.pool.release(segment, 1);
    }

    fn free_extent(&self, head: u32) {
        let count = self.segments[head as usize].extra.load(Ordering::Relaxed);
        for segment in head..head + count {
            self.segments[segment as usize].class.store(0, Ordering::Release);
        }
        set_kind(&self.space, head, SegmentKind::Free);
        // Durable-order: the extent's entry is clear before its segments get another use.
        self.space.region.fence();
        self.pool.release(head, count);
        self.garbage.add(u64::from(count) << self.space.geometry.shift);
    }

    pub(super) fn unlist(&self, segment: u32, list: &mut ClassList) {
        let state = &self.segments[segment as usize];
        let place = state.extra.load(Ordering::Relaxed) as usize;
        assert!(list.segments.swap_remove(place) == segment, "segment {segment} is listed where it says");
        if let Some(moved) = list.segments.get(place) {
            self.segments[*moved as usize].extra.store(place as u32, Ordering::Relaxed);
        }
        state.listed.store(0, Ordering::Relaxed);
    }

    /// Frees what lanes have reserved, and recycles the empty segments that were kept. For a region, or a medium,
    /// that is nearly full.
    pub(crate) fn reclaim_idle(&self, exclusive: &LaneToken<'_>) {
        self.caches.all(exclusive, true).into_iter().for_each(|slot| self.free_shared(slot));
        for list in &self.lists {
            let mut list = list.lock();
            let is_empty = |s: &&u32| self.segments[**s as usize].empty.load(Ordering::Relaxed);
            // Not searched where none is: compaction comes here for every few segments.
            while list.empties > 0
                && let Some(segment) = list.segments.iter().find(is_empty).copied()
            {
                self.segments[segment as usize].empty.store(false, Ordering::Relaxed);
                list.empties -= 1;
                self.recycle(segment, &mut list);
            }
        }
    }

    /// As `reclaim_idle`, and frees what a compaction has set aside, which ends that: a writer needs it more. Not for
    /// the thread that moves records.
    /// False when there is no compaction.
    pub(crate) fn reclaim_all(&self, exclusive: &LaneToken<'_>) -> bool {
        let was_moving = self.cut_off_moving();
        self.reclaim_idle(exclusive);
        was_moving
    }

    /// Bytes of the value block that begins at `offset`, or none when no block can begin there. Readers are bounded
    /// by it.
    #[inline]
    pub(crate) fn block_bytes(&self, offset: u64) -> Option<u64> {
        if offset < self.space.geometry.data_start || offset >= self.space.usable_offset() {
            return None;
        }
        let (segment, place) = self.space.geometry.locate(offset);
        let state = &self.segments[segment as usize];
        match state.class.load(Ordering::Acquire) {
            0 | EXTENT_TAIL => None,
            EXTENT_HEAD => (place == 0).then(|| {
                // The segment may have another use by now, and the count may be any number.
                let bytes = u64::from(state.extra.load(Ordering::Relaxed)) << self.space.geometry.shift;
                bytes.min(self.space.usable_offset() - offset)
            }),
            class if is_leaf_class(class) => None,
            class => {
                let bytes = self.classes.cut(class).slot_bytes;
                // Whether a slot begins here is not checked exactly: a racing reader only needs a bound.
                (u64::from(place) + u64::from(bytes) <= self.space.geometry.segment_bytes()
                    && place % 16 == 0)
                    .then_some(u64::from(bytes))
            }
        }
    }

    /// Segment and number of the chunk of leaves whose header is at `header`.
    pub(crate) fn chunk_place(&self, header: u64) -> (u32, u32) {
        let (segment, place) = self.space.geometry.locate(header);
        let cut = self.classes.cut(self.segments[segment as usize].class.load(Ordering::Relaxed));
        (segment, place / cut.chunk_bytes)
    }

    /// Chunk header and slot number of the leaf at `offset`.
    pub(crate) fn leaf_place(&self, offset: u64) -> (u64, u32) {
        let (segment, place) = self.space.geometry.locate(offset);
        let cut = self.classes.cut(self.segments[segment as usize].class.load(Ordering::Relaxed));
        let (chunk, slot) = cut.slot_at(place).expect("a leaf begins here");
        (self.space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes), slot)
    }

    #[inline]
    pub(super) fn masks(&self, segment: u32, cut: &Cut) -> (&[AtomicU64], &[AtomicU64]) {
        let masks = self.segments[segment as usize].masks.load(Ordering::Acquire);
        assert!(!masks.is_null(), "segment {segment} is no slab");
        // SAFETY: `adopt_listed` stored an array of this length for this class. It lives until `recycle`, which runs
        // only when no slot of the segment is allocated (invariant 3); callers hold a slot of it or the class lock.
        let all = unsafe { std::slice::from_raw_parts(masks, mask_words(cut)) };
        all.split_at(cut.chunk_count as usize)
    }

    fn drop_masks(&self, segment: u32) {
        let state = &self.segments[segment as usize];
        let masks = state.masks.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !masks.is_null() {
            // SAFETY: `adopt_listed` leaked a box of one word for the length and as many words as that says; no other
            // thread has the pointer any more (invariant 3).
            drop(unsafe {
                let first = masks.sub(1);
                let length = (*first).load(Ordering::Relaxed) as usize + 1;
                Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, length))
            });
        }
    }

    /// Makes `segment` a slab with these free masks and with no cached slot. The masks may all be zero.
    pub(crate) fn adopt(&self, segment: u32, class: Class, masks: Vec<u64>) {
        let mut list = self.lists[usize::from(class)].lock();
        self.adopt_listed(segment, class, masks, &mut list);
    }

    fn adopt_listed(&self, segment: u32, class: Class, masks: Vec<u64>, list: &mut ClassList) {
        let cut = self.classes.cut(class);
        assert!(masks.len() == cut.chunk_count as usize, "a mask for each chunk");
        let full = masks.iter().enumerate().filter(|(i, m)| **m == cut.full_mask(*i as u32)).count();
        let listed = masks.iter().filter(|m| **m != 0).count();
        let mut summary = vec![0u64; mask_words(cut) - masks.len()];
        for (chunk, _) in masks.iter().enumerate().filter(|(_, m)| **m != 0) {
            summary[chunk / 64] |= 1 << (chunk % 64);
        }
        let length = mask_words(cut) as u64;
        let words: Box<[AtomicU64]> =
            std::iter::once(length).chain(masks).chain(summary).map(AtomicU64::new).collect();
        let state = &self.segments[segment as usize];
        // SAFETY: the allocation has at least two words: the length and a mask.
        let first = unsafe { Box::into_raw(words).cast::<AtomicU64>().add(1) };
        state.masks.store(first, Ordering::Release);
        state.full_chunks.store(full as i32, Ordering::Release);
        state.listed.store(listed as u32, Ordering::Relaxed);
        state.empty.store(full == cut.chunk_count as usize, Ordering::Relaxed);
        list.empties += u32::from(full == cut.chunk_count as usize);
        if listed > 0 {
            state.extra.store(list.segments.len() as u32, Ordering::Relaxed);
            list.segments.push(segment);
        }
        state.class.store(class, Ordering::Release);
    }

    /// Makes `count` segments an extent.
    pub(crate) fn adopt_extent(&self, head: u32, count: u32) {
        for segment in head..head + count {
            self.segments[segment as usize].class.store(EXTENT_TAIL, Ordering::Relaxed);
        }
        self.segments[head as usize].extra.store(count, Ordering::Relaxed);
        self.segments[head as usize].class.store(EXTENT_HEAD, Ordering::Release);
    }

    /// Counts segments and slots. Exact while no writer runs.
    pub(crate) fn usage(&self) -> AllocatorUsage {
        let mut usage = AllocatorUsage { free_segments: self.pool.free_count(), ..AllocatorUsage::default() };
        let high_water = self.pool.high_water();
        usage.dram_bytes = std::mem::size_of_val(&self.segments[..high_water as usize]) as u64;
        for (number, segment) in self.segments[..high_water as usize].iter().enumerate() {
            match segment.class.load(Ordering::Acquire) {
                0 => {}
                EXTENT_HEAD | EXTENT_TAIL => usage.extent_segments += 1,
                class => {
                    let cut = self.classes.cut(class);
                    usage.dram_bytes += 8 * (mask_words(cut) as u64 + 1);
                    if is_leaf_class(class) {
                        usage.leaf_segments += 1;
                        usage.leaf_slots +=
                            (0..cut.chunk_count).map(|c| u64::from(cut.slots(c))).sum::<u64>();
                        usage.leaf_slots_free += self.free_slots(number as u32, class);
                    } else {
                        usage.value_segments += 1;
                    }
                }
            }
        }
        usage
    }

    /// Free slots in the masks of a segment that has this class, or had it a moment ago.
    pub(super) fn free_slots(&self, segment: u32, class: Class) -> u64 {
        // Under the class lock, so that the masks are not dropped meanwhile.
        let _list = self.lists[usize::from(class)].lock();
        if self.segments[segment as usize].class.load(Ordering::Acquire) != class {
            return 0;
        }
        let (masks, _) = self.masks(segment, self.classes.cut(class));
        masks.iter().map(|m| u64::from(m.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Slots that lanes have reserved, or that compaction has set aside: neither live nor in a mask.
    pub(crate) fn cached_slots(&self, exclusive: &LaneToken<'_>) -> Vec<u64> {
        let mut slots = self.caches.all(exclusive, false);
        slots.extend(self.slots_aside());
        slots
    }

    /// True when the segment is not free.
    pub(crate) fn is_in_use(&self, segment: u32) -> bool {
        self.segments[segment as usize].class.load(Ordering::Acquire) != 0
    }

    /// The class of a slab segment and its free masks, for `check`, while no writer runs.
    pub(crate) fn slab(&self, segment: u32) -> Option<(Class, Vec<u64>)> {
        let class = self.segments[segment as usize].class.load(Ordering::Acquire);
        if class == 0 || class >= EXTENT_TAIL {
            return None;
        }
        let (masks, _) = self.masks(segment, self.classes.cut(class));
        Some((class, masks.iter().map(|m| m.load(Ordering::Acquire)).collect()))
    }
}

/// Words for masks and summary of a segment of this cut.
fn mask_words(cut: &Cut) -> usize {
    cut.chunk_count as usize + (cut.chunk_count as usize).div_ceil(64)
}
