//! Records whose value lies behind the key, in one slot: updates write another slot, and a crash in between leaves two
//! leaves of one key.

use crate::support::Counting;
use mangrove_hart::{Batch, Error, Hart, Options, WriteMode};
use mangrove_pool::{Region, crc32c};
use std::ops::Bound;
use std::sync::atomic::Ordering;

const BYTES: usize = 1 << 20;
const MODE: WriteMode = WriteMode::Durable;
const KEY: &[u8] = b"a key of 16 byte";

fn options() -> Options {
    Options { segment_shift: 12, grow_bytes: 1 << 12, recovery_threads: 1, ..Options::default() }
}

fn value(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt)).collect()
}

fn sound(hart: &Hart) {
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
}

fn region_of(words: &[u64]) -> Region {
    let (region, _) = Counting::region(BYTES, false);
    for (number, word) in words.iter().enumerate() {
        region.store(number as u64 * 8, *word, Ordering::Relaxed);
    }
    region
}

/// How many slots of `words` hold a leaf of [`KEY`].
fn leaves(words: &[u64]) -> usize {
    const FREE_SLOT: u64 = 0x4549_17d5_4645_f000;
    let key: Vec<u64> =
        KEY.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let meta = words.iter().zip(words.windows(4)).filter(|(_, leaf)| leaf[2..] == key[..]);
    meta.filter(|(meta, _)| **meta != FREE_SLOT && **meta & 0x7ff == KEY.len() as u64).count()
}

/// Runs `update` on a map with one record of a value of `old` bytes, and looks at what a crash leaves at each flush.
/// Returns at how many of them there are two leaves.
fn crashes(old: usize, new: &[u8], update: impl FnOnce(&Hart)) -> usize {
    let (region, medium) = Counting::region(BYTES, false);
    let hart = Hart::create(region, &options()).unwrap();
    hart.put(b"another", &value(100, 9), MODE).unwrap();
    hart.put(KEY, &value(old, 1), MODE).unwrap();
    *medium.images.lock().unwrap() = Some(Vec::new());
    update(&hart);
    let images = medium.images.lock().unwrap().take().unwrap();
    assert!(!images.is_empty());
    let mut twins = 0;
    for image in &images {
        twins += usize::from(leaves(image) == 2);
        let reader =
            Hart::recover(region_of(image), &Options { read_only: true, ..options() }).expect("read-only").0;
        let region = region_of(image);
        let hart = Hart::recover(region.clone(), &options()).expect("a crash in an update").0;
        sound(&hart);
        let found = hart.get(KEY).unwrap().unwrap();
        assert!(found == value(old, 1) || found == new, "{} bytes", found.len());
        assert_eq!(reader.get(KEY).unwrap().unwrap(), found);
        assert_eq!(hart.len(), 2);
        // The leaf that does not count is gone for good, and its slot is free.
        assert!(hart.delete(KEY, MODE).unwrap());
        drop(hart);
        let hart = Hart::recover(region, &options()).unwrap().0;
        sound(&hart);
        assert_eq!(hart.get(KEY).unwrap(), None, "the record came back");
        assert_eq!(hart.get(b"another").unwrap().unwrap(), value(100, 9));
        for round in 0..60 {
            hart.put(KEY, &value(100, round), MODE).unwrap();
        }
        sound(&hart);
    }
    twins
}

#[test]
fn a_crash_in_an_update_leaves_one_value_and_leaks_nothing() {
    for old in [0, 8, 9, 100, 480, 600] {
        for new in [9, 40, 100, 300, 480] {
            let new = value(new, 2);
            let twins = crashes(old, &new, |hart| hart.put(KEY, &new, MODE).unwrap());
            assert!(twins > 0, "{old} to {}: no crash left both leaves", new.len());
        }
        for new in [0, 8, 600] {
            let new = value(new, 2);
            assert_eq!(crashes(old, &new, |hart| hart.put(KEY, &new, MODE).unwrap()), 0);
        }
        let new = value(100, 2);
        crashes(old, &new, |hart| {
            let mut batch = Batch::new();
            batch.put(KEY, &new[..]).put("another", value(100, 9));
            hart.write(batch, MODE).unwrap();
        });
    }
}

/// Where leaves of `key` stand, in words.
fn places_of(words: &[u64], key: &[u8]) -> Vec<usize> {
    let mut padded = key.to_vec();
    padded.resize(key.len().next_multiple_of(8), 0);
    let key: Vec<u64> =
        padded.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    (0..words.len() - 2 - key.len()).filter(|&at| words[at + 2..at + 2 + key.len()] == key[..]).collect()
}

