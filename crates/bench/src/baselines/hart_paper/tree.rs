//! Algorithms 1, 3, 4 and 5: insertion, update, search, deletion, each under its tree's lock
//! (section IV-G).
//!
//! Leaf (Fig. 3): key 24 bytes, key length 8, p_value 8.

use super::epalloc::{self, ObjectClass, UPDATE_LOGS, UPDATE_LOGS_MAX};
use crate::baselines::radix::{self, InPlace};
use crate::baselines::space::{NodeSpace, dram};
use crate::harness::index::BenchIndex;
use crate::harness::workload::KEY_BYTES_MAX;
use mangrove_pool::Region;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// k_h of the paper's evaluation: bytes of the hash key.
const HASH_BYTES: usize = 2;
const LEN: u64 = 24;
const P_VALUE: u64 = 32;

/// Inner nodes in DRAM, leaves in the region.
struct Hybrid {
    region: Region,
}

impl NodeSpace for Hybrid {
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
        self.region.reading(leaf, 40);
        let len = self.region.word(leaf + LEN).load(Ordering::Relaxed) as usize;
        // SAFETY: a leaf is written before it is linked and not freed while its tree is locked.
        unsafe { std::slice::from_raw_parts(self.region.at(leaf), len) }
    }
}

/// One ART: the root link of its nodes, under the lock that Fig. 1 draws at each tree.
#[derive(Default)]
struct Art {
    root: AtomicU64,
}

pub(super) struct SharedTrees {
    pub(super) region: Region,
    space: Hybrid,
    arts: Box<[RwLock<Art>]>,
    pub(super) leaves: ObjectClass,
    pub(super) values: ObjectClass,
    handles: AtomicU64,
}

/// A handle to the tree; one a thread, because each has an update log of its own.
pub(crate) struct HartPaper {
    shared: Arc<SharedTrees>,
    log: u64,
}

/// HashFind with k_h = 2.
fn hash(key: &[u8]) -> usize {
    usize::from(key.first().copied().unwrap_or(0)) << 8 | usize::from(key.get(1).copied().unwrap_or(0))
}

impl SharedTrees {
    pub(super) fn over(region: Region) -> Self {
        let arts = (0..1 << 16).map(|_| RwLock::default()).collect();
        Self {
            space: Hybrid { region: region.clone() },
            leaves: ObjectClass::leaves(&region),
            values: ObjectClass::values(&region),
            arts,
            handles: AtomicU64::new(0),
            region,
        }
    }

    pub(super) fn persist_word(&self, place: u64, value: u64) {
        self.region.store(place, value, Ordering::Release);
        self.region.flush(place, 8);
        self.region.fence();
    }

    pub(super) fn p_value(&self, leaf: u64) -> u64 {
        self.region.word(leaf + P_VALUE).load(Ordering::Acquire)
    }

    pub(super) fn set_p_value(&self, leaf: u64, value: u64) {
        self.persist_word(leaf + P_VALUE, value);
    }

    /// Algorithm 1, lines 10-16: five persists.
    fn new_leaf(&self, key: &[u8], word: u64) -> u64 {
        let leaf = self.leaves.allocate();
        let value = self.values.allocate();
        self.persist_word(value, word);
        self.set_p_value(leaf, value);
        self.values.set_bit(value);
        self.region.write(leaf, key);
        self.region.flush(leaf, key.len());
        self.region.fence();
        self.persist_word(leaf + LEN, key.len() as u64);
        leaf
    }

    /// Algorithm 3: eight persists.
    fn update(&self, log: u64, leaf: u64, word: u64) {
        let old = self.p_value(leaf);
        self.persist_word(log, leaf);
        self.persist_word(log + 8, old);
        let new = self.values.allocate();
        self.persist_word(new, word);
        self.persist_word(log + 16, new);
        self.values.set_bit(new);
        self.set_p_value(leaf, new);
        self.values.reset_bit(old);
        self.values.release(old);
        self.reclaim(log);
    }

    /// LogReclaim: see deviation 5.
    pub(super) fn reclaim(&self, log: u64) {
        for word in [log + 16, log + 8, log] {
            self.region.store(word, 0, Ordering::Release);
        }
        self.region.flush(log, 24);
        self.region.fence();
    }

