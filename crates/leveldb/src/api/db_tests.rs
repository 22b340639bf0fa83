//! An open database, tested from inside: children of fork, media that fail, invalid lengths.

use super::*;
use crate::api::iter::{leveldb_create_iterator, leveldb_iter_destroy, leveldb_iter_get_error};
use crate::api::options::{
    leveldb_readoptions_create, leveldb_readoptions_set_snapshot, leveldb_writeoptions_create,
};
use crate::change_list::ChangeBytes;
use crate::objects::Comparator;
use mangrove::Map;
use mangrove_durable::{Create, Medium, Options, Runtime, TrackerChoice};
use mangrove_testkit::disk::disk_bytes;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const ENGINES: [RecordEngine; 2] = [RecordEngine::Durable, RecordEngine::Map];

fn bytewise() -> NamedOrder {
    NamedOrder::bytewise()
}

fn open_request(create_if_missing: bool) -> OpenRequest {
    OpenRequest {
        order: bytewise(),
        create_if_missing,
        error_if_exists: false,
        paranoid_checks: false,
        is_import: false,
    }
}

/// A new database of that engine.
fn new(directory: &Path, engine: RecordEngine) -> leveldb_t {
    let catalog = Catalog { engine, comparator: BYTEWISE.to_vec() };
    let (made, _) = open_engine(
        directory,
        &catalog,
        &bytewise(),
        EngineRequest::Create,
        catalog::lock(directory).unwrap(),
    )
    .unwrap();
    catalog.write(directory).unwrap();
    leveldb_t::new(made, engine.name())
}

/// Descriptors of this process that are open on that file.
fn descriptors_of(file: &Path) -> Vec<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok());
    let is_of = |fd: &c_int| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|f| f == file);
    numbers.filter(is_of).collect()
}

/// From now on no write to the pool's log succeeds.
fn break_log(directory: &Path) {
    use std::os::fd::AsRawFd;
    let null = std::fs::File::open("/dev/null").unwrap();
    let log = catalog::pool(&directory.canonicalize().unwrap()).join("log");
    let descriptors = descriptors_of(&log);
    assert!(!descriptors.is_empty());
    for fd in descriptors {
        // SAFETY: replaces a descriptor of the database's, whose writes then fail.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), fd) }, fd);
    }
}

#[test]
fn damage_is_corruption_whichever_the_engine() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        new(directory.path(), engine).engine.get().unwrap().put(b"tide", b"high", true).unwrap();
        let image = catalog::pool(directory.path()).join("image");
        let mut bytes = std::fs::read(&image).unwrap();
        bytes.fill(7);
        std::fs::write(&image, bytes).unwrap();
        let failure = open_database(directory.path(), &open_request(false)).err().unwrap().to_string();
        assert!(failure.starts_with("Corruption: "), "{engine:?}: {failure}");
    }
}

#[test]
fn a_walk_gives_the_records_before_one_that_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let pool = catalog::pool(directory.path());
    let medium = mangrove::Medium::Emulated(mangrove::Latency::default());
    Map::options().medium(medium).open(&pool).unwrap().close().unwrap();
    let value = |n: u32| format!("the value of {n:04} ").repeat(50);
    let db = new(directory.path(), RecordEngine::Map);
    let store = db.engine.get().unwrap();
    (0..100u32).for_each(|n| store.put(&n.to_be_bytes(), value(n).as_bytes(), true).unwrap());
    // Under the open map, whose memory the file is: an opening would compare the page with its checksum.
    let image = std::fs::File::options().read(true).write(true).open(pool.join("image")).unwrap();
    let mut bytes = vec![0; image.metadata().unwrap().len() as usize];
    image.read_exact_at(&mut bytes, 0).unwrap();
    let damaged = value(60);
    let at = bytes.windows(damaged.len()).position(|window| window == damaged.as_bytes()).unwrap();
    image.write_all_at(b"?", at as u64 + 500).unwrap();
    let mut cursor = store.view().unwrap().cursor();
    cursor.seek_to_first().unwrap();
    (0..59).for_each(|_| cursor.next().unwrap());
    assert_eq!(cursor.record().unwrap().0, 59u32.to_be_bytes());
    assert!(cursor.next().unwrap_err().is_damage());
    cursor.seek_to_last().unwrap();
    (61..99).for_each(|_| cursor.prev().unwrap());
    assert_eq!(cursor.record().unwrap().0, 61u32.to_be_bytes());
    assert!(cursor.prev().unwrap_err().is_damage());
}