#[test]
fn more_leaves_of_a_key_than_a_crash_leaves_are_damage() {
    const LEAF_WORDS: usize = 144 / 8;
    let (region, medium) = Counting::region(BYTES, false);
    let hart = Hart::create(region, &options()).unwrap();
    let other = b"another of those";
    hart.put(KEY, &value(100, 1), MODE).unwrap();
    hart.put(other, &value(100, 9), MODE).unwrap();
    let images = medium.images_of(|| hart.put(KEY, &value(100, 2), MODE).unwrap());
    let twins = images.iter().find(|image| leaves(image) == 2).expect("a crash that leaves both");
    hart.put(KEY, &value(100, 3), MODE).unwrap();
    let leaf_at = |words: &[u64], at: usize| words[at..at + LEAF_WORDS].to_vec();
    let next = medium.image();
    let newest = u64::from_le_bytes(value(8, 3).try_into().expect("8 bytes"));
    let newest =
        places_of(&next, KEY).into_iter().find(|at| next[at + 4] == newest).expect("the newest leaf");
    let places = [places_of(twins, KEY), places_of(twins, other)].concat();
    let three = [leaf_at(twins, places[0]), leaf_at(twins, places[1]), leaf_at(&next, newest)];
    // In each order: which two the index compares first depends on it.
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut words = twins.clone();
        for (place, leaf) in places.iter().zip(order) {
            words[*place..place + LEAF_WORDS].copy_from_slice(&three[leaf]);
        }
        assert_eq!(leaves(&words), 3);
        for read_only in [false, true] {
            let options = Options { read_only, ..options() };
            match Hart::recover(region_of(&words), &options) {
                Err(Error::Corrupt { what, .. }) => assert!(what.contains("key"), "{what}"),
                Err(e) => panic!("{e}"),
                Ok(_) => panic!("three leaves of one key, and nothing noticed"),
            }
        }
    }
}

#[test]
fn a_leaf_that_a_flipped_bit_brings_back_replaces_no_other_kind_of_value() {
    let (region, medium) = Counting::region(BYTES, false);
    let hart = Hart::create(region, &options()).unwrap();
    hart.put(b"in front of them", &value(100, 9), MODE).unwrap();
    // Generation 1.
    hart.put(KEY, &value(100, 1), MODE).unwrap();
    hart.put(KEY, &value(100, 2), MODE).unwrap();
    let before = medium.image();
    let mut batch = Batch::new();
    batch.delete(KEY).delete("in front of them");
    hart.write(batch, MODE).unwrap();
    let changed: Vec<usize> = medium
        .image()
        .iter()
        .zip(&before)
        .enumerate()
        .filter(|(_, (a, b))| a != b)
        .map(|(at, _)| at)
        .collect();
    hart.put(KEY, &value(8, 3), MODE).unwrap();
    let now = medium.image();
    let mut found = 0;
    // One of them is the bitmap of the chunk.
    for at in changed {
        for bit in 0..56 {
            let mut words = now.clone();
            words[at] ^= 1 << bit;
            if let Ok((hart, _)) = Hart::recover(region_of(&words), &options()) {
                assert_ne!(hart.get(KEY).ok().flatten(), Some(value(100, 2)), "word {at}, bit {bit}");
            } else {
                found += 1;
            }
        }
    }
    assert!(found > 0, "no flipped bit was refused");
}

#[test]
fn updates_use_no_more_slots_than_one_chunk_has() {
    let (region, _) = Counting::region(BYTES, false);
    let hart = Hart::create(region, &options()).unwrap();
    hart.put(KEY, &value(100, 0), MODE).unwrap();
    let mut before = 0;
    for round in 0..10_000u32 {
        hart.put(KEY, &value(100, round as u8), MODE).unwrap();
        if round == 500 {
            before = hart.stat().durable_bytes;
        }
        if round % 100 == 0 {
            let mut batch = Batch::new();
            batch.put(KEY, value(100, round as u8)).delete("nothing");
            hart.write(batch, MODE).unwrap();
        }
    }
    assert_eq!(hart.stat().durable_bytes, before);
    sound(&hart);
}

/// Makes a map without values behind keys, in which no leaf is of a class that version 5 has added, one of version 4.
fn as_version_4(region: &Region) {
    region.store(8, 4 | 12 << 32, Ordering::Relaxed);
    let line: Vec<u8> =
        (0..7).flat_map(|n| region.word(n * 8).load(Ordering::Relaxed).to_le_bytes()).collect();
    region.store(56, u64::from(crc32c(0, &line)), Ordering::Relaxed);
}

