//! Regions of which a part was blanked, as a medium does that has lost a block: recovery refuses them, or every record
//! is there. And maps of version 1, in which a zero word means "free": they open, and become maps of this version.

use crate::support::Counting;
use mangrove_hart::{Error, Hart, Options, WriteMode};
use mangrove_pool::{Region, crc32c};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

const BYTES: usize = 512 << 10;
const SHIFT: u32 = 14;
/// docs/format/map.md.
const FREE_SLOT: u64 = 0x4549_17d5_4645_f000;
const LEAF_BYTES: [usize; 9] = [32, 48, 64, 96, 128, 192, 256, 512, 1040];
const CHUNK_MARK: u64 = 1 << 63;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        segment_shift: SHIFT,
        grow_bytes: 1 << SHIFT,
        recovery_threads: 1,
        verify_values: true,
        ..Options::default()
    }
}

fn words_of(region: &Region) -> Vec<u64> {
    (0..BYTES as u64 / 8).map(|i| region.word(i * 8).load(Ordering::Relaxed)).collect()
}

fn region_of(words: &[u64]) -> (Region, std::sync::Arc<Counting>) {
    let (region, medium) = Counting::region(words.len() * 8, false);
    for (i, word) in words.iter().enumerate() {
        region.store(i as u64 * 8, *word, Ordering::Relaxed);
    }
    (region, medium)
}

/// A map with leaves of every class, values in blocks, an extent, and free slots and segments: its records, its words.
fn specimen(records: u32, options: &Options) -> (Model, Vec<u64>) {
    let (region, _) = Counting::region(BYTES, false);
    let hart = Hart::create(region.clone(), options).unwrap();
    let mut model = Model::new();
    let mut put = |key: Vec<u8>, len: usize| {
        let value = vec![len as u8; len];
        hart.put(&key, &value, WriteMode::Durable).unwrap();
        model.insert(key, value);
    };
    for i in 0..records {
        let slot = LEAF_BYTES[i as usize % LEAF_BYTES.len()];
        let mut key = format!("{i:03}").into_bytes();
        key.resize(slot - 16, b'k');
        put(key, [0, 8, 50, 900][i as usize / 9 % 4]);
    }
    put(b"extent".to_vec(), 40_000);
    put(b"gone".to_vec(), 40_000);
    for key in
        model.keys().filter(|key| key[..] == b"gone"[..] || key[2] % 4 == 1).cloned().collect::<Vec<_>>()
    {
        assert!(hart.delete(&key, WriteMode::Durable).unwrap());
        model.remove(&key);
    }
    assert!(hart.check().unwrap().is_sound());
    drop(hart);
    (model, words_of(&region))
}

/// The records of the map in these words; none when it is refused as damaged.
fn recovered(words: &[u64], options: &Options) -> Option<(Hart, Model)> {
    let (hart, _) = match Hart::recover(region_of(words).0, options) {
        Ok(opened) => opened,
        Err(Error::Corrupt { .. }) => return None,
        Err(e) => panic!("{e}"),
    };
    let found =
        hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let found = found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    Some((hart, found))
}

/// Blanks these words. True when the map is refused; otherwise every record is there.
fn is_refused(model: &Model, words: &[u64], blank: Range<usize>) -> bool {
    let mut bad = words.to_vec();
    bad[blank.clone()].fill(0);
    match recovered(&bad, &options()) {
        None => true,
        Some((_, found)) => {
            assert!(found == *model, "words {blank:?}: {} records instead of {}", found.len(), model.len());
            false
        }
    }
}

#[test]
fn a_blank_block_or_word_never_means_free() {
    let (model, words) = specimen(200, &options());
    let used = |range: &Range<usize>| words[range.clone()].iter().any(|&word| word != 0);
    for (block_words, least) in [(512, 20), (64, 100), (8, 400)] {
        let blocks = (0..words.len()).step_by(block_words).map(|at| at..at + block_words).filter(used);
        let refused = blocks.filter(|block| is_refused(&model, &words, block.clone())).count();
        assert!(refused >= least, "{refused} of the blocks of {block_words} words were needed");
    }
    // Every word of the root and the directory, and every 5th of the rest.
    let singles = (0..1024).chain((1024..words.len()).step_by(5)).map(|at| at..at + 1).filter(used);
    assert!(singles.filter(|word| is_refused(&model, &words, word.clone())).count() > 500);
}

#[test]
fn a_free_slot_or_segment_that_is_blank_is_damage() {
    let (model, words) = specimen(200, &options());
    let free: Vec<usize> = (0..words.len()).filter(|&at| words[at] == FREE_SLOT).collect();
    assert!(free.len() > 100, "{} free slots", free.len());
    for &at in free.iter().step_by(7) {
        assert!(is_refused(&model, &words, at..at + 1), "the free slot at word {at}");
    }
    let segments = (words[8] >> 24) as usize;
    for segment in 0..segments {
        let at = 512 + segment;
        assert!(words[at] != 0 && is_refused(&model, &words, at..at + 1), "the entry of segment {segment}");
    }
}