/// The variable that selects an engine may be another one at the next start.
#[test]
fn what_an_interrupted_creation_has_left_goes_on_with_its_engine() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let catalog = Catalog { engine, comparator: BYTEWISE.to_vec() };
        let lock = catalog::lock(directory.path()).unwrap();
        drop(open_engine(directory.path(), &catalog, &bytewise(), EngineRequest::Create, lock).unwrap());
        let db = open_database(directory.path(), &open_request(true)).unwrap();
        assert_eq!(db.engine_name, engine.name());
        assert_eq!(Catalog::read(directory.path()), Ok(Some(catalog)));
    }
}

/// As a program's class does that counts comparisons and hands on all else to LevelDB's own.
#[test]
fn a_comparator_under_the_name_of_leveldbs_own_opens_what_that_one_made_and_the_reverse() {
    let by_calls = NamedOrder { name: BYTEWISE.to_vec(), comparator: Some(Comparator::bytewise()) };
    for [first, other] in [[bytewise(), by_calls.clone()], [by_calls, bytewise()]] {
        let directory = tempfile::tempdir().unwrap();
        for (round, order) in (0..3u32).zip([&first, &other, &first]) {
            let request = OpenRequest { order: order.clone(), ..open_request(true) };
            let db = open_database(directory.path(), &request).unwrap();
            let store = &**db.engine.get().unwrap();
            for n in 0..3000u32 {
                let found = get(store, &n.to_be_bytes()).unwrap();
                assert_eq!(found.is_some(), n < round * 1000, "round {round}, key {n}");
            }
            for n in round * 1000..(round + 1) * 1000 {
                store.put(&n.to_be_bytes(), b"there", false).unwrap();
            }
            assert_eq!(store.check().unwrap(), Vec::<String>::new(), "round {round}");
        }
    }
}

#[test]
fn an_empty_database_takes_less_than_a_mebibyte() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = new(directory.path(), engine);
        let taken = disk_bytes(directory.path());
        assert!(taken <= 1 << 20, "{engine:?}: {taken}");
        db.engine.get().unwrap().put(b"tide", b"high", true).unwrap();
        drop(db);
        let taken = disk_bytes(directory.path());
        assert!(taken <= 1 << 20, "{engine:?}, one record: {taken}");
    }
}

#[test]
fn a_database_that_went_before_the_lock_came_is_not_made_anew_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let lock = catalog::lock(directory.path()).unwrap();
    let failure = open_locked(directory.path(), &open_request(false), lock).err().unwrap().to_string();
    assert!(failure.contains("create_if_missing is false"), "{failure}");
    assert!(!catalog::pool(directory.path()).exists());
}

