//! The region with its geometry, and the reads of it that may race with writers.
//!
//! Invariants:
//! 1. Readers read the bytes of leaves and values as relaxed atomic words: a reader under optimistic validation may
//!    look at a slot that is being freed, reused and overwritten, and drops what it read afterwards.
//! 2. No read leaves the usable part of the region, whatever a racing or hostile word says.

use crate::format::layout::{Geometry, LEAF_KEY, LEAF_META, LEAF_WORD};
use crate::format::leaf::{KIND_SLOT, LeafValue, Meta, SLOT_VALUE_BYTES_MAX, slot_value_len, value_at};
use crate::index::{KeySource, Leaf, LeafHint};
use mangrove_pool::{DamageCheck, Region};
use mangrove_sys::Crc32c;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LINE_BYTES: u64 = mangrove_sys::CACHE_LINE_BYTES as u64;

/// A region that holds a map.
#[derive(Debug)]
pub(crate) struct MapSpace {
    pub(crate) region: Region,
    pub(crate) geometry: Geometry,
    base: u64,
    /// Address after the last byte that the medium provides; a multiple of 4096 and of segments.
    usable_end: AtomicU64,
    /// The map has version 1, where a zero word means "free".
    zeros_are_free: AtomicBool,
    crc: Option<Crc32c>,
}

/// A copy of a leaf, with its value unless that lies in a block.
pub(crate) struct LeafRecord {
    /// The leaf's kind; [`LeafRecord::NO_VALUE`] if a value behind the key does not have its checksum.
    pub(crate) kind: u8,
    word: [u8; 8],
    key_len: usize,
    key: [MaybeUninit<[u8; 8]>; crate::KEY_BYTES_MAX / 8],
    behind: [MaybeUninit<u8>; SLOT_VALUE_BYTES_MAX],
    behind_len: usize,
}

impl LeafRecord {
    /// No kind of a leaf.
    const NO_VALUE: u8 = u8::MAX;

    pub(crate) const EMPTY: Self = Self {
        kind: 0,
        word: [0; 8],
        key_len: 0,
        key: [MaybeUninit::uninit(); crate::KEY_BYTES_MAX / 8],
        behind: [MaybeUninit::uninit(); SLOT_VALUE_BYTES_MAX],
        behind_len: 0,
    };

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let written = &self.key[..self.key_len.div_ceil(8)];
        // SAFETY: `read_leaf` has written so many words, which hold `key_len` bytes.
        unsafe { std::slice::from_raw_parts(written.as_ptr().cast(), self.key_len) }
    }

    /// The leaf's word.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        u64::from_le_bytes(self.word)
    }

    /// The value, if the leaf's word holds it.
    #[inline]
    pub(crate) fn inline_value(&self) -> &[u8] {
        &self.word[..usize::from(self.kind).min(8)]
    }

    /// The value, if it lies behind the key.
    #[inline]
    pub(crate) fn slot_value(&self) -> &[u8] {
        let written = &self.behind[..self.behind_len];
        // SAFETY: `read_leaf` has written so many bytes.
        unsafe { std::slice::from_raw_parts(written.as_ptr().cast(), written.len()) }
    }
}

impl MapSpace {
    pub(crate) fn new(region: Region, geometry: Geometry, segments_usable: u32) -> Self {
        let base = region.base() as u64;
        let zeros_are_free = AtomicBool::new(false);
        let (usable_end, crc) = (AtomicU64::new(base), Crc32c::detect());
        let space = Self { region, geometry, base, usable_end, zeros_are_free, crc };
        space.set_usable(segments_usable);
        space
    }

    /// The medium provides the first `segments` segments.
    pub(crate) fn set_usable(&self, segments: u32) {
        // Release: partner is the Acquire in `usable_offset`. A thread that learns of a segment may read it.
        self.usable_end.store(self.base + self.geometry.start(segments), Ordering::Release);
    }

    /// True in a map of version 1 that has not been upgraded.
    pub(crate) fn zeros_are_free(&self) -> bool {
        // Relaxed: set while the map is opened, before other threads have it.
        self.zeros_are_free.load(Ordering::Relaxed)
    }

    /// See [`MapSpace::zeros_are_free`].
    pub(crate) fn set_zeros_are_free(&self, yes: bool) {
        self.zeros_are_free.store(yes, Ordering::Relaxed);
    }

    /// True when the slot at `offset`, which is in service, holds no leaf.
    #[inline]
    pub(crate) fn is_free_slot(&self, offset: u64) -> bool {
        let meta = self.leaf_words(offset).0;
        meta == Meta::FREE || (meta.0 == 0 && (self.zeros_are_free() || !DamageCheck::BlankSlot.is_on()))
    }

