//! Pools on file that were not closed, and whose log is not the one that was written: blank, another pool's, or a
//! copy older than the group that the superblock records. Each is refused by name. What a crash can leave opens.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool, PoolOptions, crc32c,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const LOG_BYTES: u64 = 64 << 10;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(1 << 20)
        .log_bytes(LOG_BYTES)
        .background(false)
        .kind("test")
}

/// A pool with so many groups in its log, each a byte at its own place.
fn open_and_write(path: &Path, groups: std::ops::Range<u64>) -> Pool {
    let pool = options().open(path).unwrap();
    pool.region().grow(1 << 20).unwrap();
    write(&pool, groups);
    pool
}

fn write(pool: &Pool, groups: std::ops::Range<u64>) {
    for n in groups {
        pool.region().write(n * 100, &[n as u8 + 1]);
        pool.region().flush(n * 100, 1);
        pool.region().drain().unwrap();
    }
}

/// How many of the first `count` groups the pool holds.
fn held(path: &Path, count: u64) -> u64 {
    let pool = options().create(Create::Never).open(path).unwrap();
    // SAFETY: inside the region, and no thread writes meanwhile.
    let byte = |n: u64| unsafe { *pool.region().base().add(n as usize * 100) };
    (0..count).filter(|&n| byte(n) == n as u8 + 1).count() as u64
}

/// Readers, writers and the check name the log; nothing changes in it.
fn refused(path: &Path, log: &[u8], what: &str) {
    fs::write(path.join("log"), log).unwrap();
    for read_only in [true, false] {
        let opened = options().create(Create::Never).read_only(read_only).open(path);
        let error = opened.err().unwrap_or_else(|| panic!("{what}: it opens"));
        assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("log")), "{what}: {error}");
        assert!(error.to_string().contains("restore the files of a pool together"), "{what}: {error}");
    }
    let damage = Pool::check(path).unwrap().damage;
    assert!(damage.len() == 1 && damage[0].path.ends_with("log"), "{what}: {damage:?}");
    assert!(fs::read(path.join("log")).unwrap() == log, "{what}: the refusal changed the log");
}

#[test]
fn a_log_without_the_recorded_group_is_refused() {
    let dir = folder();
    let [path, other] = ["p", "other"].map(|name| dir.path().join(name));
    drop(open_and_write(&other, 0..5));
    let others = fs::read(other.join("log")).unwrap();
    let blank = vec![0; LOG_BYTES as usize];
    drop(open_and_write(&path, 0..5));
    let first = fs::read(path.join("log")).unwrap();
    refused(&path, &blank, "blank, before a checkpoint");
    refused(&path, &others, "another pool's, before a checkpoint");
    fs::write(path.join("log"), &first).unwrap();
    drop(open_and_write(&path, 5..10));
    let second = fs::read(path.join("log")).unwrap();
    refused(&path, &first, "an older copy, from before the last opening");
    fs::write(path.join("log"), &second).unwrap();
    for checkpoints in 1..4 {
        let pool = open_and_write(&path, 10..20);
        pool.checkpoint().unwrap();
        if checkpoints > 1 {
            write(&pool, 20..30);
        }
        drop(pool);
        let log = fs::read(path.join("log")).unwrap();
        let what = format!("after {checkpoints} checkpoints");
        refused(&path, &blank, &format!("blank, {what}"));
        refused(&path, &others, &format!("another pool's, {what}"));
        refused(&path, &second, &format!("an older copy, {what}"));
        fs::write(path.join("log"), log).unwrap();
    }
    assert_eq!(held(&path, 30), 30, "nothing was harmed by the refusals");
}

/// docs/fault-model.md: this cannot be told from what a crash left.
#[test]
fn an_older_copy_with_the_recorded_group_opens_as_it_was() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = open_and_write(&path, 0..5);
    let log = fs::read(path.join("log")).unwrap();
    write(&pool, 5..10);
    drop(pool);
    fs::write(path.join("log"), log).unwrap();
    assert_eq!(held(&path, 10), 5);
}

#[test]
fn a_closed_pool_needs_no_log() {
    let dir = folder();
    let path = dir.path().join("p");
    open_and_write(&path, 0..5).close().unwrap();
    fs::write(path.join("log"), vec![0; LOG_BYTES as usize]).unwrap();
    assert_eq!(held(&path, 5), 5);
    drop(open_and_write(&path, 5..10));
    assert_eq!(held(&path, 10), 10);
}

/// The superblock says "not clean" before the first group, so a crash in between leaves any log.
#[test]
fn a_crash_before_the_first_group_of_an_opening_leaves_an_empty_log() {
    for closed_before in [false, true] {
        let dir = folder();
        let path = dir.path().join("p");
        if closed_before {
            open_and_write(&path, 0..5).close().unwrap();
            fs::write(path.join("log"), vec![0; LOG_BYTES as usize]).unwrap();
        }
        let storage = Faulty::new(Arc::new(OsStorage));
        let pool = options().storage(Arc::new(storage.clone())).open(&path).unwrap();
        pool.region().grow(4096).unwrap();
        let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
        pool.region().flush(0, 1);
        assert!(pool.region().drain().is_err());
        drop(pool);
        assert!(!Pool::inspect(&path).unwrap().clean);
        assert_eq!(held(&path, 5), if closed_before { 5 } else { 0 });
    }
}

