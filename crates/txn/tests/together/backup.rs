//! A heap is backed up while transactions run: the copy is one instant, whole, and opens as a heap.

#[path = "../../../pool/tests/support/hooked.rs"]
mod hooked;

use crate::ways::on_each_way;
use hooked::{Access, hooked};
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_testkit::command::wait_until;
use mangrove_txn::{
    Create, Heap, HeapError, HeapOptions, Latency, Medium, Pod, Ptr, Stop, Tx, Zeroable, field,
};
use std::fs::Permissions;
use std::ops::ControlFlow::{Break, Continue};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// With each executor and protocol.
fn on_each(test: impl Fn(HeapOptions, &Path)) {
    on_each_way(|options, path| {
        let folder = path.parent().expect("the heap lies in a directory of its own");
        test(options.capacity(256 << 20).log_bytes(256 << 10), folder);
    });
}

/// Two counters that are always equal, megabytes apart.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Pair {
    first: Ptr<u64>,
    last: Ptr<u64>,
}

fn make(heap: &Heap) {
    heap.transaction(|tx| {
        let counters: Ptr<u64> = tx.alloc_array(1 << 19)?;
        let pair = tx.alloc(Pair { first: counters, last: counters.add((1 << 19) - 1) })?;
        tx.set_root("pair", pair)
    })
    .unwrap();
}

fn count(tx: &mut Tx<'_>) -> Result<(u64, u64), Stop> {
    let pair = tx.root::<Pair>("pair")?.expect("made when the heap was");
    let (first, last) = (tx.read(field!(pair, Pair, first))?, tx.read(field!(pair, Pair, last))?);
    Ok((tx.read(first)?, tx.read(last)?))
}

fn count_on(tx: &mut Tx<'_>) -> Result<u64, Stop> {
    let pair = tx.root::<Pair>("pair")?.expect("made when the heap was");
    let Pair { first, last } = tx.read(pair)?;
    let count = tx.read(first)? + 1;
    tx.write(first, count)?;
    tx.write(last, count)?;
    Ok(count)
}

#[test]
fn a_backup_under_transactions_is_one_instant() {
    on_each(|options, folder| {
        let heap = options.open(folder.join("heap")).unwrap();
        make(&heap);
        let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let bounds = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let count = heap.transaction(count_on).unwrap();
                        acknowledged.fetch_max(count, Ordering::SeqCst);
                    }
                });
            }
            let bounds: Vec<_> = (0..2)
                .map(|number| {
                    let before = acknowledged.load(Ordering::SeqCst);
                    let path = folder.join(format!("backup {number}"));
                    let report = heap.backup(path, |_| Continue(())).unwrap();
                    assert!(report.bytes > 0);
                    (before, heap.read(count).unwrap().0)
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            bounds
        });
        let base = heap.base();
        drop(heap);
        for (number, (before, after)) in bounds.into_iter().enumerate() {
            let path = folder.join(format!("backup {number}"));
            assert_eq!(Heap::check_path(&path).unwrap(), Vec::<String>::new());
            let heap = Heap::options().create(Create::Never).open(&path).unwrap();
            assert_eq!((heap.base(), heap.shadow().capacity()), (base, 256 << 20));
            assert!(heap.shadow().report().was_clean);
            let (first, last) = heap.read(count).unwrap();
            assert!(first == last && (before..=after).contains(&first), "{before} {first} {last} {after}");
            // It is a heap like any other, also after a crash.
            assert_eq!(heap.transaction(count_on).unwrap(), first + 1);
            drop(heap);
            assert_eq!(Heap::open(&path).unwrap().read(count).unwrap(), (first + 1, first + 1));
        }
    });
}

/// What changes after it was copied for the first time, and what the heap has grown by, is in the backup.
#[test]
fn what_happens_while_it_runs_is_in_it() {
    on_each(|options, folder| {
        let heap = options.open(folder.join("heap")).unwrap();
        make(&heap);
        let (mut calls, mut done) = (0, 0);
        let path = folder.join("backup");
        let grow = |tx: &mut Tx<'_>| {
            count_on(tx)?;
            let large: Ptr<u64> = tx.alloc_array(1 << 19)?;
            tx.write(large.add((1 << 19) - 1), 77)?;
            tx.set_root("large", large)
        };
        heap.backup(&path, |progress| {
            calls += 1;
            assert!(progress.bytes >= done && progress.bytes <= progress.bytes_total, "{progress:?}");
            done = progress.bytes;
            if calls == 2 {
                heap.transaction(grow).unwrap();
            }
            Continue(())
        })
        .unwrap();
        assert!(calls > 3);
        let (expected, blocks) = (heap.read(count).unwrap(), heap.stat().unwrap().arena.blocks);
        drop(heap);
        let heap = Heap::open(&path).unwrap();
        assert_eq!((heap.read(count).unwrap(), expected), ((1, 1), (1, 1)));
        assert_eq!(heap.stat().unwrap().arena.blocks, blocks);
        let last = heap.read(|tx| {
            let large = tx.root::<u64>("large")?.expect("set while the backup ran");
            tx.read(large.add((1 << 19) - 1))
        });
        assert_eq!((last.unwrap(), heap.check().unwrap()), (77, vec![]));
    });
}

