//! The log grows with use: how far, what it costs to be interrupted anywhere, and what older superblocks say.

use mangrove_pool::{
    ByteRange, Create, Durability, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool,
    PoolOptions, crc32c,
};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const REGION_BYTES: u64 = 4 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> PoolOptions {
    PoolOptions::new().create(Create::IfMissing).medium(Medium::File).capacity(64 << 20).background(false)
}

fn open(path: &Path) -> Pool {
    let pool = options().open(path).unwrap();
    pool.region().grow(REGION_BYTES).unwrap();
    pool
}

/// Bytes of a write: so few that even the smallest log has them in one group.
const WRITE_BYTES: u64 = 2048;

/// Write number `n`: the first half of a page, whose words are all `n + 1`.
fn write(pool: &Pool, n: u64) -> Result<(), Error> {
    let at = n % (REGION_BYTES / 4096) * 4096;
    let bytes: Vec<u8> =
        std::iter::repeat_n((n + 1).to_le_bytes(), WRITE_BYTES as usize / 8).flatten().collect();
    pool.region().write(at, &bytes);
    pool.region().flush(at, bytes.len());
    pool.region().drain()
}

/// How many of the writes the pool holds: the first so many, whole, and none after them. `None` when that is not so.
fn holds(pool: &Pool) -> Option<u64> {
    let pages = REGION_BYTES / 4096;
    let word = |at: u64| pool.region().word(at).load(Ordering::Relaxed);
    let grown = pool.stat().grown;
    let of_page = |page: u64| if page * 4096 < grown { word(page * 4096) } else { 0 };
    let count = (0..pages).map(of_page).max().unwrap_or(0);
    let right = |page: u64| {
        // The last write of this page before write number `count`.
        let last = (count + pages - 1 - page) / pages;
        let expected = if last == 0 { 0 } else { (last - 1) * pages + page + 1 };
        (page * 4096..page * 4096 + WRITE_BYTES).step_by(8).all(|at| at >= grown || word(at) == expected)
    };
    (0..pages).all(right).then_some(count)
}

#[test]
fn the_log_grows_with_use_and_keeps_what_it_holds() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = open(&path);
    assert_eq!(pool.stat().log_bytes, 128 << 10);
    let (mut sizes, mut n) = (vec![128 << 10], 0);
    while n < 5400 {
        write(&pool, n).unwrap();
        n += 1;
        let bytes = pool.stat().log_bytes;
        if sizes.last() != Some(&bytes) {
            sizes.push(bytes);
        }
    }
    assert_eq!(sizes, [128 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20, 32 << 20]);
    assert_eq!(pool.stat().checkpoints, 0, "growth makes space without checkpoints");
    drop(pool);
    assert_eq!(std::fs::metadata(path.join("log")).unwrap().len(), 32 << 20);
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    let pool = open(&path);
    assert_eq!((holds(&pool), pool.stat().log_bytes), (Some(n), 32 << 20));
    pool.close().unwrap();
    let pool = open(&path);
    assert!(pool.was_clean());
    assert_eq!(holds(&pool), Some(n));
}

#[test]
fn the_log_grows_when_it_has_wrapped_around_too() {
    let dir = folder();
    for first in 0..40 {
        let path = dir.path().join(first.to_string());
        let options = options().log_bytes_first(64 << 10).log_bytes(64 << 10);
        let pool = options.open(&path).unwrap();
        pool.region().grow(REGION_BYTES).unwrap();
        for n in 0..first {
            write(&pool, n).unwrap();
        }
        assert_eq!(pool.stat().log_bytes, 64 << 10, "as far as the options allow");
        drop(pool);
        let pool = options.log_bytes(1 << 20).open(&path).unwrap();
        pool.region().grow(REGION_BYTES).unwrap();
        for n in first..first + 60 {
            write(&pool, n).unwrap();
        }
        assert!(pool.stat().log_bytes > 64 << 10, "after {first}");
        assert_eq!(holds(&pool), Some(first + 60));
        drop(pool);
        let pool = open(&path);
        assert_eq!(holds(&pool), Some(first + 60), "after {first}");
        pool.close().unwrap();
    }
}

