//! Pools that were not closed and whose files were cut, blanked or exchanged afterwards: opening fails and names the
//! file, or every acknowledged record is there. Never is a map made anew in them.

use mangrove::{Error, Latency, Map, MapOptions, Medium};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FILES: [&str; 4] = ["pool", "image", "log", "sums"];
const BLOCK_BYTES: usize = 4096;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn emulated() -> Medium {
    Medium::Emulated(Latency::default())
}

/// The log is so long that no checkpoint begins by itself: it would change the files while a test copies them.
fn options(medium: Medium) -> MapOptions {
    Map::options().medium(medium).capacity(64 << 20).log_bytes(16 << 20)
}

/// Short and long keys, short and long values, an extent, and freed slots between them.
fn fill(map: &Map, round: u32) -> Records {
    let mut records = Records::new();
    for i in 0..120u32 {
        let key_len = [10, 100, 300, 1000][i as usize % 4];
        let key = format!("{round}-{i:03}-{}", "k".repeat(key_len)).into_bytes();
        let value = vec![i as u8; [0, 8, 90, 3000][i as usize / 4 % 4]];
        map.put(&key, &value).unwrap();
        records.insert(key, value);
    }
    map.put(format!("{round}-extent"), vec![7; 600_000]).unwrap();
    records.insert(format!("{round}-extent").into_bytes(), vec![7; 600_000]);
    for key in records.keys().step_by(7).cloned().collect::<Vec<_>>() {
        map.delete(&key).unwrap();
        records.remove(&key);
    }
    records
}

/// The files of the pool as a SIGKILL would leave them now.
fn copy(from: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir(&to).unwrap();
    for name in FILES {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
    to
}

/// Opens the pool read-only; true when it holds the records, false when it is refused as damaged.
fn holds(path: &Path, records: &Records, file: &str, what: &str) -> bool {
    let map = match Map::options().read_only(true).open(path) {
        Ok(map) => map,
        Err(Error::Corrupt { path, what: message, .. }) => {
            assert!(path.ends_with(file), "{what}: {} instead of {file}: {message}", path.display());
            return false;
        }
        Err(e) => panic!("{what}: {e}"),
    };
    let found: Records = map.iter().unwrap().collect::<Result<_, _>>().unwrap();
    assert!(found == *records, "{what}: {} records instead of {}", found.len(), records.len());
    true
}

/// Readers and writers refuse the pool, and change nothing in `file`.
fn refused(path: &Path, file: &str, what: &str) {
    let before = fs::read(path.join(file)).unwrap();
    assert!(!holds(path, &Records::new(), file, what), "{what}: it opens");
    let error = Map::open(path).err().unwrap_or_else(|| panic!("{what}: it opens for writing"));
    assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with(file)), "{what}: {error}");
    assert!(fs::read(path.join(file)).unwrap() == before, "{what}: the refusal changed {file}");
}

/// A pool on the emulated medium that was not closed, after `openings` of it: where it lies, and its records.
fn unclosed(dir: &Path, openings: u32) -> (PathBuf, Records) {
    let live = dir.join("live");
    let mut records = Records::new();
    for round in 1..openings {
        let map = options(emulated()).open(&live).unwrap();
        records.append(&mut fill(&map, round));
        map.close().unwrap();
    }
    let map = options(emulated()).open(&live).unwrap();
    records.append(&mut fill(&map, openings));
    let path = copy(&live, dir.join("killed"));
    map.close().unwrap();
    (path, records)
}

#[test]
fn an_image_on_emulated_that_was_cut_is_refused() {
    for openings in [1, 2] {
        let dir = folder();
        let (path, records) = unclosed(dir.path(), openings);
        let image = fs::read(path.join("image")).unwrap();
        for len in [0, 1, 4096, 8192, image.len() / 2, image.len() - 4096, image.len() - 1] {
            fs::write(path.join("image"), &image[..len]).unwrap();
            refused(&path, "image", &format!("cut to {len}"));
            let damage = mangrove::pool_check(&path).unwrap();
            assert!(damage.len() == 1 && damage[0].contains("image"), "cut to {len}: {damage:?}");
        }
        fs::write(path.join("image"), &image).unwrap();
        assert!(holds(&path, &records, "image", "the whole image"));
    }
}

#[test]
fn an_image_on_emulated_that_was_blanked_is_refused() {
    let dir = folder();
    let (path, records) = unclosed(dir.path(), 1);
    let image = fs::read(path.join("image")).unwrap();
    fs::write(path.join("image"), vec![0; image.len()]).unwrap();
    refused(&path, "image", "all blank");
    let (mut served, mut lost) = (0, 0);
    for block in 0..image.len() / BLOCK_BYTES {
        let mut bytes = image.clone();
        bytes[block * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
        if bytes == image {
            continue;
        }
        fs::write(path.join("image"), &bytes).unwrap();
        if holds(&path, &records, "image", &format!("block {block} blank")) {
            served += 1;
        } else {
            lost += 1;
        }
    }
    // Blocks that hold nothing but freed values and unused chunks may be blank.
    assert!(lost > 50, "{lost} of {} blocks were needed", served + lost);
    fs::write(path.join("image"), &image).unwrap();
    refused_block(&path, &image, 0);
    refused_block(&path, &image, 1);
    fs::write(path.join("image"), &image).unwrap();
    assert!(holds(&path, &records, "image", "the whole image"));
}

/// The root page and the first page of the directory, for writers too.
fn refused_block(path: &Path, image: &[u8], block: usize) {
    let mut bytes = image.to_vec();
    bytes[block * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
    fs::write(path.join("image"), &bytes).unwrap();
    refused(path, "image", &format!("block {block} blank"));
}

#[test]
fn a_pool_on_file_in_which_a_map_was_made_is_never_made_anew() {
    let dir = folder();
    let (live, other) = (dir.path().join("live"), dir.path().join("other"));
    drop(fill(&options(Medium::File).open(&other).unwrap(), 1));
    let map = options(Medium::File).open(&live).unwrap();
    let empty = copy(&live, dir.path().join("empty"));
    let mut records = fill(&map, 1);
    let young = copy(&live, dir.path().join("young"));
    map.checkpoint().unwrap();
    records.append(&mut fill(&map, 2));
    let old = copy(&live, dir.path().join("old"));
    drop(map);
    for (path, what) in [(&empty, "without records"), (&young, "before a checkpoint"), (&old, "after one")] {
        let log = fs::read(path.join("log")).unwrap();
        fs::write(path.join("log"), vec![0; log.len()]).unwrap();
        refused(path, "log", &format!("a blank log {what}"));
        fs::copy(other.join("log"), path.join("log")).unwrap();
        refused(path, "log", &format!("another pool's log {what}"));
        fs::write(path.join("log"), log).unwrap();
    }
    let log = fs::read(old.join("log")).unwrap();
    fs::copy(empty.join("log"), old.join("log")).unwrap();
    refused(&old, "log", "a log from before the checkpoint");
    fs::write(old.join("log"), log).unwrap();
    assert!(holds(&old, &records, "log", "the whole pool"));
    // Not even if everything but the superblock is blank.
    for name in ["image", "log", "sums"] {
        let len = fs::metadata(old.join(name)).unwrap().len() as usize;
        fs::write(old.join(name), vec![0; len]).unwrap();
    }
    refused(&old, "log", "all files blank");
}
