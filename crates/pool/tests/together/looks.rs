//! A reader beside a writer: what it returns is one durable instant, whatever happens in the midst of its work.
//!
//! `crates/crashlab/tests/look_checks.rs` runs two of these scenarios with a check of the reader left out.

use crate::hooked::{Access, hooked};
use mangrove_pool::{ByteRange, Create, Error, Latency, Medium, Pool, PoolOptions};
use mangrove_sys::file::{try_lock_bytes, unlock_bytes};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const LOG_BYTES: u64 = 2 << 20;
/// The bytes by which readers and checkpoints know of each other (`src/look/gate.rs`).
const WISH_AND_LOOK: std::ops::Range<u64> = 1 << 62..(1 << 62) + 2;
/// Places that always hold the same value: on pages far apart.
const PLACES: [u64; 4] = [0, 40 << 12, 41 << 12, 300 << 12];
/// Where flushes go that only fill the log.
const FILLING: u64 = 100 << 12;
/// A place behind all others that never changes, in what one thread reads in one go.
const LAST: u64 = 500 << 12;

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(8 << 20)
        .log_bytes(LOG_BYTES)
        .background(false)
}

fn reader() -> PoolOptions {
    PoolOptions::new().read_only(true)
}

/// The data file is read by one thread, after the log.
fn writer(path: &Path) -> Pool {
    writer_of(path, 2 << 20)
}

fn writer_of(path: &Path, bytes: u64) -> Pool {
    let pool = options().open(path).unwrap();
    pool.region().grow(bytes).unwrap();
    pool.region().store(LAST, 1, Ordering::Relaxed);
    pool.region().flush(LAST, 8);
    set(&pool, 1);
    pool.set_made().unwrap();
    // From now on a reader reads the data file, too.
    pool.checkpoint().unwrap();
    pool
}

/// Gives all places a value, in one atomic group; durable on return.
fn set(pool: &Pool, value: u64) {
    let region = pool.region();
    PLACES.iter().for_each(|&place| region.store(place, value, Ordering::Relaxed));
    region.flush_unit(&PLACES.map(|offset| ByteRange { offset, len: 8 })).unwrap();
    region.drain().unwrap();
}

/// Fills so much of the log.
fn fill(pool: &Pool, bytes: usize) {
    for _ in 0..bytes / (64 << 10) {
        pool.region().flush(FILLING, 64 << 10);
        pool.region().drain().unwrap();
    }
}

/// The value that all places hold.
fn value(pool: &Pool) -> u64 {
    let values = PLACES.map(|place| pool.region().word(place).load(Ordering::Relaxed));
    assert!(values.iter().all(|&value| value == values[0]), "no instant: {values:?}");
    values[0]
}

/// Opens the pool for reading on a storage that calls `hook` in the midst of it.
fn look(path: &Path, hook: impl Fn(&str, u64) + Send + Sync + 'static) -> Result<u64, Error> {
    let hook = move |access, name: &str, offset| {
        if access == Access::Read {
            hook(name, offset);
        }
    };
    reader().storage(hooked(hook)).open(path).map(|pool| value(&pool))
}

/// The reader has read the data file and the first part of the log when the writer applies all of it, goes on, and
/// overwrites the rest: the part alone is a state from before the look, and all in it is whole.
pub(crate) fn the_log_is_used_again_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    // So long that the data file is read by one thread while another reads the log.
    let pool = Arc::new(writer_of(&path, 5 << 20));
    set(&pool, 2);
    fill(&pool, 768 << 10);
    set(&pool, 3);
    let (writer, steps, has_read) = (Arc::clone(&pool), AtomicU32::new(0), AtomicBool::new(false));
    let seen = look(&path, move |name, offset| {
        if name == "image" && offset == LAST {
            has_read.store(true, Ordering::Release);
        }
        // The second step.
        if name == "log" && steps.fetch_add(1, Ordering::Relaxed) == 1 {
            while !has_read.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for value in 4..8 {
                writer.checkpoint().unwrap();
                fill(&writer, 896 << 10);
                set(&writer, value);
            }
        }
    });
    assert!((3..8).contains(&seen.unwrap()), "3 was acknowledged before");
}

