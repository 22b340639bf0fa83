//! Many threads on one map, with values that show whether they are whole.

use crate::support::Random;
use mangrove_hart::{Batch, Hart, Locking, Options, WriteMode};
use mangrove_pool::Emulated;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const MODE: WriteMode = WriteMode::Durable;

/// A value of any length that contains its key, its version, and a checksum of all of it.
fn value(key: &[u8], version: u64, len: usize) -> Vec<u8> {
    if len <= 8 {
        return (version << 8 | u64::from(key.last().copied().unwrap_or(0))).to_le_bytes().to_vec();
    }
    let mut out = version.to_le_bytes().to_vec();
    out.push(key.len() as u8);
    out.extend_from_slice(key);
    while out.len() < len {
        out.push((version as u8).wrapping_mul(17).wrapping_add(out.len() as u8));
    }
    let sum = out.iter().fold(1u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(*b)));
    out.extend(sum.to_le_bytes());
    out
}

fn verify(key: &[u8], value: &[u8]) {
    if value.len() == 8 {
        assert_eq!(value[0], key.last().copied().unwrap_or(0), "torn or foreign word");
        return;
    }
    let (body, sum) = value.split_at(value.len() - 8);
    let wanted = body.iter().fold(1u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(*b)));
    assert_eq!(sum, wanted.to_le_bytes(), "torn value of {key:?}");
    assert_eq!(&body[9..9 + key.len()], key, "another key's value");
}

/// So often on each of four threads, however long that takes: as much is tried on a slow machine as on a fast one.
fn by_four_threads(times: u32, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..times).for_each(|_| work()));
        }
    });
}

fn storm(options: &Options, key_of: impl Fn(u64) -> Vec<u8> + Sync, keys: u64) {
    let region = Emulated::region(256 << 20).unwrap();
    let hart = Hart::create(region.clone(), options).unwrap();
    let seeds = AtomicU64::new(1);
    by_four_threads(60, || {
        let mut random = Random(seeds.fetch_add(1, Ordering::Relaxed));
        for _ in 0..200 {
            let key = key_of(random.below(keys));
            let len = [8, 8, 40, 300, 5000][random.below(5) as usize];
            match random.below(12) {
                0..=3 => hart.put(&key, &value(&key, random.next() >> 8, len), MODE).unwrap(),
                4 => drop(hart.delete(&key, MODE).unwrap()),
                5 => drop(hart.insert_new(&key, &value(&key, 1, len), MODE).unwrap()),
                6 => {
                    let mut batch = Batch::new();
                    for _ in 0..5 {
                        let key = key_of(random.below(keys));
                        batch.put(key.clone(), value(&key, random.next() >> 8, len));
                    }
                    hart.write(batch, MODE).unwrap();
                }
                7 => {
                    let from = key_of(random.below(keys));
                    let mut last: Option<Vec<u8>> = None;
                    for record in hart.range(Bound::Included(&from), Bound::Unbounded).unwrap().take(50) {
                        let (key, found) = record.unwrap();
                        verify(&key, &found);
                        assert!(last.as_ref().is_none_or(|l| *l < key), "out of order");
                        last = Some(key);
                    }
                }
                _ => {
                    if let Some(found) = hart.get(&key).unwrap() {
                        verify(&key, &found);
                    }
                }
            }
        }
    });
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
    let len = hart.len();
    drop(hart);
    let (hart, report) = Hart::recover(region, options).unwrap();
    assert_eq!(report.records, len);
    assert!(hart.check().unwrap().is_sound());
}

#[test]
fn one_prefix() {
    storm(&Options::default(), |i| format!("same prefix {i:03}").into_bytes(), 60);
}

#[test]
fn a_handful_of_keys() {
    storm(&Options::default(), |i| vec![b'k'; i as usize], 4);
}

#[test]
fn many_trees_and_tiny_segments() {
    let options = Options { segment_shift: 13, grow_bytes: 8192, ..Options::default() };
    storm(&options, |i| (i * 7919).to_be_bytes()[6..].to_vec(), 3000);
}

#[test]
fn the_paper_locking() {
    storm(&Options { locking: Locking::PerTree, ..Options::default() }, |i| i.to_le_bytes().to_vec(), 300);
}

