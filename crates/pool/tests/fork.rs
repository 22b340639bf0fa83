//! A child of fork(2) copies nothing to its parent's file of recent writes. Alone in its file: the process forks.

use mangrove_pool::{Create, Durability, Medium, PoolOptions};
use mangrove_testkit::process::in_child;
use std::time::Duration;

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
