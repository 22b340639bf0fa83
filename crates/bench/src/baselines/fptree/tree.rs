//! The operations, the two micro-logs and recovery.

use super::inner::InnerNodes;
use super::leaf::{FULL, LEAF_BYTES, LeafList};
use crate::baselines::palloc::{PAlloc, ROOT};
use crate::harness::index::BenchIndex;
use mangrove_pool::Region;
use std::sync::atomic::Ordering;

/// First leaf of the list.
const HEAD: u64 = ROOT;
/// Split micro-log: {PCurrentLeaf, PNewLeaf}.
const SPLIT_LOG: u64 = ROOT + 64;
/// Deletion micro-log: {PCurrentLeaf, PPrevLeaf}.
const DELETE_LOG: u64 = ROOT + 128;

/// See the head of the module.
pub(crate) struct FpTree {
    leaves: LeafList,
    inner: InnerNodes,
}

impl FpTree {
    /// Formats a fresh region.
    pub(crate) fn create(region: Region) -> Self {
        let leaves = LeafList { pm: PAlloc::create(region) };
        let first = leaves.create();
        leaves.persist_word(HEAD, first);
        Self { leaves, inner: InnerNodes::new(first) }
    }

    /// Algorithm 9: micro-logs, then a walk of the leaf list, then the inner nodes.
    pub(crate) fn recover(region: Region) -> Self {
        let leaves = LeafList { pm: PAlloc::open(region) };
        recover_split(&leaves);
        recover_delete(&leaves);
        let mut found: Vec<(Box<[u8]>, u64)> = Vec::new();
        let first = word(&leaves, HEAD);
        let mut leaf = first;
        while leaf != 0 {
            if leaves.bitmap(leaf) != 0 {
                found.push((leaves.greatest(leaf).into(), leaf));
            }
            leaf = leaves.next(leaf);
        }
        let inner = if found.is_empty() { InnerNodes::new(first) } else { InnerNodes::build(found) };
        Self { leaves, inner }
    }

    /// Algorithm 3, SplitLeaf. Returns the leaf where `key` belongs now.
    fn split(&mut self, leaf: u64, key: &[u8]) -> u64 {
        let l = &self.leaves;
        l.persist_word(SPLIT_LOG, leaf);
        let right = l.create();
        l.persist_word(SPLIT_LOG + 8, right);
        l.copy(leaf, right);
        let sorted = l.sorted(leaf);
        let (low, high) = sorted.split_at(sorted.len() / 2);
        let separator = l.key(leaf, low[low.len() - 1]);
        let upper = high.iter().fold(0u64, |map, slot| map | 1 << slot);
        l.set_bitmap(right, upper);
        l.set_bitmap(leaf, FULL & !upper);
        l.set_next(leaf, right);
        let goes_right = key > separator;
        self.inner.add(separator, right);
        reset(l, SPLIT_LOG);
        if goes_right { right } else { leaf }
    }

    /// Algorithm 6, DeleteLeaf: the leaf has no key left and is not the only one.
    fn unlink(&mut self, leaf: u64, key: &[u8]) {
        let l = &self.leaves;
        let before = self.inner.leaf_before(key);
        let next = l.next(leaf);
        if before.is_none() && next == 0 {
            return;
        }
        l.persist_word(DELETE_LOG, leaf);
        match before {
            None => l.persist_word(HEAD, next),
            Some(before) => {
                l.persist_word(DELETE_LOG + 8, before);
                l.set_next(before, next);
            }
        }
        l.pm.free(leaf, LEAF_BYTES);
        reset(l, DELETE_LOG);
        self.inner.remove(key);
    }
}

fn word(leaves: &LeafList, place: u64) -> u64 {
    leaves.pm.region().word(place).load(Ordering::Acquire)
}

/// Clears a micro-log; the second word first, in one line, so that a torn clear is harmless.
fn reset(leaves: &LeafList, log: u64) {
    let region = leaves.pm.region();
    region.store(log + 8, 0, Ordering::Release);
    region.store(log, 0, Ordering::Release);
    leaves.persist(log, 16);
}

/// Algorithm 4: a split is finished from where the bitmaps show that it stopped, or forgotten.
fn recover_split(leaves: &LeafList) {
    let (leaf, right) = (word(leaves, SPLIT_LOG), word(leaves, SPLIT_LOG + 8));
    if leaf != 0 && right != 0 {
        if leaves.bitmap(leaf) == FULL {
            // The old leaf still has everything: do it again.
            leaves.copy(leaf, right);
            let sorted = leaves.sorted(leaf);
            let upper = sorted[sorted.len() / 2..].iter().fold(0u64, |map, slot| map | 1 << slot);
            leaves.set_bitmap(right, upper);
            leaves.set_bitmap(leaf, FULL & !upper);
        }
        leaves.set_next(leaf, right);
    }
    reset(leaves, SPLIT_LOG);
}

/// Algorithm 7: the unlinking is repeated; every step of it may be done twice.
fn recover_delete(leaves: &LeafList) {
    let (leaf, before) = (word(leaves, DELETE_LOG), word(leaves, DELETE_LOG + 8));
    if leaf != 0 {
        let next = leaves.next(leaf);
        if before != 0 {
            leaves.set_next(before, next);
        } else if word(leaves, HEAD) == leaf {
            leaves.persist_word(HEAD, next);
        }
    }
    reset(leaves, DELETE_LOG);
}

impl BenchIndex for FpTree {
    fn insert(&mut self, key: &[u8], value: u64) {
        let mut leaf = self.inner.leaf(key);
        if let Some(slot) = self.leaves.find(leaf, key) {
            if self.leaves.bitmap(leaf) == FULL {
                leaf = self.split(leaf, key);
                let slot = self.leaves.find(leaf, key).expect("a split keeps every key");
                self.leaves.update(leaf, slot, value);
            } else {
                self.leaves.update(leaf, slot, value);
            }
            return;
        }
        if self.leaves.bitmap(leaf) == FULL {
            leaf = self.split(leaf, key);
        }
        self.leaves.insert(leaf, key, value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let leaf = self.inner.leaf(key);
        self.leaves.find(leaf, key).map(|slot| self.leaves.value(leaf, slot))
    }

    fn update(&mut self, key: &[u8], value: u64) -> bool {
        let mut leaf = self.inner.leaf(key);
        let Some(mut slot) = self.leaves.find(leaf, key) else { return false };
        if self.leaves.bitmap(leaf) == FULL {
            leaf = self.split(leaf, key);
            slot = self.leaves.find(leaf, key).expect("a split keeps every key");
        }
        self.leaves.update(leaf, slot, value);
        true
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let leaf = self.inner.leaf(key);
        let Some(slot) = self.leaves.find(leaf, key) else { return false };
        self.leaves.remove(leaf, slot);
        if self.leaves.bitmap(leaf) == 0 {
            self.unlink(leaf, key);
        }
        true
    }

    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize {
        let l = &self.leaves;
        let mut leaf = self.inner.leaf(from);
        let mut seen = 0;
        while leaf != 0 && seen < count {
            for slot in l.sorted(leaf) {
                let key = l.key(leaf, slot);
                if key >= from && seen < count {
                    visit(key, l.value(leaf, slot));
                    seen += 1;
                }
            }
            leaf = l.next(leaf);
        }
        seen
    }

    fn durable_bytes(&self) -> u64 {
        self.leaves.pm.live_bytes()
    }
}
