//! A damaged map gives back every record that is sound.

#[path = "../../../pool/tests/support/hooked.rs"]
mod hooked;

use hooked::{Access, hooked};
use mangrove::{Error, Map};
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation};
use mangrove_testkit::command::wait_until;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn open(path: &Path) -> Map {
    open_with_log(path, 1 << 20)
}

/// With a log of 4 MiB no checkpoint begins by itself in these tests.
fn open_with_log(path: &Path, bytes: u64) -> Map {
    Map::options().medium(mangrove::Medium::File).capacity(16 << 20).log_bytes(bytes).open(path).unwrap()
}

/// Short and long keys, values in leaves, in blocks and in an extent; the records in the order of their writes.
fn fill(map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = (0..600u32)
        .map(|i| {
            let key = format!("{i:03}-{}", "k".repeat([4, 80, 300][i as usize % 3])).into_bytes();
            (key, vec![i as u8; [3, 8, 70, 900][i as usize / 3 % 4]])
        })
        .collect();
    records.push((b"extent".to_vec(), vec![7; 300_000]));
    records.iter().for_each(|(key, value)| map.put(key, value).unwrap());
    records
}

/// A closed map in `dir`, and a copy of its pool to be damaged.
fn closed_and_copied(dir: &Path) -> (Records, PathBuf) {
    let live = dir.join("live");
    let map = open(&live);
    let records = fill(&map).into_iter().collect();
    map.close().unwrap();
    (records, copy(&live, dir.join("bad")))
}

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir(&to).unwrap();
    for name in ["pool", "image", "log", "sums"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    to
}

/// What a salvage of `bad` gives: the records, and the damage that it reports.
fn salvaged(bad: &Path) -> (Records, Vec<String>) {
    let new = bad.with_file_name("new");
    let report = Map::salvage(bad, &new, |_| ControlFlow::Continue(())).unwrap();
    let map = Map::options().read_only(true).open(&new).unwrap();
    assert!(map.check().unwrap().is_sound());
    let found: Records = map.iter().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(report.records, found.len() as u64);
    drop(map);
    fs::remove_dir_all(&new).unwrap();
    (found, report.damage)
}

#[test]
fn one_flipped_bit_costs_one_record_at_most() {
    let dir = folder();
    let (records, bad) = closed_and_copied(dir.path());
    assert_eq!(salvaged(&bad), (records.clone(), Vec::new()), "nothing is damaged");
    let image = fs::read(bad.join("image")).unwrap();
    let used: Vec<usize> = (0..image.len()).filter(|&at| image[at] != 0).collect();
    // The root, the directory, and bytes all over the leaves and values.
    let early = used.iter().copied().take_while(|&at| at < 8192).step_by(5);
    let (mut lost, mut tries) = (0, 0);
    for at in early.chain(used.iter().copied().step_by(used.len() / 60)) {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(bad.join("image"), damaged).unwrap();
        assert!(matches!(Map::options().read_only(true).open(&bad), Err(Error::Corrupt { .. })));
        let (found, damage) = salvaged(&bad);
        assert!(!damage.is_empty() && damage[0].contains("image"), "byte {at}: {damage:?}");
        assert!(found.iter().all(|(key, value)| records.get(key) == Some(value)), "byte {at}");
        let missing = records.len() - found.len();
        assert!(missing <= 1, "byte {at}: {missing} records are missing: {damage:?}");
        (lost, tries) = (lost + missing, tries + 1);
    }
    assert!(lost > 10 && tries > 70, "{lost} records lost in {tries} tries");
}

#[test]
fn a_damaged_log_costs_what_was_written_after_the_damage() {
    let dir = folder();
    let live = dir.path().join("live");
    // No checkpoint shortens this log while the files are copied.
    let map = open_with_log(&live, 4 << 20);
    let mut order = fill(&map);
    // Its write proves that the one before was durable; damage in the last write looks like a crash during it.
    order.push((b"last".to_vec(), b"1".to_vec()));
    map.put(b"last", b"1").unwrap();
    let bad = copy(&live, dir.path().join("bad"));
    map.close().unwrap();
    let log = fs::read(bad.join("log")).unwrap();
    let used: Vec<usize> = (0..log.len()).filter(|&at| log[at] != 0).collect();
    let (mut shortest, mut longest) = (order.len(), 0);
    for at in used.iter().copied().step_by(used.len() / 12).take(12) {
        let mut damaged = log.clone();
        damaged[at] ^= 1;
        fs::write(bad.join("log"), damaged).unwrap();
        let (found, damage) = salvaged(&bad);
        assert!(!damage.is_empty(), "byte {at}");
        let prefix: Records = order[..found.len()].iter().cloned().collect();
        assert!(found == prefix, "byte {at}: not a prefix of the writes: {} records", found.len());
        (shortest, longest) = (shortest.min(found.len()), longest.max(found.len()));
    }
    assert!(shortest < 300 && longest > 300, "{shortest} to {longest} records");
    fs::write(bad.join("log"), &log[..log.len() / 2]).unwrap();
    let (_, damage) = salvaged(&bad);
    assert!(damage.iter().any(|place| place.contains("log")), "{damage:?}");
}

