//! A volatile adaptive radix tree: the bound that no durable map can beat with the same index.
//!
//! The tree of `radix.rs` entirely in DRAM; leaves are separate allocations {value, key length, key}, as in libart,
//! the C implementation that the HART paper builds on.

use super::radix::{self, InPlace};
use super::space::{NodeSpace, dram};
use crate::harness::index::BenchIndex;
use std::sync::atomic::AtomicU64;

struct Dram;

impl NodeSpace for Dram {
    #[inline]
    fn at(&self, place: u64) -> *mut u8 {
        place as *mut u8
    }

    #[inline]
    fn store(&self, place: u64, value: u64) {
        dram::store(place, value);
    }

    #[inline]
    fn store_byte(&self, place: u64, value: u8) {
        dram::write(place, &[value]);
    }

    #[inline]
    fn write(&self, place: u64, bytes: &[u8]) {
        dram::write(place, bytes);
    }

    #[inline]
    fn flush(&self, _place: u64, _len: usize) {}

    #[inline]
    fn fence(&self) {}

    #[inline]
    fn reading(&self, _place: u64, _len: usize) {}

    fn alloc(&self, bytes: usize) -> u64 {
        dram::allocate(bytes)
    }

    fn free(&self, place: u64, bytes: usize) {
        dram::release(place, bytes);
    }

    #[inline]
    fn leaf_key(&self, leaf: u64) -> &[u8] {
        let len = self.load(leaf + 8) as usize;
        // SAFETY: leaves are written whole before they are linked, and this tree has one thread.
        unsafe { std::slice::from_raw_parts((leaf + 16) as *const u8, len) }
    }
}

/// See the file head.
pub(crate) struct VolatileArt {
    root: Box<AtomicU64>,
}

fn leaf_bytes(key: usize) -> usize {
    16 + key.next_multiple_of(8)
}

impl VolatileArt {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self { root: Box::new(AtomicU64::new(0)) }
    }

    fn root(&self) -> u64 {
        self.root.as_ptr() as u64
    }
}

impl BenchIndex for VolatileArt {
    fn insert(&mut self, key: &[u8], value: u64) {
        let made = radix::insert::<_, InPlace>(&Dram, self.root(), key, 0, || {
            let leaf = Dram.alloc(leaf_bytes(key.len()));
            Dram.store(leaf, value);
            Dram.store(leaf + 8, key.len() as u64);
            Dram.write(leaf + 16, key);
            leaf
        });
        if let Err(leaf) = made {
            Dram.store(leaf, value);
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        radix::find(&Dram, self.root(), key, 0).map(|leaf| Dram.load(leaf))
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        radix::find(&Dram, self.root(), key, 0).map(|leaf| Dram.store(leaf, value)).is_some()
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let gone = radix::remove::<_, InPlace>(&Dram, self.root(), key, 0);
        if let Some(leaf) = gone {
            Dram.free(leaf, leaf_bytes(key.len()));
        }
        gone.is_some()
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let mut seen = 0;
        radix::walk(&Dram, Dram.load(self.root()), 0, Some(from), &mut |leaf| {
            if seen == count {
                return false;
            }
            visit(Dram.leaf_key(leaf), Dram.load(leaf));
            seen += 1;
            seen < count
        });
        seen
    }
}

impl Drop for VolatileArt {
    fn drop(&mut self) {
        radix::tear_down(&Dram, Dram.load(self.root()), &mut |leaf| {
            Dram.free(leaf, leaf_bytes(Dram.load(leaf + 8) as usize));
        });
    }
}
