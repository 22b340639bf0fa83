//! A child of fork(2) copies nothing to its parent's file of recent writes. Alone in its file: the process forks.

use mangrove_pool::{Create, Durability, Medium, PoolOptions};
use std::time::Duration;

/// Seconds after which a child that hangs is ended.
const CHILD_SECONDS_MAX: u32 = 60;

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
    // SAFETY: the child has this thread alone, and ends without running anything else of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: asks for a signal.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        region.medium().leave_unawaited();
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "how the child ended");
    assert!(recent() == before, "the child has copied something");
    region.medium().leave_unawaited();
    assert!(recent() != before, "there was something to copy");
}
