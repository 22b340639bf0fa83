//! Keys and values at every boundary; values that change class lose and leak nothing.

use crate::support::{Counting, Random};
use mangrove_hart::{Batch, Error, Hart, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX, WriteMode};
use mangrove_pool::Emulated;
use std::ops::Bound;
use std::sync::Arc;

const MODE: WriteMode = WriteMode::Durable;

fn value(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt)).collect()
}

fn sound(hart: &Hart) {
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
}

#[test]
fn values_change_class_in_every_direction() {
    let region = Emulated::region(256 << 20).unwrap();
    let options = Options::default();
    let mut hart = Hart::create(region.clone(), &options).unwrap();
    let lens =
        [0, 1, 7, 8, 9, 24, 100, 248, 249, 1000, 60_000, 131_064, 131_065, 262_136, 262_137, 1_000_000];
    for (i, from) in lens.iter().enumerate() {
        for (j, to) in lens.iter().enumerate() {
            let key = format!("{i}/{j}");
            hart.put(key.as_bytes(), &value(*from, 1), MODE).unwrap();
            assert_eq!(hart.get(key.as_bytes()).unwrap().unwrap(), value(*from, 1));
            hart.put(key.as_bytes(), &value(*to, 2), MODE).unwrap();
            assert_eq!(hart.get(key.as_bytes()).unwrap().unwrap(), value(*to, 2));
        }
    }
    sound(&hart);
    drop(hart);
    hart = Hart::recover(region.clone(), &options).unwrap().0;
    sound(&hart);
    for i in 0..lens.len() {
        for (j, to) in lens.iter().enumerate() {
            assert_eq!(hart.get(format!("{i}/{j}").as_bytes()).unwrap().unwrap(), value(*to, 2));
        }
    }
}

#[test]
fn a_value_goes_into_a_buffer_that_holds_it_and_nowhere_else() {
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    for len in (0..40).chain([100, 511, 512, 513, 3000]) {
        hart.put(b"key", &value(len, 5), MODE).unwrap();
        assert_eq!(hart.get_with(b"key", <[u8]>::to_vec).unwrap(), Some(value(len, 5)));
        for space in [0, len.saturating_sub(1), len, len + 1, len + 9] {
            let mut memory = vec![std::mem::MaybeUninit::new(0xAA); space + 16];
            assert_eq!(hart.get_to(b"key", &mut memory[..space]).unwrap(), Some(len), "{len} in {space}");
            let memory: Vec<u8> = memory
                .iter()
                .map(|byte| {
                    // SAFETY: each byte was initialised above.
                    unsafe { byte.assume_init() }
                })
                .collect();
            if len <= space {
                assert_eq!(memory[..len], value(len, 5)[..], "{len} in {space}");
            }
            let rest = &memory[if len <= space { len } else { 0 }..];
            assert!(rest.iter().all(|byte| *byte == 0xAA), "{len} in {space}: other bytes changed");
        }
    }
    assert_eq!(hart.get_to(b"none", &mut []).unwrap(), None);
}

#[test]
fn a_value_that_becomes_short_while_a_read_waits_is_in_the_buffer() {
    for short in [&b""[..], b"abc", b"12345678", b"behind it"] {
        let (region, medium) = Counting::region(16 << 20, true);
        let hart = Arc::new(Hart::create(region, &Options::default()).unwrap());
        hart.put(b"key", &value(100, 1), WriteMode::Buffered).unwrap();
        // The read has found the long value, and waits until that is durable.
        let writer = Arc::clone(&hart);
        let replace = move || writer.put(b"key", short, WriteMode::Buffered).unwrap();
        *medium.at_wait.lock().unwrap() = Some(Box::new(replace));
        let mut memory = [std::mem::MaybeUninit::new(0xAA_u8); 10];
        assert_eq!(hart.get_to(b"key", &mut memory).unwrap(), Some(short.len()));
        assert!(medium.at_wait.lock().unwrap().is_none(), "the read did not wait");
        let memory = memory.map(|byte| {
            // SAFETY: each byte was initialised above.
            unsafe { byte.assume_init() }
        });
        assert_eq!(&memory[..short.len()], short);
    }
}

#[test]
fn a_large_value_goes_in_and_out() {
    let region = Emulated::region(400 << 20).unwrap();
    let hart = Hart::create(region.clone(), &Options::default()).unwrap();
    let large = value(64 << 20, 3);
    hart.put(b"large", &large, MODE).unwrap();
    hart.put(b"small", b"s", MODE).unwrap();
    assert!(hart.get(b"large").unwrap().unwrap() == large);
    drop(hart);
    let (hart, _) = Hart::recover(region, &Options::default()).unwrap();
    assert!(hart.get(b"large").unwrap().unwrap() == large);
    assert!(hart.delete(b"large", MODE).unwrap());
    sound(&hart);
    assert_eq!(hart.stat().extent_segments, 0);
}

