//! A radix tree whose nodes, leaves and values lie in a region: the common part of WOART, ART+CoW and P-ART. Each
//! has a file of its own that tells how it differs.
//!
//! Leaf: {value or place of the value: u64, key length: u64, key bytes padded to 8}.

use super::palloc::{PAlloc, ROOT};
use super::radix::{self, Discipline};
use super::space::NodeSpace;
use crate::harness::index::BenchIndex;
use mangrove_pool::Region;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

impl NodeSpace for PAlloc {
    #[inline]
    fn at(&self, place: u64) -> *mut u8 {
        self.region().at(place)
    }

    #[inline]
    fn store(&self, place: u64, value: u64) {
        self.region().store(place, value, Ordering::Release);
    }

    #[inline]
    fn store_byte(&self, place: u64, value: u8) {
        self.region().write(place, &[value]);
    }

    #[inline]
    fn write(&self, place: u64, bytes: &[u8]) {
        self.region().write(place, bytes);
    }

    #[inline]
    fn flush(&self, place: u64, len: usize) {
        self.region().flush(place, len);
    }

    #[inline]
    fn fence(&self) {
        self.region().fence();
    }

    #[inline]
    fn reading(&self, place: u64, len: usize) {
        self.region().reading(place, len);
    }

    fn alloc(&self, bytes: usize) -> u64 {
        PAlloc::alloc(self, bytes, false)
    }

    fn free(&self, place: u64, bytes: usize) {
        PAlloc::free(self, place, bytes);
    }

    #[inline]
    fn leaf_key(&self, leaf: u64) -> &[u8] {
        self.reading(leaf, 40);
        let len = self.load(leaf + 8) as usize;
        // SAFETY: leaves are written whole before they are linked, and this tree has one thread.
        unsafe { std::slice::from_raw_parts(self.at(leaf + 16), len) }
    }
}

/// What a structure of this family may choose.
pub(crate) trait Flavour: Send {
    type Discipline: Discipline;
    /// The value lies in the leaf (P-ART), or behind a pointer in it (WOART, ART+CoW as the HART
    /// paper builds them: section IV-B, Update).
    const VALUE_IN_LEAF: bool;
}

/// See the file head.
pub(crate) struct PersistentRadix<F> {
    space: PAlloc,
    flavour: PhantomData<F>,
}

fn leaf_bytes(key: &[u8]) -> usize {
    16 + key.len().next_multiple_of(8)
}

impl<F: Flavour> PersistentRadix<F> {
    /// Formats a fresh region.
    pub(crate) fn create(region: Region) -> Self {
        Self { space: PAlloc::create(region), flavour: PhantomData }
    }

    /// Opens a region after a crash. Nothing has to be rebuilt; memory that the crash leaked stays leaked.
    pub(crate) fn open(region: Region) -> Self {
        Self { space: PAlloc::open(region), flavour: PhantomData }
    }

    fn make_leaf(&self, key: &[u8], value: u64) -> u64 {
        let s = &self.space;
        let word = if F::VALUE_IN_LEAF { value } else { self.make_value(value) };
        let bytes = leaf_bytes(key);
        let leaf = NodeSpace::alloc(s, bytes);
        s.store(leaf, word);
        s.store(leaf + 8, key.len() as u64);
        s.write(leaf + 16, key);
        s.persist(leaf, bytes);
        leaf
    }

    fn make_value(&self, value: u64) -> u64 {
        let s = &self.space;
        let place = NodeSpace::alloc(s, 8);
        s.store(place, value);
        s.persist(place, 8);
        place
    }

    fn value_of(&self, leaf: u64) -> u64 {
        let word = self.space.load(leaf);
        if F::VALUE_IN_LEAF {
            return word;
        }
        self.space.reading(word, 8);
        self.space.load(word)
    }

    fn set_value(&self, leaf: u64, value: u64) {
        let s = &self.space;
        if F::VALUE_IN_LEAF {
            s.store(leaf, value);
            s.persist(leaf, 8);
            return;
        }
        let old = s.load(leaf);
        let new = self.make_value(value);
        s.store(leaf, new);
        s.persist(leaf, 8);
        NodeSpace::free(s, old, 8);
    }
}

impl<F: Flavour> BenchIndex for PersistentRadix<F> {
    fn insert(&mut self, key: &[u8], value: u64) {
        let made =
            radix::insert::<_, F::Discipline>(&self.space, ROOT, key, 0, || self.make_leaf(key, value));
        if let Err(leaf) = made {
            self.set_value(leaf, value);
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        radix::find(&self.space, ROOT, key, 0).map(|leaf| self.value_of(leaf))
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        let Some(leaf) = radix::find(&self.space, ROOT, key, 0) else { return false };
        self.set_value(leaf, value);
        true
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let Some(leaf) = radix::remove::<_, F::Discipline>(&self.space, ROOT, key, 0) else { return false };
        if !F::VALUE_IN_LEAF {
            NodeSpace::free(&self.space, self.space.load(leaf), 8);
        }
        NodeSpace::free(&self.space, leaf, leaf_bytes(key));
        true
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let mut seen = 0;
        let root = self.space.load(ROOT);
        radix::walk(&self.space, root, 0, Some(from), &mut |leaf| {
            if seen == count {
                return false;
            }
            visit(self.space.leaf_key(leaf), self.value_of(leaf));
            seen += 1;
            seen < count
        });
        seen
    }

    fn durable_bytes(&self) -> u64 {
        self.space.live_bytes()
    }
}
