//! crossbeam-skiplist, the concurrent volatile bound.

use crate::harness::index::BenchIndex;
use crossbeam_skiplist::SkipMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Skip {
    map: Arc<SkipMap<Box<[u8]>, AtomicU64>>,
}

impl BenchIndex for Skip {
    fn insert(&mut self, key: &[u8], value: u64) {
        self.map.insert(key.into(), AtomicU64::new(value));
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.map.get(key).map(|e| e.value().load(Ordering::Relaxed))
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        self.map.get(key).map(|e| e.value().store(value, Ordering::Relaxed)).is_some()
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.map.remove(key).is_some()
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let records = self.map.range::<[u8], _>(bounds).take(count);
        records.map(|e| visit(e.key(), e.value().load(Ordering::Relaxed))).count()
    }

    fn handle(&self) -> Option<Box<dyn BenchIndex>> {
        Some(Box::new(Self { map: Arc::clone(&self.map) }))
    }
}
