//! A count of records returns when no crash can undo what it counted, as a read does.

use crate::support::{Counting, faulty_pool};
use mangrove_hart::{Error, Hart, Options, WriteMode};
use mangrove_pool::{Fault, FaultKind, FaultyOperation};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Count = fn(&Hart) -> Result<u64, Error>;

const COUNTS: [(&str, Count); 3] = [
    ("count", Hart::count),
    ("check", |hart| Ok(hart.check()?.records)),
    ("snapshot", |hart| hart.snapshot()?.len()),
];

#[test]
fn a_count_waits_for_what_it_counts() {
    for (name, count) in COUNTS {
        let (region, medium) = Counting::region(16 << 20, true);
        let hart = Hart::create(region, &Options::default()).unwrap();
        hart.put(b"a", b"1", WriteMode::Durable).unwrap();
        medium.eager.store(false, Ordering::SeqCst);
        hart.put(b"b", b"1", WriteMode::Buffered).unwrap();
        hart.put(b"c", b"1", WriteMode::Buffered).unwrap();
        hart.delete(b"a", WriteMode::Buffered).unwrap();
        // The medium's write of the log ends only after a thread has begun to wait for it.
        let log = Arc::clone(&medium);
        *medium.at_wait.lock().unwrap() = Some(Box::new(move || log.settle()));
        assert_eq!(count(&hart).unwrap(), 2, "{name}");
        assert!(medium.at_wait.lock().unwrap().is_none(), "{name} returned before the write was durable");
        assert_eq!(medium.cost_of(|| assert_eq!(hart.count().unwrap(), 2)).waits, 0, "all is durable");
    }
}

#[test]
fn a_medium_without_a_log_needs_no_wait() {
    let (region, medium) = Counting::region(16 << 20, false);
    let hart = Hart::create(region, &Options::default()).unwrap();
    hart.put(b"a", b"1", WriteMode::Buffered).unwrap();
    assert_eq!(medium.cost_of(|| assert_eq!(hart.count().unwrap(), 1)).waits, 0);
}

#[test]
fn after_an_error_a_count_tells_of_durable_records_only() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (file, is_lost) in [("log", true), ("image", false)] {
        let (storage, pool) = faulty_pool(&folder.path().join(file));
        let hart = Hart::create(pool.region().clone(), &Options::default()).unwrap();
        hart.put(b"durable", b"1", WriteMode::Durable).unwrap();
        let operations = vec![FaultyOperation::Write];
        storage.plant(Fault { file: Some(file.into()), operations, nth: 0, kind: FaultKind::Errno(5) });
        if is_lost {
            hart.put(b"lost", b"1", WriteMode::Buffered).unwrap();
        } else {
            pool.checkpoint().unwrap_err();
        }
        for (name, count) in COUNTS {
            match count(&hart) {
                Err(Error::Medium(_)) if is_lost => {}
                Ok(1) if !is_lost => {}
                other => panic!("{file}, {name}: {other:?}"),
            }
        }
        assert!(pool.stat().poisoned.is_some());
    }
}
