//! Walks, snapshots and backups while writers run: each shows one instant.

use mangrove::{Batch, Error, Map, Medium};
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn map(&self) -> Map {
        Map::options().log_bytes(1 << 20).open(self.path("pool")).unwrap()
    }
}

fn keys(map: &Map) -> Vec<String> {
    map.iter().unwrap().map(|r| String::from_utf8(r.unwrap().0).unwrap()).collect()
}

#[test]
fn a_walk_whose_snapshot_has_expired_does_not_look_whole() {
    let dir = Dir::new();
    let map = Map::options().log_bytes(1 << 20).snapshot_bytes_max(50_000).open(dir.path("pool")).unwrap();
    let put_all = |value: &[u8]| (0..600).for_each(|i| map.put_nowait(format!("{i:03}"), value).unwrap());
    put_all(&[1; 500]);
    let mut walks = [(); 3].map(|()| map.iter().unwrap());
    walks.iter_mut().for_each(|walk| _ = walk.next().unwrap().unwrap());
    put_all(&[2; 500]);
    let [ended, visited, borrowed] = &mut walks;
    // A loop that drops errors must end, and so the iterator does.
    let left: Vec<_> = ended.collect();
    assert!(left.len() < 599 && matches!(left.last(), Some(Err(Error::SnapshotExpired))));
    for _ in 0..3 {
        assert!(ended.next().is_none());
        let go_on = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        assert!(matches!(ended.visit(go_on), Err(Error::SnapshotExpired)));
        assert!(matches!(visited.visit(go_on), Err(Error::SnapshotExpired)));
        assert!(matches!(visited.visit_back(go_on), Err(Error::SnapshotExpired)));
    }
    while borrowed.next_borrowed().unwrap().is_ok() {}
    for _ in 0..3 {
        assert!(matches!(borrowed.next_borrowed(), Some(Err(Error::SnapshotExpired))));
        assert!(matches!(borrowed.next_back_borrowed(), Some(Err(Error::SnapshotExpired))));
    }
}

#[test]
fn a_walk_that_the_medium_ended_does_not_look_whole() {
    let dir = Dir::new();
    let storage = Faulty::new(Arc::new(OsStorage));
    let options = Map::options().medium(Medium::File).capacity(16 << 20).log_bytes(4 << 20);
    let map = options.storage(Arc::new(storage.clone())).open(dir.path("pool")).unwrap();
    map.put("kept", "1").unwrap();
    let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
    storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
    map.put("lost", "1").unwrap_err();
    let [mut ended, mut visited, mut borrowed] = [(); 3].map(|()| map.iter().unwrap());
    assert!(matches!(ended.next(), Some(Err(Error::Poisoned { .. }))));
    for _ in 0..3 {
        assert!(ended.next().is_none());
        let go_on = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        assert!(matches!(ended.visit(go_on), Err(Error::Poisoned { .. })));
        assert!(matches!(visited.visit(go_on), Err(Error::Poisoned { .. })));
        assert!(matches!(visited.visit_back(go_on), Err(Error::Poisoned { .. })));
        assert!(matches!(borrowed.next_borrowed(), Some(Err(Error::Poisoned { .. }))));
        assert!(matches!(borrowed.next_back_borrowed(), Some(Err(Error::Poisoned { .. }))));
    }
}

#[test]
fn ranges_have_both_ends_and_a_prefix_has_its_end() {
    let dir = Dir::new();
    let map = dir.map();
    for key in ["", "a", "a\u{0}", "ab", "b", "ba", "c"] {
        map.put(key, key).unwrap();
    }
    map.put([0xff], "").unwrap();
    map.put([0xff, 0xff, 1], "").unwrap();
    let walk = |range: mangrove::Range<'_>| -> Vec<Vec<u8>> { range.map(|r| r.unwrap().0).collect() };
    assert_eq!(walk(map.range("a".."b").unwrap()), [&b"a"[..], b"a\0", b"ab"]);
    assert_eq!(walk(map.range("a"..="b").unwrap()), [&b"a"[..], b"a\0", b"ab", b"b"]);
    assert_eq!(walk(map.range(.."a").unwrap()), [b""]);
    assert_eq!(walk(map.range("b".."a").unwrap()), Vec::<Vec<u8>>::new());
    assert_eq!(walk(map.prefix("b").unwrap()), [&b"b"[..], b"ba"]);
    assert_eq!(walk(map.prefix([0xff]).unwrap()), [&[0xff][..], &[0xff, 0xff, 1]]);
    assert_eq!(walk(map.prefix("").unwrap()).len(), 9);
    let mut both = map.range("a".."c").unwrap();
    assert_eq!(both.next().unwrap().unwrap().0, b"a");
    assert_eq!(both.next_back().unwrap().unwrap().0, b"ba");
    assert_eq!(both.next_back().unwrap().unwrap().0, b"b");
    assert_eq!(both.by_ref().count(), 2);
    assert!(both.next_back().is_none());
}

