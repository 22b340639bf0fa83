//! I/O errors at every operation: nothing acknowledged is lost, nothing is acknowledged that is not durable.

use mangrove_pool::{
    ByteRange, Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Latency, Medium, OsStorage, Pool,
    PoolOptions, Region,
};
use std::path::Path;
use std::sync::Arc;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const EROFS: i32 = 30;

/// In memory where the system has such a directory: these tests sync thousands of times.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options(storage: &Faulty) -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(8 << 20)
        .log_bytes(64 << 10)
        .background(false)
        .storage(Arc::new(storage.clone()))
}

fn read(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(region.at(offset), len) }.to_vec()
}

/// What was acknowledged to the workload.
#[derive(Default)]
struct Told {
    /// Value of each cell that a drain acknowledged.
    durable: Vec<u8>,
    /// Values written to each cell after that.
    later: Vec<Vec<u8>>,
}

const CELLS: usize = 64;
const CELL_BYTES: usize = 3000;

/// Writes numbered cells until the end or an error; records what was acknowledged.
fn work(pool: &Pool, told: &mut Told, from: u8) -> Result<(), Error> {
    if told.durable.is_empty() {
        told.durable = vec![0; CELLS];
        told.later = vec![Vec::new(); CELLS];
    }
    let region = pool.region();
    for round in 0..40u8 {
        for j in 0..3usize {
            let cell = (round as usize * 7 + j * 11) % CELLS;
            let value = from + round;
            let offset = (cell * CELL_BYTES) as u64;
            region.grow(offset + CELL_BYTES as u64)?;
            region.write(offset, &[value; CELL_BYTES]);
            region.flush(offset, CELL_BYTES);
            region.fence();
            told.later[cell].push(value);
        }
        region.drain()?;
        for cell in 0..CELLS {
            if let Some(last) = told.later[cell].pop() {
                told.durable[cell] = last;
                told.later[cell].clear();
            }
        }
        if round == 25 {
            pool.checkpoint()?;
        }
    }
    Ok(())
}

/// Every cell holds the acknowledged value, or a whole one written after it.
fn verify(pool: &Pool, told: &Told, what: &str) {
    for cell in 0..told.durable.len() {
        let bytes = read(pool.region(), (cell * CELL_BYTES) as u64, CELL_BYTES);
        assert!(bytes.iter().all(|&b| b == bytes[0]), "{what}: cell {cell} is torn");
        let good = bytes[0] == told.durable[cell] || told.later[cell].contains(&bytes[0]);
        assert!(good, "{what}: cell {cell} holds {}, acknowledged was {}", bytes[0], told.durable[cell]);
    }
}

/// Runs the workload with a fault at the n-th operation, reopens the pool without a fault, and verifies it; for
/// every n.
fn every_operation(operations: &[FaultyOperation], kind: FaultKind) -> u64 {
    let mut n = 0;
    loop {
        let dir = folder();
        let path = dir.path().join("p");
        let storage = Faulty::new(Arc::new(OsStorage));
        let what = format!("{kind:?} at {operations:?} number {n}");
        let mut told = Told::default();
        // A pool that was used before, so that the fault can strike recovery, too.
        let pool = options(&storage).open(&path).unwrap();
        work(&pool, &mut told, 1).unwrap();
        drop(pool);
        storage.plant(Fault { file: None, operations: operations.to_vec(), nth: n, kind });
        let result = options(&storage).open(&path).and_then(|pool| {
            verify(&pool, &told, &what);
            let result = work(&pool, &mut told, 100);
            if let Err(e) = &result {
                let no_space = matches!(e, Error::NoSpace { .. });
                assert_eq!(pool.region().medium().poisoned().is_none(), no_space, "{what}: {e}");
                if !no_space {
                    pool.region().flush(0, 8);
                    assert!(matches!(pool.region().drain(), Err(Error::Poisoned { .. })), "{what}");
                    assert!(matches!(pool.checkpoint(), Err(Error::Poisoned { .. })), "{what}");
                }
                // Reads continue, and see everything, also what was written last.
                let bytes = read(pool.region(), 0, CELLS * CELL_BYTES);
                for (cell, bytes) in bytes.chunks_exact(CELL_BYTES).enumerate() {
                    let last = *told.later[cell].last().unwrap_or(&told.durable[cell]);
                    assert!(bytes.iter().all(|&byte| byte == last), "{what}: cell {cell} is not {last}");
                }
            }
            result.and_then(|()| pool.close())
        });
        let struck = storage.struck();
        // What cannot be read of the superblock is read once more, copy by copy.
        let passes =
            operations.contains(&FaultyOperation::Read) && storage.struck_file("pool") && result.is_ok();
        assert_eq!(result.is_err(), struck && !passes, "{what}: {result:?}");
        storage.heal();
        let pool = options(&storage).open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        verify(&pool, &told, &what);
        work(&pool, &mut told, 50).unwrap();
        pool.close().unwrap();
        assert!(Pool::check(&path).unwrap().damage.is_empty(), "{what}");
        if !struck {
            return n;
        }
        n += 1;
    }
}

