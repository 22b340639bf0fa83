//! What readers may see before it is durable, on a medium with a log, and what a failed medium leaves.

use crate::support::{Counting, faulty_pool, faulty_pool_with};
use mangrove_hart::{Batch, Error, Hart, Options, WriteMode};
use mangrove_pool::{Durability, Error as MediumError, Fault, FaultKind, FaultyOperation, PoolOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const EIO: i32 = 5;
const EROFS: i32 = 30;

#[test]
fn readers_wait_for_what_a_crash_could_undo() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options::default()).unwrap();
    hart.put(b"old", b"1", WriteMode::Durable).unwrap();
    medium.eager.store(false, Ordering::SeqCst);
    hart.put(b"new", b"2", WriteMode::Buffered).unwrap();
    hart.delete(b"old", WriteMode::Buffered).unwrap();
    thread::scope(|scope| {
        let new = scope.spawn(|| hart.get(b"new").unwrap());
        let old = scope.spawn(|| hart.get(b"old").unwrap());
        let lost = scope.spawn(|| hart.insert_new(b"new", b"3", WriteMode::Buffered).unwrap());
        let all = scope.spawn(|| hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().count());
        thread::sleep(Duration::from_millis(80));
        assert!(!new.is_finished() && !old.is_finished() && !lost.is_finished() && !all.is_finished());
        medium.settle();
        assert_eq!(new.join().unwrap(), Some(b"2".to_vec()));
        assert_eq!(old.join().unwrap(), None);
        assert!(!lost.join().unwrap());
        assert_eq!(all.join().unwrap(), 1);
    });
    // It is durable now: no reader waits.
    let before = medium.cost().waits;
    assert_eq!(hart.get(b"new").unwrap(), Some(b"2".to_vec()));
    assert_eq!(medium.cost().waits, before);
}

#[test]
fn ungated_readers_do_not_wait() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options { gate_reads: Some(false), ..Options::default() }).unwrap();
    medium.eager.store(false, Ordering::SeqCst);
    hart.put(b"new", b"2", WriteMode::Buffered).unwrap();
    assert_eq!(hart.get(b"new").unwrap(), Some(b"2".to_vec()));
    assert_eq!(hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().count(), 1);
}

#[test]
fn writers_share_one_wait_and_sync_waits_for_all() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options::default()).unwrap();
    let before = medium.cost().waits;
    for i in 0..100u32 {
        hart.put(&i.to_le_bytes(), b"v", WriteMode::Buffered).unwrap();
    }
    assert_eq!(medium.cost().waits, before);
    hart.sync().unwrap();
    assert_eq!(medium.cost().waits, before + 1);
    assert_eq!(hart.get(&7u32.to_le_bytes()).unwrap(), Some(b"v".to_vec()));
}

#[test]
fn a_failed_medium_ends_writing_and_not_reading() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options::default()).unwrap();
    for i in 0..50u32 {
        hart.put(&i.to_be_bytes(), b"good", WriteMode::Durable).unwrap();
    }
    medium.eager.store(false, Ordering::SeqCst);
    medium.broken.store(true, Ordering::SeqCst);
    let first = hart.put(b"never", b"acknowledged", WriteMode::Durable).unwrap_err();
    assert!(first.to_string().contains("the test broke the medium"), "{first}");
    // From now on the map tries no write.
    let cost = medium.cost_of(|| {
        assert!(matches!(hart.put(b"k", b"v", WriteMode::Buffered), Err(Error::Medium(_))));
        assert!(hart.delete(&1u32.to_be_bytes(), WriteMode::Durable).is_err());
        let mut batch = Batch::new();
        batch.put("a", "1").put("b", "2");
        assert!(hart.write(batch, WriteMode::Durable).is_err());
        assert!(hart.delete_range(Bound::Unbounded, Bound::Unbounded, WriteMode::Durable).is_err());
    });
    assert_eq!(cost.flushes, 0);
    // What was durable is read; what never became durable is an error, not a value.
    for i in 0..50u32 {
        assert_eq!(hart.get(&i.to_be_bytes()).unwrap(), Some(b"good".to_vec()));
    }
    assert!(matches!(hart.get(b"never"), Err(Error::Medium(_))));
    let good = hart.range(Bound::Unbounded, Bound::Excluded(&b"never"[..])).unwrap();
    assert_eq!(good.map(Result::unwrap).count(), 50);
    let mut all = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    assert!(all.next_back().unwrap().is_err());
    assert!(hart.sync().is_err());
}

