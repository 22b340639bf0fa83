//! Maps that are recovered in the background: what gets find before that is what was closed, nothing else is shown, and
//! damage is reported by the calls that wait.

use mangrove::{Create, Durability, Error, Map, MapOptions, Medium};
use mangrove_hart::ClosedMap;
use mangrove_pool::{ClosedPool, Opening, PoolOptions};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Each map is recovered in the background.
fn options() -> MapOptions {
    Map::options().medium(Medium::File).durability(Durability::interval_ms(100)).background_recovery_from(0)
}

fn key(n: u32) -> Vec<u8> {
    let mut key = n.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
    key.resize([4, 16, 40, 1000][n as usize % 4], b'k');
    key
}

/// A value for the leaf's word, its slot, a block or an extent.
fn value(n: u32) -> Vec<u8> {
    let len = match n % 1000 {
        7 => 700_000,
        n if n % 50 == 3 => 3000,
        n if n % 3 == 0 => n as usize % 9,
        n => 9 + n as usize % 480,
    };
    n.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// A map of `count` records, of which some were written twice and some deleted, that was closed.
fn closed_map(path: &Path, count: u32) -> Records {
    let map = options().open(path).unwrap();
    let mut records = Records::new();
    for n in 0..count {
        map.put(key(n), value(n)).unwrap();
        records.insert(key(n), value(n));
    }
    for n in (0..count).step_by(5) {
        map.put(key(n), value(n + 1)).unwrap();
        records.insert(key(n), value(n + 1));
    }
    for n in (0..count).step_by(7) {
        map.delete(key(n)).unwrap();
        records.remove(&key(n));
    }
    map.close().unwrap();
    records
}

/// The map before it is recovered, and what holds its pool.
fn before_recovery(path: &Path) -> Option<(Opening, ClosedPool)> {
    before_recovery_with(path, false)
}

fn before_recovery_with(path: &Path, keeps_recent: bool) -> Option<(Opening, ClosedPool)> {
    let mut opening = PoolOptions::new().kind("map").keeps_recent(keeps_recent).begin(path).unwrap();
    let closed = opening.closed_pool(0)?;
    Some((opening, closed))
}

fn flip(file: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
}

/// Places of `needle` in a file.
fn places(file: &Path, needle: &[u8]) -> Vec<u64> {
    let bytes = fs::read(file).unwrap();
    let at = |from: usize| bytes[from..].windows(needle.len()).position(|window| window == needle);
    let (mut places, mut from) = (Vec::new(), 0);
    while let Some(next) = at(from) {
        places.push((from + next) as u64);
        from += next + 1;
    }
    places
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[test]
fn gets_before_the_recovery_find_each_record_as_it_was_closed() {
    let dir = folder();
    let path = dir.path().join("p");
    let records = closed_map(&path, 3000);
    assert_eq!(fs::metadata(path.join("index")).unwrap().len(), 64 + 5 * records.len() as u64);
    let (opening, closed) = before_recovery(&path).unwrap();
    let map = ClosedMap::open(closed).unwrap();
    for (key, value) in &records {
        assert_eq!(map.get(key).as_ref(), Some(value));
    }
    for n in (0..3000).step_by(7) {
        assert_eq!(map.get(&key(n)), None);
    }
    for absent in [&b""[..], &[0xff; 9], &[b'k'; 2000]] {
        assert_eq!(map.get(absent), None);
    }
    drop(opening);
    let map = options().open(&path).unwrap();
    assert_eq!(map.iter().unwrap().map(Result::unwrap).collect::<Records>(), records);
}

#[test]
fn each_call_of_a_map_that_is_being_recovered_tells_what_is_there() {
    let dir = folder();
    let path = dir.path().join("p");
    let mut records = closed_map(&path, 3000);
    for round in 0..40u32 {
        let map = options().open(&path).unwrap();
        let (there, absent) = (key(7 * round + 1), key(7 * round));
        let stored = &records[&there];
        let begun = Barrier::new(2);
        std::thread::scope(|threads| {
            // A thread that only gets, beside one that waits.
            threads.spawn(|| {
                begun.wait();
                assert_eq!(map.get(&there).unwrap().as_ref(), Some(stored));
                assert_eq!(map.get_with(&there, <[u8]>::len).unwrap(), Some(stored.len()));
            });
            begun.wait();
            let mut value = vec![1, 2, 3];
            match round % 10 {
                0 => assert!(map.contains(&there).unwrap() && !map.contains(&absent).unwrap()),
                1 => assert!(map.get_into(&there, &mut value).unwrap() && value == *stored),
                2 => assert!(!map.get_into(&absent, &mut value).unwrap() && value.is_empty()),
                3 => assert_eq!(map.len().unwrap(), records.len() as u64),
                4 => assert_eq!(
                    map.get_many(&[&there, &there]).unwrap(),
                    [Some(stored), Some(stored)].map(Option::<&Vec<u8>>::cloned)
                ),
                9 => assert_eq!(map.get_many(&[&absent, &there]).unwrap(), [None, Some(stored.clone())]),
                5 => assert!(map.stat().records == records.len() as u64 && map.refusal().is_none()),
                6 => assert!(map.recovery().clean && map.recovery().records == records.len() as u64),
                7 => assert!(map.check().unwrap().problems.is_empty()),
                8 => map.put(format!("new {round}"), b"value of a round").unwrap(),
                // Closed at once.
                _ => {}
            }
        });
        if round % 10 == 8 {
            records.insert(format!("new {round}").into_bytes(), b"value of a round".to_vec());
        }
        if round % 2 == 0 { map.close().unwrap() } else { drop(map) }
    }
    let map = options().open(&path).unwrap();
    assert_eq!(map.iter().unwrap().map(Result::unwrap).collect::<Records>(), records);
}

#[test]
fn a_damaged_page_is_reported_by_the_calls_that_wait() {
    let dir = folder();
    let path = dir.path().join("p");
    let records = closed_map(&path, 2000);
    let (there, value) = records.iter().find(|(_, value)| value.len() > 100).unwrap();
    let place = places(&path.join("image"), value)[0];
    flip(&path.join("image"), place + 50);
    let (opening, closed) = before_recovery(&path).unwrap();
    assert_eq!(ClosedMap::open(closed).unwrap().get(there), None);
    drop(opening);
    let map = options().open(&path).unwrap();
    let is_damage = |error: &Error| matches!(error, Error::Corrupt { path, .. } if path.ends_with("image"));
    for _ in 0..2 {
        assert!(is_damage(&map.get(there).unwrap_err()));
        assert!(is_damage(&map.put("new", "value").unwrap_err()));
        assert!(is_damage(&map.iter().map(|_| ()).unwrap_err()));
        assert!(is_damage(&map.snapshot().map(|_| ()).unwrap_err()));
        assert!(is_damage(&map.len().unwrap_err()));
        assert!(is_damage(&map.refusal().unwrap()));
        assert!(is_damage(&map.wait_recovered().unwrap_err()));
        assert!(map.stat().poisoned.unwrap().contains("does not match its checksum"));
        assert!(map.recovery().clean && map.recovery().records == 0);
    }
    assert!(is_damage(&map.close().unwrap_err()));
    let at_once = options().background_recovery(false);
    assert!(is_damage(&at_once.open(&path).unwrap_err()));
    // Nothing was written: with the byte as it was, the map opens.
    flip(&path.join("image"), place + 50);
    assert_eq!(at_once.open(&path).unwrap().len().unwrap(), records.len() as u64);
}

#[test]
fn damage_that_is_found_at_once_is_named_as_without_a_thread() {
    let dir = folder();
    let path = dir.path().join("p");
    closed_map(&path, 2000);
    let sums = fs::read(path.join("sums")).unwrap();
    let pages: Vec<usize> = (0..sums.len() / 4).filter(|page| sums[page * 4..][..4] != [0; 4]).collect();
    for at in [pages[0], pages[pages.len() / 2], pages[pages.len() - 1]] {
        flip(&path.join("sums"), at as u64 * 4);
        for options in [options(), options().background_recovery(false)] {
            let error = options.open(&path).unwrap_err();
            let Error::Corrupt { path, offset, .. } = &error else { panic!("{error}") };
            assert!(path.ends_with("image") && *offset == at as u64 * 4096, "{error}");
        }
        flip(&path.join("sums"), at as u64 * 4);
    }
    options().open(&path).unwrap().wait_recovered().unwrap();
}

#[test]
fn a_recovery_that_ends_early_leaves_no_file_of_recent_writes() {
    const ROUNDS_MAX: u64 = 5000;
    let dir = folder();
    let path = dir.path().join("p");
    let mut records = closed_map(&path, 3000);
    let options = options().keeps_recent(true);
    let is_recent = |name: OsString| name.to_string_lossy().starts_with("recent-");
    let is_alone = || !fs::read_dir(&path).unwrap().any(|entry| is_recent(entry.unwrap().file_name()));
    // Whether a recovery is over after a pause is the scheduler's: rounds without one go on until enough were not.
    let (mut ended_early, mut round) = (0, 0u64);
    while round < 100 || ended_early <= 10 {
        assert!(round < ROUNDS_MAX, "{ended_early} of {round} recoveries ended early");
        let map = options.open(&path).unwrap();
        let pause = if round < 100 { round * 50 } else { 0 };
        std::thread::sleep(std::time::Duration::from_micros(pause));
        ended_early += u32::from(!map.is_recovered());
        if round % 2 == 0 {
            map.close().unwrap()
        } else {
            drop(map)
        }
        assert!(is_alone(), "round {round}");
        round += 1;
    }
    let (opening, closed) = before_recovery_with(&path, true).unwrap();
    assert!(!is_alone());
    drop((closed, opening));
    assert!(is_alone());
    // One that comes to its end keeps recent writes.
    let unsynced = Durability::Interval(std::time::Duration::from_secs(3600));
    let map = options.clone().durability(unsynced).open(&path).unwrap();
    map.put_nowait("new", "value").unwrap();
    let killed = dir.path().join("killed");
    copy_files(&path, &killed).unwrap();
    assert!(!is_alone());
    drop(map);
    assert!(is_alone());
    records.insert(b"new".to_vec(), b"value".to_vec());
    let map = options.open(&killed).unwrap();
    assert_eq!(map.iter().unwrap().map(Result::unwrap).collect::<Records>(), records);
}

#[test]
fn a_damaged_index_costs_time_alone() {
    let dir = folder();
    let path = dir.path().join("p");
    let records = closed_map(&path, 500);
    let whole = fs::read(path.join("index")).unwrap();
    let damage: [fn(&mut Vec<u8>); 5] = [
        |index| index.truncate(70),
        |index| index[64..].reverse(),
        |index| index[64..].fill(0xff),
        |index| index[20] ^= 1,
        |index| (64..index.len()).step_by(11).for_each(|at| index[at] ^= 0x10),
    ];
    for damage in damage {
        let mut index = whole.clone();
        damage(&mut index);
        fs::write(path.join("index"), &index).unwrap();
        if let Some((_opening, closed)) = before_recovery(&path) {
            let map = ClosedMap::open(closed).unwrap();
            for (key, value) in &records {
                assert!(map.get(key).is_none_or(|found| found == *value));
            }
        }
        let map = options().open(&path).unwrap();
        for (key, value) in &records {
            assert_eq!(map.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(map.get("absent").unwrap(), None);
    }
}

#[test]
fn an_index_counts_only_with_the_files_of_its_closing() {
    let dir = folder();
    let (path, old) = (dir.path().join("p"), dir.path().join("old"));
    closed_map(&path, 500);
    copy_files(&path, &old).unwrap();
    assert!(before_recovery(&path).is_some());
    let map = options().open(&path).unwrap();
    map.put(key(1), b"another value than before").unwrap();
    map.sync().unwrap();
    // As SIGKILL would leave it.
    let killed = dir.path().join("killed");
    copy_files(&path, &killed).unwrap();
    assert!(before_recovery(&killed).is_none());
    map.close().unwrap();
    assert!(before_recovery(&path).is_some());
    fs::copy(old.join("index"), path.join("index")).unwrap();
    assert!(before_recovery(&path).is_none());
    // A map leaves one also if its only write was not durable yet when it was closed; and if it was not changed, but
    // there is none.
    let map = options().create(Create::Never).open(&path).unwrap();
    map.put_nowait(key(1), b"another value than before").unwrap();
    map.close().unwrap();
    assert!(before_recovery(&path).is_some());
    let index = fs::read(path.join("index")).unwrap();
    fs::remove_file(path.join("index")).unwrap();
    drop(options().create(Create::Never).open(&path).unwrap());
    assert!(fs::read(path.join("index")).unwrap() == index);
    // Data files of one moment, the others of another: an older value must not be shown.
    for name in ["image", "sums"] {
        let mixed = dir.path().join(format!("with an old {name}"));
        copy_files(&path, &mixed).unwrap();
        fs::copy(old.join(name), mixed.join(name)).unwrap();
        let shown = options().open(&mixed).and_then(|map| map.get(key(1)));
        assert!(matches!(shown, Err(Error::Corrupt { .. })), "with an old {name}: {shown:?}");
    }
}

/// Opens the map, changes a record and closes it.
fn change(path: &Path, options: &MapOptions) {
    let map = options.open(path).unwrap();
    let value = map.len().unwrap().to_be_bytes();
    map.put([&b"changed"[..], &value[..]].concat(), value).unwrap();
    map.close().unwrap();
}

#[test]
fn an_index_is_not_written_through_a_link() {
    let dir = folder();
    let (path, other) = (dir.path().join("p"), dir.path().join("other"));
    closed_map(&path, 100);
    let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
        [|file, name| std::os::unix::fs::symlink(file, name), |file, name| fs::hard_link(file, name)];
    for link in links {
        fs::rename(path.join("index"), &other).unwrap();
        let before = fs::read(&other).unwrap();
        link(&other, &path.join("index")).unwrap();
        change(&path, &options());
        assert!(fs::read(&other).unwrap() == before);
        assert!(before_recovery(&path).is_some());
    }
}

#[test]
fn a_file_of_that_name_that_is_somebody_elses_stays() {
    let dir = folder();
    let path = dir.path().join("p");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("index"), "precious").unwrap();
    for options in [options(), Map::options().medium(Medium::File)] {
        change(&path, &options);
        change(&path, &options);
        assert_eq!(fs::read(path.join("index")).unwrap(), b"precious");
        assert!(before_recovery(&path).is_none());
    }
}

#[test]
fn a_small_map_leaves_no_index_and_removes_an_old_one() {
    let dir = folder();
    let path = dir.path().join("p");
    closed_map(&path, 100);
    assert!(path.join("index").exists());
    let ordinary = Map::options().medium(Medium::File);
    drop(ordinary.open(&path).unwrap());
    assert!(path.join("index").exists(), "it still counts");
    let map = ordinary.open(&path).unwrap();
    map.put("new", "value").unwrap();
    drop(map);
    assert!(!path.join("index").exists());
}
