//! A process that has no file descriptor left finishes an opening that has begun. Alone in its file: the limit is that
//! of the whole process.

use mangrove_pool::{Create, Durability, Medium, PoolOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn options(keeps_recent: bool) -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .durability(Durability::Interval(Duration::from_millis(100)))
        .keeps_recent(keeps_recent)
        .kind("test")
}

fn recent_files(path: &Path) -> usize {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("recent-")).count()
}

#[test]
fn an_opening_that_has_found_a_closed_pool_needs_no_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    for keeps_recent in [false, true] {
        let path = dir.path().join(format!("keeps_recent {keeps_recent}"));
        let pool = options(keeps_recent).open(&path).unwrap();
        let write = |region: &mangrove_pool::Region, byte| {
            region.write(0, &[byte; 100]);
            region.flush(0, 100);
            region.fence();
        };
        pool.region().grow(1 << 20).unwrap();
        write(pool.region(), 1);
        pool.close_leaving(Some(b"an index")).unwrap();

        let mut opening = options(keeps_recent).begin(&path).unwrap();
        let closed = opening.closed_pool(1 << 20).unwrap();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).unwrap();
        let opened = opening.finish();
        setrlimit(Resource::Nofile, before).unwrap();
        let pool = opened.unwrap();
        drop(closed);
        assert_eq!(recent_files(&path), usize::from(keeps_recent));
        write(pool.region(), 2);
        pool.close().unwrap();
        assert_eq!(recent_files(&path), 0);
        let pool = options(keeps_recent).open(&path).unwrap();
        assert_eq!(pool.region().word(0).load(Ordering::Relaxed).to_le_bytes()[0], 2);
        // Nothing was written: neither a closing nor an end without one leaves a file.
        drop(pool);
        assert_eq!(recent_files(&path), 0);
    }
}
