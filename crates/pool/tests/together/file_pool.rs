//! The file medium, end to end on a real file system.

use mangrove_pool::{
    ByteRange, Create, Durability, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool,
    PoolOptions,
};
use std::path::Path;
use std::sync::Arc;

const CAPACITY: u64 = 64 << 20;

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(CAPACITY)
        .log_bytes(1 << 20)
        .kind("test")
}

fn open(path: &Path) -> Pool {
    options().open(path).unwrap()
}

fn read(pool: &Pool, offset: u64, len: usize) -> Vec<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(pool.region().at(offset), len) }.to_vec()
}

fn put(pool: &Pool, offset: u64, bytes: &[u8]) {
    let region = pool.region();
    region.grow(offset + bytes.len() as u64).unwrap();
    region.write(offset, bytes);
    region.flush(offset, bytes.len());
    region.fence();
}

#[test]
fn what_was_drained_survives_a_drop_and_what_was_not_flushed_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = open(&path);
    assert!(pool.was_created() && pool.was_clean());
    put(&pool, 5000, b"durable");
    pool.region().drain().unwrap();
    pool.region().write(9000, b"never flushed");
    drop(pool);
    let pool = open(&path);
    assert!(!pool.was_created() && !pool.was_clean());
    assert_eq!(read(&pool, 5000, 7), b"durable");
    assert_eq!(read(&pool, 9000, 13), [0; 13]);
    assert_eq!(pool.open_report().records, 1);
    put(&pool, 5000, b"DUR");
    pool.close().unwrap();
    let pool = open(&path);
    assert!(pool.was_clean());
    assert_eq!(read(&pool, 5000, 7), b"DURable");
    assert_eq!(pool.open_report().records, 0);
}

/// Until the first checkpoint a crash may lose the lengths of data file and page checksums. If the superblock is lost,
/// too, the log is what is left of the pool.
#[test]
fn a_pool_of_which_only_the_log_is_left_is_not_created_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = options().background(false);
    let pool = options.open(&path).unwrap();
    put(&pool, 0, b"durable");
    pool.region().drain().unwrap();
    drop(pool);
    let cut = |name: &str| {
        std::fs::File::options().write(true).open(path.join(name)).unwrap().set_len(0).unwrap();
    };
    let read = |name: &str| std::fs::read(path.join(name)).unwrap();
    ["image", "sums"].into_iter().for_each(cut);
    std::fs::write(path.join("pool"), vec![0; read("pool").len()]).unwrap();
    let log = read("log");
    assert!(!Pool::is_unfinished(&path));
    let error = options.open(&path).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert!(read("log") == log, "the log has changed");
    // Nothing was ever written to this one.
    std::fs::write(path.join("log"), vec![0; log.len()]).unwrap();
    assert!(Pool::is_unfinished(&path));
    assert!(options.open(&path).unwrap().was_created());
}

#[test]
fn a_log_much_smaller_than_what_is_written_wraps_and_checkpoints() {
    for background in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let options = options().log_bytes(64 << 10).background(background);
        let mut model = vec![0u8; 1 << 20];
        let mut pool = options.open(&path).unwrap();
        let mut seed = 1u64;
        for round in 0..6 {
            for i in 0..2000u64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let len = 1 + (seed >> 33) as usize % 300;
                let offset = (seed >> 20) % (model.len() - len) as u64;
                let bytes: Vec<u8> = (0..len).map(|j| (seed >> 5) as u8 ^ j as u8).collect();
                put(&pool, offset, &bytes);
                model[offset as usize..offset as usize + len].copy_from_slice(&bytes);
                if i % 500 == 0 {
                    pool.region().drain().unwrap();
                }
            }
            let big: Vec<u8> = (0..200_000).map(|j| (j * (round + 3)) as u8).collect();
            put(&pool, 100_001, &big);
            model[100_001..300_001].copy_from_slice(&big);
            pool.region().drain().unwrap();
            assert!(pool.stat().checkpoints > 0, "{:?}", pool.stat());
            if round % 2 == 0 {
                drop(pool);
            } else {
                pool.close().unwrap();
            }
            pool = options.open(&path).unwrap();
            assert_eq!(pool.was_clean(), round % 2 == 1);
            assert!(read(&pool, 0, model.len()) == model, "round {round}, background {background}");
        }
    }
}

