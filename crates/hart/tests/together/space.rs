//! Space on a full disk: a map opens that needs none, uses what it has, and gives back what it does not need.

use mangrove_hart::{Error, Hart, Options, WriteMode};
use mangrove_pool::{
    Create, Error as MediumError, Fault, FaultKind, Faulty, FaultyOperation, LockKind, Medium, OpenHow,
    OsStorage, PathKind, Pool, PoolOptions, Site, Storage, StorageFile,
};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 1 << 18;
/// Such values lie behind their keys.
const VALUE: [u8; 300] = [7; 300];

/// A disk that has `free` bytes left for what is allocated at a time, also where all of that has space.
#[derive(Clone, Debug)]
struct Tight {
    free: Arc<AtomicU64>,
}

struct TightFile {
    inner: Box<dyn StorageFile>,
    free: Arc<AtomicU64>,
}

impl Storage for Tight {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(path)
    }

    fn create_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.create_dir(path, site)
    }

    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>> {
        let inner = OsStorage.open(path, how, site)?;
        Ok(Box::new(TightFile { inner, free: Arc::clone(&self.free) }))
    }

    fn remove(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.remove(path, site)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.sync_dir(path, site)
    }

    fn random(&self) -> u64 {
        OsStorage.random()
    }
}

impl StorageFile for TightFile {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.inner.write_at(offset, bytes, site)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.inner.write_durable(offset, bytes, site)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.inner.sync(site)
    }

    fn allocate(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        if len > self.free.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.allocate(offset, len, site)
    }

    fn punch(&self, offset: u64, len: u64, site: Site) -> io::Result<bool> {
        self.inner.punch(offset, len, site)
    }

    fn cut_off(&self, len: u64, site: Site) -> io::Result<()> {
        self.inner.cut_off(len, site)
    }

    fn lock(&self, kind: LockKind) -> io::Result<bool> {
        self.inner.lock(kind)
    }
}

fn open(path: &Path, storage: Arc<dyn Storage>) -> Pool {
    let options = PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(64 << 20)
        .log_bytes(32 << 20)
        .background(false)
        .storage(storage);
    options.open(path).unwrap()
}

fn recover(pool: &Pool) -> Result<Hart, Error> {
    let recovered = Hart::recover(pool.region().clone(), &Options::default());
    pool.finish().unwrap();
    recovered.map(|(hart, _)| hart)
}

fn put(hart: &Hart, n: u32) -> Result<(), Error> {
    hart.put(&n.to_be_bytes(), &VALUE, WriteMode::Buffered)
}

fn delete(hart: &Hart, range: std::ops::Range<u32>) {
    let (from, to) = (range.start.to_be_bytes(), range.end.to_be_bytes());
    hart.delete_range(Bound::Included(&from), Bound::Excluded(&to), WriteMode::Durable).unwrap();
}

/// A map with the records below `records`.
fn filled(pool: &Pool, records: u32) -> Hart {
    let hart = Hart::create(pool.region().clone(), &Options::default()).unwrap();
    pool.set_made().unwrap();
    (0..records).for_each(|n| put(&hart, n).unwrap());
    hart.sync().unwrap();
    hart
}

fn is_full<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Medium(MediumError::NoSpace { .. })))
}

#[test]
fn a_map_opens_on_a_disk_with_less_space_than_the_map_has() {
    const RECORDS: u32 = 20_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("p");
    let disk = Tight { free: Arc::new(AtomicU64::new(u64::MAX)) };
    let reopened = |free: u64| {
        disk.free.store(u64::MAX, Ordering::SeqCst);
        let pool = open(&path, Arc::new(disk.clone()));
        disk.free.store(free, Ordering::SeqCst);
        pool
    };
    let pool = reopened(u64::MAX);
    drop(filled(&pool, RECORDS));
    drop(pool);
    // After a crash, with all records in the log alone: a checkpoint needs space for them.
    let pool = reopened(0);
    assert!(is_full(&recover(&pool)));
    drop(pool);
    let pool = reopened(64 << 10);
    drop(recover(&pool).unwrap());
    pool.close().unwrap();
    // A map that was closed needs nothing, and can be emptied.
    let pool = reopened(0);
    assert!(pool.was_clean());
    let hart = recover(&pool).unwrap();
    assert_eq!(hart.len(), u64::from(RECORDS));
    delete(&hart, 0..RECORDS);
    hart.compact().unwrap();
    assert!(hart.check().unwrap().is_sound());
    drop(hart);
    pool.close().unwrap();
    let pool = reopened(u64::MAX);
    let hart = recover(&pool).unwrap();
    (0..RECORDS).for_each(|n| put(&hart, n).unwrap());
    assert!(hart.check().unwrap().is_sound());
}