#[test]
fn after_a_failed_synced_write_readers_lose_its_keys_and_no_others() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = new(directory.path(), engine);
        let store = db.engine.get().unwrap();
        let get = |key: &[u8]| get(&**store, key);
        store.put(b"changed", b"before", true).unwrap();
        store.put(b"gone", b"before", true).unwrap();
        store.put(b"synced", b"yes", true).unwrap();
        store.put(b"unsynced", b"yes", false).unwrap();
        store.compact().unwrap();
        let view = store.view().unwrap();
        break_log(directory.path());
        let mut batch = ChangeBytes::default();
        batch.put(b"changed", b"after");
        batch.delete(b"gone");
        batch.put(b"new", b"after");
        store.write(batch.list(), true).unwrap_err();
        for key in [&b"changed"[..], b"gone", b"new"] {
            assert!(get(key).is_err(), "{engine:?}: {} is told", String::from_utf8_lossy(key));
        }
        // The database writes nothing any more, and readers lose no more keys.
        for sync in [true, false, true] {
            store.put(b"synced", b"no", sync).unwrap_err();
            store.delete(b"absent", sync).unwrap_err();
        }
        let before = |key: &[u8]| get(key).unwrap();
        assert_eq!(before(b"absent"), None, "{engine:?}");
        assert_eq!(before(b"synced").as_deref(), Some(&b"yes"[..]), "{engine:?}");
        assert_eq!(before(b"unsynced").as_deref(), Some(&b"yes"[..]), "{engine:?}");
        // A view that was opened before continues to work; a new one would have to return the failed write.
        let mut old = None;
        view.get(b"changed", &mut |v| old = Some(v.to_vec())).unwrap();
        assert_eq!(old.as_deref(), Some(&b"before"[..]), "{engine:?}");
        assert!(store.view().is_err());
    }
}

/// NULL in read options means "now".
#[test]
fn a_snapshot_that_could_not_be_taken_is_not_the_present() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = give(new(directory.path(), engine));
        // SAFETY: a live handle, closed below.
        let store = unsafe { &*db }.engine.get().unwrap();
        store.put(b"synced", b"yes", true).unwrap();
        store.compact().unwrap();
        break_log(directory.path());
        store.put(b"changed", b"after", true).unwrap_err();
        let reads = leveldb_readoptions_create();
        let mut error = ptr::null_mut();
        // SAFETY: live handles, readable bytes, and a string of this library's.
        unsafe {
            let snapshot = leveldb_create_snapshot(db);
            leveldb_readoptions_set_snapshot(reads, snapshot);
            let value = leveldb_get(db, reads, c"synced".as_ptr(), 6, ptr::null_mut(), &raw mut error);
            assert!(value.is_null() && !error.is_null(), "{engine:?}");
            libc::free(error.cast());
            leveldb_release_snapshot(db, snapshot);
            leveldb_close(db);
        }
    }
}

/// The value of a key; an error where no value may be returned.
fn get(store: &dyn StorageEngine, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = None;
    store.get(key, &mut |v| value = Some(v.to_vec())).map(|()| value)
}

/// The background writer meets an error, and no call does. Later writes are refused and change nothing, and readers
/// lose no key.
#[test]
fn what_a_failed_medium_refuses_is_not_told_and_takes_nothing_from_readers() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = new(directory.path(), engine);
        let store = &**db.engine.get().unwrap();
        store.put(b"synced", b"yes", true).unwrap();
        store.put(b"unsynced", b"yes", false).unwrap();
        store.compact().unwrap();
        break_log(directory.path());
        // The background thread fails within milliseconds, and nothing reports when. A put that comes long after is
        // refused before it changes anything; one at the very moment of the failure would be refused and reported,
        // so the puts are few and far apart.
        let refused = (0..120u32).find(|n| {
            let put = store.put(b"changed", &n.to_be_bytes(), false);
            std::thread::sleep(std::time::Duration::from_millis(500));
            put.is_err()
        });
        let accepted =
            refused.expect("a log that fails").checked_sub(1).expect("the first waits for nothing");
        let told = get(store, b"changed").unwrap();
        assert_eq!(told.as_deref(), Some(&accepted.to_be_bytes()[..]), "{engine:?}");
        // Enough keys for every bucket.
        let mut batch = ChangeBytes::default();
        (0..20_000u32).for_each(|n| batch.put(&n.to_be_bytes(), b"never"));
        batch.put(b"synced", b"no");
        store.write(batch.list(), true).unwrap_err();
        assert_eq!(get(store, b"synced").unwrap().as_deref(), Some(&b"yes"[..]), "{engine:?}");
        assert_eq!(get(store, b"unsynced").unwrap().as_deref(), Some(&b"yes"[..]), "{engine:?}");
        assert_eq!(get(store, &7u32.to_be_bytes()).unwrap(), None, "{engine:?}");
        let mut cursor = store.view().unwrap().cursor();
        cursor.seek(b"synced").unwrap();
        assert_eq!(cursor.record(), Some((&b"synced"[..], &b"yes"[..])), "{engine:?}");
    }
}