#[test]
fn many_keys_at_once_are_what_each_alone_is() {
    let dir = Dir::new();
    let map = dir.map();
    // Inline values, blocks and large ones, under many prefixes and under one, some deep in common paths.
    let key = |i: usize| match i % 3 {
        0 => format!("{i}"),
        1 => format!("one prefix for all of these/{i:07}"),
        _ => format!("{}{i}", "deep".repeat(i % 50)),
    };
    let length = |i: usize| [0, 5, 8, 9, 100, 3000][i % 6] + usize::from(i == 77) * 300_000;
    for i in (0..3000).filter(|i| i % 7 != 0) {
        map.put_nowait(key(i), vec![i as u8; length(i)]).unwrap();
    }
    map.put("", "of the empty key").unwrap();
    for count in [0, 1, 15, 16, 17, 3000] {
        let mut keys: Vec<String> = (0..count).map(|n| key(n * 1237 % 3000)).collect();
        keys.push(String::new());
        let values = map.get_many(&keys).unwrap();
        assert_eq!(values.len(), keys.len());
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value, map.get(key).unwrap(), "{key}");
        }
    }
    let mut places = Vec::new();
    map.get_many_with(&["nothing", "", "3"], |place, value| places.push((place, value.map(<[u8]>::len))))
        .unwrap();
    assert_eq!(places, [(0, None), (1, Some(16)), (2, Some(9))]);
    let long = "k".repeat(mangrove::KEY_BYTES_MAX + 1);
    let mut calls = 0;
    let refused = map.get_many_with(&["3", &long], |_, _| calls += 1);
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    assert_eq!(calls, 0);
}

/// Readers of many keys, while writers replace, delete and restore them in one batch each: a key that is always there
/// is always found, with a whole value.
#[test]
fn many_keys_are_read_beside_writers() {
    let dir = Dir::new();
    let map = dir.map();
    let keys: Vec<String> = (0..500).map(|i| format!("k{i}")).collect();
    keys.iter().for_each(|key| map.put_nowait(key, [1; 200]).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000usize {
                let i = round * 7 % keys.len();
                let lens = [3, 200, 1000, 8];
                map.put_nowait(&keys[i], vec![round as u8; lens[round % 4]]).unwrap();
                // Neighbours are inserted and removed, so that nodes grow, shrink and are reused.
                map.put_nowait(format!("k{i}x{round}"), "").unwrap();
                if round >= 300 {
                    let old = round - 300;
                    map.delete_nowait(format!("k{}x{old}", old * 7 % keys.len())).unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            map.get_many_with(&keys, |place, value| {
                let value = value.unwrap_or_else(|| panic!("{} is not found", keys[place]));
                assert!([3, 8, 200, 1000].contains(&value.len()));
                assert!(value.iter().all(|byte| *byte == value[0]), "{} is torn", keys[place]);
            })
            .unwrap();
        }
    });
}

#[test]
fn a_walk_held_across_writes_shows_the_instant_of_its_making() {
    let dir = Dir::new();
    let map = dir.map();
    for i in 0..2000 {
        map.put_nowait(format!("k{i:04}"), "old").unwrap();
    }
    let mut walk = map.iter().unwrap();
    let first = walk.next().unwrap().unwrap();
    map.delete_range("k0500".."k1500").unwrap();
    for i in 0..2000 {
        map.put_nowait(format!("k{i:04}"), "new, and longer than a word").unwrap();
        map.put_nowait(format!("k{i:04}+"), "more").unwrap();
    }
    let mut seen = vec![first];
    seen.extend(walk.map(Result::unwrap));
    assert_eq!(seen.len(), 2000);
    assert!(seen.iter().all(|(_, value)| value == b"old"));
    assert_eq!(map.len().unwrap(), 4000);
}

