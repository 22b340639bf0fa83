//! Pools that are not as they were written: for each, opening returns the right error, does not panic, and yields
//! no wrong byte.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Latency, Medium, OsStorage, Pool, PoolOptions,
    Start, crc32c,
};
use mangrove_testkit::clock::thread_time_of;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const IMAGE_BYTES: usize = 300 << 10;

thread_local! {
    /// Bytes of the largest block that this thread has asked for.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator; it notes what the calling thread asks for.
struct NotingAllocator;

fn note(bytes: usize) {
    // A thread that ends notes no more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for NotingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promises.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: NotingAllocator = NotingAllocator;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> PoolOptions {
    any_log().log_bytes(64 << 10)
}

/// As `options`, for pools whose log is longer.
fn any_log() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(1 << 20)
        .background(false)
        .kind("test")
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; IMAGE_BYTES];
    for (i, byte) in bytes.iter_mut().enumerate().filter(|(i, _)| i / 4096 % 3 != 1) {
        *byte = (i % 251) as u8;
    }
    bytes
}

/// A pool with `content` and, unless `clean`, a log of several groups after a checkpoint.
fn make(path: &Path, clean: bool) -> Vec<u8> {
    let mut bytes = content();
    let pool = options().open(path).unwrap();
    let region = pool.region();
    region.grow(IMAGE_BYTES as u64).unwrap();
    for page in (0..IMAGE_BYTES).step_by(4096).filter(|at| at / 4096 % 3 != 1) {
        region.write(page as u64, &bytes[page..page + 4096]);
        region.flush(page as u64, 4096);
    }
    region.drain().unwrap();
    if clean {
        pool.close().unwrap();
        return bytes;
    }
    pool.checkpoint().unwrap();
    for i in 0..20 {
        bytes[i * 1000..i * 1000 + 100].fill(i as u8 + 1);
        region.write(i as u64 * 1000, &bytes[i * 1000..i * 1000 + 100]);
        region.flush(i as u64 * 1000, 100);
        region.drain().unwrap();
    }
    bytes
}

fn read(pool: &Pool) -> Vec<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(pool.region().base(), IMAGE_BYTES) }.to_vec()
}

fn flip(path: &Path, at: u64, bit: u8) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
}

/// Opening fails with a message that names the pool, also when it may create.
fn refused(path: &Path, what: &str, expected: &str) -> Error {
    let mut last = None;
    for options in [any_log(), any_log().create(Create::Never), PoolOptions::new().read_only(true)] {
        let error = options.open(path).expect_err(what);
        let text = error.to_string();
        assert!(text.contains(expected), "{what}: {text}");
        assert!(text.contains(&*path.to_string_lossy()), "{what}: {text}");
        last = Some(error);
    }
    last.unwrap()
}

#[test]
fn one_flipped_bit_anywhere_in_a_closed_pool_is_refused_or_harmless() {
    let dir = folder();
    let path = dir.path().join("p");
    let bytes = make(&path, true);
    let mut random = StdRng::seed_from_u64(7);
    let (mut refusals, mut harmless) = (0, 0);
    for name in ["pool", "image", "sums", "log"] {
        let file = path.join(name);
        let len = std::fs::metadata(&file).unwrap().len();
        let places: Vec<u64> = if name == "pool" {
            (0..len).filter(|at| at % 4096 < 140 || at % 4096 > 4090 || at % 97 == 0).collect()
        } else {
            (0..len / 1500).map(|i| i * 1500 + random.random_range(0..1500)).filter(|&at| at < len).collect()
        };
        assert!(!places.is_empty() || name == "log", "{name} is too short");
        for at in places {
            let bit = random.random_range(0..8);
            flip(&file, at, bit);
            match PoolOptions::new().read_only(true).open(&path) {
                Ok(pool) => {
                    assert!(read(&pool) == bytes, "{name} byte {at} bit {bit}: silently wrong");
                    harmless += 1;
                }
                Err(Error::Corrupt { path: damaged, offset, .. }) => {
                    assert!(damaged.starts_with(&path), "{name} byte {at}");
                    if name == "image" {
                        assert_eq!(offset, at / 4096 * 4096);
                    }
                    refusals += 1;
                }
                Err(e) => panic!("{name} byte {at} bit {bit}: {e}"),
            }
            if name != "log" {
                let report = Pool::check(&path).unwrap();
                assert!(!report.damage.is_empty(), "{name} byte {at} bit {bit}: check found nothing");
            }
            flip(&file, at, bit);
        }
    }
    assert!(refusals > 100 && harmless > 100, "{refusals} refused, {harmless} harmless");
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

#[test]
fn sums_that_say_zero_of_pages_that_are_not_are_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    for clean in [true, false] {
        for part in [0..512, 0..4096] {
            let _ = std::fs::remove_dir_all(&path);
            make(&path, clean);
            let sums = path.join("sums");
            let mut bytes = std::fs::read(&sums).unwrap();
            bytes[part.clone()].fill(0);
            std::fs::write(&sums, bytes).unwrap();
            let error = refused(&path, &format!("sums {part:?} zeroed, clean: {clean}"), "checksum");
            assert!(matches!(error, Error::Corrupt { offset: 0, .. }), "{error}");
        }
    }
}

