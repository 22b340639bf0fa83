//! Atomic groups of several groups that a crash tore: a part of one is left at the log's end.

use mangrove_pool::{ByteRange, Create, Durability, Medium, Pool, PoolOptions};
use std::path::Path;

const LONG: ByteRange = ByteRange { offset: 4096, len: 20 << 10 };

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(8 << 20)
        .log_bytes(64 << 10)
        .background(false)
}

fn byte(pool: &Pool, offset: u64) -> u8 {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { *pool.region().at(offset) }
}

/// A pool whose process died when the first group of an atomic group of two was on the disk, and the second in part.
fn with_torn_group(path: &Path) {
    let pool = options().open(path).unwrap();
    let region = pool.region();
    region.grow(64 << 10).unwrap();
    region.write(0, &[1; 8]);
    region.flush(0, 8);
    region.drain().unwrap();
    region.write(LONG.offset, &[2; LONG.len as usize]);
    region.flush_unit(&[LONG]).unwrap();
    region.drain().unwrap();
    drop(pool);
    let mut log = std::fs::read(path.join("log")).unwrap();
    let groups: Vec<usize> =
        (0..log.len()).step_by(512).filter(|at| log[*at..].starts_with(b"MGgr")).collect();
    let [_, _, last] = groups[..] else { panic!("{groups:?}") };
    log[last + 512..last + 1024].fill(0);
    std::fs::write(path.join("log"), log).unwrap();
}

#[test]
fn a_pool_that_is_closed_behind_a_torn_atomic_group_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    with_torn_group(&path);
    for round in 0..3 {
        let pool = options().open(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert_eq!([byte(&pool, 0), byte(&pool, LONG.offset)], [1, 0]);
        pool.close().unwrap();
    }
    let pool = options().open(&path).unwrap();
    pool.region().write(0, &[3; 8]);
    pool.region().flush(0, 8);
    pool.region().drain().unwrap();
    drop(pool);
    assert_eq!(byte(&options().open(&path).unwrap(), 0), 3);
}

#[test]
fn recent_writes_behind_a_torn_atomic_group_survive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    with_torn_group(&path);
    let options = options().keeps_recent(true).durability(Durability::interval_ms(60_000));
    let pool = options.open(&path).unwrap();
    pool.region().write(0, &[3; 8]);
    pool.region().flush(0, 8);
    pool.region().drain().unwrap();
    // As SIGKILL does: nothing of it is in the log.
    drop(pool);
    assert_eq!(byte(&options.open(&path).unwrap(), 0), 3);
}