/// Where the reader has found the end of the log, the writer writes on, again and again.
pub(crate) fn the_log_continues_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = Arc::new(writer(&path));
    set(&pool, 2);
    let (writer, next) = (Arc::clone(&pool), AtomicU64::new(3));
    let seen = look(&path, move |name, offset| {
        // The data file is read when the log has been.
        if name == "image" && offset == 0 {
            for _ in 0..3 {
                set(&writer, next.fetch_add(1, Ordering::Relaxed));
            }
        }
    });
    assert_eq!(seen.unwrap(), 2);
}

#[test]
fn a_look_is_no_state_from_before_it_when_the_log_is_used_again() {
    the_log_is_used_again_meanwhile();
}

#[test]
fn a_log_that_continues_is_not_taken_for_damaged() {
    the_log_continues_meanwhile();
}

/// A checkpoint at any read of any file.
#[test]
fn a_checkpoint_in_the_midst_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = Arc::new(writer(&path));
    let (mut next, mut reads) = (2, 1);
    let mut at = 0;
    while at < reads {
        set(&pool, next);
        let (writer, seen, now) = (Arc::clone(&pool), Arc::new(AtomicU32::new(0)), next);
        let count = Arc::clone(&seen);
        let found = look(&path, move |_, _| {
            if count.fetch_add(1, Ordering::Relaxed) == at {
                set(&writer, now + 1);
                writer.checkpoint().unwrap();
                set(&writer, now + 2);
            }
        });
        assert!((next..=next + 2).contains(&found.unwrap()), "at read {at}");
        reads = reads.max(seen.load(Ordering::Relaxed).min(24));
        (next, at) = (next + 3, at + 1);
    }
    assert!(reads > 5, "{reads}");
}

/// More often than damage would be looked at again, if that is what it were taken for.
#[test]
fn a_look_that_is_overtaken_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = Arc::new(writer(&path));
    let (writer, times) = (Arc::clone(&pool), AtomicU64::new(0));
    let seen = look(&path, move |name, offset| {
        if name == "image" && offset == 0 {
            let time = times.fetch_add(1, Ordering::Relaxed);
            if time < 9 {
                set(&writer, 10 + time);
                writer.checkpoint().unwrap();
            }
        }
    });
    assert_eq!(seen.unwrap(), 18);
}

/// A reader that was stopped holds its locks. Every checkpoint and the close go on, and so do other readers.
#[test]
fn a_reader_that_stands_still_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = writer(&path);
    let stopped = std::fs::File::open(path.join("image")).unwrap();
    assert!(try_lock_bytes(&stopped, WISH_AND_LOOK, false).unwrap());
    for value in 2..12 {
        set(&pool, value);
        pool.checkpoint().unwrap();
        assert_eq!(look(&path, |_, _| ()).unwrap(), value);
    }
    pool.close().unwrap();
    assert!(Pool::inspect(&path).unwrap().clean);
    unlock_bytes(&stopped, WISH_AND_LOOK).unwrap();
    assert_eq!(look(&path, |_, _| ()).unwrap(), 11);
}

/// While a checkpoint runs, readers wait for its end.
#[test]
fn a_reader_waits_for_the_end_of_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = writer(&path);
    let runs = std::fs::OpenOptions::new().read(true).write(true).open(path.join("image")).unwrap();
    let look_and_running = WISH_AND_LOOK.start + 1..WISH_AND_LOOK.end + 1;
    assert!(try_lock_bytes(&runs, look_and_running.clone(), true).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let seen = look(&path, |_, _| ()).unwrap();
            assert!(done.load(Ordering::Acquire), "it did not wait");
            seen
        });
        // Its wish keeps the next checkpoint out, when it has come.
        while try_lock_bytes(&runs, WISH_AND_LOOK.start..WISH_AND_LOOK.start + 1, true).unwrap() {
            unlock_bytes(&runs, WISH_AND_LOOK.start..WISH_AND_LOOK.start + 1).unwrap();
            std::thread::yield_now();
        }
        set(&pool, 2);
        done.store(true, Ordering::Release);
        unlock_bytes(&runs, look_and_running).unwrap();
        assert_eq!(reader.join().unwrap(), 2);
    });
}

