//! What was appended and copied to the file of recent writes survives the process, and after a power cut a prefix.

use mangrove_pool::{
    ByteRange, Create, Durability, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool,
    PoolOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const WORDS: u64 = 600;
const REGION_BYTES: u64 = 256 << 10;

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(4 << 20)
        .log_bytes(16 << 10)
        .durability(Durability::Interval(Duration::from_secs(60)))
        .keeps_recent(true)
        .background(false)
        .kind("test")
}

/// Acknowledges a write that is not durable.
fn put(pool: &Pool, offset: u64, bytes: &[u8]) {
    let region = pool.region();
    region.grow(REGION_BYTES).unwrap();
    region.write(offset, bytes);
    region.flush(offset, bytes.len());
    region.drain().unwrap();
}

fn read(pool: &Pool, offset: u64, len: usize) -> Vec<u8> {
    if pool.stat().grown == 0 {
        return vec![0; len];
    }
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(pool.region().at(offset), len) }.to_vec()
}

/// The files of recent writes.
fn files(path: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|name| name.file_name().unwrap().to_string_lossy().starts_with("recent-")).collect()
}

/// How many of the words are there; they must be the first.
fn prefix(pool: &Pool) -> u64 {
    let bytes = read(pool, 0, WORDS as usize * 8);
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let count = words.iter().take_while(|&&word| word != 0).count();
    for (n, &word) in words.iter().enumerate() {
        assert_eq!(word, if n < count { n as u64 + 1 } else { 0 }, "word {n} of a prefix of {count}");
    }
    count as u64
}

fn put_words(pool: &Pool, words: std::ops::Range<u64>) {
    words.for_each(|n| put(pool, n * 8, &(n + 1).to_le_bytes()));
}

/// As `put_words`; what the file of recent writes held after each word.
fn put_and_look(pool: &Pool, path: &Path, words: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    let state = |n| {
        put_words(pool, n..n + 1);
        std::fs::read(&files(path)[0]).unwrap()
    };
    words.map(state).collect()
}

/// Sectors of a file of recent writes that begin with a group's header.
fn headers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    (0..bytes.len()).step_by(512).filter(|&at| &bytes[at + 16..at + 20] == b"MGre")
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_returned_is_there_when_the_process_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..50);
    assert_eq!(pool.stat().log_written, 0, "nothing is durable");
    drop(pool);
    assert_eq!(files(&path).len(), 1);

    // A reader applies it in memory, and changes nothing.
    assert_eq!(prefix(&options().read_only(true).open(&path).unwrap()), 50);
    let report = Pool::check(&path).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    assert_eq!(files(&path).len(), 1);

    // The next writer makes it durable first: without its own file it is there.
    let pool = options().open(&path).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(prefix(&pool), 50);
    drop(pool);
    files(&path).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let pool = options().open(&path).unwrap();
    assert_eq!(prefix(&pool), 50);

    // So does one that keeps none, and it removes what it found.
    put_words(&pool, 50..60);
    drop(pool);
    let pool = options().keeps_recent(false).open(&path).unwrap();
    assert_eq!((prefix(&pool), files(&path).len()), (60, 0));
    put_words(&pool, 60..61);
    drop(pool);
    let pool = options().open(&path).unwrap();
    assert_eq!(prefix(&pool), 60, "that one promised nothing");
    put_words(&pool, 60..70);
    pool.region().sync().unwrap();
    put_words(&pool, 70..80);
    pool.close().unwrap();
    assert_eq!(files(&path).len(), 0, "a closed pool has no file of recent writes");
    assert!(Pool::check(&path).unwrap().damage.is_empty());
    assert_eq!(prefix(&options().open(&path).unwrap()), 80);
}

