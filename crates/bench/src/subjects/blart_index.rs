//! blart, an adaptive radix tree from crates.io: a volatile bound by another author.
//!
//! Keys get a zero byte at their end, because blart refuses keys that are prefixes of others.

use crate::harness::index::BenchIndex;
use crate::harness::workload::KEY_BYTES_MAX;
use blart::TreeMap;
use std::ops::Bound;

#[derive(Default)]
pub(crate) struct Blart {
    map: TreeMap<Box<[u8]>, u64>,
}

/// A key and its terminator, without an allocation.
struct Terminated {
    bytes: [u8; KEY_BYTES_MAX + 1],
    len: usize,
}

impl Terminated {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; KEY_BYTES_MAX + 1];
        bytes[..key.len()].copy_from_slice(key);
        Self { bytes, len: key.len() + 1 }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl BenchIndex for Blart {
    fn insert(&mut self, key: &[u8], value: u64) {
        let made = self.map.try_insert(Terminated::new(key).get().into(), value);
        assert!(made.is_ok(), "terminated keys are not prefixes of each other");
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.map.get(Terminated::new(key).get()).copied()
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        self.map.get_mut(Terminated::new(key).get()).map(|v| *v = value).is_some()
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.map.remove(Terminated::new(key).get()).is_some()
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let records = self.map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        records.take(count).map(|(k, v)| visit(&k[..k.len() - 1], *v)).count()
    }
}
