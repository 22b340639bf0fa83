//! A medium with sectors that it cannot read: an opening fails, a check lists them, and a salvage has the rest.

use crate::hooked::{Access, failing};
use mangrove_pool::{
    ByteRange, Create, Damage, Durability, Error, Medium, OsStorage, Pool, PoolOptions, Storage,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 8;
const LOG_BYTES: u64 = 64 << 10;
/// Longer than half the log, so that it needs a spill file.
const LONG: usize = 64 << 10;

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(1 << 20)
        .log_bytes(LOG_BYTES)
        .background(false)
        .kind("test")
}

/// The files, of which the one with this name has a page that cannot be read.
fn with_bad_page(file: &'static str, page: u64) -> Arc<dyn Storage> {
    let bad = page * PAGE as u64..(page + 1) * PAGE as u64;
    failing(move |access, name, range| {
        let meets = range.start < bad.end && bad.start < range.end;
        match access == Access::Read && name == file && meets {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    })
}

/// A pool whose page `page` holds bytes of the value `page + 1`, but for its first bytes, whose last write is in the
/// log only. The bytes before that write, and after it.
fn pool_with_log(path: &Path) -> [Vec<u8>; 2] {
    let mut bytes: Vec<u8> = (0..PAGES * PAGE).map(|at| (at / PAGE) as u8 + 1).collect();
    let pool = options().open(path).unwrap();
    let region = pool.region();
    region.grow(bytes.len() as u64).unwrap();
    let put = |offset: u64, bytes: &[u8]| {
        region.write(offset, bytes);
        region.flush(offset, bytes.len());
        region.drain().unwrap();
    };
    put(0, &bytes);
    pool.checkpoint().unwrap();
    let checkpointed = bytes.clone();
    put(0, &[99; 8]);
    bytes[..8].fill(99);
    [checkpointed, bytes]
}

/// The page of the log's file where the pool's log begins.
fn first_log_page(path: &Path) -> u64 {
    Pool::inspect(path).unwrap().tail % LOG_BYTES / PAGE as u64
}

#[test]
fn a_check_lists_what_the_medium_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    pool_with_log(&path);
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    for (file, page) in [("image", 5), ("sums", 0), ("log", first_log_page(&path))] {
        let damage = Pool::check_in(with_bad_page(file, page), &path).unwrap().damage;
        let what = "the medium cannot read the page".to_owned();
        let unread = Damage { path: path.join(file), offset: page * PAGE as u64, what };
        assert!(damage.contains(&unread), "{file}: {damage:?}");
        // Where the log begins, the zeros are damage themselves.
        assert!(damage.len() == 1 || file == "log", "{file}: {damage:?}");
    }
}

#[test]
fn a_pool_opens_by_the_copy_of_its_superblock_that_can_be_read() {
    for page in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let [_, bytes] = pool_with_log(&path);
        let damage = Pool::check_in(with_bad_page("pool", page), &path).unwrap().damage;
        let (path_of_it, offset) = (path.join("pool"), page * PAGE as u64);
        assert!(damage.iter().any(|at| at.path == path_of_it && at.offset == offset), "{damage:?}");
        for read_only in [true, false] {
            let options = options().read_only(read_only).storage(with_bad_page("pool", page));
            let pool = options.open(&path).unwrap_or_else(|e| panic!("copy {page}: {e}"));
            // SAFETY: inside the region, and no thread writes it.
            let found = unsafe { std::slice::from_raw_parts(pool.region().base(), bytes.len()) };
            assert!(found == bytes, "copy {page}");
        }
    }
}

/// A new pool has no data file yet: only its superblock tells it from one whose creation was interrupted.
#[test]
fn a_superblock_that_cannot_be_read_is_not_taken_for_a_blank_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    options().open(&path).unwrap().close().unwrap();
    let before = std::fs::read(path.join("pool")).unwrap();
    let unread = failing(|access, name, _| match access == Access::Read && name == "pool" {
        true => Err(io::Error::from_raw_os_error(libc::EIO)),
        false => Ok(()),
    });
    let error = options().storage(unread).open(&path).map(drop).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(std::fs::read(path.join("pool")).unwrap() == before);
}

