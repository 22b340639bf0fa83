//! Compaction of the engine `durable`: what comes back, and that nothing is lost meanwhile, beside readers and writers,
//! under SIGKILL, and on a full disk.

use super::*;
use crate::change_list::ChangeBytes;
use mangrove_testkit::command::{Victim, run};
use mangrove_testkit::disk::disk_bytes;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(directory: &Path) -> Box<dyn StorageEngine> {
    let catalog = Catalog { engine: RecordEngine::Durable, comparator: BYTEWISE.to_vec() };
    let lock = catalog::lock(directory).unwrap();
    open_engine(directory, &catalog, &NamedOrder::bytewise(), EngineRequest::Create, lock).unwrap().0
}

/// The finaliser of SplitMix64: no two numbers give the same one.
fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn key_of(n: u64) -> Vec<u8> {
    format!("{:016x}", mix(n)).into_bytes()
}

/// Everything, in both directions.
#[track_caller]
fn contents(store: &dyn StorageEngine) -> Model {
    let mut cursor = store.view().unwrap().cursor();
    let mut found = Model::new();
    cursor.seek_to_first().unwrap();
    while let Some((key, value)) = cursor.record() {
        assert!(found.last_key_value().is_none_or(|(last, _)| last.as_slice() < key));
        found.insert(key.to_vec(), value.to_vec());
        cursor.next().unwrap();
    }
    cursor.seek_to_last().unwrap();
    for (key, value) in found.iter().rev() {
        assert_eq!(cursor.record(), Some((key.as_slice(), value.as_slice())));
        cursor.prev().unwrap();
    }
    assert!(cursor.record().is_none());
    found
}

#[track_caller]
fn holds(store: &dyn StorageEngine, model: &Model) {
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    let found = contents(store);
    assert_eq!(found.len(), model.len());
    assert!(found == *model, "something is not as it was written");
}

/// Applies to a store in batches.
fn apply(store: &dyn StorageEngine, changes: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) {
    let mut changes = changes.peekable();
    while changes.peek().is_some() {
        let mut batch = ChangeBytes::default();
        for (key, value) in changes.by_ref().take(100) {
            match value {
                Some(value) => batch.put(&key, &value),
                None => batch.delete(&key),
            }
        }
        store.write(batch.list(), false).unwrap();
    }
}

/// A database of which nine tenths are deleted takes, when it is compacted and opened again, hardly more than one that
/// got the rest alone; and so does it when a snapshot that was taken before the deletions goes.
#[test]
fn what_is_left_takes_little_more_than_a_fresh_load_of_it() {
    for (records, value_len) in [(20_000, 1000), (60_000, 100), (40_000, 300)] {
        let value = |n: u64| vec![n as u8; value_len];
        let scratch = tempfile::tempdir().unwrap();
        let taken = |name: &str, work: &dyn Fn(&dyn StorageEngine)| {
            let directory = scratch.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let store = open(&directory);
            work(&*store);
            store.compact().unwrap();
            drop(store);
            let store = open(&directory);
            holds(&*store, &(0..records).step_by(10).map(|n| (key_of(n), value(n))).collect());
            drop(store);
            disk_bytes(&directory)
        };
        let fresh = taken("fresh", &|store| {
            apply(store, (0..records).step_by(10).map(|n| (key_of(n), Some(value(n)))));
        });
        let whole = taken("whole", &|store| {
            apply(store, (0..records).map(|n| (key_of(n), Some(value(n)))));
            apply(store, (0..records).filter(|n| n % 10 != 0).map(|n| (key_of(n), None)));
        });
        assert!(whole * 2 <= fresh * 3, "{records} records of {value_len}: {whole}, {fresh} bytes fresh");
        let snapshot = taken("snapshot", &|store| {
            apply(store, (0..records).map(|n| (key_of(n), Some(value(n)))));
            let view = store.view().unwrap();
            apply(store, (0..records).filter(|n| n % 10 != 0).map(|n| (key_of(n), None)));
            store.compact().unwrap();
            let mut found = 0;
            let mut cursor = view.cursor();
            cursor.seek_to_first().unwrap();
            while let Some((_, kept)) = cursor.record() {
                assert_eq!(kept.len(), value_len);
                found += 1;
                cursor.next().unwrap();
            }
            assert_eq!(found, records);
        });
        assert!(snapshot * 2 <= fresh * 3, "{records} records of {value_len}: {snapshot} after a snapshot");
    }
}