#[test]
fn long_units_wait_for_the_checkpoint_and_do_not_pile_up() {
    for background in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let options = options().log_bytes(16 << 10).background(background);
        let mut pool = options.open(&path).unwrap();
        let files = || {
            let names = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name());
            names.filter(|name| name.to_string_lossy().starts_with("unit-")).count()
        };
        pool.region().grow(64 << 10).unwrap();
        for n in 0..100u8 {
            pool.region().write(0, &[n; 64 << 10]);
            pool.region().flush_unit(&[ByteRange { offset: 0, len: 64 << 10 }]).unwrap();
            assert!(files() <= 2, "{} files beside the log", files());
            if n % 30 == 29 {
                pool.region().drain().unwrap();
                drop(pool);
                pool = options.open(&path).unwrap();
            }
        }
        pool.region().drain().unwrap();
        drop(pool);
        let pool = options.open(&path).unwrap();
        assert!(read(&pool, 0, 64 << 10).iter().all(|&byte| byte == 99));
        pool.close().unwrap();
        assert_eq!(files(), 0);
    }
}

#[test]
fn a_second_writer_is_told_and_readers_join() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = open(&path);
    put(&pool, 0, b"x");
    pool.region().drain().unwrap();
    assert!(matches!(options().open(&path), Err(Error::Busy { .. })));
    assert_eq!(read(&PoolOptions::new().read_only(true).open(&path).unwrap(), 0, 1), b"x");
    assert_eq!(Pool::inspect(&path).unwrap().kind, "test");
    drop(pool);
    let one = PoolOptions::new().read_only(true).open(&path).unwrap();
    let two = PoolOptions::new().read_only(true).open(&path).unwrap();
    assert!(one.is_read_only());
    assert_eq!(read(&one, 0, 1), b"x");
    assert_eq!(read(&two, 0, 1), b"x");
    drop((one, two));
    let kept = {
        let pool = open(&path);
        let region = pool.region().clone();
        pool.close().unwrap();
        region
    };
    let pool = open(&path);
    kept.write(0, b"y");
    kept.flush(0, 1);
    assert!(matches!(kept.drain(), Err(Error::Closed { .. })));
    assert_eq!(read(&pool, 0, 1), b"x");
}

#[test]
fn a_pool_that_is_moved_while_open_stays_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    let pool = open(&here);
    std::fs::rename(&here, &there).unwrap();
    let other = open(&here);
    put(&pool, 0, b"moved");
    put(&other, 0, b"other");
    pool.region().drain().unwrap();
    other.region().drain().unwrap();
    drop((pool, other));
    assert_eq!(read(&open(&there), 0, 5), b"moved");
    assert_eq!(read(&open(&here), 0, 5), b"other");
}

#[test]
fn a_length_that_was_never_synced_is_not_promised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = open(&path);
    put(&pool, 0, b"here");
    pool.checkpoint().unwrap();
    let synced = Pool::inspect(&path).unwrap().image_bytes;
    pool.region().grow(synced + (8 << 20)).unwrap();
    pool.close().unwrap();
    // A power cut may lose a length that was not synced.
    assert!(Pool::inspect(&path).unwrap().image_bytes <= synced);
    std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap().set_len(synced).unwrap();
    let pool = open(&path);
    assert!(pool.was_clean());
    assert_eq!(read(&pool, 0, 4), b"here");
}

/// A power cut may lose the length of the file of page checksums and leave that of the data file.
#[test]
fn a_file_of_sums_shorter_than_the_image_is_made_longer_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = open(&path);
    put(&pool, 5000, b"first");
    pool.close().unwrap();
    let sums = std::fs::OpenOptions::new().write(true).open(path.join("sums")).unwrap();
    let synced = sums.metadata().unwrap().len();
    let pool = open(&path);
    pool.region().grow(16 << 20).unwrap();
    put(&pool, 6000, b"second");
    pool.region().drain().unwrap();
    drop(pool);
    assert!(sums.metadata().unwrap().len() > synced);
    sums.set_len(synced).unwrap();
    for _ in 0..2 {
        let pool = open(&path);
        assert_eq!((read(&pool, 5000, 5), read(&pool, 6000, 6)), (b"first".to_vec(), b"second".to_vec()));
        // The next checkpoint then records that all of the data file may be used.
        put(&pool, 7000, b"third");
        pool.close().unwrap();
    }
}

