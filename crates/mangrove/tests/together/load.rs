//! Maps that are loaded without a log: whole, or not at all.

use mangrove::{Batch, Error, Map, MapOptions, Medium};
use std::collections::BTreeMap;
use std::path::Path;

fn options() -> MapOptions {
    Map::options().medium(Medium::File).capacity(1 << 30)
}

/// A record: keys come in no order, values have up to 20 kB.
fn record(number: u64) -> (Vec<u8>, Vec<u8>) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = if number.is_multiple_of(500) { 20_000 } else { mixed as usize % 200 };
    (format!("{:016x}", mixed).into_bytes(), vec![number as u8; len])
}

/// Nothing of `name` is in the directory, nor of the work on it.
#[track_caller]
fn is_nothing(folder: &Path) {
    let names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn a_loaded_map_has_what_was_put_into_it() {
    const COUNT: u64 = 60_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let loaded = options().load(&path, |map| -> mangrove::Result<u64> {
        assert!(!path.exists());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for (key, value) in (thread..COUNT).step_by(4).map(record) {
                        map.put(key, value).unwrap();
                    }
                });
            }
        });
        // As in any map: overwriting, deleting, batches, reading, ranges.
        let mut batch = Batch::new();
        for number in 0..1000 {
            let (key, _) = record(number);
            if number % 2 == 0 {
                batch.delete(key)
            } else {
                batch.put(key, "anew")
            };
        }
        map.write(batch)?;
        assert_eq!(map.get(record(1).0)?, Some(b"anew".to_vec()));
        assert_eq!(map.iter()?.count() as u64, map.len()?);
        map.sync()?;
        map.len()
    });
    assert_eq!(loaded.unwrap(), COUNT - 500);
    let mut model: BTreeMap<_, _> = (0..COUNT).map(record).collect();
    for number in 0..1000 {
        let (key, _) = record(number);
        if number % 2 == 0 {
            model.remove(&key)
        } else {
            model.insert(key, b"anew".to_vec())
        };
    }
    let map = options().open(&path).unwrap();
    assert!(map.recovery().clean && map.check().unwrap().problems.is_empty());
    assert!(map.iter().unwrap().map(Result::unwrap).eq(model));
    map.put("more", "of it").unwrap();
    map.close().unwrap();
    assert_eq!(Map::open(&path).unwrap().get("more").unwrap(), Some(b"of it".to_vec()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_error_or_a_panic_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let fill = |map: &Map| {
        for (key, value) in (0..20_000).map(record) {
            map.put(key, value).unwrap();
        }
    };
    #[derive(Debug, PartialEq)]
    enum Mine {
        Stop,
        Theirs,
    }
    impl From<Error> for Mine {
        fn from(_: Error) -> Self {
            Self::Theirs
        }
    }
    let stopped = options().load(&path, |map| {
        fill(map);
        Err::<(), _>(Mine::Stop)
    });
    assert_eq!(stopped, Err(Mine::Stop));
    is_nothing(folder.path());
    let too_long = options().load(&path, |map| -> Result<(), Mine> {
        fill(map);
        Ok(map.put([0; 2000], "")?)
    });
    assert_eq!(too_long, Err(Mine::Theirs));
    is_nothing(folder.path());
    let panicked = std::panic::catch_unwind(|| {
        options().load(&path, |map| -> mangrove::Result<()> {
            fill(map);
            panic!("in the middle")
        })
    });
    assert!(panicked.is_err());
    // The name is free again at the next load; a panic may leave the temporary one.
    assert!(!path.exists());
    let loaded = options().load(&path, |map| {
        fill(map);
        map.len()
    });
    assert_eq!(loaded.unwrap(), 20_000);
    assert_eq!(Map::open(&path).unwrap().len().unwrap(), 20_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let never = |_: &Map| -> mangrove::Result<()> { panic!("nothing is filled") };
    let path = folder.path().join("map");
    Map::open(&path).unwrap().put("k", "v").unwrap();
    assert!(matches!(options().load(&path, never), Err(Error::Exists { .. })));
    assert_eq!(Map::open(&path).unwrap().get("k").unwrap(), Some(b"v".to_vec()));
    let inside = options().load(path.join("inside"), never);
    assert!(matches!(inside, Err(Error::Unsupported { .. })), "{inside:?}");
    std::fs::create_dir(folder.path().join("notes")).unwrap();
    let foreign = options().load(folder.path().join("notes"), never);
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
}

#[test]
fn a_checkpoint_ends_the_load_and_what_is_written_after_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let late = options().load(&path, |map| {
        map.put("k", "v")?;
        map.checkpoint()?;
        map.put("late", "v")
    });
    assert!(late.is_err());
    is_nothing(folder.path());
    options().load(&path, |map| map.put("k", "v").and_then(|()| map.checkpoint())).unwrap();
    let map = Map::open(&path).unwrap();
    assert_eq!((map.len().unwrap(), map.get("k").unwrap()), (1, Some(b"v".to_vec())));
}

/// On persistent memory there is no log to do without; the name still comes at the end.
#[test]
fn a_map_on_persistent_memory_is_loaded_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let options = options().medium("emulated".parse().unwrap());
    let failed = options.load(&path, |map| map.put("k", "v").and(Err::<(), _>(Error::Stopped)));
    assert!(matches!(failed, Err(Error::Stopped)));
    is_nothing(folder.path());
    options.load(&path, |map| map.put("k", "v")).unwrap();
    assert_eq!(options.open(&path).unwrap().get("k").unwrap(), Some(b"v".to_vec()));
}

#[test]
fn a_load_with_shares_ends_when_they_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let mut kept = None;
    let held = options().load_shared(&path, |map| {
        map.put("tide", "low")?;
        kept = Some(map.snapshot_owned()?);
        mangrove::Result::Ok(())
    });
    assert!(held.is_err_and(|e| matches!(e, Error::Unsupported { .. }) && e.to_string().contains("holds the map")));
    // The share still reads; its end, after another load has taken the place, makes no map.
    assert!(!path.exists());
    assert_eq!(kept.as_ref().unwrap().get("tide").unwrap().as_deref(), Some(&b"low"[..]));
    options().load(&path, |map| map.put("river", "deep")).unwrap();
    drop(kept);
    let map = Map::open(&path).unwrap();
    assert_eq!((map.len().unwrap(), map.get("tide").unwrap()), (1, None));
    map.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    is_nothing(folder.path());
    let walked = options().load_shared(&path, |map| {
        map.put("tide", "low")?;
        let (walk, before) = (map.range_owned::<&str>(..)?, map.snapshot_owned()?);
        map.put("tide", "high")?;
        mangrove::Result::Ok((walk.count(), before.get("tide")?))
    });
    assert_eq!(walked.unwrap(), (1, Some(b"low".to_vec())));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(Map::open(&path).unwrap().get("tide").unwrap().as_deref(), Some(&b"high"[..]));
}