/// Makes the words those that version 1 would have.
fn downgrade(words: &mut [u64]) {
    assert_eq!(words[1], u64::from(SHIFT) << 32 | 5);
    let segments = (words[8] >> 24) as usize;
    let data_start = words[3] as usize / 8;
    let segment_bytes = 1_usize << SHIFT;
    words[16] = 0;
    words[24] = 0;
    for segment in 0..segments {
        let value = words[512 + segment] >> 24;
        if value & 15 == 4 {
            words[512 + segment] = 0;
        }
        if value & 15 != 1 {
            continue;
        }
        let slot_bytes = LEAF_BYTES[(value >> 4 & 255) as usize - 1];
        let chunk_bytes = 64 + 56 * slot_bytes;
        for chunk in (0..segment_bytes).step_by(chunk_bytes) {
            let slots = (segment_bytes - chunk).saturating_sub(64).min(56 * slot_bytes) / slot_bytes;
            if slots == 0 {
                break;
            }
            let header = data_start + (segment * segment_bytes + chunk) / 8;
            assert!(words[header] & CHUNK_MARK != 0);
            words[header] &= !CHUNK_MARK;
            let bitmap = words[header];
            for slot in (0..slots).filter(|slot| bitmap >> slot & 1 == 1) {
                let meta = header + (64 + slot * slot_bytes) / 8;
                if words[meta] == FREE_SLOT {
                    words[meta] = 0;
                }
            }
        }
    }
    words[1] = u64::from(SHIFT) << 32 | 1;
    words[7] = root_crc(words);
}

fn root_crc(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words[..7].iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc32c(0, &bytes))
}

#[test]
fn an_upgrade_to_any_version_that_a_crash_tore_is_no_damage() {
    let (model, newest) = specimen(60, &Options { slot_bytes_max: 0, ..options() });
    for version in 3..=5 {
        for before in 2..version {
            let mut words = newest.clone();
            words[1] = u64::from(SHIFT) << 32 | before;
            words[7] = root_crc(&words);
            words[1] = u64::from(SHIFT) << 32 | version;
            for read_only in [true, false] {
                let found = recovered(&words, &Options { read_only, ..options() });
                let (_, found) = found.unwrap_or_else(|| panic!("version {version}, torn from {before}"));
                assert!(found == model);
            }
        }
    }
}

#[test]
fn a_map_of_version_1_opens_and_is_upgraded_when_it_is_opened_for_writing() {
    let (model, newest) = specimen(60, &Options { slot_bytes_max: 0, ..options() });
    let mut words = newest.clone();
    downgrade(&mut words);
    let read_only = Options { read_only: true, ..options() };
    let (reader, found) = recovered(&words, &read_only).expect("a map of version 1");
    assert!(found == model && words_of(reader.region())[1] as u32 == 1);
    assert!(reader.check().unwrap().is_sound());
    // Without the new checks: a slot that is blank passes for free.
    let meta = (0..words.len()).find(|&at| newest[at] == FREE_SLOT && words[at] == 0).expect("a free slot");
    assert!(!is_refused(&model, &words, meta..meta + 1));

    let (region, medium) = region_of(&words);
    *medium.images.lock().unwrap() = Some(Vec::new());
    let (hart, _) = Hart::recover(region.clone(), &options()).unwrap();
    let images = medium.images.lock().unwrap().take().unwrap();
    assert!(hart.check().unwrap().is_sound());
    drop(hart);
    let upgraded = words_of(&region);
    assert_eq!(upgraded[1] as u32, 5);
    assert!(is_refused(&model, &upgraded, meta..meta + 1), "a free slot has its mark now");
    let entry = (512..512 + (upgraded[8] >> 24) as usize).find(|&at| words[at] == 0).expect("a free segment");
    assert!(is_refused(&model, &upgraded, entry..entry + 1), "and so has a free segment");
    // A crash at any flush, and between the two words of the root that change last.
    assert!(images.len() > 50);
    let mut torn = upgraded.clone();
    torn[7] = words[7];
    for image in images.iter().step_by(3).chain([&torn, &upgraded]) {
        let (hart, found) = recovered(image, &options()).expect("an upgrade that a crash interrupted");
        assert!(found == model);
        assert!(hart.check().unwrap().is_sound());
        assert_eq!(words_of(hart.region())[1] as u32, 5);
        let (_, found) = recovered(image, &read_only).expect("read-only, too");
        assert!(found == model);
    }
}
