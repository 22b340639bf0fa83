//! A medium with sectors that it cannot read: an opening fails, a check lists them, and a salvage has the rest.

use crate::hooked::{Access, failing};
use mangrove_pool::{Create, Damage, Error, Medium, Pool, PoolOptions, Storage};
use std::io;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
const PAGES: usize = 8;
const LOG_BYTES: u64 = 64 << 10;

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