#[test]
fn a_map_of_version_4_opens_and_its_values_move_behind_their_keys_as_they_are_written() {
    let (region, _) = Counting::region(BYTES, false);
    let old = Options { slot_bytes_max: 0, ..options() };
    let hart = Hart::create(region.clone(), &old).unwrap();
    let key = |n: u32| format!("key-{n:04}");
    for n in 0..200 {
        hart.put(key(n).as_bytes(), &value(9 + n as usize, 1), MODE).unwrap();
    }
    drop(hart);
    as_version_4(&region);
    let read_only = Options { read_only: true, ..options() };
    let reader = Hart::recover(region.clone(), &read_only).unwrap().0;
    assert_eq!(reader.get(key(7).as_bytes()).unwrap(), Some(value(16, 1)));
    drop(reader);
    assert_eq!(region.word(8).load(Ordering::Relaxed) as u32, 4);
    let hart = Hart::recover(region.clone(), &options()).unwrap().0;
    assert_eq!(region.word(8).load(Ordering::Relaxed) as u32, 5);
    let holds = |hart: &Hart, changed: u32| {
        sound(hart);
        for n in 0..200 {
            let salt = if n < changed { 2 } else { 1 };
            assert_eq!(hart.get(key(n).as_bytes()).unwrap(), Some(value(9 + n as usize, salt)), "{n}");
        }
        let all = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
        assert_eq!(all.filter(|record| record.is_ok()).count(), 200);
    };
    holds(&hart, 0);
    for n in 0..100 {
        hart.put(key(n).as_bytes(), &value(9 + n as usize, 2), MODE).unwrap();
    }
    holds(&hart, 100);
    drop(hart);
    let hart = Hart::recover(region, &options()).unwrap().0;
    holds(&hart, 100);
    let mut batch = Batch::new();
    for n in 100..200 {
        batch.put(key(n), value(9 + n as usize, 2));
    }
    hart.write(batch, MODE).unwrap();
    holds(&hart, 200);
    hart.compact().unwrap();
    holds(&hart, 200);
    assert_eq!(hart.stat().value_segments, 0, "no value has a block any more");
}

#[test]
fn a_damaged_value_behind_a_key_is_never_returned() {
    let (region, _) = Counting::region(BYTES, false);
    let hart = Hart::create(region.clone(), &options()).unwrap();
    hart.put(KEY, &value(100, 1), MODE).unwrap();
    hart.put(b"sound", &value(100, 2), MODE).unwrap();
    let first = u64::from_le_bytes(value(8, 1).try_into().expect("8 bytes"));
    let at = (0..BYTES as u64).step_by(8).find(|at| region.word(*at).load(Ordering::Relaxed) == first);
    let at = at.expect("the value lies in the region");
    for byte in [0, 7, 50, 99] {
        let word = at + byte / 8 * 8;
        let right = region.word(word).load(Ordering::Relaxed);
        region.store(word, right ^ 1 << (byte % 8 * 8), Ordering::Relaxed);
        let is_corrupt = |e: &Error| matches!(e, Error::Corrupt { .. });
        assert!(is_corrupt(&hart.get(KEY).unwrap_err()), "byte {byte}");
        let mut scan = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
        assert!(is_corrupt(&scan.next().unwrap().unwrap_err()));
        let mut seen = 0;
        let mut visits = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
        assert!(
            is_corrupt(
                &visits
                    .for_each_ref(|_, _| {
                        seen += 1;
                        true
                    })
                    .unwrap_err()
            ) && seen == 0
        );
        drop((scan, visits));
        assert!(hart.get(b"sound").unwrap().is_some());
        assert_eq!(hart.check().unwrap().damage.len(), 1);
        assert!(is_corrupt(&Hart::recover(region.clone(), &options()).map(drop).unwrap_err()));
        let salvage = Options { salvage: true, read_only: true, ..options() };
        let (salvaged, report) = Hart::recover(region.clone(), &salvage).unwrap();
        assert_eq!((salvaged.len(), report.skipped.len()), (1, 1));
        region.store(word, right, Ordering::Relaxed);
    }
    sound(&hart);
}

#[test]
fn a_snapshot_keeps_values_that_were_replaced_moved_and_removed() {
    let (region, _) = Counting::region(BYTES, false);
    let hart = Hart::create(region, &options()).unwrap();
    let key = |n: u32| format!("key-{n:04}");
    let lens = [8, 9, 100, 300, 600];
    let old = |n: u32| value(lens[n as usize % 5], 1);
    for n in 0..200 {
        hart.put(key(n).as_bytes(), &old(n), MODE).unwrap();
    }
    let snapshot = hart.snapshot().unwrap();
    let mut half = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    let first: Vec<_> = half.by_ref().take(20).map(|record| record.unwrap()).collect();
    for n in (0..200).filter(|n| n % 7 != 0) {
        hart.put(key(n).as_bytes(), &value(lens[(n as usize / 5 + 2) % 5], 2), MODE).unwrap();
    }
    let mut batch = Batch::new();
    for n in (0..200).step_by(3) {
        batch.put(key(n), value(120, 3));
    }
    hart.write(batch, MODE).unwrap();
    hart.delete_range(Bound::Included(b"key-0100"), Bound::Unbounded, MODE).unwrap();
    hart.compact().unwrap();
    for n in 0..100 {
        hart.put(key(n).as_bytes(), &value(30, 4), MODE).unwrap();
    }
    let rest = first.into_iter().chain(half.map(|record| record.unwrap()));
    assert!(rest.eq((0..200).map(|n| (key(n).into_bytes(), old(n)))));
    for n in 0..200 {
        assert_eq!(snapshot.get(key(n).as_bytes()).unwrap(), Some(old(n)), "{n}");
    }
    drop(snapshot);
    sound(&hart);
}