#[test]
fn a_backup_beside_writers_is_one_instant() {
    let dir = Dir::new();
    let map = dir.map();
    let write = |n: u64| {
        let mut batch = Batch::new();
        for i in 0..50 {
            batch.put(format!("k{i:02}"), n.to_string());
        }
        map.write(batch).unwrap();
    };
    write(0);
    for i in 0..5000 {
        map.put_nowait(format!("filler{i}"), vec![0; 100]).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 1;
            while !stop.load(Ordering::Relaxed) {
                write(n);
                n += 1;
            }
        });
        for i in 0..5 {
            let to = dir.path(&format!("backup{i}"));
            let mut calls = 0;
            let report = map.backup(&to, |progress| {
                calls += 1;
                assert!(progress.records <= progress.records_total);
                ControlFlow::Continue(())
            });
            assert_eq!(report.unwrap().records, 5050);
            assert!(calls >= 2);
            let copy = Map::options().read_only(true).open(&to).unwrap();
            assert_eq!(copy.len().unwrap(), 5050);
            let stamp = copy.get("k00").unwrap().unwrap();
            for i in 0..50 {
                assert_eq!(
                    copy.get(format!("k{i:02}")).unwrap().unwrap(),
                    stamp,
                    "a batch was copied in part"
                );
            }
            assert!(copy.check().unwrap().is_sound());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_backup_that_ends_early_leaves_nothing() {
    let dir = Dir::new();
    let map = dir.map();
    for i in 0..10_000 {
        map.put_nowait(format!("k{i}"), "v").unwrap();
    }
    let to = dir.path("copy");
    let names = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    let before = names(dir.0.path());
    assert!(matches!(map.backup(&to, |_| ControlFlow::Break(())), Err(Error::Stopped)));
    assert_eq!(names(dir.0.path()), before);
    // What a killed backup left under the temporary name does not stop the next one.
    let part = dir.path(".copy.mangrove-part");
    std::fs::create_dir(&part).unwrap();
    std::fs::write(part.join("image"), "half a backup").unwrap();
    map.backup(&to, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(names(dir.0.path()), before + 1);
    assert!(matches!(map.backup(&to, |_| ControlFlow::Continue(())), Err(Error::Exists { .. })));
}

#[test]
fn of_backups_to_one_path_at_a_time_one_is_made() {
    let dir = Dir::new();
    let map = dir.map();
    for i in 0..1000 {
        map.put_nowait(format!("k{i}"), "a value in a block").unwrap();
    }
    let to = dir.path("copy");
    for round in 0..12u32 {
        let barrier = std::sync::Barrier::new(3);
        let back_up = |delay: u32| {
            barrier.wait();
            std::thread::sleep(std::time::Duration::from_millis(u64::from(delay * round * 3)));
            map.backup(&to, |_| ControlFlow::Continue(()))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|delay| scope.spawn(move || back_up(delay))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        for answer in answers {
            assert!(matches!(answer, Ok(_) | Err(Error::Busy { .. } | Error::Exists { .. })), "{answer:?}");
        }
        let copy = Map::options().read_only(true).open(&to).unwrap();
        assert_eq!(copy.len().unwrap(), 1000);
        assert!(copy.check().unwrap().is_sound());
        drop(copy);
        std::fs::remove_dir_all(&to).unwrap();
        let names = std::fs::read_dir(dir.0.path()).unwrap().count();
        assert_eq!(names, 1, "something is left beside the pool");
    }
}

#[test]
fn a_link_or_a_pipe_in_the_place_of_its_lock_ends_a_backup() {
    let dir = Dir::new();
    let map = Arc::new(dir.map());
    let (to, lock, elsewhere) = (dir.path("copy"), dir.path(".copy.mangrove-lock"), dir.path("elsewhere"));
    let refused = || {
        let (map, path) = (Arc::clone(&map), to.clone());
        let (sender, answer) = std::sync::mpsc::channel();
        // Not joined: if the backup never ended, the test would wait for it for ever.
        std::thread::spawn(move || sender.send(map.backup(&path, |_| ControlFlow::Continue(()))));
        let error = answer.recv_timeout(Duration::from_secs(120)).expect("an answer").unwrap_err();
        assert!(error.to_string().contains("cannot lock") && error.to_string().contains("-lock"), "{error}");
        assert!(!to.exists());
        std::fs::remove_file(&lock).unwrap();
    };
    std::os::unix::fs::symlink("elsewhere", &lock).unwrap();
    refused();
    assert!(!elsewhere.exists());
    std::fs::write(&elsewhere, "a file").unwrap();
    std::os::unix::fs::symlink("elsewhere", &lock).unwrap();
    refused();
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"a file");
    assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    refused();
    map.backup(&to, |_| ControlFlow::Continue(())).unwrap();
}

#[test]
fn a_lock_that_another_user_left_is_named() {
    const FOLDER: &str = "MANGROVE_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let map = Map::options().log_bytes(1 << 20).open(folder.join("pool")).unwrap();
        let error = map.backup(folder.join("copy"), |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains("cannot lock") && error.to_string().contains("-lock"), "{error}");
        return;
    }
    let dir = Dir::new();
    std::fs::set_permissions(dir.0.path(), Permissions::from_mode(0o777)).unwrap();
    let lock = dir.path(".copy.mangrove-lock");
    std::fs::write(&lock, "").unwrap();
    std::fs::set_permissions(&lock, Permissions::from_mode(0o000)).unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "a_lock_that_another_user_left_is_named"])
        .env(FOLDER, dir.0.path())
        .current_dir("/");
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // For root no permission matters.
        again.uid(65534).gid(65534);
    }
    match again.output() {
        // The other user may have no access to this program.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

#[test]
fn threads_share_a_map_and_values_validate_themselves() {
    let dir = Dir::new();
    let map = dir.map();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let map = &map;
            scope.spawn(move || {
                for i in 0..400u64 {
                    let key = format!("k{}", (thread * 7 + i * 13) % 100);
                    match i % 5 {
                        0 => drop(map.delete(&key).unwrap()),
                        _ => map.put_nowait(&key, format!("{key}:{thread}:{i}")).unwrap(),
                    }
                }
            });
        }
        let map = &map;
        scope.spawn(move || {
            for _ in 0..50 {
                for record in map.iter().unwrap() {
                    let (key, value) = record.unwrap();
                    assert!(value.starts_with(&key) && value[key.len()] == b':');
                }
            }
        });
    });
    map.sync().unwrap();
    let keys = keys(&map);
    assert!(keys.is_sorted() && keys.len() as u64 == map.len().unwrap());
    assert!(map.check().unwrap().is_sound());
}