#[test]
fn a_read_only_heap_is_backed_up_too() {
    on_each(|options, folder| {
        let heap = options.open(folder.join("heap")).unwrap();
        make(&heap);
        assert_eq!(heap.transaction(count_on).unwrap(), 1);
        drop(heap);
        let heap = options.read_only(true).open(folder.join("heap")).unwrap();
        heap.backup(folder.join("backup"), |_| Continue(())).unwrap();
        drop(heap);
        assert_eq!(Heap::open(folder.join("backup")).unwrap().read(count).unwrap(), (1, 1));
    });
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    on_each(|options, folder| {
        let names = || {
            let entries = std::fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let heap = options.open(folder.join("heap")).unwrap();
        make(&heap);
        for stop_at in 1..4 {
            let mut calls = 0;
            let stopped = heap.backup(folder.join("backup"), |_| {
                calls += 1;
                if calls == stop_at { Break(()) } else { Continue(()) }
            });
            assert!(matches!(stopped, Err(HeapError::Stopped)), "{stop_at}: {stopped:?}");
            assert_eq!(names(), ["heap"]);
        }
        let nested = heap.transaction(|_| Ok(heap.backup(folder.join("backup"), |_| Continue(()))));
        assert!(matches!(nested, Ok(Err(HeapError::Nested))), "{nested:?}");
        let itself = heap.backup(folder.join("heap"), |_| Continue(()));
        assert!(matches!(itself, Err(HeapError::Pool(mangrove_shadow::Error::Exists { .. }))), "{itself:?}");
        let nowhere = heap.backup(folder.join("no/such/folder"), |_| Continue(()));
        assert!(matches!(nowhere, Err(HeapError::Pool(_))), "{nowhere:?}");
        assert_eq!(names(), ["heap"]);
        // A directory of something else, a file, and a place in another pool.
        std::fs::create_dir(folder.join("notes")).unwrap();
        std::fs::write(folder.join("notes/file"), b"of the user").unwrap();
        options.open(folder.join("other")).unwrap().close().unwrap();
        for (place, says) in [
            ("notes", "something else lies there, and a new pool gets a directory of its own"),
            ("notes/file", "something else lies there"),
            ("other/backup", "lies inside another pool's directory"),
            ("other", "already holds a pool"),
        ] {
            let text = heap.backup(folder.join(place), |_| Continue(())).unwrap_err().to_string();
            assert!(text.contains(says) && text.contains(place), "{place}: {text}");
        }
        std::fs::remove_dir_all(folder.join("other")).unwrap();
        std::fs::remove_dir_all(folder.join("notes")).unwrap();
        // What a killed backup left goes away.
        std::fs::create_dir(folder.join(".backup.mangrove-part")).unwrap();
        std::fs::write(folder.join(".backup.mangrove-part/image"), b"half").unwrap();
        heap.backup(folder.join("backup"), |_| Continue(())).unwrap();
        assert_eq!(names(), ["backup", "heap"]);
        heap.transaction(count_on).unwrap();
    });
}

/// The last good copy can be saved.
#[test]
fn after_a_failure_of_the_medium_a_backup_has_everything_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    for failing in ["log", "image"] {
        let path = folder.path().join(failing);
        let faulty = Faulty::new(Arc::new(OsStorage));
        let options = Heap::options().medium(Medium::File).capacity(256 << 20).log_bytes(256 << 10);
        let heap = options.storage(Arc::new(faulty.clone())).open(&path).unwrap();
        make(&heap);
        for _ in 0..10 {
            heap.transaction(count_on).unwrap();
        }
        let (file, operations) = (Some(failing.to_owned()), vec![FaultyOperation::Write]);
        faulty.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
        let mut acknowledged = 10;
        // Commits fill the log, which a checkpoint applies to the data file.
        while heap.transaction(count_on).is_ok() {
            acknowledged += 1;
            assert!(acknowledged < 100_000, "nothing fails");
        }
        faulty.heal();
        let to = folder.path().join(format!("{failing} saved"));
        heap.backup(&to, |_| Continue(())).unwrap();
        drop(heap);
        let (first, last) = Heap::open(&to).unwrap().read(count).unwrap();
        assert!(
            first == last && (first == acknowledged || first == acknowledged + 1),
            "{first}, {acknowledged}"
        );
    }
}