/// Random writes, atomic groups and spill files, over many laps of the log, and the process dies every now and then.
#[test]
fn every_write_survives_in_a_log_that_wraps() {
    // The last log holds many rings of recent writes, and more than the first of them has room for.
    for (background, log_bytes, longest) in
        [(false, 16 << 10, 300), (true, 16 << 10, 300), (true, 1 << 20, 6000)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let options = options().background(background).log_bytes(log_bytes);
        let mut model = vec![0u8; REGION_BYTES as usize];
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        for life in 0..40 {
            let pool = options.open(&path).unwrap();
            assert!(read(&pool, 0, model.len()) == model, "life {life}, background {background}");
            for _ in 0..random() % 200 {
                let len = (1 + random() % longest) as usize;
                let offset = random() % (REGION_BYTES - len as u64);
                let bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
                match random() % 40 {
                    0 => pool.region().sync().unwrap(),
                    1 => pool.checkpoint().unwrap(),
                    // Several groups of the log, or a file of its own.
                    2 | 3 => {
                        pool.region().grow(REGION_BYTES).unwrap();
                        let len = if random() % 2 == 0 { 6 << 10 } else { 20 << 10 };
                        let byte = random() as u8;
                        let offset = random() % (REGION_BYTES - len);
                        pool.region().write(offset, &vec![byte; len as usize]);
                        pool.region().flush_unit(&[ByteRange { offset, len }]).unwrap();
                        model[offset as usize..(offset + len) as usize].fill(byte);
                    }
                    _ => {
                        put(&pool, offset, &bytes);
                        model[offset as usize..offset as usize + len].copy_from_slice(&bytes);
                    }
                }
            }
            if random() % 8 == 0 { pool.close().unwrap() } else { drop(pool) }
        }
    }
}

/// Writes `turns` times 1000 bytes, each time somewhere else, and calls `look` after each.
fn put_thousands(pool: &Pool, turns: std::ops::Range<u64>, mut look: impl FnMut(u64)) {
    for turn in turns {
        put(pool, turn % 250 * 1000, &[turn as u8; 1000]);
        look(turn);
    }
}

/// Panics unless what the first `turns` turns wrote is there.
fn expect_thousands(pool: &Pool, turns: u64) {
    for turn in turns.saturating_sub(250)..turns {
        assert!(read(pool, turn % 250 * 1000, 1000) == [turn as u8; 1000], "turn {turn} of {turns}");
    }
}

/// Recent writes have less room than the log: what they have none for is made durable. A process may die at any time.
#[test]
fn writes_that_find_no_room_are_durable_and_make_more() {
    for medium_is_full in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [path, copy] = ["p", "copy"].map(|name| dir.path().join(name));
        let options = options().log_bytes(1 << 20).log_bytes_first(1 << 20);
        let storage = Faulty::new(Arc::new(OsStorage));
        let pool = options.clone().storage(Arc::new(storage.clone())).open(&path).unwrap();
        put_thousands(&pool, 0..1, |_| {});
        let len = |path: &Path| std::fs::metadata(&files(path)[0]).unwrap().len();
        let short = len(&path);
        if medium_is_full {
            let (operations, kind) = (vec![FaultyOperation::Allocate], FaultKind::Errno(libc::ENOSPC));
            storage.plant(Fault { file: None, operations, nth: 0, kind });
        }
        let mut durable = Vec::new();
        put_thousands(&pool, 1..800, |turn| {
            let before = durable.last().copied();
            durable.extend(Some(pool.stat().durable).filter(|now| before != Some(*now)));
            if turn % 25 == 0 || before != durable.last().copied() {
                copied(&path, &copy);
                expect_thousands(&options.open(&copy).unwrap(), turn + 1);
                std::fs::remove_dir_all(&copy).unwrap();
            }
        });
        let long = len(&path);
        let times = durable.len() - 1;
        if medium_is_full {
            assert_eq!((long, times), (short, 6), "a write of every {short} bytes waited");
        } else {
            assert_eq!((long, times), (16 * short, 2), "each that waited made more room");
        }
        assert_eq!(pool.stat().checkpoints, 0);
        let held = pool.stat().appended - durable.last().unwrap();
        drop(pool);
        // The next process's file has as much room as it takes over.
        let pool = options.open(&path).unwrap();
        assert!(held > short || medium_is_full, "{held}");
        assert_eq!(len(&path), if medium_is_full { short } else { 4 * short });
        put_thousands(&pool, 800..850, |_| {});
        drop(pool);
        expect_thousands(&options.open(&path).unwrap(), 850);
    }
}