#[test]
fn every_write_may_fail() {
    assert!(every_operation(&[FaultyOperation::Write], FaultKind::Errno(EIO)) > 20);
}

#[test]
fn every_write_may_be_short_for_want_of_space() {
    assert!(every_operation(&[FaultyOperation::Write], FaultKind::Short) > 20);
}

#[test]
fn every_sync_may_fail() {
    assert!(every_operation(&[FaultyOperation::Sync], FaultKind::Errno(EIO)) > 10);
}

#[test]
fn every_read_may_fail() {
    assert!(every_operation(&[FaultyOperation::Read, FaultyOperation::Open], FaultKind::Errno(EIO)) > 5);
}

#[test]
fn death_at_every_operation() {
    assert!(every_operation(&[], FaultKind::Halt) > 40);
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Long atomic groups cut a checkpoint into parts, and the first parts end between groups of a process before the
/// last.
#[test]
fn death_in_any_part_of_a_checkpoint_of_two_processes_groups() {
    const LONG: usize = 10 << 10;
    let storage = Faulty::new(Arc::new(OsStorage));
    let options = || options(&storage).log_bytes(16 << 10);
    for shape in ["gug", "guu", "ug", "ugu"] {
        let dir = folder();
        let (made, path) = (dir.path().join("made"), dir.path().join("p"));
        let mut content = vec![0u8; LONG];
        let mut value = 0;
        for steps in [shape, "g"] {
            let pool = options().open(&made).unwrap();
            let region = pool.region();
            region.grow(LONG as u64).unwrap();
            for step in steps.chars() {
                value += 1;
                let (at, len) = if step == 'u' { (0, LONG) } else { (1000 * value, 8) };
                content[at..at + len].fill(value as u8);
                region.write(at as u64, &content[at..at + len]);
                if step == 'u' {
                    region.flush_unit(&[ByteRange { offset: 0, len: LONG as u64 }]).unwrap();
                } else {
                    region.flush(at as u64, len);
                }
                region.drain().unwrap();
            }
            assert_eq!(pool.stat().checkpoints, 0);
        }
        for n in 0.. {
            let what = format!("{shape}, dead at operation {n}");
            copy_folder(&made, &path);
            storage.plant(Fault { file: None, operations: vec![], nth: n, kind: FaultKind::Halt });
            let result = options().open(&path).and_then(|pool| pool.checkpoint());
            let struck = storage.struck();
            storage.heal();
            let pool = options().open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(read(pool.region(), 0, LONG) == content, "{what}");
            pool.close().unwrap();
            assert!(Pool::check(&path).unwrap().damage.is_empty(), "{what}");
            std::fs::remove_dir_all(&path).unwrap();
            if !struck {
                result.unwrap();
                assert!(n > 15, "{shape}: {n} operations");
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_fails_the_growth_and_nothing_else() {
    let dir = folder();
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).open(dir.path().join("p")).unwrap();
    let region = pool.region();
    region.grow(4096).unwrap();
    let usable = pool.stat().grown;
    let full = FaultKind::ErrnoForEver(ENOSPC);
    storage.plant(Fault { file: None, operations: vec![FaultyOperation::Allocate], nth: 0, kind: full });
    let error = region.grow(usable + 1).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    region.write(0, b"goes on");
    region.flush(0, 7);
    region.drain().unwrap();
    storage.heal();
    region.grow(usable + 1).unwrap();
    storage.plant(Fault {
        file: None,
        operations: vec![FaultyOperation::Allocate],
        nth: 0,
        kind: FaultKind::Errno(EIO),
    });
    let error = region.grow(2 * usable + (4 << 20)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(matches!(region.drain(), Err(Error::Poisoned { .. })));
}

#[test]
fn a_full_disk_keeps_nobody_from_what_is_there() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let big = options(&storage).capacity(256 << 20);
    let pool = big.clone().open(&path).unwrap();
    pool.region().grow(4096).unwrap();
    pool.region().write(0, b"there");
    pool.region().flush(0, 5);
    pool.region().drain().unwrap();
    let (usable, sums) = (pool.stat().grown, std::fs::metadata(path.join("sums")).unwrap().len());
    pool.close().unwrap();
    // A growth that failed halfway: the data file got the rest of the disk, its page checksums got nothing.
    let image = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    image.set_len(usable + sums / 4 * 4096 + (40 << 20)).unwrap();
    let full = FaultKind::ErrnoForEver(ENOSPC);
    storage.plant(Fault { file: None, operations: vec![FaultyOperation::Allocate], nth: 0, kind: full });
    let pool = big.clone().open(&path).unwrap();
    assert_eq!((read(pool.region(), 0, 5), pool.stat().grown), (b"there".to_vec(), usable));
    assert!(storage.struck(), "the sums had room");
    pool.region().write(0, b"again");
    pool.region().flush(0, 5);
    pool.region().drain().unwrap();
    storage.heal();
    pool.region().grow(usable + (60 << 20)).unwrap();
    pool.close().unwrap();
    let pool = big.open(&path).unwrap();
    assert_eq!(read(pool.region(), 0, 5), b"again");
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let dir = folder();
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).open(dir.path().join("p")).unwrap();
    pool.region().grow(4096).unwrap();
    pool.region().flush(0, 100);
    storage.plant(Fault {
        file: None,
        operations: vec![FaultyOperation::Sync],
        nth: 2,
        kind: FaultKind::Errno(EIO),
    });
    // The superblock's two copies are synced first, then the checkpoint's own syncs follow.
    assert!(pool.checkpoint().is_err());
    let seen = storage.seen();
    assert!(pool.checkpoint().is_err());
    assert!(pool.region().drain().is_err());
    assert!(pool.close().is_err());
    assert_eq!(storage.seen(), seen, "nothing may be synced after a sync failed");
}

#[test]
fn writers_that_wait_for_a_longer_log_are_told_when_the_superblock_cannot_change() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    options(&storage).log_bytes(1 << 20).open(&path).unwrap().close().unwrap();
    let pool = options(&storage).background(true).log_bytes(1 << 20).open(&path).unwrap();
    storage.plant(Fault {
        file: Some("pool".into()),
        operations: vec![FaultyOperation::Write],
        nth: 0,
        kind: FaultKind::Errno(EIO),
    });
    let (tell, told) = std::sync::mpsc::channel();
    let region = pool.region().clone();
    let writer = std::thread::spawn(move || {
        region.grow(512 << 10).unwrap();
        region.flush(0, 512 << 10);
        tell.send(region.drain().is_err()).unwrap();
    });
    let is_told = told.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(is_told, Ok(true), "it waits for ever");
    writer.join().unwrap();
}

/// Its process may have died before the sync of "not clean".
#[test]
fn a_mapped_pool_that_was_not_closed_makes_that_durable_again() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let options = options(&storage).medium(Medium::Emulated(Latency::new(0, 0)));
    drop(options.open(&path).unwrap());
    storage.plant(Fault {
        file: Some("pool".into()),
        operations: vec![FaultyOperation::Sync],
        nth: u64::MAX,
        kind: FaultKind::Errno(EIO),
    });
    drop(options.open(&path).unwrap());
    assert!(storage.seen() > 0);
}

/// The "clean" that an opener finds may be in the operating system's cache only: its process died before the sync.
#[test]
fn closing_a_pool_that_nobody_wrote_makes_it_durable_that_it_is_clean() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let open = || options(&storage).open(&path).unwrap();
    let superblock = |operation, nth| Fault {
        file: Some("pool".to_owned()),
        operations: vec![operation],
        nth,
        kind: FaultKind::Errno(EIO),
    };
    open().close().unwrap();
    for operation in [FaultyOperation::Write, FaultyOperation::Sync] {
        let pool = open();
        assert!(pool.was_clean());
        storage.plant(superblock(operation, u64::MAX));
        pool.close().unwrap();
        assert_eq!(storage.seen(), 1, "{operation:?}");
        let pool = open();
        storage.plant(superblock(operation, 0));
        assert!(matches!(pool.close(), Err(Error::Io { .. })), "{operation:?}");
        storage.heal();
    }
}