/// The heap of a failed disk may be moved aside, and another put in its place.
#[test]
fn after_a_failure_a_backup_reads_its_own_files_whatever_has_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let options = || Heap::options().medium(Medium::File).capacity(256 << 20).log_bytes(256 << 10);
    let faulty = Faulty::new(Arc::new(OsStorage));
    let heap = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    make(&heap);
    for _ in 0..10 {
        heap.transaction(count_on).unwrap();
    }
    let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
    faulty.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
    heap.transaction(count_on).unwrap_err();
    faulty.heal();
    std::fs::rename(&path, folder.path().join("aside")).unwrap();
    let other = options().open(&path).unwrap();
    make(&other);
    drop(other);
    let to = folder.path().join("saved");
    heap.backup(&to, |_| Continue(())).unwrap();
    drop(heap);
    let (first, last) = Heap::open(&to).unwrap().read(count).unwrap();
    assert!(first == last && (first == 10 || first == 11), "{first}, {last}");
}

#[test]
fn after_a_failure_a_backup_waits_for_the_checkpoint_that_is_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let (at_work, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let until = |flag: &AtomicBool| wait_until("the other thread", || flag.load(Ordering::SeqCst));
    let (begins, waits) = (Arc::clone(&at_work), Arc::clone(&go_on));
    let storage = Faulty::new(hooked(move |access, name, _| {
        if access == Access::Write && name == "image" {
            begins.store(true, Ordering::SeqCst);
            until(&waits);
        }
    }));
    let options = Heap::options().medium(Medium::File).capacity(256 << 20).log_bytes(256 << 10);
    let heap = options.storage(Arc::new(storage.clone())).open(&path).unwrap();
    std::thread::scope(|scope| {
        // Longer than the log: a checkpoint begins at once.
        make(&heap);
        until(&at_work);
        let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
        heap.transaction(count_on).unwrap_err();
        storage.heal();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            go_on.store(true, Ordering::SeqCst);
        });
        heap.backup(folder.path().join("saved"), |_| Continue(())).unwrap();
        assert!(go_on.load(Ordering::SeqCst), "the backup did not wait");
    });
    drop(heap);
    let (first, last) = Heap::open(folder.path().join("saved")).unwrap().read(count).unwrap();
    assert!(first == last && first <= 1, "{first}, {last}");
}

#[test]
fn a_backup_has_the_permissions_and_the_log_of_its_heap() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (medium, log) in [(Medium::File, 3 << 20), (Medium::Emulated(Latency::default()), 128 << 10)] {
        let path = folder.path().join(log.to_string());
        let heap = Heap::options().medium(medium).capacity(64 << 20).log_bytes(log).open(&path).unwrap();
        make(&heap);
        for entry in std::fs::read_dir(&path).unwrap() {
            set(&entry.unwrap().path(), 0o600);
        }
        set(&path, 0o700);
        let to = folder.path().join(format!("copy {log}"));
        heap.backup(&to, |_| Continue(())).unwrap();
        drop(heap);
        assert_eq!(mode(&to), 0o700);
        for entry in std::fs::read_dir(&to).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        // Another size would be refused.
        let same = Heap::options().create(Create::Never).capacity(64 << 20).log_bytes(log).open(&to).unwrap();
        assert_eq!(same.read(count).unwrap(), (0, 0));
        if medium == Medium::File {
            assert_eq!(mangrove_pool::Pool::inspect(&to).unwrap().log_bytes_max, log);
        }
    }
}

#[test]
fn a_backup_in_the_heaps_own_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let heap = Heap::options().capacity(256 << 20).log_bytes(256 << 10).open(&path).unwrap();
    std::fs::create_dir(path.join("copies")).unwrap();
    for inside in ["copy", "copies/copy", "../heap/copy"] {
        let inside = path.join(inside);
        let error = heap.backup(&inside, |_| Continue(())).unwrap_err();
        assert!(matches!(error, HeapError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("choose a place for the backup outside of it"), "{error}");
        assert!(!inside.exists());
    }
    heap.backup(folder.path().join("copy"), |_| Continue(())).unwrap();
}

/// Such a process has fewer of the heap's addresses. The test runs itself again as a child process under the limit.
#[test]
fn a_backup_by_a_process_with_little_address_space_has_the_heaps_capacity() {
    const ROLE: &str = "MANGROVE_BACKUP_FOLDER";
    const CAPACITY: u64 = 64 << 30;
    let options = || Heap::options().medium(Medium::File).capacity(CAPACITY).log_bytes(256 << 10);
    if let Some(folder) = std::env::var_os(ROLE).map(PathBuf::from) {
        let heap = Heap::options().read_only(true).open(folder.join("heap")).unwrap();
        assert!(heap.shadow().capacity() < CAPACITY, "the process has no limit");
        heap.backup(folder.join("copy"), |_| Continue(())).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let heap = options().open(folder.path().join("heap")).unwrap();
    make(&heap);
    heap.close().unwrap();
    let test = "backup::a_backup_by_a_process_with_little_address_space_has_the_heaps_capacity";
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 20000000 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // Another capacity would be refused.
    let copy = options().create(Create::Never).open(folder.path().join("copy")).unwrap();
    assert_eq!(copy.read(count).unwrap(), (0, 0));
}
