//! Mangrove's map directly on a region, with 8-byte values: what the paper's figures compare.

use crate::harness::index::BenchIndex;
use mangrove_hart::{Hart, Locking, Options, WriteMode};
use mangrove_pool::Region;
use std::ops::Bound;
use std::sync::Arc;

struct MangroveIndex {
    hart: Arc<Hart>,
}

fn options() -> Options {
    Options::default()
}

fn index(hart: Hart) -> Box<dyn BenchIndex> {
    Box::new(MangroveIndex { hart: Arc::new(hart) })
}

pub(super) fn create(region: Region) -> anyhow::Result<Box<dyn BenchIndex>> {
    Ok(index(Hart::create(region, &options())?))
}

/// With the HART paper's reader-writer lock for each tree (section III-A.3) in place of the locks for single nodes.
pub(super) fn create_with_tree_locks(region: Region) -> anyhow::Result<Box<dyn BenchIndex>> {
    Ok(index(Hart::create(region, &Options { locking: Locking::PerTree, ..options() })?))
}

pub(super) fn recover(region: Region) -> anyhow::Result<Box<dyn BenchIndex>> {
    let (hart, _) = Hart::recover(region, &options())?;
    Ok(index(hart))
}

fn number(value: &[u8]) -> u64 {
    value.try_into().map(u64::from_le_bytes).expect("the bench stores values of 8 bytes")
}

/// Emulated memory has no I/O errors and the regions are sized for the records.
const SOUND: &str = "the map on emulated memory does not fail";

impl BenchIndex for MangroveIndex {
    fn insert(&mut self, key: &[u8], value: u64) {
        self.hart.put(key, &value.to_le_bytes(), WriteMode::Durable).expect(SOUND);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.hart.get_with(key, number).expect(SOUND)
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        self.hart.put(key, &value.to_le_bytes(), WriteMode::Durable).expect(SOUND);
        true
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.hart.delete(key, WriteMode::Durable).expect(SOUND)
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let mut records = self.hart.range(Bound::Included(from), Bound::Unbounded).expect(SOUND);
        let mut seen = 0;
        let all = records.for_each_ref(|key, value| {
            if seen < count {
                visit(key, number(value));
                seen += 1;
            }
            seen < count
        });
        all.expect(SOUND);
        seen
    }

    fn handle(&self) -> Option<Box<dyn BenchIndex>> {
        Some(Box::new(Self { hart: Arc::clone(&self.hart) }))
    }

    fn durable_bytes(&self) -> u64 {
        self.hart.stat().durable_bytes
    }
}
