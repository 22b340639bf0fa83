//! The durable leaf: one line of {bitmap, fingerprints}, the next leaf, 56 key-value pairs.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | bitmap of 56 slots |
//! | 8 | 56 | fingerprints |
//! | 64 | 8 | next leaf, 0 at the end |
//! | 72 | 56 x 16 | {place of the key block, value} |
//!
//! Key block: {length u64, bytes padded to 8}.

use crate::baselines::palloc::PAlloc;
use std::sync::atomic::Ordering;

/// Entries of a leaf (the paper's choice for strings on one thread).
pub(super) const SLOTS: usize = 56;
/// Bytes of a leaf.
pub(super) const LEAF_BYTES: usize = 968;
/// A full bitmap.
pub(super) const FULL: u64 = (1 << SLOTS) - 1;

const FINGERPRINTS: u64 = 8;
const NEXT: u64 = 64;
const PAIRS: u64 = 72;

/// Leaves of one tree, by place.
pub(super) struct LeafList {
    pub(super) pm: PAlloc,
}

/// One-byte hash of a key (section 4.2), here by a multiply over its words.
pub(super) fn fingerprint(key: &[u8]) -> u8 {
    let mut h = key.len() as u64;
    for part in key.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        h = (h ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        h ^= h >> 32;
    }
    (h >> 24) as u8
}

fn key_bytes(len: usize) -> usize {
    8 + len.next_multiple_of(8)
}

impl LeafList {
    fn load(&self, place: u64) -> u64 {
        self.pm.region().word(place).load(Ordering::Acquire)
    }

    /// Stores and persists a word.
    pub(super) fn persist_word(&self, place: u64, value: u64) {
        self.pm.region().store(place, value, Ordering::Release);
        self.persist(place, 8);
    }

    pub(super) fn persist(&self, place: u64, len: usize) {
        self.pm.region().flush(place, len);
        self.pm.region().fence();
    }

    /// A fresh empty leaf, persisted.
    pub(super) fn create(&self) -> u64 {
        let leaf = self.pm.alloc(LEAF_BYTES, true);
        self.pm.region().zero(leaf, LEAF_BYTES);
        self.persist(leaf, LEAF_BYTES);
        leaf
    }

    pub(super) fn bitmap(&self, leaf: u64) -> u64 {
        self.load(leaf)
    }

    /// The commit of every change in a leaf.
    pub(super) fn set_bitmap(&self, leaf: u64, bitmap: u64) {
        self.persist_word(leaf, bitmap);
    }

    pub(super) fn next(&self, leaf: u64) -> u64 {
        self.pm.region().reading(leaf + NEXT, 8);
        self.load(leaf + NEXT)
    }

    pub(super) fn set_next(&self, leaf: u64, next: u64) {
        self.persist_word(leaf + NEXT, next);
    }

    fn pair(leaf: u64, slot: usize) -> u64 {
        leaf + PAIRS + 16 * slot as u64
    }

    pub(super) fn key(&self, leaf: u64, slot: usize) -> &[u8] {
        let region = self.pm.region();
        region.reading(Self::pair(leaf, slot), 16);
        let block = self.load(Self::pair(leaf, slot));
        region.reading(block, 32);
        let len = self.load(block) as usize;
        // SAFETY: key blocks are written before their slot's bit is set; the tree has one thread.
        unsafe { std::slice::from_raw_parts(region.at(block + 8), len) }
    }

    pub(super) fn value(&self, leaf: u64, slot: usize) -> u64 {
        self.load(Self::pair(leaf, slot) + 8)
    }