/// A power cut leaves any mixture of sectors: a prefix is taken, at least what is durable, and nothing is damage.
#[test]
fn a_power_cut_leaves_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..100);
    pool.region().sync().unwrap();
    put_words(&pool, 100..200);
    let older = std::fs::read(&files(&path)[0]).unwrap();
    let states = put_and_look(&pool, &path, 200..WORDS);
    assert!(pool.stat().checkpoints == 0);
    drop(pool);
    let file = files(&path).remove(0);
    let newer = std::fs::read(&file).unwrap();
    let mut found = Vec::new();
    let mut judge = |bytes: &[u8]| {
        let copy = dir.path().join("copy");
        copied(&path, &copy);
        std::fs::write(copy.join(file.file_name().unwrap()), bytes).unwrap();
        assert!(Pool::check(&copy).unwrap().damage.is_empty());
        let count = prefix(&options().open(&copy).unwrap());
        assert!(count >= 100, "{count}");
        found.push(count);
        std::fs::remove_dir_all(&copy).unwrap();
    };
    // One header of each time among sectors of the last: groups that had grown since.
    for state in &states {
        for sector in headers(&newer).filter(|&at| newer[at..at + 512] != state[at..at + 512]) {
            let mut bytes = newer.clone();
            bytes[sector..sector + 512].copy_from_slice(&state[sector..sector + 512]);
            judge(&bytes);
        }
    }
    for sector in (0..newer.len()).step_by(512).filter(|&at| newer[at..at + 512] != older[at..at + 512]) {
        for way in 0..4 {
            let mut bytes = newer.clone();
            match way {
                // Not written; written before the others; not all of it; damaged.
                0 => bytes[sector..sector + 512].copy_from_slice(&older[sector..sector + 512]),
                1 => {
                    bytes.clone_from(&older);
                    bytes[sector..sector + 512].copy_from_slice(&newer[sector..sector + 512]);
                }
                2 => bytes[sector..sector + 512].fill(0),
                _ => bytes[sector + 100] ^= 1,
            }
            judge(&bytes);
        }
    }
    assert!(found.contains(&WORDS) || found.contains(&200), "{found:?}");
    assert!(found.iter().any(|&count| count < WORDS));
    let pool = options().open(&path).unwrap();
    assert_eq!(prefix(&pool), WORDS);
}

/// A process dies between the stores of a call: the bytes are those of after the call, except for the word that is
/// stored last.
#[test]
fn a_process_that_dies_between_two_stores_leaves_what_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    let mut states = vec![std::fs::read(&files(&path)[0]).unwrap()];
    states.extend(put_and_look(&pool, &path, 0..WORDS));
    drop(pool);
    let file = files(&path).remove(0);
    let mut groups = 0;
    for (count, pair) in states.windows(2).enumerate() {
        let [before, after] = [&pair[0], &pair[1]];
        let word = |at: usize| at..at + 8;
        let changed: Vec<usize> = headers(after).filter(|&at| before[word(at)] != after[word(at)]).collect();
        let [at] = changed[..] else { panic!("headers at {changed:?} changed with word {count}") };
        let is_new = before[at + 8..at + 40] != after[at + 8..at + 40];
        groups += usize::from(is_new);
        // One of many in the middle of a group, and each that begins one.
        if !is_new && count % 20 != 0 {
            continue;
        }
        let mut bytes = after.clone();
        bytes[word(at)].copy_from_slice(&before[word(at)]);
        let copy = dir.path().join("copy");
        copied(&path, &copy);
        std::fs::write(copy.join(file.file_name().unwrap()), bytes).unwrap();
        assert_eq!(prefix(&options().open(&copy).unwrap()), count as u64);
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(groups > 1, "{groups}");
}

/// Calls of write(2) that the calling thread has made.
fn writes_of_this_thread() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
    line.parse().unwrap()
}

/// Whether files in the directory of a pool are mapped.
fn are_mapped(path: &Path) -> bool {
    let file = std::fs::File::open(&files(path)[0]).unwrap();
    let is_mapped = mangrove_sys::file::is_reserved(&file, file.metadata().unwrap().len()).unwrap();
    if !is_mapped {
        println!("{}: nothing is mapped on this file system", path.display());
    }
    is_mapped
}

#[test]
fn a_write_that_does_not_wait_makes_no_system_call() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..1);
    if are_mapped(&path) {
        let before = writes_of_this_thread();
        put_words(&pool, 1..100);
        assert_eq!(writes_of_this_thread(), before);
    }
    drop(pool);
    assert_eq!(prefix(&options().open(&path).unwrap()), WORDS.min(100));
}

/// Another process cuts the file. A store beyond its end would raise SIGBUS: the file is written instead.
#[test]
fn a_store_that_would_end_the_process_is_a_write() {
    const KEPT_BYTES: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = options().log_bytes(128 << 10);
    let pool = options.open(&path).unwrap();
    put(&pool, 0, &[1; 100]);
    let is_mapped = are_mapped(&path);
    let file = std::fs::File::options().write(true).open(&files(&path)[0]).unwrap();
    file.set_len(KEPT_BYTES).unwrap();
    let before = writes_of_this_thread();
    let (mut at, mut byte) = (0, 1);
    while pool.stat().appended < KEPT_BYTES - 2048 {
        (at, byte) = ((at + 1000) % (REGION_BYTES - 1000), byte % 250 + 1);
        put(&pool, at, &[byte; 1000]);
    }
    assert_eq!(is_mapped, writes_of_this_thread() == before, "so far the file is long enough");
    for _ in 0..5 {
        (at, byte) = ((at + 1000) % (REGION_BYTES - 1000), byte % 250 + 1);
        put(&pool, at, &[byte; 1000]);
    }
    assert!(pool.stat().appended > KEPT_BYTES && writes_of_this_thread() > before);
    drop(pool);
    let pool = options.open(&path).unwrap();
    assert_eq!(read(&pool, at, 1000), [byte; 1000]);
}