/// The records of a walk.
fn records(range: mangrove::Range<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(Result::unwrap).collect()
}

#[test]
fn owned_snapshots_and_walks_keep_the_map_open_and_show_their_instant() {
    let dir = Dir::new();
    let map = Arc::new(dir.map());
    for i in 0..2_000u32 {
        map.put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    let snapshot = map.snapshot_owned().unwrap();
    let mut walk = map.range_owned(&5u32.to_be_bytes()[..]..).unwrap();
    let walk_of_snapshot = snapshot.range::<&[u8]>(..).unwrap();
    map.delete_range::<&[u8]>(..).unwrap();
    map.put("later", "").unwrap();
    drop(map);
    // The pool is still held, and another thread reads.
    assert!(matches!(Map::open(dir.path("pool")), Err(Error::Busy { .. })));
    let reader = std::thread::spawn(move || {
        assert_eq!(walk.next_back().unwrap().unwrap().0, 1_999u32.to_be_bytes());
        assert_eq!(records(walk).len(), 1_994);
        assert_eq!(snapshot.get(3u32.to_be_bytes()).unwrap().unwrap(), [7; 100]);
        snapshot.len().unwrap()
    });
    assert_eq!(reader.join().unwrap(), 2_000);
    assert_eq!(records(walk_of_snapshot).len(), 2_000);
    // The last of them has closed the map.
    assert_eq!(Map::open(dir.path("pool")).unwrap().len().unwrap(), 1);
}

#[test]
fn a_snapshot_reads_as_the_map_did() {
    let dir = Dir::new();
    let map = dir.map();
    let long = vec![b'x'; 5_000];
    let pairs: [(&str, &[u8]); 5] =
        [("", b"empty"), ("a", b""), ("ab", &long), ("b", b"12345678"), ("gone", b"1")];
    for (key, value) in pairs {
        map.put(key, value).unwrap();
    }
    let keys = ["", "a", "ab", "b", "gone", "new", "never"];
    let before = map.get_many(&keys).unwrap();
    let snapshot = map.snapshot().unwrap();
    for change in 0..2 {
        let mut value = b"left over".to_vec();
        let mut seen = Vec::new();
        snapshot.get_many_with(&keys, |i, value| seen.push((i, value.map(<[u8]>::to_vec)))).unwrap();
        assert_eq!(seen, before.iter().cloned().enumerate().collect::<Vec<_>>());
        assert_eq!(snapshot.get_many(&keys).unwrap(), before);
        for (key, wanted) in keys.iter().zip(&before) {
            assert_eq!(&snapshot.get(key).unwrap(), wanted, "{key} after {change} changes");
            assert_eq!(&snapshot.get_with(key, <[u8]>::to_vec).unwrap(), wanted);
            assert_eq!(snapshot.contains(key).unwrap(), wanted.is_some());
            assert_eq!(snapshot.get_into(key, &mut value).unwrap(), wanted.is_some());
            assert_eq!(value, wanted.clone().unwrap_or_default());
        }
        assert_eq!(records(snapshot.prefix("a").unwrap()).len(), 2);
        map.delete("gone").unwrap();
        for key in ["ab", "b", "new"] {
            map.put(key, "changed").unwrap();
        }
    }
    let too_long = vec![0; mangrove::KEY_BYTES_MAX + 1];
    assert!(matches!(snapshot.contains(&too_long), Err(Error::KeyTooLong { .. })));
    // A walk may outlive its snapshot.
    let walk = snapshot.iter().unwrap();
    drop(snapshot);
    assert_eq!(records(walk).len(), 5);
}