#[test]
fn any_key_up_to_the_limit_is_a_key() {
    let region = Emulated::region(64 << 20).unwrap();
    let hart = Hart::create(region.clone(), &Options::default()).unwrap();
    let mut keys: Vec<Vec<u8>> = (0..=KEY_BYTES_MAX).map(|len| vec![b'k'; len]).collect();
    keys.extend((0..=255).map(|b| vec![b]));
    keys.extend((0..20).map(|len| vec![0; len]));
    keys.extend((0..20).map(|len| vec![255; len]));
    keys.sort();
    keys.dedup();
    for key in &keys {
        hart.put(key, &(key.len() as u64).to_le_bytes(), MODE).unwrap();
    }
    let check = |hart: &Hart| {
        assert_eq!(hart.len(), keys.len() as u64);
        for key in &keys {
            assert_eq!(hart.get(key).unwrap().unwrap(), (key.len() as u64).to_le_bytes());
        }
        let seen: Vec<_> =
            hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().map(|r| r.unwrap().0).collect();
        assert!(seen == keys);
        sound(hart);
    };
    check(&hart);
    drop(hart);
    check(&Hart::recover(region, &Options::default()).unwrap().0);
}

#[test]
fn too_long_says_so_and_changes_nothing() {
    let region = Emulated::region(64 << 20).unwrap();
    let hart = Hart::create(region, &Options::default()).unwrap();
    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    for answer in [
        hart.put(&key, b"v", MODE),
        hart.get(&key).map(|_| ()),
        hart.delete(&key, MODE).map(|_| ()),
        hart.insert_new(&key, b"v", MODE).map(|_| ()),
        hart.snapshot().unwrap().get(&key).map(|_| ()),
    ] {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::KeyTooLong { len: 1025, max: 1024 }), "{error}");
        assert!(error.to_string().contains("1024"));
    }
    let mut batch = Batch::new();
    batch.put("fine", "v").put(key, "v");
    assert!(matches!(hart.write(batch, MODE), Err(Error::KeyTooLong { .. })));
    // Never read or written, so it costs address space only.
    let value = vec![0u8; VALUE_BYTES_MAX + 1];
    assert!(matches!(hart.put(b"k", &value, MODE), Err(Error::ValueTooLong { .. })));
    // Within the limit, but larger than this region.
    assert!(matches!(hart.put(b"k", &value[1..], MODE), Err(Error::Full { .. })));
    assert!(hart.is_empty());
    sound(&hart);
}

#[test]
fn nothing_leaks_through_any_history() {
    let region = Emulated::region(64 << 20).unwrap();
    let options = Options { segment_shift: 14, ..Options::default() };
    let mut hart = Hart::create(region.clone(), &options).unwrap();
    let mut random = Random(5);
    for round in 0..6 {
        for _ in 0..4000 {
            let key = format!("{}", random.below(1500));
            let len = [3, 20, 200, 3000, 20_000][random.below(5) as usize];
            match random.below(10) {
                0..=5 => hart.put(key.as_bytes(), &value(len, 7), MODE).unwrap(),
                6..=8 => drop(hart.delete(key.as_bytes(), MODE).unwrap()),
                _ => {
                    let mut batch = Batch::new();
                    (0..20).for_each(|_| {
                        batch.put(format!("{}", random.below(1500)), value(len, 8));
                    });
                    hart.write(batch, MODE).unwrap();
                }
            }
        }
        sound(&hart);
        let grown = hart.stat().grown_bytes;
        let records = hart.len();
        assert_eq!(hart.delete_range(Bound::Unbounded, Bound::Unbounded, MODE).unwrap(), records);
        assert!(hart.is_empty() && hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().next().is_none());
        sound(&hart);
        drop(hart);
        hart = Hart::recover(region.clone(), &options).unwrap().0;
        let stat = hart.stat();
        assert_eq!(
            stat.leaf_segments + stat.value_segments + stat.extent_segments,
            0,
            "round {round}: {stat:?}"
        );
        assert_eq!(
            stat.free_segments * stat.segment_bytes,
            grown - (stat.durable_bytes),
            "round {round}: {stat:?}"
        );
    }
}

