//! A map whose region has become larger: its directory moves, twice too, and what lies in it stays where it is.

use crate::support::Counting;
use mangrove_hart::{Error, Hart, Options, WriteMode};
use mangrove_pool::{Region, crc32c};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A directory in one segment of so many bytes has 512 entries.
const SHIFT: u32 = 12;

fn options() -> Options {
    Options { segment_shift: SHIFT, grow_bytes: 1 << SHIFT, recovery_threads: 1, ..Options::default() }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts until the map is full.
fn fill(hart: &Hart, model: &mut Model) {
    for n in model.len().. {
        let (key, value) = (format!("{n:06}").into_bytes(), vec![n as u8; [8, 700, 9000][n % 3]]);
        match hart.put(&key, &value, WriteMode::Durable) {
            Ok(()) => drop(model.insert(key, value)),
            Err(Error::Full { .. }) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// A map that fills the first MiB of a region of so many bytes.
fn full_map(bytes: usize) -> (Region, Model) {
    let (whole, _) = Counting::region(bytes, false);
    let mut model = Model::new();
    fill(&Hart::create(whole.first(1 << 20), &options()).unwrap(), &mut model);
    (whole, model)
}

fn assert_holds(hart: &Hart, model: &Model) {
    assert_eq!(hart.check().unwrap().damage, []);
    assert_eq!(hart.count().unwrap(), model.len() as u64);
    for (key, value) in model {
        assert_eq!(hart.get(key).unwrap().as_ref(), Some(value));
    }
}

fn recover(region: Region) -> Hart {
    Hart::recover(region, &options()).unwrap().0
}

#[test]
fn the_directory_moves_as_often_as_the_region_grows() {
    let (whole, mut model) = full_map(32 << 20);
    let place = || whole.word(192).load(Ordering::Relaxed) >> 24;
    let (mut places, mut counts) = (vec![place()], vec![model.len()]);
    for bytes in [3u64 << 20, 11 << 20, 32 << 20] {
        let hart = recover(whole.first(bytes));
        places.push(place());
        assert_holds(&hart, &model);
        fill(&hart, &mut model);
        counts.push(model.len());
        assert_holds(&hart, &model);
        // Nearly all of the region is in use by now.
        assert!(hart.stat().grown_bytes + (64 << 10) > bytes, "{:?}", hart.stat());
        drop(hart);
        let hart = recover(whole.first(bytes));
        assert_eq!(place(), *places.last().unwrap(), "it moves once");
        assert_holds(&hart, &model);
    }
    assert!(places.is_sorted_by(|a, b| a < b) && places[0] == 0, "{places:?}");
    assert!(counts.is_sorted_by(|a, b| 2 * a < *b), "{counts:?}");
    // The segments of directories that were given up are in use again: they name no directory of the map.
    let hart = recover(whole.clone());
    for key in std::mem::take(&mut model).keys() {
        hart.delete(key, WriteMode::Durable).unwrap();
    }
    let stat = hart.stat();
    let kept = stat.leaf_segments + stat.value_segments + stat.extent_segments;
    let (all, own) = ((32 << 20 >> SHIFT) - 2, 64 << 10 >> SHIFT);
    assert!(kept + stat.free_segments + own + 8 > all, "{stat:?}");
}

/// A salvage that does not find the root's words would take them for the directory, and pass over records.
#[test]
fn old_entries_that_a_crash_has_kept_are_blanked_by_the_next_opening() {
    let (whole, mut model) = full_map(4 << 20);
    let entry = |n: usize| 4096 + n as u64 * 8;
    let entries = || (0..200).map(|n| whole.word(entry(n)).load(Ordering::Relaxed)).collect::<Vec<u64>>();
    let old = entries();
    assert!(!old.contains(&0), "{old:?}");
    drop(recover(whole.clone()));
    assert_eq!(entries(), [0; 200]);
    // A part of them, as where some lines reached the medium.
    for kept in [0..200, 7..9] {
        for at in kept {
            whole.store(entry(at), old[at], Ordering::Relaxed);
        }
        let reader = Hart::recover(whole.clone(), &Options { read_only: true, ..options() }).unwrap().0;
        assert_holds(&reader, &model);
        drop(reader);
        assert!(entries() != [0; 200], "a reader has written");
        let hart = recover(whole.clone());
        assert_eq!(entries(), [0; 200]);
        fill(&hart, &mut model);
        assert_holds(&hart, &model);
    }
}

#[test]
fn a_reader_and_a_little_more_space_move_nothing() {
    let (whole, model) = full_map(4 << 20);
    let read_only = Options { read_only: true, ..options() };
    for (options, bytes) in [(&read_only, 4 << 20), (&options(), (1 << 20) + 4095)] {
        let (hart, _) = Hart::recover(whole.first(bytes), options).unwrap();
        assert_eq!(whole.word(192).load(Ordering::Relaxed) >> 24, 0);
        assert_holds(&hart, &model);
    }
}

fn set_version(region: &Region, version: u64) {
    region.store(8, version | u64::from(SHIFT) << 32, Ordering::Relaxed);
    let line: Vec<u8> =
        (0..7).flat_map(|n| region.word(n * 8).load(Ordering::Relaxed).to_le_bytes()).collect();
    region.store(56, u64::from(crc32c(0, &line)), Ordering::Relaxed);
}

/// In version 4 the directory may lie in segments already.
#[test]
fn a_map_of_version_4_keeps_its_directory() {
    let (whole, model) = full_map(4 << 20);
    drop(recover(whole.clone()));
    let place = whole.word(192).load(Ordering::Relaxed);
    assert_ne!(place >> 24, 0, "the directory has moved");
    set_version(&whole, 4);
    assert_holds(&recover(whole.clone()), &model);
    assert_eq!(whole.word(8).load(Ordering::Relaxed) as u32, 5);
    assert_eq!(whole.word(192).load(Ordering::Relaxed), place);
    assert_holds(&recover(whole), &model);
}

/// A map of an older version is upgraded first.
#[test]
fn a_map_of_version_3_grows() {
    let (whole, mut model) = full_map(4 << 20);
    whole.store(192, 0x1234_5678, Ordering::Relaxed);
    set_version(&whole, 3);
    let reader = Hart::recover(whole.first(1 << 20), &Options { read_only: true, ..options() }).unwrap().0;
    assert_holds(&reader, &model);
    drop(reader);
    let before = model.len();
    let hart = recover(whole.clone());
    assert_holds(&hart, &model);
    assert_eq!(whole.word(8).load(Ordering::Relaxed) as u32, 5);
    fill(&hart, &mut model);
    assert!(model.len() > 2 * before);
    drop(hart);
    assert_holds(&recover(whole), &model);
}

/// What the root says of the place of the directory is compared with what lies there.
#[test]
fn a_wrong_place_of_the_directory_is_refused() {
    let (whole, model) = full_map(4 << 20);
    let of_front = whole.word(192).load(Ordering::Relaxed);
    drop(recover(whole.clone()));
    let right = whole.word(192).load(Ordering::Relaxed);
    assert_ne!(right, of_front);
    // That of the new map, whose entries are blank now; nothing; a damaged word.
    for wrong in [of_front, 0, right ^ 1 << 30, right ^ 1] {
        whole.store(192, wrong, Ordering::Relaxed);
        let error = Hart::recover(whole.clone(), &options()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    whole.store(192, right, Ordering::Relaxed);
    assert_holds(&recover(whole), &model);
}
