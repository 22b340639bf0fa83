//! Disk space of a map: an empty one is small, and what is deleted comes back.

use mangrove::{Create, Durability, Error, Map, MapOptions, Medium};
use mangrove_testkit::command::wait_until;
use mangrove_testkit::disk::disk_bytes;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> MapOptions {
    Map::options().medium(Medium::File).durability(Durability::interval_ms(100))
}

fn key(n: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key[12..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value(n: u32) -> Vec<u8> {
    n.to_be_bytes().repeat(1 + n as usize % 70)
}

#[test]
fn an_empty_map_takes_less_than_a_mebibyte() {
    let dir = folder();
    let path = dir.path().join("p");
    let map = options().open(&path).unwrap();
    assert!(disk_bytes(&path) < 256 << 10, "{}", disk_bytes(&path));
    for n in 0..4 {
        map.put(key(n), value(n)).unwrap();
    }
    assert!(disk_bytes(&path) <= 1 << 20, "{}", disk_bytes(&path));
    map.close().unwrap();
    assert!(disk_bytes(&path) <= 1 << 20, "{}", disk_bytes(&path));
    let map = options().open(&path).unwrap();
    assert_eq!(map.get(key(3)).unwrap(), Some(value(3)));
    map.put(key(9), value(9)).unwrap();
    drop(map);
    assert!(disk_bytes(&path) <= 1 << 20, "{}", disk_bytes(&path));
    let map = Map::options().read_only(true).open(&path).unwrap();
    assert_eq!(map.len().unwrap(), 5);
}

#[test]
fn a_crash_that_takes_the_length_of_the_data_file_leaves_it_small() {
    let dir = folder();
    let (before, path) = (dir.path().join("before"), dir.path().join("p"));
    let map = options().open(&before).unwrap();
    (0..4).for_each(|n| map.put(key(n), value(n)).unwrap());
    map.sync().unwrap();
    // What a power cut may leave: no checkpoint has recorded a length.
    std::fs::create_dir(&path).unwrap();
    for file in ["pool", "log"] {
        std::fs::copy(before.join(file), path.join(file)).unwrap();
    }
    for file in ["image", "sums"] {
        std::fs::write(path.join(file), b"").unwrap();
    }
    drop(map);
    let map = options().open(&path).unwrap();
    assert!((0..4).all(|n| map.get(key(n)).unwrap() == Some(value(n))));
    (4..6).for_each(|n| map.put(key(n), value(n)).unwrap());
    map.close().unwrap();
    assert!(disk_bytes(&path) <= 1 << 20, "{}", disk_bytes(&path));
    assert_eq!(mangrove::pool_check(&path).unwrap(), [""; 0]);
    let map = options().open(&path).unwrap();
    assert!((0..6).all(|n| map.get(key(n)).unwrap() == Some(value(n))));
}

#[test]
fn what_is_deleted_comes_back() {
    const RECORDS: u32 = 60_000;
    let dir = folder();
    let (path, fresh) = (dir.path().join("p"), dir.path().join("fresh"));
    let map = options().open(&path).unwrap();
    (0..RECORDS).for_each(|n| map.put(key(n), value(n)).unwrap());
    map.checkpoint().unwrap();
    let full = std::fs::metadata(path.join("image")).unwrap().blocks() * 512;
    for n in (0..RECORDS).filter(|n| n % 10 != 0) {
        assert!(map.delete(key(n)).unwrap());
    }
    let before = map.range::<&[u8]>(..).unwrap();
    let report = map.compact().unwrap();
    assert!(report.moved > 2_500 && report.bytes_given_back > full / 2, "{report:?}");
    // An iterator from before sees what it saw.
    assert_eq!(before.map(Result::unwrap).count(), RECORDS as usize / 10);
    assert!(map.check().unwrap().is_sound(), "{:?}", map.check().unwrap().problems);
    let again = map.compact().unwrap();
    assert_eq!((again.moved, again.bytes_given_back), (0, 0));
    let kept = |map: &Map| {
        assert_eq!(map.len().unwrap(), u64::from(RECORDS / 10));
        assert!((0..RECORDS).all(|n| map.get(key(n)).unwrap() == (n % 10 == 0).then(|| value(n))));
    };
    kept(&map);
    let other = options().open(&fresh).unwrap();
    (0..RECORDS).step_by(10).for_each(|n| other.put(key(n), value(n)).unwrap());
    other.close().unwrap();
    let blocks = |path: &Path| std::fs::metadata(path.join("image")).unwrap().blocks() * 512;
    assert!(blocks(&path) <= blocks(&fresh) * 3 / 2, "{} and {}", blocks(&path), blocks(&fresh));
    // The freed space is used again, also after a crash.
    (0..RECORDS / 2).for_each(|n| map.put(key(n), value(n)).unwrap());
    map.sync().unwrap();
    drop(map);
    let map = options().open(&path).unwrap();
    for n in (0..RECORDS / 2).filter(|n| n % 10 != 0) {
        assert_eq!(map.get(key(n)).unwrap(), Some(value(n)));
        map.delete(key(n)).unwrap();
    }
    map.compact().unwrap();
    kept(&map);
    map.close().unwrap();
    assert!(blocks(&path) <= blocks(&fresh) * 3 / 2, "{} and {}", blocks(&path), blocks(&fresh));
    assert_eq!(mangrove::pool_check(&path).unwrap(), [""; 0]);
    let map = options().open(&path).unwrap();
    kept(&map);
    assert!(map.check().unwrap().is_sound());
    drop(map);
    let map = Map::options().read_only(true).open(&path).unwrap();
    assert!(matches!(map.compact(), Err(Error::ReadOnly { .. })), "it may not change the pool");
}

#[test]
fn a_map_compacts_itself_while_it_is_used() {
    const RECORDS: u32 = 60_000;
    const BYTES: u64 = 1 << 20;
    let dir = folder();
    let (path, fresh) = (dir.path().join("p"), dir.path().join("fresh"));
    let blocks = |path: &Path| std::fs::metadata(path.join("image")).unwrap().blocks() * 512;
    let other = options().open(&fresh).unwrap();
    (0..RECORDS).step_by(10).for_each(|n| other.put(key(n), value(n)).unwrap());
    other.close().unwrap();
    let goal = blocks(&fresh) * 3 / 2 + 2 * BYTES;

    let map = options().background_compaction_from(BYTES).open(&path).unwrap();
    (0..RECORDS).for_each(|n| map.put(key(n), value(n)).unwrap());
    map.checkpoint().unwrap();
    let full = blocks(&path);
    assert!(full > 2 * goal, "{full} and {goal}");
    let snapshot = map.snapshot().unwrap();
    (0..RECORDS).filter(|n| n % 10 != 0).for_each(|n| assert!(map.delete(key(n)).unwrap()));
    // A compaction that has begun ends soon, and takes nothing from the snapshot.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(snapshot.range::<&[u8]>(..).unwrap().map(Result::unwrap).count(), RECORDS as usize);
    drop(snapshot);
    let mut round = 0;
    wait_until("the space of what was deleted comes back", || {
        for n in (0..RECORDS).step_by(10).skip(round % 50).step_by(50) {
            assert_eq!(map.get(key(n)).unwrap(), Some(value(n)));
            map.put(key(n), value(n)).unwrap();
        }
        assert!(
            (0..RECORDS)
                .skip(round % 997)
                .step_by(997)
                .all(|n| { map.get(key(n)).unwrap() == (n % 10 == 0).then(|| value(n)) })
        );
        round += 1;
        blocks(&path) <= goal
    });
    assert!(map.check().unwrap().is_sound(), "{:?}", map.check().unwrap().problems);
    map.close().unwrap();
    assert_eq!(mangrove::pool_check(&path).unwrap(), [""; 0]);

    // It ends when the map is closed, whatever it does then; and opening continues it.
    let map = options().background_compaction(false).open(&path).unwrap();
    (0..RECORDS).for_each(|n| map.put(key(n), value(n)).unwrap());
    (0..RECORDS).filter(|n| n % 10 != 0).for_each(|n| assert!(map.delete(key(n)).unwrap()));
    map.close().unwrap();
    for milliseconds in [0, 190, 200, 210, 230, 260] {
        let map = options().background_compaction_from(BYTES).open(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        map.close().unwrap();
    }
    let map = options().background_compaction_from(BYTES).open(&path).unwrap();
    wait_until("a compaction continues after an opening", || blocks(&path) <= goal);
    assert!((0..RECORDS).all(|n| map.get(key(n)).unwrap() == (n % 10 == 0).then(|| value(n))));
    assert!(map.check().unwrap().is_sound(), "{:?}", map.check().unwrap().problems);
}

#[test]
fn readers_and_writers_go_on_beside_a_compaction() {
    const RECORDS: u32 = 20_000;
    let dir = folder();
    let path = dir.path().join("p");
    let map = options().create(Create::New).open(&path).unwrap();
    (0..RECORDS).for_each(|n| map.put(key(n), value(n)).unwrap());
    (0..RECORDS).filter(|n| n % 8 != 0).for_each(|n| assert!(map.delete(key(n)).unwrap()));
    let ends = AtomicBool::new(false);
    let fixed = || (0..RECORDS).step_by(8).filter(|n| n % 16 == 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                for n in fixed().step_by(7) {
                    assert_eq!(map.get(key(n)).unwrap(), Some(value(n)));
                }
                let mut found: Vec<_> = map.iter().unwrap().map(Result::unwrap).collect();
                found.retain(|(_, value)| u32::from_be_bytes(value[..4].try_into().unwrap()) % 16 == 0);
                assert_eq!(found.len(), fixed().count());
                for (key, found) in found {
                    let n = u32::from_be_bytes(key[12..16].try_into().unwrap());
                    assert_eq!(found, value(n));
                }
            }
        });
        scope.spawn(|| {
            let mut round = 0;
            while !ends.load(Ordering::Relaxed) {
                round += 1;
                for n in (1..RECORDS).step_by(16) {
                    if round % 2 == 0 {
                        map.delete(key(n)).unwrap();
                    } else {
                        map.put(key(n), value(n)).unwrap();
                    }
                }
            }
        });
        for _ in 0..12 {
            map.compact().unwrap();
            let report = map.check().unwrap();
            assert!(report.is_sound(), "{:?}", report.problems);
        }
        ends.store(true, Ordering::Relaxed);
    });
    map.close().unwrap();
    let map = options().open(&path).unwrap();
    assert!((0..RECORDS).step_by(16).all(|n| map.get(key(n)).unwrap() == Some(value(n))));
    assert!(map.check().unwrap().is_sound());
}
