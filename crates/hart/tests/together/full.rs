//! A map that is full can always be emptied: removing records takes no space, one by one or all or nothing.

use crate::support::{Counting, Random};
use mangrove_hart::{Batch, Error, Hart, Options, WriteMode};
use std::ops::Bound;

const MODE: WriteMode = WriteMode::Durable;

fn options(shift: u32) -> Options {
    Options { segment_shift: shift, grow_bytes: 1 << shift, recovery_threads: 1, ..Options::default() }
}

/// Puts records in no order until the map is full; their keys.
fn fill(hart: &Hart, value: &[u8]) -> Vec<Vec<u8>> {
    let (mut random, mut keys) = (Random(7), Vec::new());
    loop {
        let key = random.below(u64::MAX).to_be_bytes().to_vec();
        match hart.put(&key, value, MODE) {
            Ok(()) => keys.push(key),
            Err(Error::Full { .. }) => return keys,
            Err(e) => panic!("{e}"),
        }
    }
}

fn batch_of<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> Batch {
    let mut batch = Batch::new();
    keys.into_iter().for_each(|key| {
        batch.delete(key);
    });
    batch
}

fn sound(hart: &Hart, records: u64) {
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
    assert_eq!((report.records, hart.len()), (records, records));
}

#[test]
fn a_full_map_is_emptied_by_one_call() {
    const BYTES: usize = 6 << 20;
    for value in [&b"12345678"[..], &[7; 100]] {
        for whole in [true, false] {
            let (region, _) = Counting::region(BYTES, false);
            let hart = Hart::create(region.clone(), &options(14)).unwrap();
            let keys = fill(&hart, value);
            assert!(keys.len() > 20_000, "{} records", keys.len());
            if whole {
                let removed = hart.delete_range(Bound::Unbounded, Bound::Unbounded, MODE).unwrap();
                assert_eq!(removed, keys.len() as u64);
            } else {
                hart.write(batch_of(keys.iter().step_by(2)), MODE).unwrap();
                sound(&hart, keys.len() as u64 / 2);
                drop(hart);
                let (hart, _) = Hart::recover(region.clone(), &options(14)).unwrap();
                hart.write(batch_of(&keys), MODE).unwrap();
                sound(&hart, 0);
                continue;
            }
            sound(&hart, 0);
            assert_eq!(fill(&hart, value).len(), keys.len(), "all of the space is free again");
        }
    }
}

#[test]
fn a_crash_while_a_full_map_is_emptied_keeps_all_or_nothing() {
    let small = Options { list_entries_max: 3, ..options(12) };
    let (region, medium) = Counting::region(72 << 10, false);
    let hart = Hart::create(region, &small).unwrap();
    let keys = fill(&hart, b"12345678");
    let (first, rest) = keys.split_at(keys.len() / 3);
    // What a batch leaves in the headers must not be taken for that of a later one.
    for part in [first, rest] {
        let before = hart.len();
        let images = medium.images_of(|| hart.write(batch_of(part), MODE).unwrap());
        assert!(images.len() > 30, "{} flushes", images.len());
        let (mut kept, mut gone) = (0, 0);
        for image in &images {
            let (copy, _) = Counting::region(72 << 10, false);
            for (at, word) in image.iter().enumerate() {
                copy.store(at as u64 * 8, *word, std::sync::atomic::Ordering::Relaxed);
            }
            let (after, _) = Hart::recover(copy, &small).unwrap();
            let records = after.len();
            sound(&after, records);
            match records {
                n if n == before => kept += 1,
                n if n + part.len() as u64 == before => gone += 1,
                n => panic!("{n} of {before} records after a crash"),
            }
            after.write(batch_of(&keys), MODE).unwrap();
            sound(&after, 0);
        }
        assert!(kept > 10 && gone > 10, "{kept} images before the commit, {gone} after it");
    }
}

#[test]
fn a_committed_removal_whose_mark_is_damaged_is_reported() {
    let small = Options { list_entries_max: 3, ..options(12) };
    let (region, medium) = Counting::region(72 << 10, false);
    let hart = Hart::create(region, &small).unwrap();
    let keys = fill(&hart, b"12345678");
    let images = medium.images_of(|| hart.write(batch_of(&keys), MODE).unwrap());
    // docs/format/map.md: the batch word names a list, which is at 256 with one entry, of operation 2.
    let no_batch = medium.image()[16];
    let committed = images.iter().find(|image| image[16] != no_batch).expect("a crash after the commit");
    assert_eq!(committed[33] & 7, 2);
    let number = committed[34];
    let data_start = committed[3] as usize / 8;
    let mark = (data_start..committed.len() - 4)
        .find(|&at| at % 8 == 3 && committed[at] >> 24 == number && committed[at - 1] != 0)
        .expect("a chunk with removals");
    let recover = |image: &[u64]| {
        let (copy, _) = Counting::region(72 << 10, false);
        for (at, word) in image.iter().enumerate() {
            copy.store(at as u64 * 8, *word, std::sync::atomic::Ordering::Relaxed);
        }
        Hart::recover(copy, &small).map(|(hart, _)| hart.len())
    };
    assert_eq!(recover(committed).unwrap(), 0);
    for bit in [0, 25, 63] {
        let mut bad = committed.clone();
        bad[mark] ^= 1 << bit;
        let error = recover(&bad).expect_err("damage").to_string();
        assert!(error.contains("the committed batch removes records of"), "{error}");
    }
}