/// A refused atomic group does not poison the medium, but no reader may see what it would have written. The test runs
/// itself again, because limits apply to whole processes.
#[test]
fn a_synced_write_that_found_no_descriptor_is_not_told_and_stays_so() {
    const ROLE: &str = "MANGROVE_TEST_FOLDER";
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::a_synced_write_that_found_no_descriptor_is_not_told_and_stays_so");
    let Some(directory) = std::env::var_os(ROLE) else {
        let directory = tempfile::tempdir().unwrap();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            again.args(["--exact", &test, "--nocapture"]).env(ROLE, directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        let db = open_database(directory.path(), &open_request(false)).unwrap();
        let found = get(&**db.engine.get().unwrap(), b"changed").unwrap();
        assert_eq!(found.as_deref(), Some(&b"before"[..]));
        return;
    };
    let db = new(Path::new(&directory), RecordEngine::Durable);
    let store = &**db.engine.get().unwrap();
    // More than half the log; the second such value reuses the space of the first.
    let long = vec![7; 40 << 20];
    store.put(b"long", &long, true).unwrap();
    store.delete(b"long", true).unwrap();
    store.put(b"changed", b"before", true).unwrap();
    store.put(b"other", b"yes", true).unwrap();
    store.compact().unwrap();
    let free = std::fs::File::open("/dev/null").unwrap();
    // The number that the next descriptor would get.
    let next = std::os::fd::AsRawFd::as_raw_fd(&free) as u64;
    drop(free);
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: structures of this test.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before), 0);
        let none = libc::rlimit { rlim_cur: next, ..before };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
    }
    let mut batch = ChangeBytes::default();
    batch.put(b"changed", b"after");
    batch.put(b"long", &long);
    let failure = store.write(batch.list(), true).unwrap_err().to_string();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) }, 0);
    assert!(failure.contains("Too many open files"), "{failure}");
    for _ in 0..2 {
        assert!(get(store, b"changed").is_err() && store.view().is_err());
        assert_eq!(get(store, b"other").unwrap().as_deref(), Some(&b"yes"[..]));
    }
}

/// Runs `work` in a child of fork; true when it ended and returned true.
fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `work` and nothing of its parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(120);
            libc::_exit(i32::from(!work()));
        }
    }
    let mut status = 0;
    // SAFETY: our child, and space for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// True when every call on the database fails, and closing it does nothing.
fn is_refused(db: *mut leveldb_t, iterator: *mut crate::api::iter::leveldb_iterator_t) -> bool {
    let (reads, writes) = (leveldb_readoptions_create(), leveldb_writeoptions_create());
    let mut error = ptr::null_mut();
    let mut said = 0;
    let mut told = |error: &mut *mut c_char| {
        said += i32::from(!error.is_null());
        *error = ptr::null_mut();
    };
    let (key, len) = (c"child".as_ptr(), 5);
    // SAFETY: handles of this test, copied by fork.
    unsafe {
        leveldb_put(db, writes, key, len, key, len, &raw mut error);
        told(&mut error);
        leveldb_delete(db, writes, key, len, &raw mut error);
        told(&mut error);
        leveldb_get(db, reads, key, len, ptr::null_mut(), &raw mut error);
        told(&mut error);
        let new = leveldb_create_iterator(db, reads);
        leveldb_iter_get_error(new, &raw mut error);
        told(&mut error);
        crate::api::iter::leveldb_iter_seek_to_first(iterator);
        leveldb_iter_get_error(iterator, &raw mut error);
        told(&mut error);
        leveldb_compact_range(db, ptr::null(), 0, ptr::null(), 0);
        let snapshot = leveldb_create_snapshot(db);
        leveldb_readoptions_set_snapshot(reads, snapshot);
        leveldb_get(db, reads, key, len, ptr::null_mut(), &raw mut error);
        told(&mut error);
        leveldb_release_snapshot(db, snapshot);
        let nothing = leveldb_property_value(db, c"leveldb.stats".as_ptr()).is_null();
        leveldb_iter_destroy(iterator);
        leveldb_close(db);
        nothing && said == 6
    }
}

