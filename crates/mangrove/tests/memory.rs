//! A map that needs more memory than the process may have is refused with a message, when it is opened and when it
//! grows; the process goes on.

use mangrove::{Error, Map};
use std::path::Path;
use std::process::Command;

const RECORDS: u64 = 60_000;

fn key(i: u64) -> [u8; 8] {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()
}

fn own_memory() -> u64 {
    mangrove_sys::own_memory_bytes().unwrap() as u64
}

#[test]
fn a_map_opens_and_grows_within_its_limit_only() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("pool");
    let limit = own_memory() + (24 << 20);
    let options = Map::options().log_bytes(1 << 20).capacity(1 << 30);
    let map = options.clone().memory_bytes_max(limit).open(&path).unwrap();
    let mut written = 0;
    let refused = (0..RECORDS).find_map(|i| {
        let put = map.put_nowait(key(i), [7; 1000]);
        written += u64::from(put.is_ok());
        put.err()
    });
    let refused = refused.expect("a limit");
    assert!(matches!(&refused, Error::MemoryLimit { .. }), "{refused}");
    assert!(refused.to_string().contains("memory_bytes_max"), "{refused}");
    assert!(written > 5_000, "{written} records");
    // It works on: reads, deletes, and what needs no more memory.
    assert_eq!(map.get(key(0)).unwrap().unwrap(), [7; 1000]);
    assert!(map.delete(key(0)).unwrap());
    map.put(key(0), [8; 1000]).unwrap();
    assert_eq!(map.len().unwrap(), written);
    map.close().unwrap();
    let refused = options.clone().memory_bytes_max(own_memory() + (2 << 20)).open(&path).unwrap_err();
    assert!(matches!(&refused, Error::MemoryLimit { .. }), "{refused}");
    let map = options.open(&path).unwrap();
    assert!(map.check().unwrap().is_sound());
}

/// Runs a test of this file in a process with a limit on its address space.
fn limited(name: &str, kib: u64, path: &Path) -> String {
    let this = std::env::current_exe().unwrap();
    let script = format!("ulimit -v {kib}; exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(this)
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("MANGROVE_TEST_POOL", path)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name} with {kib} KiB ended with {}: {said}", output.status);
    assert!(said.contains("1 passed"), "{name} did not run: {said}");
    said
}

/// In a limited process: fills the map at the path until it is refused, or opens it.
#[test]
fn fills_or_opens() {
    let Ok(path) = std::env::var("MANGROVE_TEST_POOL") else { return };
    let opened = Map::options().log_bytes(1 << 20).capacity(1 << 30).open(path);
    let done =
        opened.and_then(|map| (map.len()?..4_000_000).try_for_each(|i| map.put_nowait(key(i), b"12345678")));
    println!("{}", done.map_or_else(|e| e.to_string(), |()| "done".into()));
}

#[test]
fn a_limit_on_address_space_is_an_error_and_not_the_end_of_the_process() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("pool");
    let said = limited("fills_or_opens", 400 << 10, &path);
    assert!(said.contains("ulimit -v") || said.contains("address space"), "{said}");
    // With less address space the map is too large to be opened.
    for kib in [300 << 10, 250 << 10, 200 << 10, 150 << 10] {
        let said = limited("fills_or_opens", kib, &path);
        assert!(said.contains("ulimit -v") || said.contains("address space"), "{kib}: {said}");
    }
}

const LARGE_CAPACITY: u64 = 16 << 40;

/// In a limited process: opens the map at the path, which needs more address space for its capacity than there is.
#[test]
fn opens_in_less_address_space() {
    let Ok(path) = std::env::var("MANGROVE_TEST_POOL") else { return };
    let map = Map::options().capacity(LARGE_CAPACITY).background_recovery_from(0).open(path).unwrap();
    assert_eq!(map.get(key(1)).unwrap().unwrap(), [7; 1000]);
    map.wait_recovered().unwrap();
    map.put(key(2), [8; 1000]).unwrap();
    assert_eq!(map.len().unwrap(), 2);
}

#[test]
fn a_closed_map_opens_with_less_address_space_than_its_capacity_needs() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("pool");
    let map = Map::options().capacity(LARGE_CAPACITY).background_recovery_from(0).open(&path).unwrap();
    map.put(key(1), [7; 1000]).unwrap();
    map.close().unwrap();
    assert!(path.join("index").exists());
    // The page checksums of the whole capacity need 16 GiB.
    for gib in [12, 32] {
        limited("opens_in_less_address_space", gib << 20, &path);
    }
}
