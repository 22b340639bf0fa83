//! A heap opened read-only: it answers, it refuses to change, and it writes to no file.

use mangrove_pool::{OpenHow, OsStorage, PathKind, Site, Storage, StorageFile};
use mangrove_txn::{
    Cancel, Domain, Heap, HeapError, HeapOptions, HeapResult, Latency, Medium, Order, Ptr, Stop, Tx,
};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

const MEDIA: [Medium; 2] = [Medium::Emulated(Latency::new(0, 0)), Medium::File];

fn options(medium: Medium) -> HeapOptions {
    Heap::options().medium(medium).capacity(64 << 20).log_bytes(64 << 10)
}

fn on_each_medium(test: impl Fn(HeapOptions, &Path)) {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        test(options(medium), &folder.path().join("heap"));
    }
}

/// A file system that is mounted read-only.
#[derive(Debug)]
struct Mounted(OsStorage);

impl Mounted {
    fn refused<T>() -> io::Result<T> {
        Err(io::Error::from_raw_os_error(libc::EROFS))
    }
}

impl Storage for Mounted {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        self.0.kind(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }
    fn create_dir(&self, _path: &Path, _site: Site) -> io::Result<()> {
        Self::refused()
    }
    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>> {
        if how == OpenHow::Read { self.0.open(path, how, site) } else { Self::refused() }
    }
    fn remove(&self, _path: &Path, _site: Site) -> io::Result<()> {
        Self::refused()
    }
    fn sync_dir(&self, _path: &Path, _site: Site) -> io::Result<()> {
        Self::refused()
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// Every file of the pool: its bytes, and when it was last changed.
fn files(path: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64)> {
    let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        let (bytes, about) = (fs::read(entry.path()).unwrap(), entry.metadata().unwrap());
        (entry.file_name().into_string().unwrap(), (bytes, about.mtime(), about.mtime_nsec()))
    };
    entries.map(file).collect()
}

/// Nobody may write to the pool's files.
fn write_protect(path: &Path) {
    for entry in fs::read_dir(path).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
}

fn unprotect(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
}

fn counter(tx: &mut Tx<'_>) -> Result<Ptr<u64>, Stop> {
    Ok(tx.root("counter")?.expect("made when the heap was"))
}

fn count(heap: &Heap) -> HeapResult<u64> {
    heap.read(|tx| {
        let counter = counter(tx)?;
        tx.read(counter)
    })
}

/// Makes a heap, and counts to `count` in it.
fn make(options: &HeapOptions, path: &Path, count: u64) -> Heap {
    let heap = options.open(path).unwrap();
    heap.transaction(|tx| {
        let counter = tx.alloc(0u64)?;
        tx.set_root("counter", counter)
    })
    .unwrap();
    for n in 1..=count {
        heap.transaction(|tx| {
            let counter = counter(tx)?;
            tx.write(counter, n)?;
            // Most of the heap lies behind what the first transaction used.
            tx.alloc([n; 1024]).map(drop)
        })
        .unwrap();
    }
    heap
}

#[test]
fn it_shows_what_was_acknowledged_and_writes_to_no_file() {
    on_each_medium(|options, path| {
        for closed in [false, true] {
            let heap = make(&options, path, 100);
            let (base, blocks) = (heap.base(), heap.stat().unwrap().arena.blocks);
            if closed {
                heap.close().unwrap();
            } else {
                drop(heap);
            }
            let before = files(path);
            write_protect(path);
            let storage = Arc::new(Mounted(OsStorage));
            let heap = options.clone().read_only(true).storage(storage).open(path).unwrap();
            assert!(heap.is_read_only() && !heap.was_created());
            assert_eq!((heap.base(), count(&heap).unwrap()), (base, 100));
            assert_eq!(heap.stat().unwrap().arena.blocks, blocks);
            assert_eq!(heap.check().unwrap(), Vec::<String>::new());
            heap.transaction(|tx| counter(tx).map(drop)).unwrap();
            let refused = heap.transaction(|tx| tx.set_root("other", Ptr::<u64>::NULL));
            assert!(matches!(refused, Err(HeapError::ReadOnly)), "{refused:?}");
            if closed {
                heap.close().unwrap();
            } else {
                drop(heap);
            }
            unprotect(path);
            assert!(before == files(path), "a file changed");
            assert_eq!(count(&options.open(path).unwrap()).unwrap(), 100);
            fs::remove_dir_all(path).unwrap();
        }
    });
}

#[test]
fn each_change_is_refused_and_undone() {
    on_each_medium(|options, path| {
        drop(make(&options, path, 3));
        let heap = options.clone().read_only(true).open(path).unwrap();
        let blocks = heap.stat().unwrap().arena.blocks;
        type Body = fn(&mut Tx<'_>) -> Result<(), Stop>;
        let bodies: [Body; 7] = [
            |tx| {
                let counter = counter(tx)?;
                tx.write(counter, 7)
            },
            |tx| tx.alloc(1u64).map(drop),
            // More than the heap has: it would grow.
            |tx| tx.alloc_bytes(32 << 20, 16).map(drop),
            |tx| {
                let counter = counter(tx)?;
                tx.free(counter)
            },
            |tx| tx.remove_root("counter").map(drop),
            |tx| Err(tx.retry()),
            |tx| {
                let counter = counter(tx)?;
                tx.nested(|tx| -> Result<(), Cancel<()>> { Ok(tx.write(counter, 9)?) }).map_err(|cancel| {
                    match cancel {
                        Cancel::Stop(stop) => stop,
                        Cancel::Abort(()) => unreachable!("it does not abort"),
                    }
                })
            },
        ];
        for (number, body) in bodies.iter().enumerate() {
            // The first so often that undone attempts draw numbers.
            for _ in 0..if number == 0 { 150 } else { 2 } {
                for refused in [heap.transaction(body), heap.read(body)] {
                    assert!(matches!(refused, Err(HeapError::ReadOnly)), "body {number}: {refused:?}");
                }
            }
            assert_eq!(count(&heap).unwrap(), 3, "body {number}");
        }
        assert_eq!(heap.stat().unwrap().arena.blocks, blocks);
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
        let text = HeapError::ReadOnly.to_string();
        assert!(text.contains("read-only") && text.contains("open it for writing"), "{text}");
    });
}

/// On a medium whose caches are persistent, too.
#[test]
fn what_was_committed_with_gaps_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let options = options(MEDIA[0]).domain(Domain::Eadr);
    drop(make(&options, &path, 20));
    let heap = options.clone().read_only(true).open(&path).unwrap();
    assert_eq!(count(&heap).unwrap(), 20);
    let last = heap.shadow().report().last.expect("it was opened for writing");
    assert_eq!((last.order, last.generation), (Order::Gaps, 1));
}

#[test]
fn what_is_not_there_is_not_made() {
    on_each_medium(|options, path| {
        let read_only = options.clone().read_only(true);
        let missing = read_only.open(path);
        assert!(
            matches!(&missing, Err(HeapError::Pool(mangrove_shadow::Error::NotFound { .. }))),
            "{missing:?}"
        );
        assert!(!path.exists());
        let new = read_only.clone().create(mangrove_txn::Create::New).open(path);
        assert!(matches!(&new, Err(HeapError::Pool(mangrove_shadow::Error::Unsupported { .. }))), "{new:?}");
        assert!(!path.exists());
        // What a process leaves that is killed between the creation of the pool and that of the heap.
        let shadow = mangrove_shadow::Options::new().kind("heap").create(mangrove_txn::Create::New);
        drop(shadow.medium(Medium::File).capacity(64 << 20).log_bytes(64 << 10).open(path).unwrap());
        let unmade = options.clone().medium(Medium::Auto).read_only(true).open(path);
        let Err(HeapError::Pool(mangrove_shadow::Error::Foreign { what, .. })) = unmade else {
            panic!("{unmade:?}");
        };
        assert!(what.contains("its creation was interrupted"), "{what}");
    });
}
