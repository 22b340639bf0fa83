//! The name of a pool that appeared whole: a backup, or one that was loaded.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, PoolOptions, appear,
};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
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

/// Gives the file at `path` an access list (acl(5)) by which its group may nothing, and another user may read. False
/// where the file system has none.
fn let_a_user_read(path: &Path) -> bool {
    const NO_ID: u32 = u32::MAX;
    // The version; then the owner, a user, the group, the mask and others: which it is, its rights, its number.
    let mut list = 2u32.to_le_bytes().to_vec();
    let entries = [(1u16, 6u16, NO_ID), (2, 4, 12345), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID)];
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = c"system.posix_acl_access";
    // SAFETY: two strings that end with NUL, and the bytes of the list.
    unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), list.as_ptr().cast(), list.len(), 0) == 0 }
}

#[test]
fn a_copy_gives_the_group_nothing_that_an_access_list_gives_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let storage = Faulty::new(Arc::new(OsStorage));
    drop(options(&storage).open(&live).unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["image", "log", "sums", "pool"] {
        std::fs::set_permissions(live.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    if !let_a_user_read(&live.join("image")) {
        eprintln!("this file system has no access lists: nothing is tested");
        return;
    }
    assert_eq!(mode(&live.join("image")), 0o640, "the mask stands in the place of the group");
    appear(&copy, Some(&live), |part| options(&storage).open(part)?.close()).unwrap();
    for name in ["image", "log", "sums", "pool"] {
        assert_eq!(mode(&copy.join(name)), 0o600, "{name}");
    }
}
