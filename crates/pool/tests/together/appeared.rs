//! The name of a pool that appeared whole: a backup, or one that was loaded.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, PoolOptions,
};
use std::sync::Arc;

fn options(storage: &Faulty) -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(1 << 20)
        .background(false)
        .kind("test")
        .storage(Arc::new(storage.clone()))
}

#[test]
fn a_name_that_a_killed_process_gave_is_synced_before_the_pool_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let parent = dir.path().join("d");
    std::fs::create_dir(&parent).unwrap();
    let path = parent.join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    drop(options(&storage).open(&path).unwrap());
    let plant = || {
        storage.plant(Fault {
            file: Some("d".into()),
            operations: vec![FaultyOperation::Sync],
            nth: 0,
            kind: FaultKind::Errno(libc::EIO),
        });
    };
    plant();
    drop(options(&storage).open(&path).unwrap());
    assert!(!storage.struck());
    // What `appear` leaves when it is killed right after the pool got its name.
    std::fs::write(parent.join(".p.mangrove-lock"), []).unwrap();
    drop(options(&storage).read_only(true).open(&path).unwrap());
    assert!(!storage.struck());
    assert!(matches!(options(&storage).open(&path), Err(Error::Io { .. })));
    assert!(storage.struck());
    options(&storage).open(&path).unwrap();
}