    /// The slot of a key (Algorithm 11): keys are compared only where fingerprints agree.
    pub(super) fn find(&self, leaf: u64, key: &[u8]) -> Option<usize> {
        self.pm.region().reading(leaf, 64);
        let mark = fingerprint(key);
        // SAFETY: the fingerprints are 56 bytes of a live leaf; the tree has one thread.
        let marks: &[u8; SLOTS] = unsafe { &*self.pm.region().at(leaf + FINGERPRINTS).cast() };
        let mut hits = 0u64;
        for (i, m) in marks.iter().enumerate() {
            hits |= u64::from(*m == mark) << i;
        }
        hits &= self.bitmap(leaf);
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            if self.key(leaf, slot) == key {
                return Some(slot);
            }
        }
        None
    }

    /// Algorithm 12, lines 10-16: key block, pair and fingerprint, then the bitmap. Three persists.
    pub(super) fn insert(&self, leaf: u64, key: &[u8], value: u64) {
        let region = self.pm.region();
        let bytes = key_bytes(key.len());
        let block = self.pm.alloc(bytes, false);
        region.store(block, key.len() as u64, Ordering::Relaxed);
        region.write(block + 8, key);
        self.persist(block, bytes);
        let bitmap = self.bitmap(leaf);
        let slot = bitmap.trailing_ones() as usize;
        self.fill(leaf, slot, block, value, fingerprint(key));
        self.set_bitmap(leaf, bitmap | 1 << slot);
    }

    /// Algorithm 14: the pair with its new value in a free slot, both bits in one store, then the
    /// old slot forgets the key. Three persists.
    pub(super) fn update(&self, leaf: u64, old: usize, value: u64) {
        let bitmap = self.bitmap(leaf);
        let slot = bitmap.trailing_ones() as usize;
        let block = self.load(Self::pair(leaf, old));
        // SAFETY: the fingerprint of a live leaf.
        let mark = unsafe { self.pm.region().at(leaf + FINGERPRINTS + old as u64).read() };
        self.fill(leaf, slot, block, value, mark);
        self.set_bitmap(leaf, bitmap & !(1 << old) | 1 << slot);
        self.persist_word(Self::pair(leaf, old), 0);
    }

    /// Algorithm 13: the bit, then the key block. Two persists.
    pub(super) fn remove(&self, leaf: u64, slot: usize) {
        let len = self.key(leaf, slot).len();
        let block = self.load(Self::pair(leaf, slot));
        self.set_bitmap(leaf, self.bitmap(leaf) & !(1 << slot));
        self.persist_word(Self::pair(leaf, slot), 0);
        self.pm.free(block, key_bytes(len));
    }

    fn fill(&self, leaf: u64, slot: usize, block: u64, value: u64, mark: u8) {
        let region = self.pm.region();
        region.store(Self::pair(leaf, slot), block, Ordering::Relaxed);
        region.store(Self::pair(leaf, slot) + 8, value, Ordering::Relaxed);
        region.write(leaf + FINGERPRINTS + slot as u64, &[mark]);
        region.flush(Self::pair(leaf, slot), 16);
        region.flush(leaf + FINGERPRINTS + slot as u64, 1);
        region.fence();
    }

    /// The used slots in ascending order of their keys.
    pub(super) fn sorted(&self, leaf: u64) -> Vec<usize> {
        let bitmap = self.bitmap(leaf);
        self.pm.region().reading(leaf, LEAF_BYTES);
        let mut slots: Vec<usize> = (0..SLOTS).filter(|s| bitmap >> s & 1 == 1).collect();
        slots.sort_unstable_by(|&a, &b| self.key(leaf, a).cmp(self.key(leaf, b)));
        slots
    }

    /// The largest key; the leaf is not empty.
    pub(super) fn greatest(&self, leaf: u64) -> &[u8] {
        let bitmap = self.bitmap(leaf);
        self.pm.region().reading(leaf, 64);
        (0..SLOTS)
            .filter(|s| bitmap >> s & 1 == 1)
            .map(|s| self.key(leaf, s))
            .max()
            .expect("leaves that lose their last key are unlinked")
    }

    /// Copies a leaf's bytes into another, persisted.
    pub(super) fn copy(&self, from: u64, to: u64) {
        let mut image = [0u8; LEAF_BYTES];
        self.pm.region().reading(from, LEAF_BYTES);
        // SAFETY: both are live leaves; the tree has one thread.
        unsafe { std::ptr::copy_nonoverlapping(self.pm.region().at(from), image.as_mut_ptr(), LEAF_BYTES) };
        self.pm.region().write(to, &image);
        self.persist(to, LEAF_BYTES);
    }
}
