//! Readers and writers beside a running compaction.

use crate::support::Counting;
use mangrove_hart::{Error, Hart, Options, WriteMode};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MODE: WriteMode = WriteMode::Durable;

fn options() -> Options {
    Options { segment_shift: 14, grow_bytes: 1 << 14, recovery_threads: 1, ..Options::default() }
}

fn key(number: u64) -> [u8; 8] {
    // No order: the records of a range of numbers lie in all segments.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Puts records from `first` on until the map is full; how many.
fn fill(hart: &Hart, first: u64) -> u64 {
    for number in first.. {
        match hart.put(&key(number), &number.to_le_bytes(), MODE) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return number - first,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!()
}

fn sound(hart: &Hart, records: u64) {
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
    assert_eq!((report.records, hart.len()), (records, records));
}

/// Runs `work` after each batch of moves of one compaction.
fn compact_beside(
    hart: &Arc<Hart>,
    medium: &Counting,
    mut work: impl FnMut(&Hart) + Send + 'static,
) -> mangrove_hart::Result<mangrove_hart::Compaction> {
    let map = Arc::clone(hart);
    *medium.at_unawaited.lock().unwrap() = Some(Box::new(move || work(&map)));
    let result = hart.compact();
    *medium.at_unawaited.lock().unwrap() = None;
    result
}

#[test]
fn a_map_that_has_room_takes_records_while_it_is_compacted() {
    for batched in [false, true] {
        let (region, medium) = Counting::region(6 << 20, false);
        let hart = Arc::new(Hart::create(region, &options()).unwrap());
        let full = fill(&hart, 0);
        assert!(full > 20_000, "{full} records");
        let deleted = (0..full).filter(|number| number % 5 < 3);
        let mut removals = mangrove_hart::Batch::new();
        deleted.for_each(|number| {
            removals.delete(key(number));
        });
        hart.write(removals, MODE).unwrap();
        let kept = hart.len();
        // Half of what was deleted: more than the segments that stay have room for.
        let more = (full - kept) / 2;
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        let put_all = move |hart: &Hart| {
            if count.fetch_add(1, Ordering::Relaxed) != 1 {
                return;
            }
            let numbers: Vec<u64> = (full..full + more).collect();
            for part in numbers.chunks(if batched { 100 } else { 1 }) {
                let mut batch = mangrove_hart::Batch::new();
                part.iter().for_each(|number| {
                    batch.put(key(*number), number.to_le_bytes());
                });
                hart.write(batch, MODE)
                    .unwrap_or_else(|e| panic!("record {} of {more}: {e}", part[0] - full));
            }
        };
        compact_beside(&hart, &medium, put_all).unwrap();
        assert!(done.load(Ordering::Relaxed) > 1, "the records were put");
        sound(&hart, kept + more);
        hart.compact().unwrap();
        sound(&hart, kept + more);
    }
}

#[test]
fn what_was_acknowledged_is_read_after_an_io_error_of_a_compaction() {
    let (region, medium) = Counting::region(6 << 20, true);
    let hart = Arc::new(Hart::create(region, &options()).unwrap());
    let full = fill(&hart, 0);
    let (kept, gone): (Vec<u64>, Vec<u64>) = (0..full).partition(|number| number % 4 == 0);
    for number in gone {
        hart.delete(&key(number), MODE).unwrap();
    }
    let batches = Arc::new(AtomicU64::new(0));
    let (count, own) = (Arc::clone(&batches), Arc::clone(&medium));
    let waits_before = medium.cost().waits;
    let break_it = move |hart: &Hart| {
        // While the medium works, reads do not wait for the moves.
        let batch = count.fetch_add(1, Ordering::Relaxed);
        if batch < 10 {
            for number in (0..full).step_by(400) {
                assert_eq!(hart.get(&key(number)).unwrap().as_deref(), Some(&number.to_le_bytes()[..]));
            }
            assert_eq!(own.cost().waits, waits_before, "a reader waited for a move");
        } else {
            own.broken.store(true, Ordering::SeqCst);
        }
    };
    assert!(compact_beside(&hart, &medium, break_it).is_err(), "the medium is broken");
    assert!(batches.load(Ordering::Relaxed) > 10, "it broke while records moved");
    for number in &kept {
        let found = hart.get(&key(*number)).unwrap_or_else(|e| panic!("record {number}: {e}"));
        assert_eq!(found.as_deref(), Some(&number.to_le_bytes()[..]));
    }
    let walked = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().count();
    assert_eq!((hart.count().unwrap(), walked as u64), (kept.len() as u64, kept.len() as u64));
}

#[test]
fn a_compaction_that_a_writer_cut_off_is_taken_up_again() {
    let (region, medium) = Counting::region(6 << 20, false);
    let hart = Arc::new(Hart::create(region, &options()).unwrap());
    let full = fill(&hart, 0);
    for number in (0..full).filter(|number| number % 5 < 3) {
        hart.delete(&key(number), MODE).unwrap();
    }
    // Needs a whole segment, and none is empty while the first records move.
    let large = [1; 480];
    let (map, calls) = (Arc::clone(&hart), AtomicU64::new(0));
    *medium.at_unawaited.lock().unwrap() = Some(Box::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            assert!(matches!(map.put(b"too early", &large, MODE), Err(Error::Full { .. })));
        }
    }));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| hart.compact_by_itself(64 << 10, &ended));
        let begin = Instant::now();
        while medium.at_unawaited.lock().unwrap().is_none() || hart.put(b"large", &large, MODE).is_err() {
            assert!(begin.elapsed().as_secs() < 120, "no segment became free");
            std::thread::sleep(Duration::from_millis(1000));
        }
        ended.store(true, Ordering::Release);
        hart.wake_compaction();
    });
    *medium.at_unawaited.lock().unwrap() = None;
    assert_eq!(hart.get(b"large").unwrap().as_deref(), Some(&large[..]));
    assert!(hart.check().unwrap().is_sound());
}