#[test]
fn segments_with_space_are_used_where_lower_ones_are_holes() {
    const QUARTER: u32 = 10_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("p");
    let disk = Faulty::new(Arc::new(OsStorage));
    let full = Fault {
        file: Some("image".into()),
        operations: vec![FaultyOperation::Allocate],
        nth: 0,
        kind: FaultKind::ErrnoForEver(28),
    };
    for reopens in [false, true] {
        let _ = std::fs::remove_dir_all(&path);
        disk.heal();
        let mut pool = open(&path, Arc::new(disk.clone()));
        let mut hart = filled(&pool, 4 * QUARTER);
        delete(&hart, 0..QUARTER);
        assert!(hart.compact().unwrap().bytes_given_back > 10 * SEGMENT_BYTES);
        delete(&hart, 2 * QUARTER..3 * QUARTER);
        if reopens {
            drop(hart);
            pool.close().unwrap();
            pool = open(&path, Arc::new(disk.clone()));
            hart = recover(&pool).unwrap();
        }
        disk.plant(full.clone());
        // A value that takes three segments, and then as many records as fit.
        hart.put(b"long", &vec![5; 600_000], WriteMode::Durable).unwrap();
        let room = 3 * QUARTER / 4;
        (0..room).for_each(|n| put(&hart, n).unwrap_or_else(|e| panic!("record {n} of {room}: {e}")));
        let refused = (room..4 * QUARTER).map(|n| put(&hart, n)).find(Result::is_err);
        assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
        disk.heal();
        (0..QUARTER).for_each(|n| put(&hart, n).unwrap());
        assert_eq!(hart.get(b"long").unwrap().unwrap().len(), 600_000);
        assert!(hart.check().unwrap().is_sound());
        drop(hart);
        pool.close().unwrap();
        assert_eq!(Pool::check(&path).unwrap().damage, []);
    }
}

#[test]
fn what_was_deleted_before_a_reopening_comes_back_by_itself() {
    const RECORDS: u32 = 40_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("p");
    let bytes = || std::fs::metadata(path.join("image")).unwrap().blocks() * 512;
    for closes in [true, false] {
        let _ = std::fs::remove_dir_all(&path);
        let pool = open(&path, Arc::new(OsStorage));
        let hart = filled(&pool, RECORDS);
        pool.checkpoint().unwrap();
        delete(&hart, RECORDS / 10..RECORDS);
        drop(hart);
        if closes {
            pool.close().unwrap();
        } else {
            drop(pool);
        }
        let full = bytes();
        assert!(full > 10 << 20, "{full}");

        let pool = open(&path, Arc::new(OsStorage));
        assert_eq!(pool.was_clean(), closes);
        let hart = recover(&pool).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| hart.compact_by_itself(1 << 20, &ended));
            let begun = Instant::now();
            while bytes() > full / 4 && begun.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(10));
            }
            ended.store(true, Ordering::Release);
            hart.wake_compaction();
        });
        assert!(bytes() <= full / 4, "{} of {full} bytes are left", bytes());
        let kept = |n: u32| hart.get(&n.to_be_bytes()).unwrap().as_deref() == Some(&VALUE[..]);
        assert!((0..RECORDS / 10).all(kept));
        assert!(hart.check().unwrap().is_sound());
    }
}
