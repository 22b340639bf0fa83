//! A child of fork(2) writes nothing to its parent's files, and waits for no lock of its parent's threads. Alone in its
//! file: the process forks.

#[path = "support/hooked.rs"]
mod hooked;

use crate::hooked::{Access, hooked};
use mangrove_pool::{ByteRange, Create, Durability, Latency, Medium, PoolOptions};
use mangrove_testkit::process::in_child;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(300);

/// What the parent has left to copy at the moment of the fork, the parent copies: by the time the child would do it,
/// other groups may lie there.
#[test]
fn a_child_copies_no_recent_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = PoolOptions::new().create(Create::New).medium(Medium::File).capacity(4 << 20);
    let options = options.durability(Durability::Interval(Duration::from_secs(60))).keeps_recent(true);
    let pool = options.background(false).open(&path).unwrap();
    let region = pool.region();
    region.grow(4096).unwrap();
    region.write(0, &[1; 100]);
    region.flush(0, 100);
    let recent = || {
        let mut names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let file = names.find(|name| name.file_name().unwrap().to_string_lossy().starts_with("recent-"));
        std::fs::read(file.unwrap()).unwrap()
    };
    let before = recent();
    let status = in_child(|| region.medium().leave_unawaited());
    assert_eq!(status, 0, "how the child ended");
    assert!(recent() == before, "the child has copied something");
    region.medium().leave_unawaited();
    assert!(recent() != before, "there was something to copy");
}

/// A thread of the parent has the checkpointer's lock at the moment of the fork.
#[test]
fn a_child_that_asks_for_counters_or_for_space_waits_for_no_thread_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let (writes, is_writing) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    // The checkpoint waits in its first write to the data file, until `go_on` is dropped.
    let storage = hooked(move |access, name, _| {
        if access == Access::Write && name == "image" && writes.send(()).is_ok() {
            // Ends with an error in any case.
            let _ = may_go_on.lock().unwrap().recv_timeout(WAIT_MAX);
        }
    });
    let options = PoolOptions::new().create(Create::New).medium(Medium::File).capacity(4 << 20);
    let pool = options.background(false).storage(storage).open(dir.path().join("p")).unwrap();
    let region = pool.region();
    region.grow(4096).unwrap();
    region.write(0, &[1; 100]);
    region.flush(0, 100);
    region.drain().unwrap();
    assert_eq!(pool.stat().flushes, 1);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| pool.checkpoint());
        is_writing.recv_timeout(WAIT_MAX).unwrap();
        let status = in_child(|| {
            assert_eq!((pool.stat().flushes, pool.stat().flushed_bytes), (0, 0));
            let all = ByteRange { offset: 0, len: region.medium().grown() };
            assert_eq!(region.medium().without_space(), [all]);
        });
        drop(go_on);
        assert_eq!(status, 0, "how the child ended");
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(pool.stat().flushes, 1);
}

/// Its superblock would say that the pool is closed while the parent still uses it.
#[test]
fn a_child_that_ends_its_parents_mapped_pool_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = PoolOptions::new().create(Create::IfMissing).capacity(4 << 20);
    let options = options.medium(Medium::Emulated(Latency::default()));
    let opened = options.open(&path).unwrap();
    opened.region().grow(4096).unwrap();
    // What a child takes out of it stays with the parent.
    let mut pool = Some(opened);
    let superblock = || std::fs::read(path.join("pool")).unwrap();
    let before = superblock();
    let ends = || {
        let pool = pool.take().unwrap();
        assert!(pool.region().grow(2 << 20).is_err());
        assert!(pool.set_made().is_err());
        assert!(pool.close().is_err());
    };
    assert_eq!(in_child(ends), 0, "how the child ended");
    assert_eq!(in_child(|| drop(pool.take())), 0, "how the child ended");
    assert_eq!(in_child(|| pool.take().unwrap().undo_creation()), 0, "how the child ended");
    assert!(superblock() == before, "a child has changed the superblock");
    let pool = pool.unwrap();
    pool.region().grow(2 << 20).unwrap();
    pool.set_made().unwrap();
    assert!(options.open(&path).is_err(), "a child has unlocked it");
    drop(pool);
    let pool = options.open(&path).unwrap();
    assert!(!pool.was_clean());
    pool.close().unwrap();
    assert!(options.open(&path).unwrap().was_clean());
}