#[test]
fn files_of_another_pool_or_of_an_older_copy_are_refused() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let dir = folder();
        let options = || options().medium(medium);
        let fill = |path: &Path, byte: u8| {
            let pool = options().open(path).unwrap();
            pool.region().grow(100_000).unwrap();
            pool.region().write(5000, &[byte; 50_000]);
            pool.region().flush(5000, 50_000);
            pool.region().drain().unwrap();
            pool.close().unwrap();
        };
        let copy = |from: &Path, to: &Path| {
            for file in ["image", "sums"] {
                std::fs::copy(from.join(file), to.join(file)).unwrap();
            }
        };
        let [one, other, older] = ["one", "other", "older"].map(|name| dir.path().join(name));
        fill(&one, 1);
        fill(&other, 1);
        std::fs::create_dir(&older).unwrap();
        copy(&one, &older);
        fill(&one, 2);
        let newer = dir.path().join("newer");
        std::fs::create_dir(&newer).unwrap();
        copy(&one, &newer);
        for strange in [&other, &older] {
            copy(strange, &one);
            for options in [options(), options().start(Start::CopyOnWrite), options().read_only(true)] {
                let options = options.create(Create::Never);
                let text = options.open(&one).unwrap_err().to_string();
                assert!(text.contains("the files of a pool belong together"), "{medium:?}: {text}");
            }
            let damage = Pool::check(&one).unwrap().damage;
            assert!(
                damage.len() == 1 && damage[0].what.contains("the files of a pool belong together"),
                "{medium:?}: {damage:?}"
            );
        }
        copy(&newer, &one);
        options().open(&one).unwrap().close().unwrap();
        assert!(options().open(&one).unwrap().was_clean());
    }
}

#[test]
fn a_damaged_group_in_the_middle_of_the_log_is_refused_and_a_torn_tail_is_not() {
    let dir = folder();
    let path = dir.path().join("p");
    let bytes = make(&path, false);
    let tail = Pool::inspect(&path).unwrap().tail;
    let log = path.join("log");
    // The place in the file of each of twenty groups of one sector, except the one that wraps.
    let place = |group: u64| (tail + group * 512) % (64 << 10);
    for group in 0..20 {
        for at in [0, 4, 8, 16, 24, 32, 40, 100] {
            flip(&log, place(group) + at, 3);
            let result = PoolOptions::new().read_only(true).open(&path);
            if group < 19 {
                let error = result.expect_err("damage in the middle");
                assert!(
                    matches!(&error, Error::Corrupt { offset, .. } if *offset == place(group)),
                    "{error}"
                );
                assert_eq!(Pool::check(&path).unwrap().damage.len(), 1);
            } else {
                let pool = result.expect("a torn tail is a crash's doing");
                assert!(read(&pool)[..19_000] == bytes[..19_000]);
            }
            flip(&log, place(group) + at, 3);
        }
    }
    assert!(read(&options().open(&path).unwrap()) == bytes);
}