    /// Offset after the last byte that may be read.
    #[inline]
    pub(crate) fn usable_offset(&self) -> u64 {
        self.usable_end.load(Ordering::Acquire) - self.base
    }

    /// The leaf at `offset`, with a key of this length and this value, for the index.
    #[inline]
    pub(crate) fn leaf(&self, offset: u64, key_len: usize, value: LeafValue) -> Leaf {
        let hint = match value.block_offset() {
            Some(_) => LeafHint::Reference,
            None => {
                let end = offset % LINE_BYTES + value.leaf_bytes(key_len) as u64;
                LeafHint::Lines(end.div_ceil(LINE_BYTES) as usize)
            }
        };
        let leaf = Leaf::new(self.base + offset).expect("a region does not begin at address zero");
        leaf.with_hint(hint)
    }

    /// Offset of a leaf.
    #[inline]
    pub(crate) fn offset(&self, leaf: Leaf) -> u64 {
        leaf.address() - self.base
    }

    /// A leaf's two words. Meta comes first: its Acquire load, whose partner is the Release store of an update, keeps
    /// the word at least as new.
    #[inline]
    pub(crate) fn leaf_words(&self, offset: u64) -> (Meta, u64) {
        self.region.reading(offset, 16);
        let meta = Meta(self.region.word(offset + LEAF_META).load(Ordering::Acquire));
        (meta, self.region.word(offset + LEAF_WORD).load(Ordering::Acquire))
    }

    /// Copies a leaf. It may be garbage until the caller validates it.
    #[inline]
    pub(crate) fn read_leaf(&self, leaf: Leaf, record: &mut LeafRecord) {
        let offset = self.offset(leaf);
        let (meta, word) = self.leaf_words(offset);
        let end = self.usable_end.load(Ordering::Relaxed);
        let room = (end - leaf.address() - LEAF_KEY) as usize;
        (record.kind, record.word) = (meta.kind(), word.to_le_bytes());
        record.key_len = meta.key_len().min(crate::KEY_BYTES_MAX).min(room);
        for (index, target) in record.key.iter_mut().take(record.key_len.div_ceil(8)).enumerate() {
            // Relaxed: validated afterwards. The word lies within the usable region, whose end is a multiple of 8.
            let word = self.region.word(offset + LEAF_KEY + index as u64 * 8).load(Ordering::Relaxed);
            target.write(word.to_ne_bytes());
        }
        if record.kind == KIND_SLOT {
            let read = self.slot_value(offset, record.key_len, word).filter(|(at, len)| {
                let to = record.behind.as_mut_ptr().cast();
                // SAFETY: the memory is the record's own, and such a value fits it.
                let crc = unsafe { self.copy_value(*at, *len, to) };
                u64::from(crc) == word >> 32
            });
            match read {
                Some((_, len)) => record.behind_len = len,
                None => record.kind = LeafRecord::NO_VALUE,
            }
        }
    }

    /// Where the value behind a key of `key_len` bytes lies, and its length, by the leaf's word; none if no such value
    /// can be there. Like all that is read from a leaf this may be garbage until it is validated, but what it names
    /// lies within the usable region.
    #[inline]
    pub(crate) fn slot_value(&self, leaf: u64, key_len: usize, word: u64) -> Option<(u64, usize)> {
        let (at, len) = (leaf + value_at(key_len) as u64, slot_value_len(word));
        let fits = len <= SLOT_VALUE_BYTES_MAX
            && at + len.next_multiple_of(8) as u64 <= self.usable_end.load(Ordering::Relaxed) - self.base;
        fits.then_some((at, len))
    }

