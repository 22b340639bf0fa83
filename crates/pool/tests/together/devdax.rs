//! A pool whose data lie on a devdax device. There is none here: a file stands for it, which the storage calls a
//! device. What only a device does (MAP_SYNC, mappings in multiples of its alignment) is tested in a virtual machine,
//! by `cargo xtask powercut --medium devdax`.

use mangrove_pool::{
    Create, Device, Error, Medium, MediumKind, OpenHow, OsStorage, PathKind, Pool, PoolOptions, Site,
    Storage, StorageFile,
};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ALIGN: u64 = 2 << 20;

/// The system's files, one of which is a device.
#[derive(Debug)]
struct WithDevice(PathBuf);

impl Storage for WithDevice {
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
        OsStorage.open(path, how, site)
    }
    fn remove(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.remove(path, site)
    }
    fn remove_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.remove_dir(path, site)
    }
    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        OsStorage.sync_dir(path, site)
    }
    fn device(&self, path: &Path) -> Option<Device> {
        let bytes = std::fs::metadata(path).ok()?.len();
        (path == self.0).then_some(Device { bytes, align_bytes: ALIGN, is_file: true })
    }
    fn random(&self) -> u64 {
        OsStorage.random()
    }
}

struct Place {
    folder: tempfile::TempDir,
    device: PathBuf,
}

impl Place {
    /// A device that is no multiple of its alignment.
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let device = std::fs::canonicalize(folder.path()).unwrap().join("dax0.0");
        File::create(&device).unwrap().set_len(8 << 20 | 1 << 20).unwrap();
        Self { folder, device }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("p")
    }

    fn options(&self) -> PoolOptions {
        let storage = Arc::new(WithDevice(self.device.clone()));
        PoolOptions::new().create(Create::IfMissing).storage(storage).background(false)
    }

    fn make(&self) -> Pool {
        self.options().medium(Medium::Dax).devdax(&self.device).open(self.path()).unwrap()
    }
}

fn store(pool: &Pool, at: u64, value: u64) {
    pool.region().grow(at + 8).unwrap();
    pool.region().store(at, value, Ordering::Release);
    pool.region().flush(at, 8);
    pool.region().fence();
    pool.region().drain().unwrap();
}

fn load(pool: &Pool, at: u64) -> u64 {
    pool.region().word(at).load(Ordering::Acquire)
}

#[test]
fn the_data_lie_on_the_device_and_nowhere_else() {
    let place = Place::new();
    let pool = place.make();
    let info = pool.info().clone();
    // All of the device that can be mapped.
    assert_eq!(
        (info.medium, info.capacity, info.devdax.as_ref()),
        (MediumKind::Dax, 8 << 20, Some(&place.device))
    );
    store(&pool, 0, 7);
    store(&pool, (8 << 20) - 8, 8);
    assert!(!place.path().join("image").exists() && !place.path().join("log").exists());
    let bytes = std::fs::read(&place.device).unwrap();
    assert_eq!((bytes[0], bytes[(8 << 20) - 8]), (7, 8));
    // Of a pool that was not closed, and of one that was; with the device named, and not.
    drop(pool);
    for is_named in [false, true] {
        let options = if is_named { place.options().devdax(&place.device) } else { place.options() };
        let pool = options.open(place.path()).unwrap();
        assert_eq!(pool.was_clean(), is_named);
        assert_eq!((load(&pool, 0), load(&pool, (8 << 20) - 8)), (7, 8));
        pool.close().unwrap();
        let reader = place.options().read_only(true).open(place.path()).unwrap();
        assert_eq!((load(&reader, 0), load(&reader, (8 << 20) - 8)), (7, 8));
    }
    // Closed, its pages have checksums, which lie in the directory.
    let mut bytes = std::fs::read(&place.device).unwrap();
    bytes[4096] = 1;
    std::fs::write(&place.device, &bytes).unwrap();
    let error = place.options().open(place.path()).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == place.device), "{error}");
}