/// The map waits until it is recovered when the database is opened, so what an earlier get needs would be in vain.
#[test]
fn a_large_map_leaves_no_index() {
    let directory = tempfile::tempdir().unwrap();
    let db = new(directory.path(), RecordEngine::Map);
    db.engine.get().unwrap().put(b"large", &vec![7; 20 << 20], true).unwrap();
    drop(db);
    let pool = catalog::pool(&directory.path().canonicalize().unwrap());
    assert!(pool.join("image").metadata().unwrap().len() > 16 << 20);
    assert!(!pool.join("index").exists());
}

/// However often a key is written: an old snapshot costs one version of it, with both engines.
#[test]
fn an_old_snapshot_keeps_one_version_of_a_key() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = new(directory.path(), engine);
        let store = db.engine.get().unwrap();
        store.put(b"key", &[1; 1000], false).unwrap();
        let view = store.view().unwrap();
        let before = store.figures().memory_bytes;
        for n in 0..20_000u32 {
            store.put(b"key", &[n as u8; 1000], false).unwrap();
        }
        let grown = store.figures().memory_bytes.saturating_sub(before);
        assert!(grown < 4 << 20, "{engine:?}: {grown} bytes for 20,000 versions of 1,000 bytes");
        let mut found = Vec::new();
        view.get(b"key", &mut |value| found = value.to_vec()).unwrap();
        assert_eq!(found, [1; 1000]);
        drop(view);
    }
}

#[test]
fn a_child_of_fork_is_refused_and_never_waits() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let db = give(new(directory.path(), engine));
        // SAFETY: a live handle, closed below.
        let parents = unsafe { &*db };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let store = parents.engine.get().unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        store.put(b"parent", b"was here", false).unwrap();
                        store.view().unwrap();
                    }
                });
            }
            let all = (0..60).all(|_| {
                // SAFETY: live handles.
                let iterator = unsafe { leveldb_create_iterator(db, leveldb_readoptions_create()) };
                let refused = in_a_child(|| is_refused(db, iterator));
                // SAFETY: as above.
                unsafe { leveldb_iter_destroy(iterator) };
                refused
            });
            stop.store(true, Ordering::Relaxed);
            assert!(all, "{engine:?}: a child hung, or was not refused");
        });
        // SAFETY: as above.
        unsafe { leveldb_close(db) };
        let again = open_database(directory.path(), &open_request(false)).unwrap();
        let mut found = false;
        again.engine.get().unwrap().get(b"parent", &mut |_| found = true).unwrap();
        assert!(found);
    }
}

/// On persistent memory parent and child share the same bytes.
#[test]
fn a_child_of_fork_changes_nothing_in_its_parents_memory() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let pool = catalog::pool(directory.path());
        if engine == RecordEngine::Map {
            let medium = mangrove::Medium::Emulated(mangrove::Latency::default());
            Map::options().medium(medium).open(&pool).unwrap().close().unwrap();
        } else {
            let options = Options::new()
                .create(Create::IfMissing)
                .medium(Medium::Emulated(mangrove_durable::Latency::default()))
                .capacity(1 << 30)
                .tracker(TrackerChoice::Explicit)
                .self_contained(true);
            // SAFETY: nothing is initialised.
            unsafe { Runtime::open(&pool, &options, None) }.unwrap().close().unwrap();
        }
        let db = give(new(directory.path(), engine));
        // SAFETY: a live handle, closed below.
        let store = unsafe { &*db }.engine.get().unwrap();
        let put = |n: u32| store.put(&n.to_be_bytes(), b"parent's", n.is_multiple_of(2)).unwrap();
        (0..50).for_each(put);
        // SAFETY: live handles.
        let iterator = unsafe { leveldb_create_iterator(db, leveldb_readoptions_create()) };
        assert!(in_a_child(|| is_refused(db, iterator)), "{engine:?}");
        (50..100).for_each(put);
        // SAFETY: as above.
        unsafe {
            leveldb_iter_destroy(iterator);
            leveldb_close(db);
        }
        let again = open_database(directory.path(), &open_request(false)).unwrap();
        let store = again.engine.get().unwrap();
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
        for n in 0..100u32 {
            let mut found = false;
            store.get(&n.to_be_bytes(), &mut |value| found = value == b"parent's").unwrap();
            assert!(found, "{engine:?}: {n} is lost");
        }
    }
}