#[test]
fn a_salvage_passes_over_what_the_medium_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let [checkpointed, bytes] = pool_with_log(&path);
    let mut without_page = bytes.clone();
    without_page[5 * PAGE..6 * PAGE].fill(0);
    let cases =
        [("image", 5, without_page), ("sums", 0, bytes), ("log", first_log_page(&path), checkpointed)];
    for (file, page, expected) in cases {
        let reader = options().read_only(true).storage(with_bad_page(file, page));
        assert!(matches!(reader.open(&path), Err(Error::Io { .. })), "{file}");
        let pool = reader.salvage(true).open(&path).unwrap();
        // SAFETY: inside the region, and no thread writes it.
        let found = unsafe { std::slice::from_raw_parts(pool.region().base(), expected.len()) };
        assert!(found == expected, "{file}");
        let (place, damage) = (format!("{file}, byte {}: ", page * PAGE as u64), pool.damage());
        let is_told = |what: &String| what.contains(&place) && what.contains("cannot read");
        assert!(damage.iter().any(is_told), "{file}: {damage:?}");
    }
}

/// The log does not need them.
#[test]
fn a_salvage_takes_the_log_without_recent_writes_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let options = options().durability(Durability::Interval(Duration::from_secs(60))).keeps_recent(true);
    let pool = options.open(&path).unwrap();
    let region = pool.region();
    region.grow(PAGE as u64).unwrap();
    let put = |value: u8| {
        region.write(0, &[value; 8]);
        region.flush(0, 8);
        region.drain().unwrap();
    };
    put(1);
    region.sync().unwrap();
    put(2);
    drop(pool);
    let first = |pool: &Pool| {
        // SAFETY: no region is empty, and no thread writes it.
        unsafe { pool.region().base().read() }
    };
    let reader = options.read_only(true);
    assert_eq!(first(&reader.open(&path).unwrap()), 2);
    let unread = failing(|access, name, _| match access == Access::Read && name.starts_with("recent-") {
        true => Err(io::Error::from_raw_os_error(libc::EIO)),
        false => Ok(()),
    });
    let reader = reader.storage(unread);
    assert!(matches!(reader.open(&path), Err(Error::Io { .. })));
    let pool = reader.salvage(true).open(&path).unwrap();
    assert_eq!(first(&pool), 1);
    assert!(pool.damage().iter().any(|what| what.contains("recent-")), "{:?}", pool.damage());
}

#[test]
fn a_salvage_takes_nothing_of_the_log_from_a_damaged_spill_file_on() {
    type Damaging = fn(&Path);
    let unread = failing(|access, name, _| match access == Access::Read && name.starts_with("unit-") {
        true => Err(io::Error::from_raw_os_error(libc::EIO)),
        false => Ok(()),
    });
    let whole: Arc<dyn Storage> = Arc::new(OsStorage);
    let cases: [(Damaging, &Arc<dyn Storage>); 3] = [
        (|_| {}, &unread),
        (|file| std::fs::write(file, [7; 4096]).unwrap(), &whole),
        (|file| std::fs::remove_file(file).unwrap(), &whole),
    ];
    for (damage, storage) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let pool = options().open(&path).unwrap();
        let region = pool.region();
        region.grow(LONG as u64).unwrap();
        for value in [1, 2] {
            pool.checkpoint().unwrap();
            region.write(0, &[value; LONG]);
            region.flush_unit(&[ByteRange { offset: 0, len: LONG as u64 }]).unwrap();
            region.drain().unwrap();
        }
        region.write(0, &[3; 8]);
        region.flush(0, 8);
        region.drain().unwrap();
        drop(pool);
        let files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let is_spill = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().starts_with("unit-");
        let spills: Vec<_> = files.filter(is_spill).collect();
        assert!(!spills.is_empty());
        spills.iter().for_each(|file| damage(file));
        let reader = options().read_only(true).storage(Arc::clone(storage));
        assert!(matches!(reader.open(&path), Err(Error::Io { .. } | Error::Corrupt { .. })));
        let pool = reader.salvage(true).open(&path).unwrap();
        // SAFETY: inside the region, and no thread writes it.
        let found = unsafe { std::slice::from_raw_parts(pool.region().base(), LONG) };
        assert!(found.iter().all(|&byte| byte == 1));
        assert!(pool.damage().iter().any(|what| what.contains("unit-")), "{:?}", pool.damage());
        let checked = Pool::check_in(Arc::clone(storage), &path).unwrap().damage;
        assert!(checked.iter().any(|damage| is_spill(&damage.path)), "{checked:?}");
    }
}