#[test]
fn a_process_killed_inside_create_leaves_no_pool_or_a_whole_one() {
    let mut n = 0;
    loop {
        let dir = folder();
        let path = dir.path().join("p");
        let storage = Faulty::new(Arc::new(OsStorage));
        storage.plant(Fault { file: None, operations: vec![], nth: n, kind: FaultKind::Halt });
        let result = options(&storage).open(&path);
        let struck = storage.struck();
        assert_eq!(result.is_err(), struck);
        drop(result);
        storage.heal();
        let open = |mode| PoolOptions::new().create(mode).log_bytes(64 << 10).capacity(8 << 20).open(&path);
        if struck {
            match open(Create::Never) {
                Ok(pool) => drop(pool),
                Err(e @ (Error::NotFound { .. } | Error::Foreign { .. })) => {
                    let text = e.to_string();
                    assert!(text.contains("there is no pool") || text.contains("interrupted"), "{text}");
                }
                Err(e) => panic!("operation {n}: {e}"),
            }
        }
        let pool = open(Create::IfMissing).unwrap_or_else(|e| panic!("operation {n}: {e}"));
        pool.region().grow(4096).unwrap();
        pool.region().write(0, b"works");
        pool.region().flush(0, 5);
        pool.close().unwrap();
        assert_eq!(read(open(Create::Never).unwrap().region(), 0, 5), b"works");
        if !struck {
            assert!(n > 8, "{n} operations to create a pool");
            return;
        }
        n += 1;
    }
}