#[test]
fn an_image_that_was_cut_gives_what_is_left() {
    let dir = folder();
    let (records, bad) = closed_and_copied(dir.path());
    let image = fs::read(bad.join("image")).unwrap();
    let last = image.iter().rposition(|&byte| byte != 0).unwrap();
    fs::write(bad.join("image"), &image[..last / 2]).unwrap();
    let (found, damage) = salvaged(&bad);
    assert!(
        !damage.is_empty() && !found.is_empty() && found.len() < records.len(),
        "{} records",
        found.len()
    );
    assert!(found.iter().all(|(key, value)| records.get(key) == Some(value)));
}

#[test]
fn page_sums_of_the_wrong_length_cost_no_record() {
    let dir = folder();
    let (records, bad) = closed_and_copied(dir.path());
    let sums = fs::read(bad.join("sums")).unwrap();
    let longer = [sums.clone(), vec![0; 1 << 20]].concat();
    for damaged in [&sums[..sums.len() / 2], &sums[..0], &longer[..]] {
        fs::write(bad.join("sums"), damaged).unwrap();
        assert!(matches!(Map::options().read_only(true).open(&bad), Err(Error::Corrupt { .. })));
        let (found, damage) = salvaged(&bad);
        assert!(damage.iter().any(|place| place.contains("sums")), "{damage:?}");
        assert!(found == records, "{} bytes: {} records", damaged.len(), found.len());
    }
}