#[test]
fn a_conditional_write_that_does_not_happen_writes_nothing() {
    let (region, medium) = Counting::region(4 << 20, true);
    let options = Options { segment_shift: 14, ..Options::default() };
    let hart = Hart::create(region, &options).unwrap();
    let long = value(1 << 20, 1);
    hart.put(b"there", b"a", MODE).unwrap();
    hart.put(b"there too", &value(2000, 2), MODE).unwrap();
    let conditional = || {
        assert!(!hart.insert_new(b"there", &long, MODE).unwrap());
        assert!(!hart.compare_and_set(b"there", None, Some(&long), MODE).unwrap());
        assert!(!hart.compare_and_set(b"there", Some(b"b"), Some(&long), MODE).unwrap());
        assert!(!hart.compare_and_set(b"there too", Some(b"b"), Some(&long), MODE).unwrap());
        assert!(!hart.compare_and_set(b"nothing", Some(b"b"), Some(&long), MODE).unwrap());
    };
    assert_eq!(medium.cost_of(conditional).flushes, 0);
    let mut number = 0u32;
    while hart.put(&number.to_be_bytes(), &value(3000, 3), MODE).is_ok() {
        number += 1;
    }
    conditional();
    assert!(matches!(hart.insert_new(b"new", &long, MODE), Err(Error::Full { .. })));
    let too_long = vec![b'k'; KEY_BYTES_MAX + 1];
    assert!(matches!(hart.insert_new(&too_long, &long, MODE), Err(Error::KeyTooLong { .. })));
    hart.delete_range(Bound::Unbounded, Bound::Excluded(b"a"), MODE).unwrap();
    assert!(hart.insert_new(b"new", &long, MODE).unwrap());
    assert!(hart.compare_and_set(b"there", Some(b"a"), Some(&long[..5000]), MODE).unwrap());
    assert!(hart.compare_and_set(b"there too", Some(&value(2000, 2)), Some(&long[..5000]), MODE).unwrap());
    assert_eq!(hart.get(b"new").unwrap().unwrap(), long);
    sound(&hart);
}

#[test]
fn what_lanes_keep_is_used_where_the_medium_is_full() {
    let options = Options { segment_shift: 14, grow_bytes: 1 << 14, ..Options::default() };
    let made = |room: u64| {
        let (region, medium) = Counting::region(16 << 20, false);
        let hart = Hart::create(region, &options).unwrap();
        medium.room.store(room, std::sync::atomic::Ordering::SeqCst);
        hart
    };
    let filled = |hart: &Hart, len: usize| {
        let is_full = |e: &Error| matches!(e, Error::Medium(mangrove_pool::Error::NoSpace { .. }));
        (0u32..)
            .map(|i| hart.put(&i.to_be_bytes(), &value(len, 1), MODE))
            .take_while(|put| !put.as_ref().is_err_and(is_full))
            .map(Result::unwrap)
            .count()
    };
    let fresh = filled(&made(1 << 20), 5000);
    let used = made(1 << 20);
    // Each thread keeps slots for its next puts, and each class an empty segment.
    for len in [50, 100, 200, 400, 800, 1600] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let count = filled(&used, len) as u32;
                (0..count).for_each(|i| assert!(used.delete(&i.to_be_bytes(), MODE).unwrap()));
            });
        });
    }
    assert!(used.is_empty());
    let again = filled(&used, 5000);
    assert!(again + 2 >= fresh, "{again} values fit where {fresh} fit into a new map");
    sound(&used);
    // Batches reclaim them too.
    assert!(used.delete_range(Bound::Unbounded, Bound::Unbounded, MODE).unwrap() > 0);
    let count = filled(&used, 100) as u32;
    (0..count).for_each(|i| assert!(used.delete(&i.to_be_bytes(), MODE).unwrap()));
    let mut batch = Batch::new();
    (0..fresh as u32 - 2).for_each(|i| {
        batch.put(i.to_be_bytes(), value(5000, 2));
    });
    used.write(batch, MODE).unwrap();
    sound(&used);
}

#[test]
fn a_full_map_says_so_and_goes_on() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = Options { segment_shift: 14, grow_bytes: 1 << 14, ..Options::default() };
    let hart = Hart::create(region.clone(), &options).unwrap();
    // First the medium is full, then the region.
    medium.room.store(1 << 20, std::sync::atomic::Ordering::SeqCst);
    let mut written = Vec::new();
    let mut refused = 0;
    for i in 0..20_000u32 {
        let key = i.to_be_bytes();
        match hart.put(&key, &value(300, i as u8), MODE) {
            Ok(()) => written.push(i),
            Err(Error::Medium(mangrove_pool::Error::NoSpace { .. })) => {
                medium.room.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
                refused += 1;
            }
            Err(Error::Full { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(refused, 1);
    assert!(written.len() > 8000, "{}", written.len());
    let mut batch = Batch::new();
    (0..500u32).for_each(|i| {
        batch.put(format!("batch {i}"), value(400, 1));
    });
    assert!(matches!(hart.write(batch.clone(), MODE), Err(Error::Full { .. })));
    assert_eq!(hart.len(), written.len() as u64);
    sound(&hart);
    for i in &written {
        assert_eq!(hart.get(&i.to_be_bytes()).unwrap().unwrap(), value(300, *i as u8));
    }
    // Deleting frees space, across classes.
    for i in &written[..4000] {
        assert!(hart.delete(&i.to_be_bytes(), MODE).unwrap());
    }
    hart.write(batch, MODE).unwrap();
    hart.put(b"other class", &value(7000, 1), MODE).unwrap();
    sound(&hart);
    drop(hart);
    let (hart, report) = Hart::recover(region, &options).unwrap();
    assert_eq!(report.records, written.len() as u64 - 4000 + 500 + 1);
    sound(&hart);
}