#[test]
fn threads_that_wait_are_all_told_of_the_failure() {
    let dir = folder();
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).background(true).open(dir.path().join("p")).unwrap();
    pool.region().grow(1 << 20).unwrap();
    let log = Some("log".to_owned());
    storage.plant(Fault {
        file: log,
        operations: vec![FaultyOperation::Write],
        nth: 50,
        kind: FaultKind::Errno(EIO),
    });
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let region = pool.region();
            scope.spawn(move || {
                for i in 0..1_000_000u64 {
                    region.flush(thread * 8192 + i % 8 * 512, 512);
                    if region.drain().is_err() {
                        return;
                    }
                }
                panic!("the failure never came");
            });
        }
    });
    assert!(pool.region().medium().poisoned().is_some());
}

#[test]
fn a_flush_that_waits_for_log_space_ends_when_the_checkpoint_fails() {
    let dir = folder();
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).background(true).open(dir.path().join("p")).unwrap();
    pool.region().grow(1 << 20).unwrap();
    let image = Some("image".to_owned());
    storage.plant(Fault {
        file: image,
        operations: vec![FaultyOperation::Sync],
        nth: 0,
        kind: FaultKind::Errno(EIO),
    });
    for i in 0..4000u64 {
        pool.region().flush(i * 100 % 900_000, 1000);
    }
    assert!(pool.region().drain().is_err());
    assert!(matches!(pool.close(), Err(Error::Poisoned { .. })));
}

