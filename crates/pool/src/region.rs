//! A byte-addressable durable range.
//!
//! Invariants:
//! 1. Every store to durable data goes through this file, or is reported to it, so that the crash simulator sees it.
//! 2. The base address never changes while the region lives.

use crate::medium::Observers;
use crate::{ByteRange, Lsn, MediumOps, Result};
use mangrove_sys::{Crc32c, Stored};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shorter stores go through the cache.
const WRITE_THROUGH_BYTES_MIN: usize = 512;

/// A durable range and the medium it lies on. Cheap to clone.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    medium: Arc<dyn MediumOps>,
    observers: Observers,
}

// SAFETY: the memory outlives the region (the medium owns it) and shared access to it goes through
// atomics or is ordered by the owner of the data.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Region {
    /// A region over `len` bytes at `base` that `medium` owns.
    ///
    /// # Safety
    /// `base` must stay valid for reads and writes of `len` bytes as long as `medium` lives.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: u64, medium: Arc<dyn MediumOps>) -> Self {
        let observers = Arc::clone(&medium).observers();
        Self { base, len, medium, observers }
    }

    /// Its first `len` bytes, as a region of their own: what it was before it grew, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn first(&self, len: u64) -> Self {
        assert!(len <= self.len, "a part of the region");
        Self { base: self.base, len, medium: Arc::clone(&self.medium), observers: self.observers.clone() }
    }

    /// First byte. Stores through it bypass the crash simulator: read only.
    #[inline]
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes of address space: the capacity, of which [`Region::grow`] makes a part usable.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for the empty region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many of its bytes are known to be usable: all where the medium does not know. An offset from the region
    /// itself that lies beyond is damage.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        match self.medium.grown() {
            0 => self.len,
            grown => grown,
        }
    }

    /// The medium.
    #[must_use]
    pub fn medium(&self) -> &dyn MediumOps {
        &*self.medium
    }

    /// Address of the byte at `offset`.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.len);
        // SAFETY: offsets lie within the region (asserted in debug; callers check what they read).
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Offset of an address inside the region.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, ptr: *const u8) -> u64 {
        ptr as u64 - self.base.as_ptr() as u64
    }

    /// The 8-byte word at `offset` (8-byte aligned) as an atomic. Load only; stores go through `store`.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: aligned, inside the region, and all concurrent access to it is atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// Stores a word, failure-atomically. Not durable before `flush` and `fence`.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, offset: u64, value: u64, order: Ordering) {
        self.word(offset).store(value, order);
        self.note_store(offset, 8, Location::caller());
    }

    /// Compare-and-swap of a word, failure-atomically.
    ///
    /// # Errors
    /// The value found, when it is not `current`.
    #[inline]
    #[track_caller]
    pub fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        // AcqRel: a thread that sees the new word sees what was stored before it.
        let r = self.word(offset).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if r.is_ok() {
            self.note_store(offset, 8, Location::caller());
        }
        r
    }

    /// Copies `bytes` to `offset`. Not atomic: nothing may refer to the range yet.
    #[inline]
    #[track_caller]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "store beyond the region");
        // SAFETY: inside the region; the caller owns the range.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
        self.note_store(offset, bytes.len(), Location::caller());
    }

    /// [`Region::write`] and [`Region::flush`] in one, for bytes that this program will not soon read again.
    #[inline]
    #[track_caller]
    pub fn write_through(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "store beyond the region");
        let site = Location::caller();
        if bytes.len() >= WRITE_THROUGH_BYTES_MIN {
            // SAFETY: inside the region (asserted); the caller owns the range.
            let done = unsafe { self.medium.write_through(offset, self.at(offset), bytes, site) };
            if done {
                return;
            }
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
        self.note_store(offset, bytes.len(), site);
        // SAFETY: as above.
        unsafe { self.medium.flush(offset, self.at(offset), bytes.len(), site) };
    }

    /// As [`Region::write`], for the pairs of words that `pair` makes of `entries`, at a multiple of 8; returns what
    /// [`Crc32c::store`] does.
    #[inline(always)]
    #[track_caller]
    pub fn write_summed<T>(
        &self,
        offset: u64,
        crc: Crc32c,
        seed: u32,
        head: [u64; 3],
        entries: &[T],
        pair: impl FnMut(&T) -> [u64; 2],
    ) -> Stored {
        let len = entries.len() * size_of::<[u64; 2]>();
        assert!(
            offset.is_multiple_of(8) && offset + len as u64 <= self.len,
            "words beyond the region, or not aligned"
        );
        // SAFETY: inside the region and aligned (asserted); the caller owns the range.
        let stored = unsafe { crc.store(seed, head, entries, pair, self.at(offset).cast()) };
        self.note_store(offset, len, Location::caller());
        stored
    }

    /// As [`Region::store`], for words that follow one another; unordered among themselves, and published later.
    #[inline(always)]
    #[track_caller]
    pub fn store_words<const COUNT: usize>(&self, offset: u64, words: [u64; COUNT]) {
        let site = Location::caller();
        let observer = self.observers.stores.as_ref();
        for (number, value) in words.into_iter().enumerate() {
            let at = offset + number as u64 * 8;
            // Relaxed: published later.
            self.word(at).store(value, Ordering::Relaxed);
            if let Some(observer) = observer {
                observer.stored(at, 8, site);
            }
        }
    }

    /// Zeroes `len` bytes at `offset`. Not atomic.
    #[inline]
    #[track_caller]
    pub fn zero(&self, offset: u64, len: usize) {
        assert!(offset + len as u64 <= self.len, "store beyond the region");
        // SAFETY: inside the region; the caller owns the range.
        unsafe { std::ptr::write_bytes(self.at(offset), 0, len) };
        self.note_store(offset, len, Location::caller());
    }

    /// Reports that the caller is about to load `len` bytes at `offset` (for latency models; free elsewhere).
    #[inline]
    pub fn reading(&self, offset: u64, len: usize) {
        if let Some(observer) = &self.observers.reads {
            observer.reading(offset, len);
        }
    }

    /// Asks for the range to become durable (pwb). It is durable after the next fence and drain.
    #[inline(always)]
    #[track_caller]
    pub fn flush(&self, offset: u64, len: usize) {
        debug_assert!(offset + len as u64 <= self.len);
        // SAFETY: inside the region; the caller orders concurrent stores.
        unsafe { self.medium.flush(offset, self.at(offset), len, Location::caller()) };
    }

    /// Logs all `ranges` as one atomic group, which a crash keeps or loses whole; see [`MediumOps::flush_unit`].
    /// Returns the position to [`Region::wait`] for.
    ///
    /// # Errors
    /// See [`MediumOps::flush_unit`].
    ///
    /// # Panics
    /// When a range lies beyond the region.
    #[track_caller]
    pub fn flush_unit(&self, ranges: &[ByteRange]) -> Result<Lsn> {
        for range in ranges {
            assert!(
                range.offset <= self.len && range.len <= self.len - range.offset,
                "flush beyond the region"
            );
        }
        // SAFETY: inside the region (asserted); the caller orders concurrent stores, as with `flush`.
        unsafe { self.medium.flush_unit(self.base(), ranges, Location::caller()) }
    }

    /// Orders earlier flushes before later stores (pfence).
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        self.medium.fence(Location::caller());
    }

    /// As [`Region::fence`]; true where [`Region::wait`] for what was flushed before has nothing left to do. See
    /// [`MediumOps::fence_completes`].
    #[inline(always)]
    #[track_caller]
    #[must_use]
    pub fn fence_completes(&self) -> bool {
        self.medium.fence_completes(Location::caller())
    }

    /// Waits until everything that this thread flushed is durable (psync).
    ///
    /// # Errors
    /// When the medium failed; see [`MediumOps::wait`].
    #[track_caller]
    pub fn drain(&self) -> Result<()> {
        self.medium.wait(self.medium.appended(), Location::caller())
    }

    /// Waits until everything that any thread has flushed so far is durable, in every durability mode.
    ///
    /// # Errors
    /// When the medium failed; see [`MediumOps::wait`].
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        self.medium.sync(self.medium.appended(), Location::caller())
    }

    /// Waits until everything before `lsn` is durable, in every durability mode.
    ///
    /// # Errors
    /// When the medium failed; see [`MediumOps::wait`].
    #[track_caller]
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.medium.sync(lsn, Location::caller())
    }

    /// The position after everything flushed so far, for [`Region::wait`].
    #[inline]
    #[must_use]
    pub fn appended(&self) -> Lsn {
        self.medium.appended()
    }

    /// Waits until everything before `lsn` is durable.
    ///
    /// # Errors
    /// When the medium failed; see [`MediumOps::wait`].
    #[inline]
    #[track_caller]
    pub fn wait(&self, lsn: Lsn) -> Result<()> {
        self.medium.wait(lsn, Location::caller())
    }

    /// Makes the first `bytes` bytes usable.
    ///
    /// # Errors
    /// `NoSpace` and `FileLimit`, without poisoning; see [`MediumOps::grow`].
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.medium.grow(bytes)
    }

    /// Makes a part of the region usable, and reserves space for it alone.
    ///
    /// # Errors
    /// `NoSpace` and `FileLimit`, without poisoning; see [`MediumOps::provide`].
    pub fn provide(&self, range: ByteRange) -> Result<()> {
        self.medium.provide(range)
    }

    /// Gives the memory and the space of a part of the region back; see [`MediumOps::give_back`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[track_caller]
    pub unsafe fn give_back(&self, range: ByteRange) -> Result<bool> {
        assert!(range.offset <= self.len && range.len <= self.len - range.offset, "a part of the region");
        // SAFETY: the caller's promise.
        unsafe { self.medium.give_back(range, Location::caller()) }
    }

    /// Gives back the memory and the space of a part of the region that its owner stores to before it reads there
    /// again; see [`MediumOps::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[track_caller]
    pub unsafe fn release(&self, range: ByteRange) -> Result<bool> {
        assert!(range.offset <= self.len && range.len <= self.len - range.offset, "a part of the region");
        // SAFETY: the caller's promise.
        unsafe { self.medium.release(range, Location::caller()) }
    }

    /// The parts of a range that may not be zero; see [`MediumOps::data_ranges`].
    #[must_use]
    pub fn data_ranges(&self, range: ByteRange) -> Vec<ByteRange> {
        self.medium.data_ranges(range)
    }

    /// Gives the memory of a part of the region back; see [`MediumOps::page_out`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn page_out(&self, range: ByteRange) -> Result<bool> {
        assert!(range.offset <= self.len && range.len <= self.len - range.offset, "a part of the region");
        // SAFETY: the caller's promise.
        unsafe { self.medium.page_out(range) }
    }

    /// Reports stores that the caller has just made by its own means, not through this region: a hardware
    /// transaction's, or atomic ones of 1 to 8 bytes inside an aligned word. Several parts became visible in one
    /// step. Costs a comparison where no observer is set.
    #[inline]
    #[track_caller]
    pub fn stored_in_one_step(&self, parts: &[ByteRange]) {
        if let Some(observer) = &self.observers.stores {
            observer.stored_in_one_step(parts, Location::caller());
        }
    }

    /// Whether an observer gets the stores to it.
    #[inline]
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observers.stores.is_some()
    }

    #[inline(always)]
    fn note_store(&self, offset: u64, len: usize, site: &'static Location<'static>) {
        if let Some(observer) = &self.observers.stores {
            observer.stored(offset, len, site);
        }
    }
}
