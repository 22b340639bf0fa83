//! Many keys in one compact buffer: 100 million keys must not cost 100 million allocations.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

/// An append-only list of byte strings.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Keys {
    /// An empty list with space for `keys` keys of `bytes` bytes in total.
    #[must_use]
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys) }
    }

    /// Appends one key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at `idx`.
    ///
    /// # Panics
    /// When `idx` is not less than `len`.
    #[inline]
    #[must_use]
    pub fn get(&self, idx: usize) -> &[u8] {
        let start = if idx == 0 { 0 } else { self.ends[idx - 1] as usize };
        &self.bytes[start..self.ends[idx] as usize]
    }

    /// All keys in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The same keys in random order, and for each the index that it has here.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> (Self, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(seed));
        let mut keys = Self::with_capacity(self.len(), self.bytes.len());
        for &index in &order {
            keys.push(self.get(index as usize));
        }
        (keys, order)
    }

    /// Indices of the keys in ascending order of the keys.
    #[must_use]
    pub fn sorted(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.get(a as usize).cmp(self.get(b as usize)));
        order
    }
}
