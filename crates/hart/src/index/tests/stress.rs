//! Writers, readers and scanners on one prefix. Slots are reused at once, and each value identifies its key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Direction, Index, Intent, Leaf, LeafChange};
use super::audit::audit;
use super::heap::Heap;
use super::model::{delete, get, put};

const WRITERS: u64 = 3;
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 60_000 };
const KEY_BYTES_MAX: usize = 64;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// Keys of one tree, in three regions: dense bytes (large layouts), few bytes (splits, ends and collapses) and few
/// bytes after a path longer than a node's tail.
fn key(dice: &mut Dice) -> Vec<u8> {
    let mut key = b"ab".to_vec();
    match dice.roll(4) {
        0 => key.extend([b'd', dice.roll(256) as u8]),
        1 => {
            key.extend([b'e', dice.roll(60) as u8, dice.roll(12) as u8]);
        }
        region => {
            if region == 3 {
                key.extend([b'l'; 20]);
            }
            for _ in 0..dice.roll(8) {
                key.push(dice.roll(3) as u8);
                if dice.roll(6) == 0 {
                    key.extend([7; 11]);
                }
            }
            key.truncate(KEY_BYTES_MAX);
        }
    }
    key
}

/// FNV-1a in the high half: what every value of the key carries.
fn mark(key: &[u8]) -> u64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash << 32
}

fn check(key: &[u8], value: u64) {
    assert_eq!(value & !u64::from(u32::MAX), mark(key), "the value of another key under {key:?}");
}

/// Sorted keys that are there from the start to the end of the test.
struct Stable(Vec<Vec<u8>>);

impl Stable {
    fn has(&self, key: &[u8]) -> bool {
        self.0.binary_search_by(|stable| stable.as_slice().cmp(key)).is_ok()
    }
}

fn owner(key: &[u8]) -> u64 {
    (mark(key) >> 40) % WRITERS
}

/// Deletes, and sometimes yields the processor under the lock, so that the node above changes meanwhile.
fn delete_slowly(index: &Index<Heap>, key: &[u8], dice: &mut Dice) -> Option<u64> {
    let heap = &index.keys;
    index.modify(key, Intent::Existing, |leaf| {
        if dice.roll(16) == 0 {
            std::thread::yield_now();
        }
        let Some(leaf) = leaf else { return (LeafChange::Keep, None) };
        let before = heap.value(leaf).expect("whole");
        heap.free(leaf);
        (LeafChange::Remove, Some(before))
    })
}

/// Changes the keys of this writer alone, whose states it therefore knows.
fn write(index: &Index<Heap>, stable: &Stable, number: u64) -> BTreeMap<Vec<u8>, u64> {
    let heap = &index.keys;
    let mut dice = Dice(0x1234_5678_9abc_def1 + number);
    let mut model = BTreeMap::new();
    for round in 0..ROUNDS {
        let key = key(&mut dice);
        let value = mark(&key) | (round & u64::from(u32::MAX));
        if owner(&key) != number {
            continue;
        }
        if stable.has(&key) {
            index.modify(&key, Intent::Existing, |leaf| {
                heap.set_value(leaf.expect("stable keys stay"), value);
                (LeafChange::Keep, ())
            });
            continue;
        }
        match dice.roll(5) {
            0 | 1 => assert_eq!(delete_slowly(index, &key, &mut dice), model.remove(&key)),
            2 => {
                let seen = index.modify(&key, Intent::Existing, |leaf| {
                    let before = leaf.map(|leaf| heap.value(leaf).expect("whole"));
                    if let Some(leaf) = leaf {
                        heap.set_value(leaf, value);
                    }
                    (LeafChange::Keep, before)
                });
                assert_eq!(seen, model.get(&key).copied());
                if seen.is_some() {
                    model.insert(key, value);
                }
            }
            3 => assert_eq!(get(index, &key), model.get(&key).copied()),
            _ => assert_eq!(put(index, &key, value), model.insert(key, value)),
        }
    }
    model
}

