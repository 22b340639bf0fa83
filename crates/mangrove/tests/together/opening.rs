//! Opening and closing: each refusal has its kind, and changes nothing.

use mangrove::{Create, Durability, Error, Map, Medium, PoolConfig, pool_check, pool_info};
use std::path::PathBuf;
use std::time::Duration;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("pool")
    }

    fn map(&self) -> Map {
        Map::options().log_bytes(1 << 20).open(self.path()).unwrap()
    }
}

/// `Map::options().open` does what `Map::open` does: both create a pool that is missing, and an opener that must not
/// create one says so. A read-only opening creates nothing.
#[test]
fn options_create_as_open_does() {
    let dir = Dir::new();
    let path = dir.path();
    let none = |opened: Result<Map, Error>| assert!(matches!(opened, Err(Error::NotFound { .. })));
    none(Map::options().read_only(true).open(&path));
    none(Map::options().create(Create::Never).open(&path));
    assert!(!path.exists());
    Map::options().open(&path).unwrap().put("k", "v").unwrap();
    assert!(matches!(Map::options().create(Create::New).open(&path), Err(Error::Exists { .. })));
    assert_eq!(Map::open(&path).unwrap().get("k").unwrap().as_deref(), Some(&b"v"[..]));
    let never = Map::options().create(Create::New).read_only(true).open(dir.0.path().join("other"));
    assert!(matches!(never, Err(Error::Unsupported { .. })));
}

/// One configuration serves both facades: what one door's options were given, another's take over.
#[test]
fn one_configuration_opens_a_map() {
    let dir = Dir::new();
    let config = PoolConfig {
        medium: Medium::File,
        durability: Durability::interval_ms(7),
        log_bytes: Some(1 << 20),
        capacity: Some(8 << 20),
        ..PoolConfig::default()
    };
    let map = Map::options().config(config).open(dir.path()).unwrap();
    let (info, stat) = (map.info(), map.stat());
    assert_eq!((info.medium, info.log_bytes_max, info.capacity), (Medium::File, 1 << 20, 8 << 20));
    assert_eq!(stat.durability.milliseconds(), 7);
    drop(map);
    // What a configuration leaves open is the door's default.
    let other = Map::options().config(PoolConfig::default()).open(dir.0.path().join("other")).unwrap();
    assert_eq!(other.info().capacity, 128 << 30);
}

#[test]
fn a_capacity_that_holds_no_map_leaves_no_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    for bytes in [0, 65_536, (1 << 20) - 1, 1 << 60] {
        let text = Map::options().capacity(bytes).open(&path).unwrap_err().to_string();
        assert!(text.contains("capacity"), "{text}");
        assert!(!path.exists(), "{bytes}");
    }
    Map::options().capacity(1 << 20).open(&path).unwrap().put("k", "v").unwrap();
}

#[test]
fn a_missing_an_existing_and_a_busy_pool_are_told_apart() {
    let dir = Dir::new();
    assert!(matches!(Map::options().create(Create::Never).open(dir.path()), Err(Error::NotFound { .. })));
    assert!(matches!(pool_info(dir.path()), Err(Error::NotFound { .. })));
    let map = dir.map();
    assert!(matches!(Map::open(dir.path()), Err(Error::Busy { .. })));
    assert!(
        Map::options().read_only(true).open(dir.path()).unwrap().is_empty().unwrap(),
        "a reader beside it"
    );
    assert!(pool_info(dir.path()).unwrap().busy);
    drop(map);
    assert!(!pool_info(dir.path()).unwrap().busy);
    assert!(matches!(Map::options().create(Create::New).open(dir.path()), Err(Error::Exists { .. })));
    let one = Map::options().read_only(true).open(dir.path()).unwrap();
    let two = Map::options().read_only(true).open(dir.path()).unwrap();
    assert!(!one.info().busy, "no process has it open for writing");
    let writer = dir.map();
    assert!(writer.info().busy && one.info().busy);
    writer.put("k", "v").unwrap();
    drop(writer);
    assert!(one.is_empty().unwrap() && two.is_empty().unwrap(), "they read one instant");
}

#[test]
fn who_asks_about_a_pool_keeps_nobody_from_opening_it() {
    let dir = Dir::new();
    dir.map().put("k", "v").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let opened = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    pool_info(dir.path()).unwrap();
                }
            });
        }
        let opened: Result<Vec<()>, Error> =
            (0..200).map(|_| Map::options().open(dir.path())?.close()).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        opened
    });
    opened.unwrap();
}