/// Keys of the threads below.
const KEYS: u64 = 6_000;

/// A value that tells its key and its round.
fn telling(key: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{key} {round} ").into_bytes();
    let len = 40 + (mix(key) % 700) as usize;
    value.resize(len, b'a' + (round % 26) as u8);
    value
}

/// The key and the round that a value tells; the rest of it must be as it was made.
#[track_caller]
fn told(value: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(value).unwrap();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(u64::MAX));
    let (key, round) = (words.next().unwrap(), words.next().unwrap());
    assert_eq!(value, telling(key, round));
    (key, round)
}

/// Writers delete most of their keys and put them again, in pairs that are always both there; iterators, snapshots that
/// live for a while, and gets see whole pairs and their own instant, while compactions follow each other.
#[test]
fn readers_and_writers_beside_compactions_see_what_a_model_says() {
    const WRITERS: u64 = 2;
    const ROUNDS: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let store = &*store;
    let (running, compactions) = (AtomicU64::new(WRITERS), AtomicU64::new(0));
    let mut models: Vec<Model> = Vec::new();
    let is_over = || running.load(Ordering::Acquire) == 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let running = &running;
                scope.spawn(move || {
                    let mut model = Model::new();
                    for round in 0..ROUNDS {
                        for pair in 0..KEYS / 2 {
                            let stays = mix(pair ^ round << 32 ^ writer << 48).is_multiple_of(8);
                            // Every third round fills, the others empty.
                            if round % 3 != 0 && stays {
                                continue;
                            }
                            let mut batch = ChangeBytes::default();
                            for half in 0..2 {
                                let number = (writer * KEYS + pair * 2 + half) * 2;
                                let key = key_of(number);
                                if round % 3 == 0 {
                                    let value = telling(number, round);
                                    batch.put(&key, &value);
                                    model.insert(key, value);
                                } else {
                                    batch.delete(&key);
                                    model.remove(&key);
                                }
                            }
                            store.write(batch.list(), false).unwrap();
                        }
                    }
                    running.fetch_sub(1, Ordering::AcqRel);
                    model
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over() {
                store.compact().unwrap();
                compactions.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Iterators: each instant has both halves of a pair, of one round.
        for is_backward in [false, true] {
            scope.spawn(move || {
                while !is_over() {
                    let mut cursor = store.view().unwrap().cursor();
                    let mut pairs = BTreeMap::<u64, Vec<u64>>::new();
                    if is_backward {
                        cursor.seek_to_last().unwrap()
                    } else {
                        cursor.seek_to_first().unwrap()
                    }
                    while let Some((key, value)) = cursor.record() {
                        let (number, round) = told(value);
                        assert_eq!(key, key_of(number));
                        pairs.entry(number / 4).or_default().push(round);
                        if is_backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
                    }
                    assert!(pairs.values().all(|rounds| rounds.len() == 2 && rounds[0] == rounds[1]));
                }
            });
        }
        // Snapshots: the same records again after a while.
        scope.spawn(|| {
            while !is_over() {
                let view = store.view().unwrap();
                let before: Vec<_> = (0..KEYS)
                    .step_by(7)
                    .map(|n| {
                        let mut found = None;
                        view.get(&key_of(n * 2), &mut |value| found = Some(value.to_vec())).unwrap();
                        found
                    })
                    .collect();
                for _ in 0..3 {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                    for (n, before) in (0..KEYS).step_by(7).zip(&before) {
                        let mut found = None;
                        view.get(&key_of(n * 2), &mut |value| found = Some(value.to_vec())).unwrap();
                        assert_eq!(found, *before);
                    }
                }
            }
        });
        // Gets.
        scope.spawn(|| {
            let mut n = 0;
            while !is_over() {
                n = (n + 1) % (WRITERS * KEYS);
                store.get(&key_of(n * 2), &mut |value| assert_eq!(told(value).0, n * 2)).unwrap();
            }
        });
        models = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    });
    let model: Model = models.into_iter().flatten().collect();
    holds(store, &model);
    assert!(compactions.load(Ordering::Relaxed) > 3);
    store.compact().unwrap();
    holds(store, &model);
}

/// The counter of the changes below.
const COUNTER: &[u8] = b"counter";

/// What batch `n` of the victim changes.
fn batch_of(n: u64) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    (0..40u64).map(move |i| {
        let number = mix(n * 64 + i) % 5_000;
        // 100 batches fill, and 150 of which each deletes more than it puts empty.
        let is_put = n % 250 < 100 || i % 8 == 0;
        (key_of(number), is_put.then(|| telling(number, n)))
    })
}

