//! A map grows in place: opened with a greater capacity, it takes more records than fitted before, and all that it held
//! are there, whatever the last operation of the process was that made it grow.

use mangrove::{Batch, Create, Error, Latency, Map, MapOptions, Medium};
use std::path::Path;

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));

fn options(medium: Medium) -> MapOptions {
    Map::options().medium(medium)
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Values that need segments of their own, blocks and inline words.
fn value(n: u32) -> Vec<u8> {
    let len = match n % 16 {
        0 => 300_000,
        1..4 => 900,
        _ => 8,
    };
    vec![n as u8; len]
}

/// Puts records from number `from` on until the map is full; returns the number after the last one.
fn fill(map: &Map, from: u32) -> u32 {
    (from..)
        .find(|&n| match map.put(key(n), value(n)) {
            Ok(()) => false,
            Err(Error::Full { .. }) => true,
            Err(e) => panic!("{e}"),
        })
        .unwrap()
}

fn assert_holds(map: &Map, count: u32) {
    for n in 0..count {
        assert_eq!(map.get(key(n)).unwrap(), Some(value(n)), "record {n} of {count}");
    }
    assert_eq!(map.len().unwrap(), u64::from(count));
    let problems = map.check().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

fn grow_twice(path: &Path, medium: Medium) {
    let map = options(medium).capacity(2 << 20).open(path).unwrap();
    let first = fill(&map, 0);
    map.close().unwrap();
    let map = options(medium).capacity(8 << 20).open(path).unwrap();
    assert_eq!(map.info().capacity, 8 << 20);
    assert_holds(&map, first);
    let second = fill(&map, first);
    assert!(second > 2 * first, "{first}, then {second}");
    map.close().unwrap();
    let map = options(Medium::Auto).open(path).unwrap();
    assert_holds(&map, second);
    // Not full: its directory moves to where no segment was in use yet, and the old one is free.
    for n in 0..second {
        map.delete(key(n)).unwrap();
    }
    drop(map);
    let map = options(medium).capacity(16 << 20).open(path).unwrap();
    assert_holds(&map, 0);
    let third = fill(&map, 0);
    assert!(third > second * 3 / 2, "{second}, then {third}");
    assert_holds(&map, third);
    map.close().unwrap();
    let map = options(Medium::Auto).read_only(true).open(path).unwrap();
    assert_holds(&map, third);
    let copy = path.with_extension("copy");
    map.backup(&copy, |_| std::ops::ControlFlow::Continue(())).unwrap();
    drop(map);
    assert_holds(&Map::open(&copy).unwrap(), third);
    let text = options(Medium::Auto).capacity(8 << 20).open(path).unwrap_err().to_string();
    assert!(text.contains("its capacity is 16777216 bytes and can only become greater"), "{text}");
}

#[test]
fn a_map_grows_in_place_full_or_not() {
    let dir = tempfile::tempdir().unwrap();
    grow_twice(&dir.path().join("file"), Medium::File);
    grow_twice(&dir.path().join("emulated"), EMULATED);
}

#[test]
fn a_map_of_the_default_capacity_grows_without_taking_space() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let map = Map::open(&path).unwrap();
    (0..100).for_each(|n| map.put(key(n), value(n)).unwrap());
    let before = map.stat().image_bytes;
    map.close().unwrap();
    let map = Map::options().capacity(512 << 30).create(Create::Never).open(&path).unwrap();
    assert_holds(&map, 100);
    assert_eq!(map.info().capacity, 512 << 30);
    // 32 KiB for each GiB.
    let after = map.stat().image_bytes;
    assert!(after - before <= 24 << 20, "{before}, then {after}");
    map.close().unwrap();
}

/// Salvage of a map that has grown: with its root's words lost it finds all segments by what lies in them.
#[test]
fn a_map_that_has_grown_is_salvaged_without_its_root() {
    let dir = tempfile::tempdir().unwrap();
    for (name, damaged) in [("line", 0..64), ("place", 192..200), ("entries", 4096..8192)] {
        let path = dir.path().join(name);
        let map = options(EMULATED).capacity(2 << 20).open(&path).unwrap();
        let first = fill(&map, 0);
        map.close().unwrap();
        let map = options(EMULATED).capacity(8 << 20).open(&path).unwrap();
        let count = fill(&map, first);
        // Of a pool that was not closed: no page checksums find the damage first.
        let live = path;
        let path = dir.path().join(format!("{name}-crashed"));
        std::fs::create_dir(&path).unwrap();
        for file in ["pool", "image", "sums"] {
            std::fs::copy(live.join(file), path.join(file)).unwrap();
        }
        map.close().unwrap();
        let image = path.join("image");
        let mut bytes = std::fs::read(&image).unwrap();
        for at in damaged {
            bytes[at] ^= if name == "line" && (16..32).contains(&at) { 0 } else { 0x55 };
        }
        std::fs::write(&image, bytes).unwrap();
        let new = dir.path().join(format!("{name}-new"));
        if name == "entries" {
            // The directory behind the root page is not used any more.
            assert_holds(&Map::open(&path).unwrap(), count);
            continue;
        }
        let error = Map::open(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. } | Error::Foreign { .. }), "{error}");
        let report = Map::salvage(&path, &new, |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(report.records, u64::from(count), "{name}: {report:?}");
        assert_holds(&Map::open(&new).unwrap(), count);
    }
}

/// What such a batch has written lies in pages that nothing else flushes; on this medium closing computes a page's
/// checksum when the page was flushed.
#[test]
fn a_map_that_was_too_small_for_a_batch_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let open = || Map::options().medium(EMULATED).capacity(16 << 20).open(&path).unwrap();
    open().close().unwrap();
    let map = open();
    let mut batch = Batch::new();
    batch.put("a", vec![1; 6 << 20]).put("b", vec![2; 12 << 20]);
    assert!(map.write(batch).is_err(), "18 MB in a map of 16 MiB");
    map.close().unwrap();
    let map = open();
    assert_eq!(map.len().unwrap(), 0);
    assert!(map.check().unwrap().is_sound());
    // Leaves of one length, until no slot is free; then one is.
    let value = [7u8; 100];
    let mut keys = (0u64..).map(u64::to_be_bytes).take_while(|key| map.put(key, value).is_ok());
    let last = keys.by_ref().last().unwrap();
    let count = map.len().unwrap() - 1;
    map.delete(last).unwrap();
    map.close().unwrap();
    let map = open();
    let mut batch = Batch::new();
    batch.put("a new one", value).put("another one", value);
    assert!(map.write(batch).is_err(), "two records in one slot");
    map.close().unwrap();
    assert_eq!(open().len().unwrap(), count);
}