/// A server at its limit continues when a client has gone.
#[test]
fn a_long_unit_that_finds_no_descriptor_is_refused_and_nothing_else() {
    const LONG: ByteRange = ByteRange { offset: 0, len: 10 << 10 };
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let none = |file: Option<&str>, operation| {
        let file = file.map(str::to_owned);
        storage.plant(Fault { file, operations: vec![operation], nth: 0, kind: FaultKind::Errno(EMFILE) });
    };
    let pool = options(&storage).log_bytes(16 << 10).open(&path).unwrap();
    let region = pool.region();
    region.grow(LONG.len).unwrap();
    region.write(0, &[1; LONG.len as usize]);
    // The spill file, and its directory, which is opened for the sync of the name.
    for (file, operation) in [(None, FaultyOperation::Name), (Some("p"), FaultyOperation::Sync)] {
        none(file, operation);
        let error = region.flush_unit(&[LONG]).unwrap_err();
        assert!(matches!(error, Error::Io { code: Some(EMFILE), .. }), "{error}");
        assert!(storage.struck() && region.medium().poisoned().is_none());
        let names = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name());
        assert!(!names.into_iter().any(|name| name.to_string_lossy().starts_with("unit-")));
    }
    region.flush_unit(&[LONG]).unwrap();
    region.drain().unwrap();
    none(None, FaultyOperation::Open);
    pool.checkpoint().unwrap();
    storage.heal();
    drop(pool);
    let pool = options(&storage).open(&path).unwrap();
    assert!(read(pool.region(), 0, LONG.len as usize).iter().all(|&byte| byte == 1));
}

/// The next spill file would sync the directory again.
#[test]
fn a_full_disk_refuses_a_long_unit_and_poisons_when_the_sync_of_the_directory_failed() {
    const LONG: ByteRange = ByteRange { offset: 0, len: 10 << 10 };
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).log_bytes(16 << 10).open(&path).unwrap();
    let region = pool.region();
    region.grow(LONG.len).unwrap();
    region.write(0, &[1; LONG.len as usize]);
    let full = |file: Option<&str>, operation| {
        let (file, kind) = (file.map(str::to_owned), FaultKind::Errno(ENOSPC));
        storage.plant(Fault { file, operations: vec![operation], nth: 0, kind });
        let error = region.flush_unit(&[LONG]).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }) && storage.struck(), "{error}");
    };
    for operation in [FaultyOperation::Write, FaultyOperation::Sync] {
        full(None, operation);
        assert!(region.medium().poisoned().is_none());
        region.flush_unit(&[LONG]).unwrap();
        region.drain().unwrap();
        pool.checkpoint().unwrap();
    }
    full(Some("p"), FaultyOperation::Sync);
    assert!(region.medium().poisoned().is_some());
    assert!(region.flush_unit(&[LONG]).is_err());
}

#[test]
fn a_long_unit_that_recovery_found_is_applied_without_a_descriptor() {
    const LONG: ByteRange = ByteRange { offset: 0, len: 10 << 10 };
    for interrupted in [false, true] {
        let dir = folder();
        let path = dir.path().join("p");
        let storage = Faulty::new(Arc::new(OsStorage));
        let pool = options(&storage).log_bytes(16 << 10).open(&path).unwrap();
        pool.region().grow(LONG.len).unwrap();
        pool.region().write(0, &[1; LONG.len as usize]);
        pool.region().flush_unit(&[LONG]).unwrap();
        pool.region().drain().unwrap();
        if interrupted {
            let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Sync]);
            storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Halt });
            pool.checkpoint().unwrap_err();
        }
        drop(pool);
        storage.heal();
        let pool = options(&storage).open(&path).unwrap();
        let (operations, kind) = (vec![FaultyOperation::Open], FaultKind::ErrnoForEver(EMFILE));
        storage.plant(Fault { file: None, operations, nth: 0, kind });
        pool.checkpoint().unwrap();
        assert!(!storage.struck() && pool.region().medium().poisoned().is_none());
        pool.close().unwrap();
        storage.heal();
        let names = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name());
        assert!(!names.into_iter().any(|name| name.to_string_lossy().starts_with("unit-")));
        let pool = options(&storage).open(&path).unwrap();
        assert!(read(pool.region(), 0, LONG.len as usize).iter().all(|&byte| byte == 1));
    }
}