/// A thread that waited for its turn to copy has it when another thread's store has failed. What counted before still
/// counts.
#[test]
fn nothing_is_copied_after_a_store_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(storage.clone())).open(&path).unwrap();
    put_words(&pool, 0..10);
    let name = files(&path)[0].file_name().unwrap().to_string_lossy().into_owned();
    let operations = vec![FaultyOperation::Write];
    storage.plant(Fault { file: Some(name), operations, nth: 0, kind: FaultKind::Errno(libc::EIO) });
    pool.region().write(80, &11u64.to_le_bytes());
    pool.region().flush(80, 8);
    assert!(matches!(pool.region().drain(), Err(Error::Io { .. })));
    // It copies without a look at the pool's state, as that thread does.
    pool.region().medium().leave_unawaited();
    assert_eq!(storage.seen(), 1, "stores to the file since the failure");
    drop(pool);
    assert_eq!(prefix(&options().open(&path).unwrap()), 10);
}

/// A power cut tore a write of two groups and left the second; recent writes know a part of the first. What is taken
/// must not make the second follow it.
#[test]
fn groups_behind_a_tear_do_not_follow_what_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..100);
    pool.region().sync().unwrap();
    let torn = pool.stat().durable as usize;
    let states = put_and_look(&pool, &path, 100..WORDS);
    pool.region().sync().unwrap();
    drop(pool);
    let file = files(&path).remove(0);
    let newer = std::fs::read(&file).unwrap();
    let mut log = std::fs::read(path.join("log")).unwrap();
    assert!(headers(&newer).count() >= 3, "the first write, and two groups of the second");
    log[torn..torn + 512].fill(0);
    std::fs::write(path.join("log"), log).unwrap();
    let mut most = 0;
    for state in &states {
        let mut bytes = newer.clone();
        bytes[torn..torn + 512].copy_from_slice(&state[torn..torn + 512]);
        if bytes == newer {
            break;
        }
        let copy = dir.path().join("copy");
        copied(&path, &copy);
        std::fs::write(copy.join(file.file_name().unwrap()), bytes).unwrap();
        let count = prefix(&options().open(&copy).unwrap());
        assert_eq!(prefix(&options().open(&copy).unwrap()), count);
        most = most.max(count);
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(most > 300, "{most}");
}

/// The next process dies, too, when it has written one of the groups that it took to the log.
#[test]
fn a_process_that_dies_while_it_takes_over_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [path, next] = ["p", "next"].map(|name| dir.path().join(name));
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..100);
    pool.region().sync().unwrap();
    let taken = pool.stat().durable as usize;
    put_words(&pool, 100..WORDS);
    drop(pool);
    let second = headers(&std::fs::read(&files(&path)[0]).unwrap()).find(|&at| at > taken).unwrap();
    copied(&path, &next);
    assert_eq!(prefix(&options().open(&next).unwrap()), WORDS);
    let new = files(&next).remove(0);
    std::fs::copy(&new, path.join(new.file_name().unwrap())).unwrap();
    let mut log = std::fs::read(path.join("log")).unwrap();
    log[taken..second].copy_from_slice(&std::fs::read(next.join("log")).unwrap()[taken..second]);
    std::fs::write(path.join("log"), log).unwrap();
    assert_eq!(files(&path).len(), 2);
    assert_eq!(prefix(&options().open(&path).unwrap()), WORDS);
}

/// So does one that keeps no recent writes itself, wherever its write of them ends.
#[test]
fn a_process_without_such_a_file_that_dies_while_it_takes_over_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = || options().log_bytes(256 << 10);
    for words in (60..400).step_by(20) {
        let path = dir.path().join(words.to_string());
        let pool = options().open(&path).unwrap();
        put_words(&pool, 0..10);
        pool.region().sync().unwrap();
        for n in 10..words {
            put_words(&pool, n..n + 1);
            // So that they are several groups, and the first lies in the first half of the write.
            put(&pool, 128 << 10, &[n as u8; 200]);
        }
        drop(pool);
        let storage = Faulty::new(Arc::new(OsStorage));
        let operations = vec![FaultyOperation::Write];
        storage.plant(Fault { file: Some("log".into()), operations, nth: 0, kind: FaultKind::Halt });
        let dies = options().keeps_recent(false).storage(Arc::new(storage.clone()));
        assert!(dies.open(&path).is_err() && storage.struck());
        assert_eq!(prefix(&options().keeps_recent(false).open(&path).unwrap()), words);
        assert_eq!(files(&path).len(), 0);
    }
}