/// Writes to eight pages in turn; the log has 1 MiB afterwards.
fn write_pages(pool: &Pool, writes: std::ops::Range<u64>) {
    pool.region().grow(REGION_BYTES).unwrap();
    for n in writes {
        let at = n % 8 * 4096;
        pool.region().write(at, &(n + 1).to_le_bytes().repeat(WRITE_BYTES as usize / 8));
        pool.region().flush(at, WRITE_BYTES as usize);
        pool.region().drain().unwrap();
    }
    assert_eq!(pool.stat().log_bytes, 1 << 20);
}

/// Fills a log that then has 1 MiB, of a region in which a few pages are used.
fn write_much(options: &PoolOptions, path: &Path) -> Pool {
    let pool = options.open(path).unwrap();
    write_pages(&pool, 0..600);
    pool
}

#[test]
fn a_log_that_has_grown_becomes_short_again_at_each_place_that_closing_may_stop() {
    let options = options().log_bytes_first(16 << 10).log_bytes(1 << 20);
    let log_bytes = |path: &Path| std::fs::metadata(path.join("log")).unwrap().len();
    let dir = folder();
    let mut shortened = Vec::new();
    for nth in 0.. {
        let path = dir.path().join(nth.to_string());
        let faulty = Faulty::new(Arc::new(OsStorage));
        let pool = write_much(&options.clone().storage(Arc::new(faulty.clone())), &path);
        faulty.plant(Fault { file: None, operations: Vec::new(), nth, kind: FaultKind::Halt });
        let closed = pool.close();
        let has_struck = faulty.struck();
        // Twice: the first opening grows the log again.
        for round in 0..2 {
            let mut damage = Pool::check(&path).unwrap().damage;
            // A torn copy of the superblock.
            damage.retain(|damage| damage.path != path.join("pool"));
            assert_eq!(damage, [], "after {nth} operations, {round}");
            let pool = options.open(&path).unwrap_or_else(|e| panic!("after {nth} operations, {round}: {e}"));
            shortened.push(pool.stat().log_bytes);
            let expected = if round == 0 { 600 } else { 1200 };
            for page in 0..8 {
                let last = pool.region().word(page * 4096).load(Ordering::Relaxed);
                assert_eq!(last, expected - 7 + page, "after {nth} operations, {round}");
            }
            write_pages(&pool, 600..1200);
        }
        if !has_struck {
            closed.unwrap();
            break;
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    assert!(shortened.contains(&(1 << 20)) && shortened.contains(&(32 << 10)), "{shortened:?}");
    let path = dir.path().join("closed");
    let pool = write_much(&options, &path);
    assert_eq!(log_bytes(&path), 1 << 20);
    pool.close().unwrap();
    assert_eq!(log_bytes(&path), 32 << 10, "as long as eight pages");
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

#[test]
fn a_closed_pool_has_a_log_of_the_length_of_its_data() {
    let dir = folder();
    let path = dir.path().join("p");
    for pages in [1000, 100, 3] {
        let pool = open(&path);
        let region = pool.region();
        region.zero(0, REGION_BYTES as usize);
        region.write(0, &[7; 4096].repeat(pages));
        (0..20).for_each(|_| region.flush(0, REGION_BYTES as usize));
        region.drain().unwrap();
        assert_eq!(pool.stat().log_bytes, 64 << 20, "{pages} pages");
        pool.close().unwrap();
        let closed = std::fs::metadata(path.join("log")).unwrap().len();
        assert_eq!(closed, (pages as u64 * 4096).max(128 << 10));
        let pool = open(&path);
        assert!(pool.was_clean());
        let words = |page: u64| pool.region().word(page * 4096).load(Ordering::Relaxed);
        assert_eq!(words(pages as u64 - 1), u64::from_le_bytes([7; 8]));
        assert_eq!(words(pages as u64), 0);
        pool.close().unwrap();
    }
}

#[test]
fn a_pool_keeps_how_far_its_log_may_grow() {
    let dir = folder();
    let path = dir.path().join("p");
    let small = options().log_bytes(200 << 10).open(&path).unwrap();
    assert_eq!(small.info().log_bytes_max, 200 << 10);
    small.close().unwrap();
    let pool = open(&path);
    (0..200).for_each(|n| write(&pool, n).unwrap());
    assert_eq!(pool.stat().log_bytes, 200 << 10);
    assert!(pool.stat().checkpoints > 0);
    pool.close().unwrap();
}

#[test]
fn beyond_64_mib_the_log_grows_only_while_it_is_shorter_than_the_data() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().capacity(512 << 20).log_bytes_first(64 << 20).open(&path).unwrap();
    let region = pool.region();
    region.grow(1 << 20).unwrap();
    let fill = || (0..40).for_each(|_| region.flush(0, 1 << 20));
    fill();
    region.drain().unwrap();
    assert_eq!(pool.stat().log_bytes, 64 << 20);
    pool.checkpoint().unwrap();
    region.grow(65 << 20).unwrap();
    pool.checkpoint().unwrap();
    (0..3).for_each(|_| fill());
    region.drain().unwrap();
    assert_eq!(pool.stat().log_bytes, 128 << 20);
}

#[test]
fn an_atomic_group_that_is_too_long_lets_the_log_grow() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = open(&path);
    let region = pool.region();
    region.write(0, &[7; 2 << 20]);
    let lsn = region.flush_unit(&[ByteRange { offset: 0, len: 2 << 20 }]).unwrap();
    region.wait(lsn).unwrap();
    assert_eq!(pool.stat().log_bytes, 8 << 20);
    let is_spill = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("unit-");
    assert!(!std::fs::read_dir(&path).unwrap().any(|entry| is_spill(entry.unwrap())));
    drop(pool);
    let pool = open(&path);
    assert_eq!(pool.region().word((2 << 20) - 8).load(Ordering::Relaxed), u64::from_le_bytes([7; 8]));
}

#[test]
fn a_full_medium_leaves_the_log_as_it_is_and_growth_is_tried_again() {
    let dir = folder();
    let path = dir.path().join("p");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    pool.region().grow(REGION_BYTES).unwrap();
    let fault = |file: &str| Fault {
        file: Some(file.into()),
        operations: vec![FaultyOperation::Allocate],
        nth: 0,
        kind: FaultKind::ErrnoForEver(libc::ENOSPC),
    };
    faulty.plant(fault("log"));
    let mut n = 0;
    while n < 300 {
        write(&pool, n).unwrap();
        n += 1;
    }
    assert!(faulty.struck());
    assert!(faulty.seen() <= 2, "growth was tried {} times in 6 logs", faulty.seen());
    assert_eq!(pool.stat().log_bytes, 128 << 10);
    assert!(pool.stat().checkpoints > 0);
    faulty.heal();
    while pool.stat().log_bytes == 128 << 10 {
        assert!(n < 300 + 50 * 18, "growth was not tried again");
        write(&pool, n).unwrap();
        n += 1;
    }
    drop(pool);
    assert_eq!(holds(&open(&path)), Some(n));
}

/// An atomic group that is too long for the log as it is needs space for a spill file then.
#[test]
fn a_growth_that_finds_a_full_medium_gives_back_what_it_has_prepared() {
    const LONG: u64 = 20 << 20;
    let dir = folder();
    let path = dir.path().join("p");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    let region = pool.region();
    region.grow(LONG).unwrap();
    region.write(0, &vec![7; LONG as usize]);
    // The log is to become 64 MiB long, by two pieces.
    faulty.plant(Fault {
        file: Some("log".into()),
        operations: vec![FaultyOperation::Allocate],
        nth: 1,
        kind: FaultKind::ErrnoForEver(libc::ENOSPC),
    });
    let lsn = region.flush_unit(&[ByteRange { offset: 0, len: LONG }]).unwrap();
    assert!(faulty.struck(), "the log grew by one piece");
    region.wait(lsn).unwrap();
    assert_eq!(pool.stat().log_bytes, 128 << 10);
    assert_eq!(std::fs::metadata(path.join("log")).unwrap().len(), 128 << 10);
    faulty.heal();
    let mut n = 0;
    while pool.stat().log_bytes == 128 << 10 {
        assert!(n < 50 * 36, "growth was not tried again");
        write(&pool, n).unwrap();
        n += 1;
    }
    drop(pool);
    let pool = open(&path);
    let word = |at: u64| pool.region().word(at).load(Ordering::Relaxed);
    assert_eq!(word((n - 1) % (REGION_BYTES / 4096) * 4096), n);
    assert_eq!(word(LONG - 8), u64::from_le_bytes([7; 8]));
}

#[test]
fn any_operation_may_be_the_last_one_of_a_process_whose_log_grows() {
    let dir = folder();
    for keeps_recent in [false, true] {
        let mut died = 0;
        for nth in 0.. {
            let path = dir.path().join(format!("{keeps_recent}-{nth}"));
            let durability = if keeps_recent { Durability::interval_ms(1000) } else { Durability::Sync };
            let options = options().log_bytes_first(16 << 10).log_bytes(200 << 10);
            let options = options.keeps_recent(keeps_recent).durability(durability);
            let faulty = Faulty::new(Arc::new(OsStorage));
            let pool = options.clone().storage(Arc::new(faulty.clone())).open(&path).unwrap();
            pool.region().grow(REGION_BYTES).unwrap();
            faulty.plant(Fault { file: None, operations: vec![], nth, kind: FaultKind::Halt });
            let written = (0..60).take_while(|&n| write(&pool, n).is_ok()).count() as u64;
            let whole = pool.stat().log_bytes;
            drop(pool);
            let pool = options.open(&path).unwrap_or_else(|e| panic!("{nth}: {e}"));
            let held = holds(&pool).unwrap_or_else(|| panic!("{nth}: a mixture"));
            assert!(held == written || held == written + 1, "{nth}: {written} returned, {held} are there");
            pool.region().grow(REGION_BYTES).unwrap();
            (held..held + 80).for_each(|n| write(&pool, n).unwrap());
            assert_eq!(holds(&pool), Some(held + 80));
            drop(pool);
            assert_eq!(holds(&open(&path)), Some(held + 80), "{nth}");
            std::fs::remove_dir_all(&path).unwrap();
            if !faulty.struck() {
                assert_eq!(whole, 200 << 10);
                break;
            }
            died += 1;
        }
        assert!(died > 60, "{died}");
    }
}

/// The child of the test below: it writes, and reports each write that is durable, until it is killed.
fn write_for_ever(path: &Path) {
    let pool = options().background(true).open(path).unwrap();
    pool.region().grow(REGION_BYTES).unwrap();
    let from = holds(&pool).unwrap();
    for n in from.. {
        write(&pool, n).unwrap();
        println!("durable: {}", n + 1);
    }
}

#[test]
fn a_process_that_is_killed_while_its_log_grows_loses_nothing() {
    const ROLE: &str = "MANGROVE_GROWING_LOG";
    if let Some(path) = std::env::var_os(ROLE) {
        return write_for_ever(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut sizes = std::collections::BTreeSet::new();
    // A log of 128 KiB grows about the 26th write, one of 512 KiB about the 103rd, one of 2 MiB about the 410th.
    for kill_after in [25, 26, 27, 28, 30, 35, 102, 103, 104, 108, 409, 411, 415, 430] {
        let path = dir.path().join(kill_after.to_string());
        let mut held = 0;
        for round in 1..=2 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "a_process_that_is_killed_while_its_log_grows_loses_nothing",
                    "--nocapture",
                ])
                .env(ROLE, &path)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut durable = held;
            for line in lines {
                if let Some((_, number)) = line.unwrap().split_once("durable: ") {
                    durable = number.parse().unwrap();
                }
                if durable >= held + kill_after {
                    // SIGKILL; the lines that it has written are read below.
                    child.kill().unwrap();
                }
            }
            child.wait().unwrap();
            let pool = PoolOptions::new().read_only(true).open(&path).unwrap();
            let found = holds(&pool).expect("a prefix of the writes");
            assert!(found >= durable, "killed after {kill_after}, round {round}: {durable} of {found}");
            sizes.insert(pool.info().log_bytes);
            held = found;
        }
    }
    assert!(sizes.len() >= 3, "{sizes:?}");
}