/// A writer that was stopped inside a checkpoint holds its locks. The reader waits its 10 seconds.
#[test]
fn a_writer_that_stands_still_in_a_checkpoint_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = writer(&path);
    let stopped = std::fs::OpenOptions::new().read(true).write(true).open(path.join("image")).unwrap();
    let look_and_running = WISH_AND_LOOK.start + 1..WISH_AND_LOOK.end + 1;
    assert!(try_lock_bytes(&stopped, look_and_running.clone(), true).unwrap());
    let text = look(&path, |_, _| ()).unwrap_err().to_string();
    assert!(text.contains("this process itself, which stands still inside a checkpoint"), "{text}");
    unlock_bytes(&stopped, look_and_running).unwrap();
    set(&pool, 2);
    assert_eq!(look(&path, |_, _| ()).unwrap(), 2);
}

#[test]
fn readers_keep_no_writer_out_and_it_does_not_disturb_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    set(&writer(&path), 7);
    let readers = [(); 3].map(|()| reader().open(&path).unwrap());
    let pool = options().open(&path).unwrap();
    set(&pool, 8);
    pool.close().unwrap();
    assert!(readers.iter().all(|reader| value(reader) == 7));
    assert_eq!(look(&path, |_, _| ()).unwrap(), 8);
}

/// A writer comes while a reader reads a pool that no process had.
#[test]
fn a_writer_that_comes_meanwhile_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    set(&writer(&path), 7);
    let (writer_path, came) = (path.clone(), std::sync::Mutex::new(None));
    let seen = look(&path, move |name, _| {
        let mut came = came.lock().unwrap();
        if name == "image" && came.is_none() {
            let pool = options().open(&writer_path).unwrap();
            set(&pool, 8);
            *came = Some(pool);
        }
    });
    assert_eq!(seen.unwrap(), 8);
}

#[test]
fn what_cannot_be_read_beside_its_writer_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let busy = |path: &Path, why: &str| {
        let error = reader().open(path).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(why) && text.contains("this process itself"), "{text}");
    };
    let unmade = dir.path().join("unmade");
    let _pool = options().open(&unmade).unwrap();
    busy(&unmade, "still making");
    let mapped = dir.path().join("mapped");
    let _pool = options().medium(Medium::Emulated(Latency::default())).open(&mapped).unwrap();
    busy(&mapped, "in place");
    assert!(matches!(reader().kind("map").open(&unmade), Err(Error::WrongKind { .. })));
}

/// Atomic groups longer than half the log lie in files of their own, which checkpoints remove.
#[test]
fn looks_beside_a_writer_with_spill_files_are_instants() {
    const LEN: u64 = 768 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().background(true).open(&path).unwrap();
    pool.region().grow(4 << 20).unwrap();
    pool.set_made().unwrap();
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                for offset in (0..LEN).step_by(8) {
                    pool.region().store(offset, value, Ordering::Relaxed);
                }
                pool.region().flush_unit(&[ByteRange { offset: 0, len: LEN }]).unwrap();
                pool.region().drain().unwrap();
                acknowledged.store(value, Ordering::Release);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut last = 0;
        while last < 40 {
            let least = acknowledged.load(Ordering::Acquire);
            let pool = reader().open(&path).unwrap();
            let word = |offset| pool.region().word(offset).load(Ordering::Relaxed);
            let value = word(0);
            assert!(value >= least.max(last), "{value} after {least} and {last}");
            assert!((0..LEN).step_by(8).all(|offset| word(offset) == value), "no instant: {value}");
            last = value;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(pool.stat().checkpoints > 20);
}