    /// Copies `len` bytes at `offset`, a multiple of 8, into `out`, and replaces its contents.
    ///
    /// The caller has bounded the range by the slot that it lies in. Slots are multiples of 16 bytes, so the rest of
    /// the last word belongs to the slot too.
    #[inline]
    pub(crate) fn copy_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        out.clear();
        self.append_out(offset, len, out);
    }

    /// As [`MapSpace::copy_out`], but keeps what `out` holds.
    #[inline]
    pub(crate) fn append_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        out.reserve(len.next_multiple_of(8));
        // SAFETY: just reserved.
        unsafe { self.append_to_spare(offset, len, out) };
    }

    /// Copies a value of `len` bytes at `offset`, a multiple of 8, and returns its checksum ([`value_crc`]). The caller
    /// has bounded the range as for [`MapSpace::copy_out`]; what is copied may be garbage until it is validated.
    ///
    /// # Safety
    /// `to` is the caller's own memory, of at least `len` bytes.
    #[inline]
    pub(crate) unsafe fn copy_value(&self, offset: u64, len: usize, to: *mut u8) -> u32 {
        let end = offset + (len as u64).next_multiple_of(8);
        assert!(
            offset.is_multiple_of(8) && end <= self.region.len(),
            "a read of whole words inside the region"
        );
        self.region.reading(offset, len);
        if let Some(crc) = self.crc {
            let from = self.region.at(offset).cast_const().cast();
            // SAFETY: words of the region (asserted), of which the caller discards a copy that a writer disturbed; the
            // rest is the caller's promise.
            return unsafe { crc.copy(len as u32, from, len, to) };
        }
        let mut copy = Vec::new();
        self.copy_out(offset, len, &mut copy);
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(copy.as_ptr(), len) };
        value_crc(&copy)
    }

    /// Copies into the capacity that the caller has reserved.
    ///
    /// # Safety
    /// `out` has spare capacity for `len` bytes, rounded up to whole words.
    #[inline]
    unsafe fn append_to_spare(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let words = len.div_ceil(8);
        assert!(offset + words as u64 * 8 <= self.region.len(), "read beyond the region");
        debug_assert!(out.capacity() - out.len() >= words * 8, "room for whole words");
        self.region.reading(offset, len);
        let start = out.len();
        // SAFETY: `words * 8` bytes are spare after `start`.
        let mut target = unsafe { out.as_mut_ptr().add(start) };
        for index in 0..words as u64 {
            let word = self.region.word(offset + index * 8).load(Ordering::Relaxed);
            // SAFETY: `target` moves over the spare bytes only, 8 at a time, `words` times.
            unsafe {
                target.cast::<u64>().write_unaligned(word.to_le());
                target = target.add(8);
            }
        }
        // SAFETY: the first `len` of those bytes are initialised.
        unsafe { out.set_len(start + len) };
    }

    /// Appends the key of the leaf at `offset`, which must be stable, to `out`.
    pub(crate) fn append_key(&self, offset: u64, out: &mut Vec<u8>) {
        let len = LeafKeys::bounded_key_len(self.usable_end.load(Ordering::Acquire), self.base + offset);
        self.append_out(offset + LEAF_KEY, len, out);
    }

    /// The key of the leaf at `offset`.
    pub(crate) fn key(&self, offset: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.append_key(offset, &mut key);
        key
    }

    /// Verifies a value block of at most `capacity` bytes and returns the value's length, or none when length or
    /// CRC32C is wrong. `buffer` is scratch space and holds the value afterwards.
    pub(crate) fn verify_block(&self, offset: u64, capacity: u64, buffer: &mut Vec<u8>) -> Option<u64> {
        let head = self.region.word(offset).load(Ordering::Acquire);
        let len = head & 0xffff_ffff;
        if len + crate::format::layout::VALUE_HEADER_BYTES > capacity {
            return None;
        }
        self.copy_out(offset + crate::format::layout::VALUE_HEADER_BYTES, len as usize, buffer);
        (u64::from(value_crc(buffer)) == head >> 32).then_some(len)
    }
}

/// CRC32C of a value block: its length, then its bytes.
#[inline]
pub(crate) fn value_crc(bytes: &[u8]) -> u32 {
    let seed = mangrove_pool::crc32c(0, &(bytes.len() as u32).to_le_bytes());
    mangrove_pool::crc32c(seed, bytes)
}

/// Reads keys for the index.
pub(crate) struct LeafKeys {
    space: Arc<MapSpace>,
}

impl LeafKeys {
    pub(crate) fn new(space: Arc<MapSpace>) -> Self {
        Self { space }
    }

    #[inline]
    fn bounded_key_len(usable_end: u64, address: u64) -> usize {
        // SAFETY: addresses of leaves lie in the usable region and are 16-aligned; access is atomic.
        let meta = Meta(unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire));
        let room = (usable_end - address - LEAF_KEY) as usize;
        meta.key_len().min(crate::KEY_BYTES_MAX).min(room)
    }
}

impl KeySource for LeafKeys {
    #[inline]
    fn key_len(&self, leaf: Leaf) -> usize {
        Self::bounded_key_len(self.space.usable_end.load(Ordering::Relaxed), leaf.address())
    }

    #[inline]
    fn key_word(&self, leaf: Leaf, index: usize) -> u64 {
        let address = leaf.address() + LEAF_KEY + index as u64 * 8;
        // SAFETY: `index` is below a `key_len` of this leaf, which kept the key within the usable region, whose end
        // is a multiple of 8; the address is 8-aligned; access is atomic.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Relaxed)
    }
}