    /// Algorithm 7, line 6: links a leaf that is durable already.
    pub(super) fn link_recovered(&self, leaf: u64) {
        let key = self.space.leaf_key(leaf);
        let art = self.arts[hash(key)].write();
        let root = art.root.as_ptr() as u64;
        if radix::insert::<_, InPlace>(&self.space, root, key, HASH_BYTES, || leaf).is_err() {
            debug_assert!(false, "two live leaves have one key");
        }
    }
}

impl HartPaper {
    /// Formats a fresh region.
    pub(crate) fn create(region: Region) -> Self {
        epalloc::format(&region);
        Self::over(Arc::new(SharedTrees::over(region)))
    }

    pub(super) fn over(shared: Arc<SharedTrees>) -> Self {
        let number = shared.handles.fetch_add(1, Ordering::Relaxed);
        assert!(number < UPDATE_LOGS_MAX, "HART-paper has {UPDATE_LOGS_MAX} update logs");
        Self { shared, log: UPDATE_LOGS + 64 * number }
    }
}

impl BenchIndex for HartPaper {
    fn insert(&mut self, key: &[u8], value: u64) {
        assert!(key.len() <= KEY_BYTES_MAX, "HART's leaf holds keys of up to {KEY_BYTES_MAX} bytes");
        let s = &*self.shared;
        let art = s.arts[hash(key)].write();
        let mut fresh = 0;
        let root = art.root.as_ptr() as u64;
        let made = radix::insert::<_, InPlace>(&s.space, root, key, HASH_BYTES, || {
            fresh = s.new_leaf(key, value);
            fresh
        });
        match made {
            Ok(()) => s.leaves.set_bit(fresh),
            Err(leaf) => s.update(self.log, leaf, value),
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let s = &*self.shared;
        let art = s.arts[hash(key)].read();
        let leaf = radix::find(&s.space, art.root.as_ptr() as u64, key, HASH_BYTES)?;
        if !s.leaves.bit(leaf) {
            return None;
        }
        let value = s.p_value(leaf);
        s.region.reading(value, 8);
        Some(s.region.word(value).load(Ordering::Acquire))
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        let s = &*self.shared;
        let art = s.arts[hash(key)].write();
        match radix::find(&s.space, art.root.as_ptr() as u64, key, HASH_BYTES) {
            Some(leaf) => {
                s.update(self.log, leaf, value);
                true
            }
            None => false,
        }
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let s = &*self.shared;
        let art = s.arts[hash(key)].write();
        let Some(leaf) = radix::remove::<_, InPlace>(&s.space, art.root.as_ptr() as u64, key, HASH_BYTES)
        else {
            return false;
        };
        let value = s.p_value(leaf);
        s.leaves.reset_bit(leaf);
        s.values.reset_bit(value);
        s.values.release(value);
        s.leaves.release(leaf);
        true
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let s = &*self.shared;
        let mut seen = 0;
        let mut lower = Some(from);
        for art in &s.arts[hash(from)..] {
            let art = art.read();
            let root = s.space.load(art.root.as_ptr() as u64);
            radix::walk(&s.space, root, HASH_BYTES, lower.take(), &mut |leaf| {
                if seen < count {
                    visit(s.space.leaf_key(leaf), s.region.word(s.p_value(leaf)).load(Ordering::Acquire));
                    seen += 1;
                }
                seen < count
            });
            if seen == count {
                break;
            }
        }
        seen
    }

    fn scans_by_search(&self) -> bool {
        true
    }

    fn handle(&self) -> Option<Box<dyn BenchIndex>> {
        Some(Box::new(Self::over(Arc::clone(&self.shared))))
    }

    fn durable_bytes(&self) -> u64 {
        self.shared.leaves.durable_bytes() + self.shared.values.durable_bytes()
    }
}

impl Drop for SharedTrees {
    fn drop(&mut self) {
        for art in &self.arts {
            radix::tear_down(&self.space, self.space.load(art.read().root.as_ptr() as u64), &mut |_| {});
        }
    }
}