/// A checkpoint was interrupted, and the log that it applied is gone: a salvage gets what the data file holds.
#[test]
fn a_salvage_passes_over_a_blank_log_under_an_interrupted_checkpoint() {
    /// The records of the log lie before.
    const UNCHANGED_FROM: usize = 5 * 4096;
    let dir = folder();
    let path = dir.path().join("p");
    make(&path, false);
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(storage.clone())).open(&path).unwrap();
    let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Write]);
    storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Halt });
    assert!(pool.checkpoint().is_err() && storage.struck());
    drop(pool);
    let log = path.join("log");
    let len = std::fs::metadata(&log).unwrap().len() as usize;
    std::fs::write(&log, vec![0; len]).unwrap();
    assert!(matches!(options().open(&path), Err(Error::Corrupt { .. })));
    let pool = options().read_only(true).salvage(true).open(&path).unwrap();
    assert!(pool.damage().iter().any(|what| what.contains("the log ends")), "{:?}", pool.damage());
    assert!(read(&pool)[UNCHANGED_FROM..] == content()[UNCHANGED_FROM..]);
}

/// With `finish_later` the region is loaded before the rest of the log has been searched.
#[test]
fn damage_found_later_reaches_who_asks_and_nobody_writes_before() {
    let dir = folder();
    let path = dir.path().join("p");
    let bytes = make(&path, false);
    let tail = Pool::inspect(&path).unwrap().tail;
    let later = options().background(true).finish_later(true);
    let place = (tail + 10 * 512) % (64 << 10);
    flip(&path.join("log"), place + 100, 3);
    let files = || ["pool", "image", "log"].map(|name| std::fs::read(path.join(name)).unwrap());
    let before = files();
    for asks_first in [true, false] {
        let pool = later.open(&path).expect("what precedes the damage is whole");
        if asks_first {
            let error = pool.finish().expect_err("damage in the middle");
            assert!(matches!(&error, Error::Corrupt { offset, .. } if *offset == place), "{error}");
        }
        pool.region().write(0, &[9; 100]);
        pool.region().flush(0, 100);
        assert!(pool.region().drain().is_err(), "nothing may be written behind damage");
        assert!(pool.checkpoint().is_err());
        assert!(pool.finish().is_err());
        drop(pool);
        assert!(files() == before);
    }
    flip(&path.join("log"), place + 100, 3);
    for round in 0..3u8 {
        let pool = later.open(&path).unwrap();
        assert!(
            read(&pool)[1..] == bytes[1..] && read(&pool)[0] == if round == 0 { bytes[0] } else { round }
        );
        pool.region().write(0, &[round + 1]);
        pool.region().flush(0, 1);
        pool.region().drain().unwrap();
        pool.finish().unwrap();
    }
}

#[test]
fn a_damaged_superblock_copy_of_a_crashed_pool_changes_no_answer() {
    for checkpoints in 0..3 {
        let dir = folder();
        let path = dir.path().join("p");
        let mut bytes = make(&path, false);
        let pool = options().open(&path).unwrap();
        for i in 0..checkpoints {
            pool.checkpoint().unwrap();
            bytes[i * 50_000..i * 50_000 + 3000].fill(200 + i as u8);
            pool.region().write(i as u64 * 50_000, &bytes[i * 50_000..i * 50_000 + 3000]);
            pool.region().flush(i as u64 * 50_000, 3000);
            pool.region().drain().unwrap();
        }
        drop(pool);
        let mut served = 0;
        for at in [0, 8, 16, 41, 88, 96, 104, 4092, 4096, 4104, 4112, 4137, 4184, 4192, 4200, 8191] {
            flip(&path.join("pool"), at, 0);
            match PoolOptions::new().read_only(true).open(&path) {
                Ok(pool) => {
                    assert!(read(&pool) == bytes, "superblock byte {at}: silently wrong");
                    served += 1;
                }
                Err(e) => assert!(matches!(e, Error::Corrupt { .. }), "superblock byte {at}: {e}"),
            }
            flip(&path.join("pool"), at, 0);
        }
        assert!(served >= 8, "one of the copies is the older one: {served}");
    }
}

