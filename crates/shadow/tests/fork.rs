//! A child of fork uses or drops its parent's shadow, or a lease of it: it has none of the threads that replay, and the
//! log is the parent's.

use mangrove_shadow::{Create, Error, Latency, LogLease, Medium, Options, Shadow};
use mangrove_testkit::process::in_child;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// With one thread that replays, with two, and with one that applies beside the caller.
#[test]
fn a_child_that_ends_its_parents_shadow_ends_nothing_of_the_parent() {
    for (background, replayers) in [(true, 1), (true, 2), (false, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::default()));
        let options = options.capacity(1 << 20).log_bytes(64 << 10);
        let options = options.background(background).replayers(replayers);
        let opened = options.open(&path).unwrap();
        opened.grow(64 << 10).unwrap();
        let base = opened.base();
        let commit = |shadow: &Shadow, byte: u8| {
            // SAFETY: inside what was grown, and this thread alone uses it.
            unsafe { base.write_bytes(byte, 100) };
            let ticket = shadow.commit(0, &[(base as usize, 100)]).unwrap();
            shadow.wait(ticket).unwrap();
        };
        commit(&opened, 1);
        // What a child takes out of it stays with the parent.
        let mut shadow = Some(opened);
        assert_eq!(in_child(|| drop(shadow.take())), 0, "{background}, {replayers}");
        let closes = || {
            let closed = shadow.take().unwrap().close();
            assert!(matches!(closed, Err(Error::Unsupported { .. })), "{closed:?}");
        };
        assert_eq!(in_child(closes), 0, "{background}, {replayers}");
        let shadow = shadow.unwrap();
        commit(&shadow, 2);
        assert!(matches!(options.open(&path), Err(Error::Busy { .. })), "the child has unlocked it");
        shadow.checkpoint().unwrap();
        shadow.close().unwrap();
        let shadow = options.open(&path).unwrap();
        assert!(shadow.report().was_clean);
        // SAFETY: as above.
        assert_eq!(unsafe { shadow.base().add(99).read() }, 2);
    }
}

/// Does some of the five steps of a commit that follow what was added.
fn advance(lease: &mut LogLease, steps: Range<usize>) {
    for step in steps {
        match step {
            0 => lease.reserve().unwrap(),
            1 => _ = lease.number().unwrap(),
            2 => lease.seal(),
            3 => lease.flush().unwrap(),
            _ => lease.publish(),
        }
    }
}

/// The files of a pool, with their bytes.
fn files(pool: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = std::fs::read_dir(pool).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    files.sort_unstable();
    files
}

/// After each step of a commit, a child drops its copy of the lease; then the parent commits.
#[test]
fn a_child_that_drops_its_parents_lease_writes_nothing_and_the_parent_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::default()));
    let options = options.capacity(1 << 20).log_bytes(64 << 10).log_count(1).background(false).replayers(1);
    let shadow = options.open(&path).unwrap();
    shadow.grow(4096).unwrap();
    let word = shadow.base().cast::<u64>();
    for done in 0..5 {
        let mut lease = Some(shadow.lease());
        let value = done as u64 + 1;
        // SAFETY: inside what was grown, aligned, and this thread alone uses it.
        unsafe { word.write(value) };
        let ours = lease.as_mut().unwrap();
        ours.word(word as usize, value);
        advance(ours, 0..done);
        let before = files(&path);
        // What a child takes out of it stays with the parent.
        assert_eq!(in_child(|| drop(lease.take())), 0, "after {done} steps");
        assert!(files(&path) == before, "after {done} steps the child has written");
        advance(lease.as_mut().unwrap(), done..5);
    }
    shadow.sync().unwrap();
    drop(shadow);
    let shadow = options.open(&path).unwrap();
    assert_eq!(shadow.report().units, 5);
    // SAFETY: as above.
    assert_eq!(unsafe { shadow.base().cast::<u64>().read() }, 5);
    shadow.close().unwrap();
}

/// The child's stores to the log would reach the parent's.
#[test]
fn a_child_that_uses_its_parents_shadow_is_refused_and_changes_nothing() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = Options::new().create(Create::IfMissing).medium(medium);
        let options = options.capacity(1 << 20).log_bytes(64 << 10).background(false).replayers(1);
        let shadow = options.open(&path).unwrap();
        shadow.grow(4096).unwrap();
        let base = shadow.base() as usize;
        let commit = |len| shadow.commit(0, &[(base, len)]);
        shadow.wait(commit(100).unwrap()).unwrap();
        shadow.checkpoint().unwrap();
        shadow.wait(commit(200).unwrap()).unwrap();
        let before = files(&path);
        let refused = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
        };
        let child = || {
            refused(commit(300).map(drop));
            refused(shadow.grow(1 << 20));
            refused(shadow.checkpoint());
            assert!(!shadow.replay());
            assert_eq!(shadow.stat().applied_units, 0);
            assert!(shadow.poisoned().is_some());
        };
        assert_eq!(in_child(child), 0, "{medium:?}");
        assert!(files(&path) == before, "{medium:?}: the child has written");
        shadow.wait(commit(400).unwrap()).unwrap();
        shadow.close().unwrap();
    }
}