#[test]
fn a_superblock_from_before_the_growth_is_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    for closed_before in [false, true] {
        let pool = open(&path);
        write(&pool, 0).unwrap();
        let pool = if closed_before {
            pool.close().unwrap();
            None
        } else {
            Some(pool)
        };
        let old = std::fs::read(path.join("pool")).unwrap();
        let pool = pool.unwrap_or_else(|| open(&path));
        (1..100).for_each(|n| write(&pool, n).unwrap());
        assert_eq!((pool.stat().log_bytes, pool.stat().checkpoints), (512 << 10, 0));
        drop(pool);
        let new = std::fs::read(path.join("pool")).unwrap();
        std::fs::write(path.join("pool"), &old).unwrap();
        for options in [options(), PoolOptions::new().read_only(true)] {
            let error = options.open(&path).expect_err("an older superblock").to_string();
            assert!(error.contains(&*path.join("pool").to_string_lossy()), "{error}");
            assert!(error.contains("older copy"), "{error}");
        }
        assert_ne!(Pool::check(&path).unwrap().damage, []);
        // Either copy of the new one serves alone.
        for copy in [0, 4096] {
            let mut alone = new.clone();
            alone[copy..copy + 4096].fill(0xa5);
            std::fs::write(path.join("pool"), &alone).unwrap();
            let pool = PoolOptions::new().read_only(true).open(&path).unwrap();
            assert_eq!(holds(&pool), Some(100), "without the copy at {copy}");
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_log_file_that_a_growth_left_longer_is_no_damage() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = open(&path);
    write(&pool, 0).unwrap();
    drop(pool);
    let log = std::fs::OpenOptions::new().write(true).open(path.join("log")).unwrap();
    log.set_len((128 << 10) + 12345).unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    let pool = open(&path);
    assert_eq!(holds(&pool), Some(1));
    (1..100).for_each(|n| write(&pool, n).unwrap());
    assert_eq!(pool.stat().log_bytes, 512 << 10);
    drop(pool);
    assert_eq!(holds(&open(&path)), Some(100));
}

/// Makes both copies of the superblock those of version 3, which had no fields for a log that grows.
fn make_version_3(path: &Path) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path.join("pool")).unwrap();
    for at in [0, 4096] {
        let mut copy = [0; 4096];
        file.read_exact_at(&mut copy, at).unwrap();
        copy[8..12].copy_from_slice(&3u32.to_le_bytes());
        copy[1184..1200].fill(0);
        let crc = crc32c(0, &copy[..4092]);
        copy[4092..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&copy, at).unwrap();
    }
}

#[test]
fn a_pool_of_version_3_opens_and_its_log_grows() {
    let dir = folder();
    for is_closed in [true, false] {
        let path = dir.path().join(is_closed.to_string());
        let pool = options().log_bytes(32 << 10).open(&path).unwrap();
        pool.region().grow(REGION_BYTES).unwrap();
        (0..30).for_each(|n| write(&pool, n).unwrap());
        if is_closed {
            pool.close().unwrap()
        } else {
            drop(pool)
        }
        make_version_3(&path);
        assert_eq!(Pool::inspect(&path).unwrap().version, 3);
        let pool = PoolOptions::new().read_only(true).open(&path).unwrap();
        assert_eq!(holds(&pool), Some(30));
        drop(pool);
        let pool = open(&path);
        assert_eq!((holds(&pool), pool.stat().log_bytes), (Some(30), 32 << 10));
        (30..100).for_each(|n| write(&pool, n).unwrap());
        assert!(pool.stat().log_bytes > 32 << 10);
        drop(pool);
        assert_eq!(Pool::inspect(&path).unwrap().version, 5);
        assert_eq!(holds(&open(&path)), Some(100));
    }
}