#[test]
fn dropping_closes_in_order_and_closing_says_so() {
    let dir = Dir::new();
    let map = dir.map();
    assert!(map.recovery().created);
    map.put("k", "v").unwrap();
    assert!(!pool_info(dir.path()).unwrap().clean);
    drop(map);
    assert!(pool_info(dir.path()).unwrap().clean);
    let map = dir.map();
    assert!(map.recovery().clean && !map.recovery().created);
    assert_eq!(map.recovery().records, 1);
    map.close().unwrap();
    assert!(pool_info(dir.path()).unwrap().clean);
    assert_eq!(pool_check(dir.path()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_read_only_map_answers_and_refuses_to_change() {
    let dir = Dir::new();
    dir.map().put("k", "v").unwrap();
    let map = Map::options().read_only(true).open(dir.path()).unwrap();
    assert_eq!(map.get("k").unwrap().unwrap(), b"v");
    for result in [
        map.put("k", "w"),
        map.put_nowait("k", "w"),
        map.delete("k").map(|_| ()),
        map.insert_new("new", "w").map(|_| ()),
        map.compare_and_set("k", Some(b"v"), None).map(|_| ()),
        map.write(std::mem::take(mangrove::Batch::new().put("k", "w"))),
        map.delete_range::<&str>(..).map(|_| ()),
    ] {
        assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
    }
    assert_eq!(map.get("k").unwrap().unwrap(), b"v");
    assert!(map.check().unwrap().is_sound());
    assert!(map.stat().read_only);
}

#[test]
fn a_pool_whose_map_was_never_made_is_made_now() {
    for medium in [Medium::File, Medium::Emulated(mangrove::Latency::default())] {
        let dir = Dir::new();
        // What a process leaves that is killed between the creation of the pool and that of the map.
        mangrove_pool::PoolOptions::new()
            .kind("map")
            .create(mangrove_pool::Create::New)
            .medium(medium)
            .capacity(1 << 30)
            .log_bytes(1 << 20)
            .open(dir.path())
            .unwrap();
        let Err(Error::Foreign { what, .. }) = Map::options().read_only(true).open(dir.path()) else {
            panic!("there is no map to read yet");
        };
        assert!(what.contains("its creation was interrupted"), "{what}");
        let map = Map::options().create(Create::Never).open(dir.path()).unwrap();
        map.put("k", "v").unwrap();
        drop(map);
        assert_eq!(Map::open(dir.path()).unwrap().get("k").unwrap().unwrap(), b"v");
    }
}

/// On memory each store of the root's first line may be the last before the process is killed.
#[test]
fn a_map_that_was_made_in_part_is_made_now() {
    let whole = Dir::new();
    let emulated = Medium::Emulated(mangrove::Latency::default());
    Map::options().medium(emulated).capacity(1 << 30).open(whole.path()).unwrap().close().unwrap();
    let line = std::fs::read(whole.path().join("image")).unwrap()[..64].to_vec();
    // Version, count of segments, start of the data, magic; the checksum comes last.
    let stores = [8, 16, 24, 0];
    for count in 1..=stores.len() {
        let dir = Dir::new();
        let pool = mangrove_pool::PoolOptions::new()
            .kind("map")
            .create(mangrove_pool::Create::New)
            .medium(emulated)
            .capacity(1 << 30)
            .open(dir.path())
            .unwrap();
        pool.region().grow(1 << 20).unwrap();
        for at in &stores[..count] {
            pool.region().write(*at as u64, &line[*at..at + 8]);
        }
        drop(pool);
        let map = Map::open(dir.path()).unwrap_or_else(|e| panic!("{count} stores: {e}"));
        map.put("k", "v").unwrap();
        assert_eq!(map.len().unwrap(), 1);
    }
}

#[test]
fn an_opening_on_memory_that_is_refused_leaves_the_pool_closed() {
    let dir = Dir::new();
    let emulated = Medium::Emulated(mangrove::Latency::default());
    let map = Map::options().medium(emulated).open(dir.path()).unwrap();
    (0..1000).for_each(|n| map.put(format!("{n}"), [7; 1000]).unwrap());
    map.close().unwrap();
    let refused = Map::options().memory_bytes_max(1).open(dir.path());
    assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "{:?}", refused.err());
    assert!(pool_info(dir.path()).unwrap().clean);
    assert_eq!(Map::open(dir.path()).unwrap().len().unwrap(), 1000);
}

#[test]
fn a_pool_whose_first_group_is_damaged_is_not_made_anew() {
    let dir = Dir::new();
    let map = dir.map();
    for i in 0..20 {
        map.put(format!("k{i}"), "v").unwrap();
    }
    // What a power cut would leave now, except for the damage.
    let cut = dir.0.path().join("cut");
    std::fs::create_dir(&cut).unwrap();
    for name in ["pool", "image", "log", "sums"] {
        std::fs::copy(dir.path().join(name), cut.join(name)).unwrap();
    }
    let whole = std::fs::read(cut.join("log")).unwrap();
    let mut log = whole.clone();
    log[..512].fill(0xa5);
    std::fs::write(cut.join("log"), &log).unwrap();
    for _ in 0..2 {
        let error = Map::options().open(&cut).err().unwrap();
        assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("log")), "{error}");
    }
    assert!(std::fs::read(cut.join("log")).unwrap() == log, "the refusal changed the log");
    std::fs::write(cut.join("log"), whole).unwrap();
    assert_eq!(Map::open(&cut).unwrap().len().unwrap(), 20);
}