/// Kills a process that writes batch upon batch while it compacts: what it acknowledged is there, nothing is there in
/// part, and everything is as a model of the same batches says. The test runs itself again as the victim.
#[test]
fn a_kill_amid_compactions_loses_nothing() {
    const ROLE: &str = "MANGROVE_TEST_COMPACTING";
    if let Some(directory) = std::env::var_os(ROLE) {
        let store = open(Path::new(&directory));
        let first = counter(&*store);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    store.compact().unwrap();
                }
            });
            for n in first.. {
                let mut batch = ChangeBytes::default();
                for (key, value) in batch_of(n) {
                    match value {
                        Some(value) => batch.put(&key, &value),
                        None => batch.delete(&key),
                    }
                }
                batch.put(COUNTER, &(n + 1).to_le_bytes());
                store.write(batch.list(), false).unwrap();
                println!("{}", n + 1);
            }
        });
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::a_kill_amid_compactions_loses_nothing");
    let directory = tempfile::tempdir().unwrap();
    let (mut model, mut done) = (Model::new(), 0);
    for round in 0..20u64 {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", &test, "--nocapture"]).env(ROLE, directory.path());
        let victim = Victim::start(&mut again, |lines| {
            let number = |line: &[u8]| String::from_utf8_lossy(line).trim().parse::<u64>().ok();
            lines.filter_map(|line| number(&line)).last().unwrap_or(0)
        });
        victim.says(4 + mix(round) % 150);
        let acknowledged = victim.kill();
        let store = open(directory.path());
        let found = counter(&*store);
        assert!(found >= acknowledged, "round {round}: {found} batches of {acknowledged}");
        for n in done..found {
            for (key, value) in batch_of(n) {
                match value {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
            }
            model.insert(COUNTER.to_vec(), (n + 1).to_le_bytes().to_vec());
        }
        done = found;
        holds(&*store, &model);
    }
    assert!(done > 500, "only {done} batches");
}

fn counter(store: &dyn StorageEngine) -> u64 {
    let mut found = 0;
    let mut read = |value: &[u8]| found = u64::from_le_bytes(value.try_into().unwrap());
    store.get(COUNTER, &mut read).unwrap();
    found
}

/// Where the disk has no space for what should move, nothing moves, and nothing is refused or lost.
#[test]
fn a_full_disk_stops_the_moves_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let small = scratch.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64M", "tmpfs"]).arg(&small).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return eprintln!("no small disk here: nothing is tested with one");
    }
    let _unmount = Unmount(small.clone());
    let directory = small.join("db");
    std::fs::create_dir(&directory).unwrap();
    let value = |n: u64| vec![n as u8; 700];
    let mut model: Model = (0..20_000).step_by(10).map(|n| (key_of(n), value(n))).collect();
    let store = open(&directory);
    apply(&*store, (0..20_000).map(|n| (key_of(n), Some(value(n)))));
    apply(&*store, (0..20_000).filter(|n| n % 10 != 0).map(|n| (key_of(n), None)));
    // Closing gives the free pages back, and moves nothing.
    drop(store);
    let sparse = disk_bytes(&directory);
    let store = open(&directory);
    let filler = small.join("filler");
    let mut bytes = 64 << 20;
    while bytes >= 4096 {
        let all = std::fs::OpenOptions::new().append(true).create(true).open(&filler).unwrap();
        let fits = std::io::Write::write_all(&mut &all, &vec![1; bytes]).is_ok();
        bytes /= if fits { 1 } else { 2 };
    }
    store.compact().unwrap();
    holds(&*store, &model);
    // What is there can be changed.
    store.put(&key_of(0), &value(1), true).unwrap();
    model.insert(key_of(0), value(1));
    holds(&*store, &model);
    std::fs::remove_file(&filler).unwrap();
    store.compact().unwrap();
    holds(&*store, &model);
    drop(store);
    let now = disk_bytes(&directory);
    assert!(now * 2 < sparse, "{now} bytes, {sparse} before");
    holds(&*open(&directory), &model);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}