/// An opener for writing gets the log's second descriptor or an error; a reader needs none.
#[test]
fn an_opener_without_a_descriptor_for_the_log_says_so_and_harms_nothing() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let pool = options(&storage).open(&path).unwrap();
    pool.region().grow(4096).unwrap();
    pool.region().write(0, b"kept");
    pool.region().flush(0, 4);
    pool.region().drain().unwrap();
    drop(pool);
    let files = || ["pool", "image", "log", "sums"].map(|name| std::fs::read(path.join(name)).unwrap());
    let before = files();
    let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Open]);
    let second = Fault { file, operations, nth: 1, kind: FaultKind::Errno(EMFILE) };
    storage.plant(second.clone());
    let reader = PoolOptions::new().read_only(true).storage(Arc::new(storage.clone()));
    assert_eq!(read(reader.open(&path).unwrap().region(), 0, 4), b"kept");
    assert!(!storage.struck());
    storage.plant(second);
    let error = options(&storage).open(&path).unwrap_err();
    assert!(matches!(error, Error::Io { code: Some(EMFILE), .. }));
    let text = error.to_string();
    assert!(text.starts_with("cannot open") && text.contains("/log: Too many open files"), "{text}");
    assert!(files() == before);
    let pool = options(&storage).open(&path).unwrap();
    assert_eq!(read(pool.region(), 0, 4), b"kept");
    pool.close().unwrap();
}

/// After a process was killed, the operating system may have log groups that the disk has not: a program that
/// answers from them must have synced them, a reader too.
#[test]
fn a_reader_of_a_pool_that_was_not_closed_syncs_the_log_first() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let reader = || PoolOptions::new().read_only(true).storage(Arc::new(storage.clone()));
    let fail_a_sync_of_the_log = |code| {
        let file = Some("log".to_owned());
        storage.plant(Fault {
            file,
            operations: vec![FaultyOperation::Sync],
            nth: 0,
            kind: FaultKind::Errno(code),
        });
    };
    let pool = options(&storage).open(&path).unwrap();
    pool.region().grow(4096).unwrap();
    pool.region().write(0, b"kept");
    pool.region().flush(0, 4);
    pool.region().drain().unwrap();
    drop(pool);
    fail_a_sync_of_the_log(EIO);
    let text = reader().open(&path).unwrap_err().to_string();
    assert!(text.contains("cannot sync") && text.contains("log"), "{text}");
    // Not that it should open the pool read-only.
    fail_a_sync_of_the_log(EROFS);
    let error = reader().open(&path).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "sync", code: Some(EROFS), .. }), "{error}");
    let pool = reader().open(&path).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(read(pool.region(), 0, 4), b"kept");
    drop(pool);
    options(&storage).open(&path).unwrap().close().unwrap();
    fail_a_sync_of_the_log(EIO);
    assert!(reader().open(&path).unwrap().was_clean());
}

#[test]
fn an_open_error_names_the_file() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    options(&storage).open(&path).unwrap().close().unwrap();
    for (code, wanted) in [(13, "cannot be written"), (30, "cannot be written"), (5, "cannot open")] {
        let pool = Some("pool".to_owned());
        storage.plant(Fault {
            file: pool,
            operations: vec![FaultyOperation::Open],
            nth: 0,
            kind: FaultKind::Errno(code),
        });
        let text = options(&storage).open(&path).unwrap_err().to_string();
        assert!(
            text.contains(wanted) && text.contains(&*Path::new("p").join("pool").to_string_lossy()),
            "{text}"
        );
        storage.plant(Fault {
            file: None,
            operations: vec![FaultyOperation::Open],
            // The first is the directory, which is locked only if it can be read.
            nth: 1,
            kind: FaultKind::Errno(code),
        });
        let reader = PoolOptions::new().read_only(true).storage(Arc::new(storage.clone()));
        let text = reader.open(&path).unwrap_err().to_string();
        assert!(text.contains("cannot read"), "a reader is not told to open read-only: {text}");
    }
}