#[test]
fn a_failed_write_takes_only_its_own_keys_from_readers() {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let fill = || {
        let (region, medium) = Counting::region(16 << 20, true);
        let hart = Hart::create(region, &Options::default()).unwrap();
        for i in 0..20_000u32 {
            hart.put(format!("a{i}").as_bytes(), b"good", WriteMode::Durable).unwrap();
        }
        medium.eager.store(false, Ordering::SeqCst);
        medium.broken.store(true, Ordering::SeqCst);
        hart
    };
    let acknowledged_are_read = |hart: &Hart, but: Option<&[u8]>| {
        for i in 0..20_000u32 {
            let key = format!("a{i}");
            let read = hart.get(key.as_bytes());
            if but == Some(key.as_bytes()) {
                assert!(matches!(read, Err(Error::Medium(_))), "{read:?}");
            } else {
                assert_eq!(read.unwrap().as_deref(), Some(&b"good"[..]), "{key}");
            }
        }
    };
    // A batch with keys in every bucket.
    let hart = fill();
    let mut batch = Batch::new();
    for i in 0..20_000u32 {
        batch.put(format!("b{i}"), "lost");
    }
    assert!(hart.write(batch, WriteMode::Durable).is_err());
    acknowledged_are_read(&hart, None);
    assert!(matches!(hart.get(b"b7"), Err(Error::Medium(_))));
    assert_eq!(hart.get(b"c").unwrap(), None);
    let a = hart.range(Bound::Unbounded, Bound::Excluded(&b"b"[..])).unwrap();
    assert_eq!(a.map(Result::unwrap).count(), 20_000);
    assert!(hart.range(all.0, all.1).unwrap().any(|record| matches!(record, Err(Error::Medium(_)))));
    let snapshot = hart.snapshot().unwrap();
    assert_eq!(snapshot.get(b"a7").unwrap().as_deref(), Some(&b"good"[..]));
    assert!(snapshot.get(b"b7").is_err());
    // A removed record may be there again after a restart: no read may say that it is gone.
    let hart = fill();
    assert!(hart.delete(b"a77", WriteMode::Durable).is_err());
    acknowledged_are_read(&hart, Some(b"a77"));
    assert!(hart.range(all.0, all.1).unwrap().any(|record| matches!(record, Err(Error::Medium(_)))));
    let before = hart.range(all.0, Bound::Excluded(&b"a77"[..])).unwrap();
    let after = hart.range(Bound::Excluded(&b"a77"[..]), all.1).unwrap();
    assert_eq!(before.chain(after).map(Result::unwrap).count(), 19_999);
    let hart = fill();
    assert!(hart.delete_range(Bound::Included(b"a5"), Bound::Excluded(b"a6"), WriteMode::Durable).is_err());
    assert!(hart.get(b"a55").is_err() && hart.get(b"a66").is_ok());
    // Of a write that no writer waited for only its bucket is known.
    let hart = fill();
    hart.put(b"b", b"lost", WriteMode::Buffered).unwrap();
    assert!(hart.get(b"b").is_err() && hart.sync().is_err());
    assert!((0..20_000u32).filter(|i| hart.get(format!("a{i}").as_bytes()).is_ok()).count() > 19_900);
    assert!(hart.range(all.0, all.1).unwrap().any(|record| record.is_err()));
}

#[test]
fn who_does_not_wait_is_told_of_a_failed_medium() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // EROFS is what a file system says that an I/O error of its own has made read-only.
    for code in [EIO, EROFS] {
        let (storage, pool) = faulty_pool(&folder.path().join(code.to_string()));
        let hart = Hart::create(pool.region().clone(), &Options::default()).unwrap();
        hart.put(b"durable", b"1", WriteMode::Durable).unwrap();
        let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(code) });
        hart.put(b"lost", b"1", WriteMode::Buffered).unwrap();
        // The checkpoint meets the error, not a call of the map.
        assert!(pool.checkpoint().is_err() && pool.stat().poisoned.is_some());
        let refused = |answer: Result<bool, Error>| {
            let is_told = matches!(answer, Err(Error::Medium(MediumError::Poisoned { .. })));
            assert!(is_told, "{code}: {answer:?}");
        };
        refused(hart.put(b"durable", b"2", WriteMode::Buffered).map(|()| true));
        refused(hart.delete(b"durable", WriteMode::Buffered));
        refused(hart.put(b"durable", b"2", WriteMode::Durable).map(|()| true));
        assert_eq!(hart.get(b"durable").unwrap().unwrap(), b"1");
        assert!(hart.get(b"lost").is_err());
    }
}

