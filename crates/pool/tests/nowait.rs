//! Writes that no thread waits for become durable by themselves, and an idle pool wakes no thread.

use mangrove_pool::{Create, Durability, Medium, Pool, PoolOptions};
use mangrove_testkit::command::wait_until;
use std::path::Path;
use std::time::Duration;

fn open(path: &Path, durability: Durability, nowait_within: Duration) -> Pool {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(4 << 20)
        .log_bytes(1 << 20)
        .durability(durability)
        .nowait_within(nowait_within)
        .kind("test")
        .open(path)
        .unwrap()
}

fn write(pool: &Pool, byte: u8) {
    let region = pool.region();
    region.grow(4096).unwrap();
    region.write(0, &[byte; 100]);
    region.flush(0, 100);
    region.fence();
}

fn is_durable(pool: &Pool) -> bool {
    let stat = pool.stat();
    stat.durable >= stat.appended
}

/// How often the flushers of this process have slept.
fn sleeps() -> Vec<String> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let read = |name| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        if read("comm").trim() == "mangrove-sync" {
            let status = read("status");
            found.extend(status.lines().filter(|line| line.starts_with("voluntary")).map(str::to_owned));
        }
    }
    found
}

/// One test, because it looks at all threads of the process.
#[test]
fn what_is_left_becomes_durable_and_an_idle_pool_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Duration::from_millis(20);
    for durability in [Durability::Sync, Durability::interval_ms(20)] {
        let path = dir.path().join(durability.to_string());
        let pool = open(&path, durability, limit);
        for byte in 1..=3 {
            write(&pool, byte);
            pool.region().medium().leave_unawaited();
            wait_until("the write is durable", || is_durable(&pool));
        }
        // The last look may still be to come.
        let mut before = sleeps();
        wait_until("the flusher sleeps", || {
            std::thread::sleep(3 * limit);
            let now = sleeps();
            let same = now == before;
            before = now;
            same
        });
        assert_eq!(before.len(), 1);
        // Ten limits: a thread that looks at the log again and again has been caught. More than once, since a busy
        // machine may have delayed the last look.
        let is_idle = (0..5).any(|_| {
            let earlier = std::mem::replace(&mut before, sleeps());
            std::thread::sleep(10 * limit);
            before == earlier && sleeps() == before
        });
        assert!(is_idle, "{durability}: an idle pool wakes no thread");
        if durability == Durability::Sync {
            for byte in 4..=9 {
                write(&pool, byte);
                pool.region().drain().unwrap();
            }
            assert_eq!(sleeps(), before, "a write that is waited for wakes no other thread");
        }
        write(&pool, 10);
        pool.region().medium().leave_unawaited();
        wait_until("a later write is durable", || is_durable(&pool));
        drop(pool);
        let pool = open(&path, durability, limit);
        // SAFETY: inside the region, and no thread writes.
        assert_eq!(unsafe { pool.region().at(99).read() }, 10);
    }

    // Zero: never.
    let pool = open(&dir.path().join("never"), Durability::Sync, Duration::ZERO);
    write(&pool, 1);
    pool.region().medium().leave_unawaited();
    std::thread::sleep(10 * limit);
    assert!(!is_durable(&pool));
    pool.region().drain().unwrap();
    assert!(is_durable(&pool));
    pool.close().unwrap();
}