#[test]
fn a_salvage_is_whole_or_not_there_and_leaves_the_damaged_pool_alone() {
    let dir = folder();
    let bad = dir.path().join("bad");
    let map = open(&bad);
    fill(&map);
    let new = dir.path().join("new");
    let busy = Map::salvage(&bad, &new, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    map.close().unwrap();
    let before = fs::read(bad.join("image")).unwrap();
    let stopped = Map::salvage(&bad, &new, |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(stopped, Error::Stopped), "{stopped}");
    // Neither the new pool, nor its part or its lock under a temporary name.
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["bad"], "a salvage that was stopped leaves nothing");
    let missing = Map::salvage(dir.path().join("none"), &new, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    assert!(fs::read(bad.join("image")).unwrap() == before);
}

#[test]
fn a_copy_has_the_permissions_and_the_log_of_its_original() {
    let dir = folder();
    let live = dir.path().join("live");
    let map = open(&live);
    fill(&map);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (folder, file) in [(0o700, 0o600), (0o750, 0o640)] {
        for name in ["pool", "image", "log", "sums"] {
            fs::set_permissions(live.join(name), fs::Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(&live, fs::Permissions::from_mode(folder)).unwrap();
        let to = dir.path().join(format!("copy-{folder:o}"));
        let part = dir.path().join(format!(".copy-{folder:o}.mangrove-part"));
        map.backup(&to, |_| {
            assert_eq!(mode(&part), 0o700, "nobody else reads what is being copied");
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(mode(&to), folder);
        for name in ["pool", "image", "log", "sums"] {
            assert_eq!(mode(&to.join(name)), file, "{name}");
        }
        // It is written without a log; its log may grow as far.
        assert_eq!(mangrove::pool_info(&to).unwrap().log_bytes_max, 1 << 20);
    }
    map.close().unwrap();
    // Whatever it may grow to, not what it has, nor a number of the library's.
    for most in [64 << 10, 3 << 20, 64 << 20, 1 << 30] {
        let live = dir.path().join(format!("live-{most}"));
        let map = open_with_log(&live, most);
        map.put("k", "v").unwrap();
        let to = dir.path().join(format!("copy-{most}"));
        map.backup(&to, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(mangrove::pool_info(&to).unwrap().log_bytes_max, most);
        map.close().unwrap();
    }
}

#[test]
fn after_a_failure_of_the_medium_a_backup_has_everything_that_was_acknowledged() {
    let dir = folder();
    let live = dir.path().join("live");
    // The checkpoint below has something to do: none has been before it.
    let map = open_with_log(&live, 4 << 20);
    let records: Records = fill(&map).into_iter().collect();
    // A pool whose file has lost its name refuses to go on: the failure of a disk, for a test.
    fs::rename(live.join("pool"), live.join("away")).unwrap();
    map.checkpoint().unwrap_err();
    fs::rename(live.join("away"), live.join("pool")).unwrap();
    assert!(map.put("late", "never acknowledged").is_err() && map.refusal().is_some());
    let _ = map.put_nowait("later", "never acknowledged");
    // All of it was durable before the failure, so that gets, walks and snapshots still answer.
    let (key, value) = records.first_key_value().unwrap();
    assert_eq!(map.get(key).unwrap().as_ref(), Some(value));
    let walked: Result<Records, _> = map.iter().unwrap().collect();
    assert!(walked.unwrap() == records && map.snapshot().unwrap().len().unwrap() == records.len() as u64);
    let to = dir.path().join("saved");
    let report = map.backup(&to, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.records, records.len() as u64);
    let saved = Map::options().read_only(true).open(&to).unwrap();
    let found: Records = saved.iter().unwrap().collect::<Result<_, _>>().unwrap();
    assert!(found == records && saved.check().unwrap().is_sound());
}

/// A map in the pool `live` with records, in which a put failed when they were durable.
fn map_with_a_failed_put(live: &Path) -> (Map, Records) {
    let map = open_with_log(live, 4 << 20);
    let records: Records = fill(&map).into_iter().collect();
    map.close().unwrap();
    let map = open_with_log(live, 4 << 20);
    fs::rename(live.join("pool"), live.join("away")).unwrap();
    assert!(map.put("late", "never acknowledged").is_err());
    fs::rename(live.join("away"), live.join("pool")).unwrap();
    (map, records)
}

/// A backup of the map into the new pool `to` has these records.
fn backs_up(map: &Map, to: &Path, records: &Records) {
    let report = map.backup(to, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.records, records.len() as u64);
    let saved = Map::options().read_only(true).open(to).unwrap();
    assert!(saved.iter().unwrap().collect::<Result<Records, _>>().unwrap() == *records);
}

/// The put never became durable, and its key is not told from others in memory.
#[test]
fn a_backup_after_a_put_that_failed_has_what_was_acknowledged() {
    let dir = folder();
    let (map, records) = map_with_a_failed_put(&dir.path().join("live"));
    backs_up(&map, &dir.path().join("saved"), &records);
}

/// The pool of a failed disk may be moved aside, and an older copy restored in its place.
#[test]
fn after_a_failure_a_backup_reads_its_own_files_whatever_has_their_path() {
    let dir = folder();
    let live = dir.path().join("live");
    let (map, records) = map_with_a_failed_put(&live);
    fs::rename(&live, dir.path().join("aside")).unwrap();
    let restored = open(&live);
    restored.put("older", "copy").unwrap();
    restored.close().unwrap();
    backs_up(&map, &dir.path().join("saved"), &records);
}

/// It began before the failure, and changes the files that the backup reads.
#[test]
fn after_a_failure_a_backup_waits_for_the_checkpoint_that_is_at_work() {
    let dir = folder();
    let (at_work, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let until = |flag: &AtomicBool| wait_until("the other thread", || flag.load(Ordering::SeqCst));
    let (begins, waits) = (Arc::clone(&at_work), Arc::clone(&go_on));
    let storage = Faulty::new(hooked(move |access, name, _| {
        if access == Access::Write && name == "image" {
            begins.store(true, Ordering::SeqCst);
            until(&waits);
        }
    }));
    let options = Map::options().medium(mangrove::Medium::File).capacity(16 << 20).log_bytes(4 << 20);
    let map = options.storage(Arc::new(storage.clone())).open(dir.path().join("live")).unwrap();
    let records: Records = fill(&map).into_iter().collect();
    let to = dir.path().join("saved");
    std::thread::scope(|scope| {
        scope.spawn(|| map.checkpoint());
        until(&at_work);
        let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
        map.put("late", "never acknowledged").unwrap_err();
        storage.heal();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            go_on.store(true, Ordering::SeqCst);
        });
        map.backup(&to, |_| ControlFlow::Continue(())).unwrap();
        assert!(go_on.load(Ordering::SeqCst), "the backup did not wait");
    });
    let saved = Map::options().read_only(true).open(&to).unwrap();
    let mut found: Records = saved.iter().unwrap().collect::<Result<_, _>>().unwrap();
    found.remove(&b"late"[..]);
    assert!(found == records);
}
