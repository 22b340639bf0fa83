//! The standard library's map, a volatile bound.

use crate::harness::index::BenchIndex;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct BTree {
    map: BTreeMap<Box<[u8]>, u64>,
}

impl BenchIndex for BTree {
    fn insert(&mut self, key: &[u8], value: u64) {
        self.map.insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.map.get(key).copied()
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        self.map.get_mut(key).map(|v| *v = value).is_some()
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.map.remove(key).is_some()
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        self.map.range::<[u8], _>(bounds).take(count).map(|(k, v)| visit(k, *v)).count()
    }
}