#[test]
fn files_cut_short_missing_or_of_another_kind() {
    for name in ["pool", "image", "log", "sums"] {
        for clean in [true, false] {
            let dir = folder();
            let path = dir.path().join("p");
            let bytes = make(&path, clean);
            let file = path.join(name);
            let whole = std::fs::read(&file).unwrap();
            for len in [0, 1, 511, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&file, &whole[..len]).unwrap();
                refused(&path, &format!("{name} cut to {len}"), "");
            }
            std::fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
            if name == "pool" {
                refused(&path, &format!("{name} too long"), "bytes");
            }
            std::fs::remove_file(&file).unwrap();
            let expected = if name == "pool" { "no file `pool`" } else { "the file is missing" };
            refused(&path, &format!("{name} missing"), expected);
            std::fs::create_dir(&file).unwrap();
            refused(&path, &format!("{name} is a directory"), "is a directory");
            std::fs::remove_dir(&file).unwrap();
            let made = std::process::Command::new("mkfifo").arg(&file).status();
            assert!(made.unwrap().success());
            refused(&path, &format!("{name} is a pipe"), "it is a pipe, not a file");
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&file, &whole).unwrap();
            assert!(read(&options().open(&path).unwrap()) == bytes, "nothing was harmed by the refusals");
        }
    }
}

#[test]
fn what_is_not_a_pool_is_told_apart() {
    let dir = folder();
    let path = dir.path().join("p");
    let absent = options().create(Create::Never).open(&path).unwrap_err();
    assert!(matches!(absent, Error::NotFound { .. }));
    std::fs::write(&path, b"I am a file").unwrap();
    refused(&path, "a file", "a pool is a directory");
    assert_eq!(std::fs::read(&path).unwrap(), b"I am a file");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(options().create(Create::Never).open(&path), Err(Error::NotFound { .. })));
    std::fs::write(path.join("image"), b"mine").unwrap();
    refused(&path, "somebody else's image", "no file `pool`");
    std::fs::remove_file(path.join("image")).unwrap();
    for text in [b"hello".to_vec(), vec![b'x'; 8192], vec![b'\n'; 100_000]] {
        std::fs::write(path.join("pool"), &text).unwrap();
        refused(&path, "a foreign file named pool", "not a Mangrove pool");
        assert_eq!(std::fs::read(path.join("pool")).unwrap(), text);
    }
    std::fs::remove_file(path.join("pool")).unwrap();
    options().open(&path).unwrap().close().unwrap();
    assert!(matches!(options().create(Create::New).open(&path), Err(Error::Exists { .. })));
    let wrong = options().kind("other").open(&path).unwrap_err();
    assert!(matches!(&wrong, Error::WrongKind { found, .. } if found == "test"), "{wrong}");
}