#[test]
fn who_is_answered_from_recent_writes_is_told_that_one_was_not_kept() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cases = [
        (WriteMode::Buffered, Durability::Sync, EIO),
        (WriteMode::Buffered, Durability::Sync, EROFS),
        // `ReadOnly` would tell that nothing has changed.
        (WriteMode::Durable, Durability::interval_ms(60_000), EROFS),
    ];
    for (number, (mode, durability, code)) in cases.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        // No thread writes the log meanwhile.
        let options = PoolOptions::new().keeps_recent(true).nowait_within(Duration::ZERO).background(false);
        let (storage, pool) = faulty_pool_with(&path, options.durability(durability));
        let hart = Hart::create(pool.region().clone(), &Options::default()).unwrap();
        hart.put(b"kept", b"1", mode).unwrap();
        let mut names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
        let recent =
            names.find_map(|name| name.into_string().ok().filter(|name| name.starts_with("recent-")));
        let operations = vec![FaultyOperation::Write];
        storage.plant(Fault { file: recent, operations, nth: 0, kind: FaultKind::Errno(code) });
        let answer = hart.put(b"lost", b"1", mode);
        assert!(storage.struck(), "{number}: the write was not copied");
        let is_told = matches!(answer, Err(Error::Medium(MediumError::Poisoned { .. })));
        assert!(is_told, "{number}: {answer:?}");
        if durability == Durability::Sync {
            assert!(hart.get(b"lost").is_err());
        }
    }
}

#[test]
fn what_the_medium_did_not_take_is_shown_to_nobody() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options::default()).unwrap();
    for i in 0..50u32 {
        hart.put(&i.to_be_bytes(), b"good", WriteMode::Durable).unwrap();
    }
    medium.deaf.store(true, Ordering::SeqCst);
    assert!(hart.put(&7u32.to_be_bytes(), b"lost", WriteMode::Durable).is_err());
    assert!(matches!(hart.get(&7u32.to_be_bytes()), Err(Error::Medium(_))));
    for i in (0..50u32).filter(|i| *i != 7) {
        assert_eq!(hart.get(&i.to_be_bytes()).unwrap(), Some(b"good".to_vec()));
    }
}

#[test]
fn what_the_medium_did_not_take_is_shown_to_nobody_before_its_writer_is_told() {
    type Attempt = fn(&Hart) -> Result<(), Error>;
    let attempts: [(&'static [&'static [u8]], Attempt); 4] = [
        (&[b"a"], |hart| hart.put(b"a", b"lost", WriteMode::Durable)),
        (&[b"a"], |hart| hart.delete(b"a", WriteMode::Durable).map(drop)),
        (&[b"a", b"b", b"c"], |hart| {
            let mut batch = Batch::new();
            batch.delete("a").put("b", "lost").put("c", "lost");
            hart.write(batch, WriteMode::Durable)
        }),
        (&[b"a", b"b"], |hart| {
            hart.delete_range(Bound::Unbounded, Bound::Unbounded, WriteMode::Durable).map(drop)
        }),
    ];
    for (keys, attempt) in attempts {
        let (region, medium) = Counting::region(16 << 20, true);
        let hart = Arc::new(Hart::create(region, &Options::default()).unwrap());
        hart.put(b"a", b"durable", WriteMode::Durable).unwrap();
        hart.put(b"b", b"durable", WriteMode::Durable).unwrap();
        medium.deaf.store(true, Ordering::SeqCst);
        let reader = Arc::clone(&hart);
        *medium.at_wait.lock().unwrap() = Some(Box::new(move || {
            for key in keys {
                let read = reader.get(key);
                assert!(matches!(read, Err(Error::Medium(_))), "{read:?}");
            }
        }));
        assert!(matches!(attempt(&hart), Err(Error::Medium(_))));
        assert!(medium.at_wait.lock().unwrap().is_none(), "nobody waited");
    }
}