/// A write that fills the log, and of which a crash keeps only the end, must not destroy the recorded group before
/// the tail: the pool would be refused although nothing acknowledged is lost.
#[test]
fn a_torn_write_of_a_whole_log_leaves_the_recorded_group() {
    // Flushes that fit after a checkpoint without another one.
    let fill = |pool: &Pool, flushes: u64| {
        let before = pool.stat().checkpoints;
        let mut n = 0;
        while n < flushes && pool.stat().checkpoints == before {
            pool.region().flush(0, 300);
            n += 1;
        }
        n
    };
    let dir = folder();
    let make = |name: &str| {
        let path = dir.path().join(name);
        let pool = open_and_write(&path, 0..50);
        pool.checkpoint().unwrap();
        (path, pool)
    };
    let fits = fill(&make("trial").1, u64::MAX) - 1;
    let (path, pool) = make("p");
    let before = fs::read(path.join("log")).unwrap();
    let tail = (pool.stat().tail % LOG_BYTES) as usize;
    assert_eq!(fill(&pool, fits), fits);
    // The crash comes in the middle of the write, before its superblock.
    let superblock = fs::read(path.join("pool")).unwrap();
    pool.region().drain().unwrap();
    assert!(
        pool.stat().log_used > LOG_BYTES * 9 / 10,
        "the log is not nearly full: {}",
        pool.stat().log_used
    );
    drop(pool);
    let mut log = fs::read(path.join("log")).unwrap();
    log[tail..tail + 512].copy_from_slice(&before[tail..tail + 512]);
    fs::write(path.join("log"), log).unwrap();
    fs::write(path.join("pool"), superblock).unwrap();
    assert_eq!(held(&path, 50), 50);
}

/// Makes the superblock one of version 2.
fn downgrade(path: &Path) {
    let mut bytes = fs::read(path.join("pool")).unwrap();
    for copy in bytes.chunks_exact_mut(4096) {
        copy[8..12].copy_from_slice(&2u32.to_le_bytes());
        copy[1160..1177].fill(0);
        let crc = crc32c(0, &copy[..4092]);
        copy[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(path.join("pool"), bytes).unwrap();
}

#[test]
fn a_pool_of_version_2_opens_without_the_check_and_the_first_write_brings_version_5() {
    for clean in [true, false] {
        let dir = folder();
        let path = dir.path().join("p");
        let pool = open_and_write(&path, 0..5);
        if clean {
            pool.close().unwrap();
        } else {
            drop(pool);
        }
        downgrade(&path);
        let superblock = fs::read(path.join("pool")).unwrap();
        let log = fs::read(path.join("log")).unwrap();
        assert_eq!(held(&path, 5), 5);
        assert!(
            fs::read(path.join("pool")).unwrap() == superblock,
            "nothing was written, and it has changed"
        );
        assert_eq!(Pool::inspect(&path).unwrap().version, 2);
        fs::write(path.join("log"), vec![0; LOG_BYTES as usize]).unwrap();
        assert_eq!(held(&path, 5), if clean { 5 } else { 0 });
        fs::write(path.join("log"), log).unwrap();
        drop(open_and_write(&path, 5..10));
        let versions = fs::read(path.join("pool")).unwrap();
        assert_eq!(
            [versions[8], versions[4096 + 8]],
            [5, 5],
            "no copy that a program of version 2 would read"
        );
        assert_eq!(held(&path, 10), 10);
        refused(&path, &[0; LOG_BYTES as usize], "blank, after the first write");
    }
}

#[test]
fn an_older_superblock_of_a_closed_pool_is_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    open_and_write(&path, 0..5).close().unwrap();
    for openings in 1..4 {
        let closed = fs::read(path.join("pool")).unwrap();
        drop(open_and_write(&path, 5..10));
        let open = fs::read(path.join("pool")).unwrap();
        fs::write(path.join("pool"), &closed).unwrap();
        for read_only in [true, false] {
            let opened = options().create(Create::Never).read_only(read_only).open(&path);
            let error = opened.expect_err("a superblock from before the log's groups");
            assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("pool")), "{error}");
            assert!(error.to_string().contains("restore the files of a pool together"), "{error}");
        }
        let damage = Pool::check(&path).unwrap().damage;
        assert!(damage.len() == 1 && damage[0].path.ends_with("pool"), "{openings} openings: {damage:?}");
        fs::write(path.join("pool"), open).unwrap();
        assert_eq!(held(&path, 10), 10, "{openings} openings");
        open_and_write(&path, 0..10).close().unwrap();
    }
}