/// A file that an earlier process left, and that came back because its removal was not durable, is not taken for the
/// present one's.
#[test]
fn a_file_of_an_earlier_process_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..50);
    drop(pool);
    let old = files(&path).remove(0);
    let bytes = std::fs::read(&old).unwrap();
    for closes in [false, true] {
        let pool = options().open(&path).unwrap();
        let count = prefix(&pool);
        put_words(&pool, count..count + 10);
        if closes {
            pool.close().unwrap()
        } else {
            drop(pool)
        }
        std::fs::write(&old, &bytes).unwrap();
        let pool = options().open(&path).unwrap();
        assert_eq!(prefix(&pool), count + 10);
        drop(pool);
        assert!(!old.exists());
        std::fs::write(&old, &bytes).unwrap();
    }
    // One that is empty, too long, or a directory.
    for bytes in [vec![], vec![0x5a; 100_000]] {
        std::fs::write(&old, bytes).unwrap();
        drop(options().open(&path).unwrap());
    }
    std::fs::create_dir(&old).unwrap();
    match options().open(&path) {
        Ok(_) | Err(Error::Io { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Each process that dies while it opens the pool leaves a file. (And a directory of such a name is
/// none of the pool's.)
#[test]
fn what_processes_that_died_while_opening_left_is_removed_before_space_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let [path, killed] = ["p", "killed"].map(|name| dir.path().join(name));
    let pool = options().open(&path).unwrap();
    put_words(&pool, 0..50);
    copied(&path, &killed);
    drop(pool);
    std::fs::create_dir(killed.join("recent-00000000000000aa")).unwrap();
    let plain = |path: &Path| files(path).into_iter().filter(|file| file.is_file()).collect::<Vec<_>>();
    let len = std::fs::metadata(&plain(&killed)[0]).unwrap().len() as usize;
    for opening in 0..3 {
        for digits in ["0000000000000001", "ffffffffffffffff"] {
            std::fs::write(killed.join(format!("recent-{digits}")), vec![0; len]).unwrap();
        }
        assert_eq!(plain(&killed).len(), 3);
        // Only the file that the log needs is there when this opening, which fails, takes space for its own. (The
        // first opening that succeeds writes its content to the log.)
        let storage = Faulty::new(Arc::new(OsStorage));
        let (operations, kind) = (vec![FaultyOperation::Allocate], FaultKind::Errno(libc::ENOSPC));
        storage.plant(Fault { file: None, operations, nth: 0, kind });
        let error = options().storage(Arc::new(storage)).open(&killed).expect_err("a full medium");
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert_eq!(plain(&killed).len(), usize::from(opening == 0), "opening {opening}");
        let pool = options().open(&killed).unwrap();
        assert_eq!(prefix(&pool), 50, "opening {opening}");
        assert_eq!(plain(&killed).len(), 1, "opening {opening}");
    }
}

/// By an older copy of the superblock the log begins where other groups lie by now. The file of recent writes, which is
/// longer than this log, still has those that lay there.
#[test]
fn what_the_log_has_overwritten_is_not_taken_from_the_longer_file() {
    let dir = tempfile::tempdir().unwrap();
    let [path, copy] = ["p", "copy"].map(|name| dir.path().join(name));
    let pool = options().open(&path).unwrap();
    let mut refused = 0;
    for turn in 0..150 {
        put_thousands(&pool, turn..turn + 1, |_| {});
        if turn % 3 == 2 {
            pool.region().sync().unwrap();
        }
        for damaged in [0, 4096] {
            copied(&path, &copy);
            let mut superblocks = std::fs::read(copy.join("pool")).unwrap();
            superblocks[damaged + 64] ^= 1;
            std::fs::write(copy.join("pool"), superblocks).unwrap();
            match options().open(&copy) {
                Ok(pool) => expect_thousands(&pool, turn + 1),
                Err(Error::Corrupt { .. }) => refused += 1,
                Err(e) => panic!("{e}"),
            }
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }
    assert!(refused > 0, "an older copy was never told from a newer one");
}