#[test]
fn a_counter_loses_no_increment() {
    let hart = Hart::create(Emulated::region(16 << 20).unwrap(), &Options::default()).unwrap();
    hart.put(b"n", &0u64.to_le_bytes(), MODE).unwrap();
    let done = AtomicU64::new(0);
    by_four_threads(100_000, || {
        loop {
            let now = hart.get(b"n").unwrap().unwrap();
            let next = u64::from_le_bytes(now.as_slice().try_into().unwrap()) + 1;
            if hart.compare_and_set(b"n", Some(&now), Some(&next.to_le_bytes()), MODE).unwrap() {
                done.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    });
    let total = u64::from_le_bytes(hart.get(b"n").unwrap().unwrap().try_into().unwrap());
    assert_eq!(total, done.load(Ordering::Relaxed));
}

/// Batches move money between accounts: every snapshot sees the same total, and a reader that saw one half of a
/// batch sees the other half afterwards.
#[test]
fn batches_are_whole_for_snapshots_and_readers() {
    const ACCOUNTS: u64 = 40;
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    let key = |i: u64| format!("account {i:02}").into_bytes();
    let mut batch = Batch::new();
    (0..ACCOUNTS).for_each(|i| {
        batch.put(key(i), 0u64.to_le_bytes());
    });
    hart.write(batch, MODE).unwrap();
    let stop = AtomicBool::new(false);
    let version = |k: &[u8]| u64::from_le_bytes(hart.get(k).unwrap().unwrap().try_into().unwrap());
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // All accounts get the same number, again and again.
            for n in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = Batch::new();
                (0..ACCOUNTS).for_each(|i| {
                    batch.put(key(i), n.to_le_bytes());
                });
                hart.write(batch, MODE).unwrap();
                written.store(n, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut random = Random(9);
            let mut read = 0;
            while read < 5000 || written.load(Ordering::Relaxed) < 1000 {
                let one = version(&key(random.below(ACCOUNTS)));
                let other = version(&key(random.below(ACCOUNTS)));
                assert!(other >= one, "after {one} a reader saw {other}");
                let all: Vec<_> =
                    hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().map(|r| r.unwrap().1).collect();
                assert_eq!(all.len() as u64, ACCOUNTS);
                assert!(all.iter().all(|v| *v == all[0]), "a snapshot saw a batch in part");
                read += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_check_beside_batches_finds_nothing() {
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut batch = Batch::new();
                for i in 0..500u32 {
                    batch.put(i.to_be_bytes(), [written.load(Ordering::Relaxed) as u8; 100]);
                }
                hart.write(batch, MODE).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut sound = true;
        while sound && written.load(Ordering::Relaxed) < 500 {
            sound = hart.check().unwrap().is_sound();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(sound, "slots were leaked for a while");
    });
}

#[test]
fn snapshots_stand_still_while_writers_run() {
    let hart = Hart::create(Emulated::region(256 << 20).unwrap(), &Options::default()).unwrap();
    let key = |i: u64| format!("{i:04}").into_bytes();
    for i in 0..500 {
        hart.put(&key(i), &value(&key(i), 0, 40), MODE).unwrap();
    }
    let stop = AtomicBool::new(false);
    let changes = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (hart, stop, changes) = (&hart, &stop, &changes);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    let k = key(random.below(1000));
                    match random.below(3) {
                        0 => drop(hart.delete(&k, MODE).unwrap()),
                        _ => hart.put(&k, &value(&k, random.next() >> 8, 60), MODE).unwrap(),
                    }
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut older = None;
            let mut rounds = 0;
            while rounds < 100 || changes.load(Ordering::Relaxed) < 10_000 {
                let snapshot = hart.snapshot().unwrap();
                let all = |s: &mangrove_hart::Snapshot<'_>| -> Vec<_> {
                    s.range(Bound::Unbounded, Bound::Unbounded).unwrap().map(Result::unwrap).collect()
                };
                let first = all(&snapshot);
                first.iter().for_each(|(k, v)| verify(k, v));
                assert_eq!(all(&snapshot), first);
                for (k, v) in first.iter().step_by(17) {
                    assert_eq!(snapshot.get(k).unwrap().as_ref(), Some(v));
                }
                // Snapshots end in any order.
                if let Some((before, seen)) = older.replace((snapshot, first)) {
                    assert_eq!(all(&before), seen);
                }
                rounds += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(hart.stat().snapshots, 0);
    assert_eq!(hart.stat().snapshot_bytes, 0);
    assert!(hart.check().unwrap().is_sound());
}

/// Snapshots that no write separates share an instant. A write that has returned must be in each later one, also of
/// another thread, and two snapshots that were taken one after the other are in that order.
#[test]
fn each_snapshot_shows_every_write_that_had_returned() {
    const WRITERS: usize = 2;
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    let returned: [AtomicU64; WRITERS] = Default::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (writer, returned) in returned.iter().enumerate() {
            let (hart, stop) = (&hart, &stop);
            scope.spawn(move || {
                let mut random = Random(writer as u64);
                for version in 1.. {
                    hart.put(&[writer as u8], &value(&[writer as u8], version, 30), MODE).unwrap();
                    returned.store(version, Ordering::Relaxed);
                    // Long enough, sometimes, that snapshots share an instant.
                    (0..random.below(2000)).for_each(|_| std::hint::spin_loop());
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let readers = [0, 1].map(|reader| {
            let (hart, returned) = (&hart, &returned);
            scope.spawn(move || {
                let mut random = Random(100 + reader);
                let mut last = [0; WRITERS];
                let mut held = Vec::new();
                for _ in 0..20_000 {
                    let had = returned.each_ref().map(|version| version.load(Ordering::Relaxed));
                    let snapshot = hart.snapshot().unwrap();
                    let mut seen = [0; WRITERS];
                    let mut walk = snapshot.range(Bound::Unbounded, Bound::Unbounded).unwrap();
                    let walked = walk.for_each_ref(|key, value| {
                        verify(key, value);
                        seen[usize::from(key[0])] = u64::from_le_bytes(*value.first_chunk().unwrap());
                        true
                    });
                    walked.unwrap();
                    for writer in 0..WRITERS {
                        assert!(seen[writer] >= had[writer], "a write that had returned is missing");
                        assert!(seen[writer] >= last[writer], "a later snapshot shows an earlier instant");
                    }
                    last = seen;
                    held.push((snapshot, seen));
                    if held.len() > 3 {
                        let (snapshot, seen) = held.swap_remove(random.below(4) as usize);
                        for (writer, version) in seen.iter().enumerate().filter(|(_, version)| **version > 0)
                        {
                            let value = snapshot.get(&[writer as u8]).unwrap().unwrap();
                            assert_eq!(value[..8], version.to_le_bytes(), "a snapshot does not stand still");
                        }
                    }
                }
            })
        });
        let joined = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        joined.into_iter().for_each(|ended| ended.expect("no panic"));
    });
    assert_eq!((hart.stat().snapshots, hart.stat().snapshot_bytes), (0, 0));
}