/// Changes both copies of the superblock and computes their checksums again.
fn forge(path: &Path, change: impl Fn(&mut [u8])) {
    let file = path.join("pool");
    let mut bytes = std::fs::read(&file).unwrap();
    for copy in bytes.chunks_exact_mut(4096) {
        change(copy);
        let crc = crc32c(0, &copy[..4092]);
        copy[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn another_version_and_another_byte_order_are_named() {
    let dir = folder();
    let path = dir.path().join("p");
    make(&path, true);
    let whole = std::fs::read(path.join("pool")).unwrap();
    forge(&path, |copy| copy[8..12].copy_from_slice(&9u32.to_le_bytes()));
    let error = refused(&path, "newer", "format version 9");
    assert!(matches!(error, Error::Newer { found: 9, supported: 5, .. }));
    std::fs::write(path.join("pool"), &whole).unwrap();
    forge(&path, |copy| copy[12..16].reverse());
    refused(&path, "other byte order", "other byte order");
}

/// Nothing could count on: the next change would look older than this copy.
#[test]
fn a_superblock_that_was_changed_too_often_is_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    for clean in [true, false] {
        make(&path, clean);
        forge(&path, |copy| {
            let last = u64::MAX - 1 + u64::from(copy[16] % 2);
            copy[16..24].copy_from_slice(&last.to_le_bytes());
        });
        refused(&path, "too many changes", "times cannot be");
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn forged_superblocks_and_logs_never_panic_the_opener() {
    let dir = folder();
    let mut random = StdRng::seed_from_u64(11);
    for clean in [true, false] {
        let path = dir.path().join(if clean { "clean" } else { "dirty" });
        make(&path, clean);
        let files =
            ["pool", "image", "log", "sums"].map(|name| (name, std::fs::read(path.join(name)).unwrap()));
        for round in 0..600 {
            for (name, whole) in &files {
                std::fs::write(path.join(name), whole).unwrap();
            }
            let field = random.random_range(0..15usize);
            let word: u64 = match random.random_range(0..4) {
                0 => random.random(),
                1 => random.random_range(0..1 << 20) & !511,
                2 => u64::MAX >> random.random_range(0..64),
                _ => 1 << random.random_range(0..64),
            };
            if round % 3 != 0 {
                forge(&path, |copy| {
                    copy[16 + field * 8..24 + field * 8].copy_from_slice(&word.to_le_bytes())
                });
            }
            if round % 3 != 1 {
                let seed = crc32c(0, &std::fs::read(path.join("pool")).unwrap()[24..40]);
                forge_group(&path.join("log"), seed, &mut random);
            }
            // Any result is allowed: an error or a pool.
            let _ = PoolOptions::new().read_only(true).open(&path);
            let _ = Pool::check(&path);
            if let Ok(pool) = options().kind("").open(&path) {
                let _ = pool.checkpoint();
                let _ = pool.close();
            }
        }
    }
}

/// A pool with four bytes in one group of its log of 64 MiB, whose sectors are then `forged`; all but the first
/// hold the beginning of a group's header.
fn with_forged_log(path: &Path, forged: impl Fn(&mut [u8], u64, u32)) {
    const LOG_BYTES: usize = 64 << 20;
    let pool = options().log_bytes(LOG_BYTES as u64).open(path).unwrap();
    pool.region().grow(4096).unwrap();
    pool.region().write(0, b"kept");
    pool.region().flush(0, 4);
    pool.region().drain().unwrap();
    drop(pool);
    let seed = crc32c(0, &std::fs::read(path.join("pool")).unwrap()[24..40]);
    let mut log = std::fs::read(path.join("log")).unwrap();
    for (at, group) in (0..).step_by(512).zip(log.chunks_exact_mut(512)) {
        if at > 0 {
            group.fill(0);
            group[..4].copy_from_slice(b"MGgr");
            group[8..16].copy_from_slice(&u64::to_le_bytes(at));
        }
        forged(group, at, seed);
    }
    std::fs::write(path.join("log"), log).unwrap();
}

/// The first group of a process, which names a spill file: number, bytes, end of the last range.
fn forge_reference(group: &mut [u8], reference: [u64; 3], seed: u32) {
    group[16..20].copy_from_slice(&24u32.to_le_bytes());
    group[20..24].copy_from_slice(&5u32.to_le_bytes());
    group[32..].fill(0);
    group[40..64].copy_from_slice(&reference.map(u64::to_le_bytes).concat());
    let crc = crc32c(seed, &group[8..64]);
    group[4..8].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_forged_log_of_nothing_but_long_units_is_refused_soon() {
    for (same, what) in [(false, "the file is missing"), (true, "two groups name the same spill file")] {
        let dir = folder();
        let path = dir.path().join("p");
        with_forged_log(&path, |group, at, seed| {
            forge_reference(group, [if same { 7 } else { at }, 0, 0], seed);
        });
        let took = thread_time_of(|| drop(refused(&path, "forged", what)));
        println!("{took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

/// A group that gives a spill file a terabyte: what the file does not have takes no memory and no disk.
#[test]
fn a_forged_log_that_names_a_terabyte_is_refused_and_gets_nothing() {
    const NAMED_BYTES: u64 = 1 << 40;
    const CAPACITY: u64 = 1 << 20;
    let dir = folder();
    let path = dir.path().join("p");
    with_forged_log(&path, |group, at, seed| {
        if at == 512 {
            forge_reference(group, [7, NAMED_BYTES, CAPACITY], seed);
        }
    });
    let sizes = || ["image", "sums"].map(|name| std::fs::metadata(path.join(name)).unwrap().len());
    let before = sizes();
    LARGEST.set(0);
    refused(&path, "no spill file", "the file is missing");
    std::fs::write(path.join("unit-0000000000000007"), [0; 4096]).unwrap();
    refused(&path, "a short one", "the records of a spill file do not match their checksum, or are missing");
    assert_eq!(sizes(), before, "space was taken");
    assert!(LARGEST.get() > 0 && LARGEST.get() <= 64 << 20, "{} bytes at once", LARGEST.get());
}

/// A page that is given back, and a part of it: whole pages are what an opener for writing remembers.
#[test]
fn a_forged_log_that_gives_a_part_of_a_page_back_opens() {
    const RECORDS: [u8; 7] = [0, 0, 0x80, 0x20, 4, 0, 0x60];
    let dir = folder();
    let path = dir.path().join("p");
    with_forged_log(&path, |group, at, seed| {
        if at == 512 {
            group[16..20].copy_from_slice(&(RECORDS.len() as u32).to_le_bytes());
            group[20..24].copy_from_slice(&1u32.to_le_bytes());
            group[32..].fill(0);
            group[40..47].copy_from_slice(&RECORDS);
            let crc = crc32c(seed, &group[8..47]);
            group[4..8].copy_from_slice(&crc.to_le_bytes());
        }
    });
    let pool = any_log().open(&path).unwrap();
    // SAFETY: inside the region, and no thread writes meanwhile.
    assert_eq!(unsafe { *pool.region().at(0) }, 0, "the group counts");
    pool.close().unwrap();
}

/// Looks right as far as no checksum is needed: a user can store such values.
#[test]
fn a_log_full_of_what_looks_like_groups_opens_soon() {
    let dir = folder();
    let path = dir.path().join("p");
    with_forged_log(&path, |group, at, _| {
        if at > 0 {
            group[16..20].copy_from_slice(&(1u32 << 20).to_le_bytes());
            group[32..40].copy_from_slice(&at.to_le_bytes());
        }
    });
    let took = thread_time_of(|| {
        assert_eq!(Pool::check(&path).unwrap().damage, []);
        let pool = any_log().open(&path).unwrap();
        // SAFETY: inside the region, and no thread writes meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(pool.region().base(), 4) };
        assert_eq!((bytes, pool.open_report().groups), (&b"kept"[..], 1));
    });
    println!("{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A position so great that the group would end beyond all numbers: a user can store such bytes.
#[test]
fn a_log_full_of_groups_that_would_end_nowhere_opens() {
    let dir = folder();
    let path = dir.path().join("p");
    with_forged_log(&path, |group, at, _| {
        if at > 0 {
            group[8..16].copy_from_slice(&(u64::MAX - 511).to_le_bytes());
            group[16..20].copy_from_slice(&100u32.to_le_bytes());
        }
    });
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    let pool = any_log().open(&path).unwrap();
    assert_eq!(pool.open_report().groups, 1);
    pool.close().unwrap();
}

/// Changes bytes of a random group of the log and computes its checksum again.
fn forge_group(log: &Path, seed: u32, random: &mut StdRng) {
    let mut bytes = std::fs::read(log).unwrap();
    let groups: Vec<usize> =
        (0..bytes.len()).step_by(512).filter(|&at| &bytes[at..at + 4] == b"MGgr").collect();
    let Some(&at) = groups.get(random.random_range(0..groups.len().max(1))) else { return };
    for _ in 0..random.random_range(1..4) {
        let place = at + random.random_range(8..120usize);
        bytes[place] = random.random();
    }
    let payload = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
    let end = (at + 40 + payload.min(4096)).min(bytes.len());
    let crc = crc32c(seed, &bytes[at + 8..end]);
    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(log, bytes).unwrap();
}
