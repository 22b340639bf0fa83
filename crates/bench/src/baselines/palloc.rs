//! The allocator of the baselines that need one: a bump pointer and free lists by size.
//!
//! The papers of WOART, ART+CoW, FPTree and RECIPE leave allocation to other software (PMDK, nvmalloc) and do not
//! count its persists. This allocator is cheaper than either: the free lists are volatile, and only the high-water
//! mark is durable, one persist in every [`STEP_BYTES`]. Memory that a crash leaks stays leaked, as in WOART's
//! paper.

use mangrove_pool::Region;
use std::cell::{Cell, RefCell};

/// The high-water mark moves by this much.
const STEP_BYTES: u64 = 1 << 20;

/// Where the high-water mark lies; the root block of the structure comes after it.
const MARK: u64 = 0;

/// First byte of the root block, [`ROOT_BYTES`] long.
pub(crate) const ROOT: u64 = 64;

/// Bytes of the root block.
pub(crate) const ROOT_BYTES: u64 = 64 * 15;

/// Largest size with a free list of its own.
const LISTED_BYTES_MAX: usize = 4096;

/// A region and the free memory in it. For one thread.
pub(crate) struct PAlloc {
    region: Region,
    next: Cell<u64>,
    mark: Cell<u64>,
    free: RefCell<Vec<Vec<u64>>>,
    live_bytes: Cell<u64>,
}

impl PAlloc {
    /// Formats a fresh region.
    pub(crate) fn create(region: Region) -> Self {
        let this = Self::over(region, ROOT + ROOT_BYTES);
        this.raise(ROOT + ROOT_BYTES);
        this
    }

    /// Opens a region that was used before: everything below its mark counts as allocated.
    pub(crate) fn open(region: Region) -> Self {
        let mark = region.word(MARK).load(std::sync::atomic::Ordering::Acquire);
        let this = Self::over(region, mark);
        this.live_bytes.set(mark);
        this.mark.set(mark);
        this
    }

    fn over(region: Region, next: u64) -> Self {
        let lists = vec![Vec::new(); LISTED_BYTES_MAX / 8 + 1];
        Self {
            region,
            next: Cell::new(next),
            mark: Cell::new(0),
            free: RefCell::new(lists),
            live_bytes: Cell::new(0),
        }
    }

    /// The region.
    #[inline]
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// `bytes` bytes (a multiple of 8), aligned to 8, or to a cache line if `aligned`.
    pub(crate) fn alloc(&self, bytes: usize, aligned: bool) -> u64 {
        debug_assert!(bytes.is_multiple_of(8) && bytes <= LISTED_BYTES_MAX);
        self.live_bytes.set(self.live_bytes.get() + bytes as u64);
        if let Some(place) = self.free.borrow_mut()[bytes / 8].pop() {
            return place;
        }
        let mut place = self.next.get();
        if aligned {
            place = place.next_multiple_of(64);
        }
        let end = place + bytes as u64;
        if end > self.mark.get() {
            self.raise(end);
        }
        self.next.set(end);
        place
    }

    /// Frees a block. A size is used either aligned or unaligned, never both.
    pub(crate) fn free(&self, place: u64, bytes: usize) {
        self.live_bytes.set(self.live_bytes.get() - bytes as u64);
        self.free.borrow_mut()[bytes / 8].push(place);
    }

    /// Durable bytes allocated and not freed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.get()
    }

    fn raise(&self, end: u64) {
        let mark = end.next_multiple_of(STEP_BYTES).min(self.region.len());
        assert!(end <= mark, "the region of the baseline is full; give the bench fewer records");
        self.region.grow(mark).expect("emulated memory grows within its reservation");
        self.region.store(MARK, mark, std::sync::atomic::Ordering::Release);
        self.region.flush(MARK, 8);
        self.region.fence();
        self.mark.set(mark);
    }
}