#[test]
fn another_kind_of_pool_is_refused() {
    let dir = Dir::new();
    mangrove_pool::PoolOptions::new()
        .kind("heap")
        .create(mangrove_pool::Create::New)
        .medium(mangrove_pool::Medium::File)
        .log_bytes(1 << 20)
        .open(dir.path())
        .unwrap()
        .close()
        .unwrap();
    let as_a_map = Map::open(dir.path()).unwrap_err();
    assert!(matches!(&as_a_map, Error::WrongKind { found, .. } if found == "heap"));
    assert!(as_a_map.to_string().contains("holds a heap, not a map"), "{as_a_map}");
    let as_a_heap = mangrove_pool::PoolOptions::new().kind("application").open(dir.path()).unwrap_err();
    let as_a_heap = Error::from(as_a_heap).to_string();
    assert!(as_a_heap.contains("holds a heap, not a application"), "{as_a_heap}");
}

#[test]
fn interval_durability_is_durable_after_sync() {
    let dir = Dir::new();
    let map = Map::options()
        .medium(Medium::File)
        .durability(Durability::Interval(Duration::from_secs(60)))
        .log_bytes(1 << 20)
        .open(dir.path())
        .unwrap();
    for i in 0..1000 {
        map.put(format!("k{i}"), "v").unwrap();
    }
    let before = map.stat().group_commits;
    map.sync().unwrap();
    assert!(map.stat().group_commits > before, "nothing was written");
    assert_eq!(map.stat().durability.to_string(), "interval=60000");
}

#[test]
fn an_interval_of_nothing_is_refused_and_nothing_is_created() {
    let dir = Dir::new();
    for interval in [Durability::interval_ms(0), Durability::Interval(Duration::from_micros(999))] {
        let config = PoolConfig { durability: interval, ..PoolConfig::default() };
        let map = Map::options().config(config.clone()).open(dir.path()).unwrap_err().to_string();
        let heap = mangrove::heap::Heap::options().config(config).open(dir.path()).unwrap_err().to_string();
        assert!(
            map.contains("1 millisecond or more") && heap.contains("1 millisecond or more"),
            "{map} {heap}"
        );
        assert!(!dir.path().exists());
    }
}

#[test]
fn limits_are_told_before_anything_changes() {
    let dir = Dir::new();
    let map = dir.map();
    let long = vec![b'k'; mangrove::KEY_BYTES_MAX + 1];
    assert!(matches!(map.get(&long), Err(Error::KeyTooLong { len: 1025, max: 1024 })));
    assert!(matches!(map.put(&long, "v"), Err(Error::KeyTooLong { .. })));
    let mut batch = mangrove::Batch::new();
    batch.put("good", "v").put(&long, "v");
    assert!(matches!(map.write(batch), Err(Error::KeyTooLong { .. })));
    assert!(map.is_empty().unwrap());
    map.put(&long[1..], "longest").unwrap();
    map.put("", "shortest").unwrap();
    assert_eq!(map.len().unwrap(), 2);
}

#[test]
fn a_full_pool_refuses_and_goes_on() {
    let dir = Dir::new();
    let map = Map::options().capacity(8 << 20).log_bytes(1 << 20).open(dir.path()).unwrap();
    let value = vec![7; 10_000];
    let mut fitted = 0;
    let error = loop {
        match map.put(format!("k{fitted:05}"), &value) {
            Ok(()) => fitted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. } | Error::NoSpace { .. }), "{error}");
    assert!(fitted > 100, "only {fitted} records fitted into 8 MiB");
    assert_eq!(map.len().unwrap(), fitted);
    assert!(map.stat().poisoned.is_none());
    map.delete_range("k00000".."k00050").unwrap();
    map.put("room", &value).unwrap();
    drop(map);
    assert_eq!(dir.map().len().unwrap(), fitted - 50 + 1);
}