/// Reads a value as slowly as a reader that loses its processor in the middle; none if the value is torn.
fn read_slowly(heap: &Heap, leaf: Leaf, dice: &mut Dice) -> Option<u64> {
    let before = heap.value(leaf)?;
    if dice.roll(16) == 0 {
        std::thread::yield_now();
    }
    heap.value(leaf).filter(|after| *after == before)
}

fn read(index: &Index<Heap>, stable: &Stable, stop: &AtomicBool) {
    let mut dice = Dice(0xfeed_beef);
    while !stop.load(Ordering::Relaxed) {
        let key = key(&mut dice);
        match index.get(&key, |leaf| read_slowly(&index.keys, leaf, &mut dice)) {
            Some(value) => check(&key, value.expect("whole")),
            None => assert!(!stable.has(&key), "a key that is always there was missed: {key:?}"),
        }
    }
}

fn scan(index: &Index<Heap>, stable: &Stable, stop: &AtomicBool, direction: Direction) {
    let mut dice = Dice(0xabcd_ef01);
    while !stop.load(Ordering::Relaxed) {
        let start = key(&mut dice);
        let bound = match dice.roll(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(start.as_slice()),
            _ => Bound::Excluded(start.as_slice()),
        };
        let within = |key: &&Vec<u8>| match (direction, bound) {
            (_, Bound::Unbounded) => true,
            (Direction::Forward, Bound::Included(start)) => key.as_slice() >= start,
            (Direction::Forward, Bound::Excluded(start)) => key.as_slice() > start,
            (Direction::Backward, Bound::Included(start)) => key.as_slice() <= start,
            (Direction::Backward, Bound::Excluded(start)) => key.as_slice() < start,
        };
        let mut seen = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        let mut cursor = index.cursor(bound, direction);
        while let Some(value) = cursor.advance(|leaf| read_slowly(&index.keys, leaf, &mut dice)) {
            let key = cursor.key().to_vec();
            check(&key, value.expect("whole"));
            assert!(within(&&key), "{key:?} is not behind {bound:?}");
            if let Some(last) = last {
                assert_eq!(key > last, direction == Direction::Forward, "{key:?} after {last:?}");
                assert_ne!(key, last, "returned twice");
            }
            if stable.has(&key) {
                seen.push(key.clone());
            }
            last = Some(key);
        }
        let expected: Vec<_> = match direction {
            Direction::Forward => stable.0.iter().filter(within).cloned().collect(),
            Direction::Backward => stable.0.iter().rev().filter(within).cloned().collect(),
        };
        assert_eq!(seen, expected, "keys that are always there, from {bound:?} {direction:?}");
    }
}

#[test]
fn writers_readers_and_scanners_share_one_prefix() {
    let index = Index::new(Heap::new(40_000, KEY_BYTES_MAX));
    let mut dice = Dice(0x5555_aaaa);
    let stable: BTreeSet<_> = (0..if cfg!(miri) { 30 } else { 2_000 }).map(|_| key(&mut dice)).collect();
    let stable = Stable(stable.into_iter().collect());
    for key in &stable.0 {
        put(&index, key, mark(key));
    }
    let stop = AtomicBool::new(false);
    let models = std::thread::scope(|scope| {
        let (index, stable, stop) = (&index, &stable, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || write(index, stable, number))).collect();
        for _ in 0..2 {
            scope.spawn(move || read(index, stable, stop));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            scope.spawn(move || scan(index, stable, stop, direction));
        }
        let models: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        models
    });
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for part in models {
        model.extend(part.expect("no writer failed"));
    }
    let leaves = audit(&index);
    assert_eq!(leaves.len(), model.len() + stable.0.len());
    for (key, value) in &model {
        assert_eq!(get(&index, key), Some(*value));
    }
    for key in model.keys().chain(&stable.0) {
        assert!(delete(&index, key).is_some());
    }
    assert!(audit(&index).is_empty());
    assert_eq!(index.stats().nodes, [0; 5]);
}