#[test]
fn a_snapshot_shows_no_saved_value_that_was_never_durable() {
    let (region, medium) = Counting::region(16 << 20, true);
    let hart = Hart::create(region, &Options::default()).unwrap();
    hart.put(b"good", b"1", WriteMode::Durable).unwrap();
    medium.eager.store(false, Ordering::SeqCst);
    hart.put(b"lost", b"1", WriteMode::Buffered).unwrap();
    medium.broken.store(true, Ordering::SeqCst);
    let snapshot = hart.snapshot().unwrap();
    assert!(matches!(snapshot.get(b"lost"), Err(Error::Medium(_))));
    // A write that began before the medium failed.
    hart.put(b"lost", b"2", WriteMode::Buffered).unwrap();
    assert!(matches!(snapshot.get(b"lost"), Err(Error::Medium(_))));
    assert_eq!(snapshot.get(b"good").unwrap().unwrap(), b"1");
}

#[test]
fn a_snapshot_that_costs_too_much_expires() {
    let (region, _) = Counting::region(16 << 20, false);
    let hart = Hart::create(region, &Options { snapshot_bytes_max: 10_000, ..Options::default() }).unwrap();
    for i in 0..100u32 {
        hart.put(&i.to_be_bytes(), &[1; 100], WriteMode::Durable).unwrap();
    }
    let snapshot = hart.snapshot().unwrap();
    for i in 0..20u32 {
        hart.put(&i.to_be_bytes(), &[2; 100], WriteMode::Durable).unwrap();
    }
    assert_eq!(snapshot.get(&3u32.to_be_bytes()).unwrap(), Some(vec![1; 100]));
    let mut range = snapshot.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    assert_eq!(range.next().unwrap().unwrap().1, [1; 100]);
    for i in 20..100u32 {
        hart.put(&i.to_be_bytes(), &[2; 100], WriteMode::Durable).unwrap();
    }
    assert!(matches!(snapshot.get(&3u32.to_be_bytes()), Err(Error::SnapshotExpired)));
    assert!(range.any(|record| matches!(record, Err(Error::SnapshotExpired))));
    assert!(range.next().is_none());
    assert_eq!(hart.stat().snapshot_bytes, 0);
    // A new snapshot is not affected.
    assert_eq!(hart.snapshot().unwrap().get(&3u32.to_be_bytes()).unwrap(), Some(vec![2; 100]));
}

type Write = fn(&Hart) -> Result<bool, Error>;

/// Each changes a map with the record `there`.
const WRITES: [Write; 5] = [
    |hart| hart.put(b"new", b"2", WriteMode::Durable).map(|()| true),
    |hart| hart.insert_new(b"new", b"2", WriteMode::Durable),
    |hart| hart.delete(b"there", WriteMode::Durable),
    |hart| hart.compare_and_set(b"there", Some(b"1"), Some(b"2"), WriteMode::Durable),
    |hart| hart.delete_range(Bound::Unbounded, Bound::Unbounded, WriteMode::Durable).map(|count| count > 0),
];

#[test]
fn a_write_that_waits_for_a_medium_which_becomes_full_fails_and_is_not_tried_again() {
    for (number, write) in WRITES.iter().enumerate() {
        let (region, medium) = Counting::region(16 << 20, true);
        // As in interval durability.
        let options = Options { gate_reads: Some(false), ..Options::default() };
        let hart = Hart::create(region, &options).unwrap();
        hart.put(b"there", b"1", WriteMode::Durable).unwrap();
        medium.full.store(true, Ordering::SeqCst);
        // `NoSpace` would tell that nothing has changed.
        match write(&hart) {
            Err(Error::Medium(MediumError::Poisoned { first })) => {
                assert!(first.contains("no space"), "{first}");
            }
            other => panic!("write {number}: {other:?}"),
        }
    }
}

#[test]
fn a_read_only_map_reads() {
    let (region, medium) = Counting::region(16 << 20, false);
    let hart = Hart::create(region.clone(), &Options::default()).unwrap();
    for i in 0..100u32 {
        hart.put(&i.to_be_bytes(), &[1; 100], WriteMode::Durable).unwrap();
    }
    drop(hart);
    let cost = medium.cost_of(|| {
        let options = Options { read_only: true, ..Options::default() };
        let (hart, _) = Hart::recover(region.clone(), &options).unwrap();
        assert!(matches!(hart.put(b"k", b"v", WriteMode::Durable), Err(Error::ReadOnly)));
        assert!(matches!(hart.delete(b"k", WriteMode::Durable), Err(Error::ReadOnly)));
        assert_eq!(hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().count(), 100);
        assert!(hart.check().unwrap().is_sound());
    });
    assert_eq!((cost.flushes, cost.fences), (0, 0));
}
