//! Leaves for tests: fixed slots of atomics in DRAM, reused as soon as they are freed.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::super::{KeySource, Leaf};

#[derive(Debug, Default)]
#[repr(align(16))]
struct Pair([AtomicU64; 2]);

/// Slots of `2 + key_words` words: key length and low half of the value, value, key.
///
/// A slot holds its value twice, so that a reader can recognise a torn one.
#[derive(Debug)]
pub(crate) struct Heap {
    pairs: Box<[Pair]>,
    key_words: usize,
    free: Mutex<(Vec<Leaf>, usize)>,
}

impl Heap {
    /// Memory for `slots` leaves with keys of up to `key_bytes_max` bytes.
    pub(crate) fn new(slots: usize, key_bytes_max: usize) -> Self {
        let key_words = key_bytes_max.div_ceil(16) * 2;
        let pairs: Box<[Pair]> = (0..slots * (1 + key_words / 2)).map(|_| Pair::default()).collect();
        // The index returns the leaf's address as a number.
        let _ = pairs.as_ptr().expose_provenance();
        Self { pairs, key_words, free: Mutex::new((Vec::new(), 0)) }
    }

    fn word(&self, leaf: Leaf, index: usize) -> &AtomicU64 {
        let base = self.pairs.as_ptr().addr() as u64;
        let at = (leaf.address() - base) as usize / 8 + index;
        &self.pairs[at / 2].0[at % 2]
    }

    /// A leaf with this content; it reuses the slot that was freed last.
    pub(crate) fn put(&self, key: &[u8], value: u64) -> Leaf {
        assert!(key.len() <= self.key_words * 8);
        let leaf = {
            let mut free = self.free.lock();
            free.0.pop().unwrap_or_else(|| {
                let pair = &self.pairs[free.1 * (1 + self.key_words / 2)];
                free.1 += 1;
                Leaf::new(std::ptr::from_ref(pair).addr() as u64).expect("not null")
            })
        };
        self.word(leaf, 0).store(key.len() as u64 | (value << 32), Ordering::Relaxed);
        self.word(leaf, 1).store(value, Ordering::Relaxed);
        for (index, bytes) in key.chunks(8).enumerate() {
            let mut word = [0xee; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(leaf, 2 + index).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        leaf
    }

    /// Frees the slot; the next `put` reuses it.
    pub(crate) fn free(&self, leaf: Leaf) {
        self.free.lock().0.push(leaf);
    }

    /// The value; none if it is torn.
    pub(crate) fn value(&self, leaf: Leaf) -> Option<u64> {
        let half = self.word(leaf, 0).load(Ordering::Relaxed) >> 32;
        let value = self.word(leaf, 1).load(Ordering::Relaxed);
        (value & u64::from(u32::MAX) == half).then_some(value)
    }

    /// Changes the value in place.
    pub(crate) fn set_value(&self, leaf: Leaf, value: u64) {
        let len = self.word(leaf, 0).load(Ordering::Relaxed) & u64::from(u32::MAX);
        self.word(leaf, 0).store(len | (value << 32), Ordering::Relaxed);
        std::hint::spin_loop();
        self.word(leaf, 1).store(value, Ordering::Relaxed);
    }
}

impl KeySource for Heap {
    #[inline]
    fn key_len(&self, leaf: Leaf) -> usize {
        (self.word(leaf, 0).load(Ordering::Relaxed) as u32 as usize).min(self.key_words * 8)
    }

    #[inline]
    fn key_word(&self, leaf: Leaf, index: usize) -> u64 {
        self.word(leaf, 2 + index).load(Ordering::Relaxed)
    }
}