#[test]
fn a_device_is_one_pools_and_a_pools_device_is_one() {
    let place = Place::new();
    let pool = place.make();
    store(&pool, 0, 7);
    // The lock of the device, although the other pool has a directory of its own.
    let other = place.folder.path().join("other");
    let make = || place.options().devdax(&place.device).open(&other).map(drop).unwrap_err();
    let error = make();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let text = place.options().open(place.path()).unwrap_err().to_string();
    assert!(text.contains("in use") || text.contains("open"), "{text}");
    pool.close().unwrap();
    let text = make().to_string();
    assert!(text.contains("is not blank"), "{text}");
    assert!(!other.exists(), "a creation that is refused leaves nothing");
    let text = place.options().devdax("/dev/null").open(place.path()).unwrap_err().to_string();
    assert!(text.contains("dax0.0, not on /dev/null"), "{text}");
    for medium in [Medium::File, Medium::Emulated(mangrove_pool::Latency::default())] {
        let text = place.options().medium(medium).devdax(&place.device).open(&other).unwrap_err().to_string();
        assert!(text.contains("is for the medium dax"), "{text}");
    }
    // A device that became smaller.
    File::options().write(true).open(&place.device).unwrap().set_len(4 << 20).unwrap();
    let text = place.options().open(place.path()).unwrap_err().to_string();
    assert!(text.contains("the device has 4194304 bytes, the pool 8388608"), "{text}");
}

/// A superblock may name any file. (Here another process would have it locked.)
#[test]
fn a_file_that_is_no_device_is_not_opened() {
    let place = Place::new();
    let pool = place.make();
    let other = place.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for name in ["pool", "sums"] {
        std::fs::copy(place.path().join(name), other.join(name)).unwrap();
    }
    let options = PoolOptions::new().background(false);
    for read_only in [false, true] {
        let error = options.clone().read_only(read_only).open(&other).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { path, .. } if *path == place.device), "{error}");
    }
    pool.close().unwrap();
}

/// Such a pool has no data file, so its absence is no proof that nothing was stored.
#[test]
fn a_damaged_or_newer_superblock_is_not_taken_for_an_interrupted_creation() {
    let place = Place::new();
    let pool = place.make();
    store(&pool, 0, 7);
    pool.close().unwrap();
    let files = ["pool", "sums"].map(|name| place.path().join(name));
    let whole = std::fs::read(&files[0]).unwrap();
    type Change = fn(&mut [u8]);
    let changes: [(Change, &str); 3] = [
        (|copy| copy[8] = 9, "format version 9"),
        (|copy| copy[200] ^= 1, "checksum"),
        (|copy| copy.fill(0), "blank"),
    ];
    for (change, expected) in changes {
        let mut bytes = whole.clone();
        bytes.chunks_exact_mut(4096).for_each(change);
        std::fs::write(&files[0], &bytes).unwrap();
        let before = files.each_ref().map(|file| std::fs::read(file).unwrap());
        assert!(!Pool::is_unfinished(place.path()), "{expected}");
        let text = place.options().open(place.path()).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(files.each_ref().map(|file| std::fs::read(file).unwrap()) == before, "{expected}");
        assert!(!place.path().join("image").exists(), "{expected}: a pool was made in its place");
    }
    std::fs::write(&files[0], &whole).unwrap();
    assert_eq!(load(&place.options().open(place.path()).unwrap(), 0), 7);
}

#[test]
fn a_closed_pool_opens_again_whatever_part_of_the_device_was_stored_to() {
    let place = Place::new();
    let mut pool = place.make();
    for at in [0, 3 << 20, 5 << 20] {
        store(&pool, at, at + 7);
        pool.close().unwrap();
        pool = place.options().open(place.path()).unwrap();
        assert!(pool.was_clean());
        assert_eq!(load(&pool, at), at + 7);
    }
}

#[test]
fn the_capacity_is_what_was_asked_for_in_multiples_of_the_alignment() {
    let place = Place::new();
    let options = place.options().devdax(&place.device).capacity(3 << 20);
    let pool = options.open(place.path()).unwrap();
    assert_eq!(pool.region().len(), 4 << 20);
    store(&pool, 0, 7);
    pool.close().unwrap();
    // More than it has is not there to be had: the rest of the device was never compared with anything.
    let pool = place.options().capacity(8 << 20).open(place.path()).unwrap();
    assert_eq!((pool.region().len(), load(&pool, 0)), (4 << 20, 7));
}