/// The newer copy says "clean" and has a damaged bit; the older copy is read. A torn write over the newer copy could
/// mend it: so it is overwritten before anything is written that it does not know.
#[test]
fn a_damaged_newer_copy_is_overwritten_before_the_log() {
    let dir = folder();
    let path = dir.path().join("p");
    let storage = Faulty::new(Arc::new(OsStorage));
    let open = || options(&storage).open(&path).unwrap();
    let fault = |file: &str, nth| Fault {
        file: Some(file.to_owned()),
        operations: vec![FaultyOperation::Write],
        nth,
        kind: FaultKind::Errno(EIO),
    };
    let put = |pool: &Pool| {
        pool.region().grow(4096).unwrap();
        pool.region().write(0, b"acknowledged");
        pool.region().flush(0, 12);
        pool.region().drain()
    };
    let pool = open();
    put(&pool).unwrap();
    pool.checkpoint().unwrap();
    // Of the two copies that closing writes, the second one fails.
    storage.plant(fault("pool", 1));
    assert!(pool.close().is_err());
    storage.heal();
    let file = path.join("pool");
    let mut bytes = std::fs::read(&file).unwrap();
    let are_whole = || std::fs::read(&file).unwrap().chunks(4096).all(is_whole);
    assert!(are_whole());
    let newer = (0..2).max_by_key(|&copy| sequence(&bytes, copy)).unwrap();
    bytes[newer * 4096 + 962] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    assert!(!are_whole());
    let pool = open();
    assert!(!pool.was_clean());
    storage.plant(fault("log", 0));
    assert!(put(&pool).is_err());
    storage.heal();
    drop(pool);
    assert!(are_whole(), "the log was written before the damaged copy");
}

fn is_whole(copy: &[u8]) -> bool {
    crc32c::crc32c(&copy[..4092]).to_le_bytes() == copy[4092..]
}

/// The number of a copy's write.
fn sequence(bytes: &[u8], copy: usize) -> u64 {
    u64::from_le_bytes(bytes[copy * 4096 + 16..][..8].try_into().unwrap())
}

/// At each operation of a creation in turn: a name, a write, a sync, a reservation.
#[test]
fn a_refused_creation_leaves_nothing() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        for folder_is_there in [false, true] {
            let mut refused = 0;
            for nth in 0.. {
                let folder = folder();
                let path = folder.path().join("pool");
                if folder_is_there {
                    std::fs::create_dir(&path).unwrap();
                }
                let storage = Faulty::new(Arc::new(OsStorage));
                let kind = FaultKind::Errno(ENOSPC);
                storage.plant(Fault { file: None, operations: Vec::new(), nth, kind });
                let opened = options(&storage).medium(medium).open(&path);
                if !storage.struck() {
                    opened.unwrap();
                    break;
                }
                // Not every operation matters: a log is made durable where that is possible, for one.
                if opened.is_err() {
                    refused += 1;
                    let names = std::fs::read_dir(&path).map(|names| names.count()).ok();
                    assert_eq!(names, folder_is_there.then_some(0), "operation {nth} failed: {opened:?}");
                    options(&storage).medium(medium).open(&path).unwrap();
                }
            }
            assert!(refused > 5, "{refused} creations were refused");
        }
    }
}

/// The process that made it may have been killed before it synced the name.
#[test]
fn the_name_of_a_directory_that_was_there_is_durable_before_a_pool_in_it() {
    const EACCES: i32 = 13;
    let folder = folder();
    let path = folder.path().join("p");
    std::fs::create_dir(&path).unwrap();
    let storage = Faulty::new(Arc::new(OsStorage));
    let plant = |code| {
        let file = folder.path().file_name().map(|name| name.to_str().unwrap().to_owned());
        let operations = vec![FaultyOperation::Sync];
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(code) });
    };
    plant(EIO);
    let error = options(&storage).open(&path).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path == folder.path()), "{error}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "it came before the pool");
    // A user may have made the directory where the process may only search.
    plant(EACCES);
    options(&storage).open(&path).unwrap().close().unwrap();
    assert!(storage.struck());
}

/// The owner of the region could not make its object.
#[test]
fn a_creation_that_is_undone_leaves_nothing_and_an_existing_pool_stays() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let folder = folder();
        let path = folder.path().join("pool");
        let options = options(&Faulty::new(Arc::new(OsStorage))).medium(medium).background(true);
        let open = || {
            let pool = options.open(&path).unwrap();
            pool.region().grow(1 << 20).unwrap();
            pool.region().write(4096, &[7; 10]);
            pool.region().flush(4096, 10);
            pool.region().drain().unwrap();
            pool
        };
        open().undo_creation();
        assert!(!path.exists());
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("note"), "of the user").unwrap();
        open().undo_creation();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "the user's file, and nothing else");
        open().close().unwrap();
        open().undo_creation();
        assert_eq!(read(options.open(&path).unwrap().region(), 4096, 10), [7; 10], "it was there before");
    }
}