#[test]
fn a_length_that_no_memory_has_is_refused_and_changes_nothing() {
    use crate::batch::{leveldb_writebatch_delete, leveldb_writebatch_put};
    let directory = tempfile::tempdir().unwrap();
    let db = give(new(directory.path(), RecordEngine::Durable));
    let (reads, writes) = (leveldb_readoptions_create(), leveldb_writeoptions_create());
    // SAFETY: a live handle, closed below.
    let store = unsafe { &*db }.engine.get().unwrap();
    store.put(b"", b"of the empty key", false).unwrap();
    let mut error = ptr::null_mut();
    let told = |error: &mut *mut c_char| {
        assert!(!error.is_null());
        // SAFETY: a string of this library's.
        let text = unsafe { CStr::from_ptr(*error) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        unsafe { libc::free((*error).cast()) };
        *error = ptr::null_mut();
        assert!(text.starts_with("Invalid argument: "), "{text}");
    };
    for (key, len) in [(c"key".as_ptr(), usize::MAX), (ptr::null(), 5)] {
        // SAFETY: live handles, bytes where there are any, space for the results.
        unsafe {
            leveldb_put(db, writes, key, len, c"v".as_ptr(), 1, &raw mut error);
            told(&mut error);
            leveldb_put(db, writes, c"".as_ptr(), 0, key, len, &raw mut error);
            told(&mut error);
            leveldb_delete(db, writes, key, len, &raw mut error);
            told(&mut error);
            assert!(leveldb_get(db, reads, key, len, ptr::null_mut(), &raw mut error).is_null());
            told(&mut error);
            let mut batch = leveldb_writebatch_t::default();
            leveldb_writebatch_put(&raw mut batch, key, len, c"v".as_ptr(), 1);
            leveldb_writebatch_put(&raw mut batch, c"".as_ptr(), 0, c"v".as_ptr(), 1);
            leveldb_write(db, writes, &raw mut batch, &raw mut error);
            told(&mut error);
            let mut sum = leveldb_writebatch_t::default();
            crate::batch::leveldb_writebatch_append(&raw mut sum, &raw const batch);
            leveldb_write(db, writes, &raw mut sum, &raw mut error);
            told(&mut error);
            crate::batch::leveldb_writebatch_clear(&raw mut batch);
            leveldb_writebatch_delete(&raw mut batch, key, len);
            leveldb_write(db, writes, &raw mut batch, &raw mut error);
            told(&mut error);
            crate::batch::leveldb_writebatch_clear(&raw mut batch);
            leveldb_write(db, writes, &raw mut batch, &raw mut error);
            assert!(error.is_null());
            let iterator = leveldb_create_iterator(db, reads);
            crate::api::iter::leveldb_iter_seek(iterator, key, len);
            leveldb_iter_get_error(iterator, &raw mut error);
            told(&mut error);
            leveldb_iter_destroy(iterator);
        }
    }
    let mut value = Vec::new();
    store.get(b"", &mut |v| value = v.to_vec()).unwrap();
    assert_eq!(value, b"of the empty key");
    // SAFETY: not used any more.
    unsafe { leveldb_close(db) };
}