#[test]
fn durability_by_interval_acknowledges_at_once_and_syncs_soon() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().durability(Durability::interval_ms(5)).open(&path).unwrap();
    put(&pool, 100, b"soon");
    let lsn = pool.region().appended();
    pool.region().wait(lsn).unwrap();
    let begun = std::time::Instant::now();
    while pool.stat().durable < lsn {
        assert!(begun.elapsed().as_secs() < 120, "the writer thread must sync");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    put(&pool, 200, b"now");
    pool.region().sync().unwrap();
    assert!(pool.stat().durable >= pool.region().appended());
    drop(pool);
    let pool = open(&path);
    assert_eq!((read(&pool, 100, 4), read(&pool, 200, 3)), (b"soon".to_vec(), b"now".to_vec()));
}

#[test]
fn many_threads_share_syncs_and_each_finds_its_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = options().log_bytes(256 << 10).open(&path).unwrap();
    pool.region().grow(16 * 4096).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let region = pool.region();
            scope.spawn(move || {
                for i in 0..500u64 {
                    region.store(
                        thread * 4096 + i % 512 * 8,
                        thread << 32 | i,
                        std::sync::atomic::Ordering::Relaxed,
                    );
                    region.flush(thread * 4096 + i % 512 * 8, 8);
                    region.drain().unwrap();
                }
            });
        }
    });
    let stat = pool.stat();
    assert_eq!(stat.flushes, 8000);
    assert!(stat.groups < 8000, "{} groups for 8000 waits: nothing was shared", stat.groups);
    drop(pool);
    let pool = open(&path);
    for thread in 0..16u64 {
        for i in 0..500u64 {
            let word =
                pool.region().word(thread * 4096 + i % 512 * 8).load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(word, thread << 32 | i);
        }
    }
}

#[test]
fn a_long_log_is_applied_by_several_threads_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = options().log_bytes(16 << 20).log_bytes_first(16 << 20);
    let pool = options.open(&path).unwrap();
    let mut model = vec![0u8; 2 << 20];
    let mut seed = 3u64;
    while pool.stat().log_used < 7 << 20 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = if seed.is_multiple_of(50) { 150_000 } else { 1 + (seed >> 33) as usize % 900 };
        let offset = (seed >> 20) % (model.len() - len) as u64;
        let bytes: Vec<u8> = (0..len).map(|j| (seed >> 7) as u8 ^ j as u8).collect();
        put(&pool, offset, &bytes);
        model[offset as usize..offset as usize + len].copy_from_slice(&bytes);
    }
    pool.region().drain().unwrap();
    assert_eq!(pool.stat().checkpoints, 0);
    drop(pool);
    let pool = options.open(&path).unwrap();
    assert!(pool.open_report().records > 500);
    assert!(read(&pool, 0, model.len()) == model);
}

/// On squashfs, to which nothing is ever written, fsync fails with EINVAL.
#[test]
fn a_reader_of_an_unclosed_pool_needs_no_sync_where_there_is_none() {
    const EINVAL: i32 = 22;
    const EIO: i32 = 5;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let pool = open(&path);
    put(&pool, 5000, b"durable");
    pool.region().drain().unwrap();
    drop(pool);
    for (code, opens) in [(EINVAL, true), (EIO, false)] {
        let storage = Faulty::new(Arc::new(OsStorage));
        let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Sync]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(code) });
        let reader = PoolOptions::new().read_only(true).storage(Arc::new(storage.clone()));
        let opened = reader.open(&path);
        assert!(storage.struck() && opened.is_ok() == opens, "{code}: {opened:?}");
        if let Ok(pool) = opened {
            assert_eq!(read(&pool, 5000, 7), b"durable");
        }
    }
}
