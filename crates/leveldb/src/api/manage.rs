//! Removing and repairing databases that are not open.

use crate::api::db::{create, open_engine};
use crate::api::options::leveldb_options_t;
use crate::bytes::path;
use crate::engine::catalog;
use crate::engine::catalog::{Catalog, DirectoryLock, RecordEngine};
use crate::engine::engine::{EngineRequest, StorageEngine};
use crate::engine::salvage;
use crate::engine::tree_engine;
use crate::order::NamedOrder;
use crate::status::{Failure, Result, guard};
use mangrove::PoolInfo;
use mangrove_cabi::{handle, on_own_thread};
use std::ffi::c_char;
use std::io::ErrorKind;
use std::path::Path;

/// Removes a database with all that it holds, and what a repair that was killed has left of it; does nothing when there
/// is none. Other files in the directory stay, and so does the directory `lost`. A pool that has the name of the
/// engine's and is not a database's is an error, and stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: a NUL-terminated name, an error string or NULL.
    unsafe { guard(errptr, || destroy(path(name)?)) };
}

fn destroy(directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    catalog::refuse_leveldb(directory)?;
    let lock = catalog::lock(directory)?;
    // Otherwise the next opening would find a pool that was to be removed.
    salvage::end_exchange(directory)?;
    let pool = catalog::pool(directory);
    let info = mangrove::pool_info(&pool);
    if info.as_ref().is_ok_and(|info| info.busy) {
        return Err(mangrove::Error::Busy { path: pool, holder: None }.into());
    }
    // A directory with a catalog that cannot be read still holds a database.
    if !matches!(Catalog::read(directory), Ok(None)) {
        salvage::remove_left(directory)?;
        return catalog::remove(directory, true);
    }
    match info {
        Ok(info) => destroy_unfinished(directory, &info, lock),
        Err(_) if mangrove::pool_is_unfinished(&pool) => catalog::remove(directory, true),
        // A directory that happens to have the name of the engine's.
        Err(mangrove::Error::NotFound { .. } | mangrove::Error::Foreign { .. }) => {
            catalog::remove(directory, false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes what the interrupted creation of a database left. Without a catalog a pool certainly belongs to a database
/// only when it is empty.
fn destroy_unfinished(directory: &Path, info: &PoolInfo, lock: DirectoryLock) -> Result<()> {
    let order = NamedOrder::bytewise();
    let catalog = Catalog { engine: RecordEngine::of_pool(&info.kind), comparator: order.name.clone() };
    let remove = || catalog::remove(directory, true);
    if catalog.engine == RecordEngine::Durable && tree_engine::if_blank(&info.path, remove)? {
        return Ok(());
    }
    let (_engine, is_empty) = open_engine(directory, &catalog, &order, EngineRequest::Existing, lock)?;
    if is_empty {
        // While it is open no other process can open it.
        return remove();
    }
    Err(Failure::invalid(format!(
        "{}: holds records, and no file states that they are a database's; leveldb_repair_db writes it, if they are",
        info.path.display()
    )))
}

/// Verifies a database, and rewrites its catalog if that is lost or damaged; then the options give the comparator.
/// Of a damaged database with the engine `map` it keeps every sound record, and moves the damaged pool, with a list
/// of the damaged places, to the directory `lost`; with the engine `durable` it reports the damage. A directory
/// without a database gets an empty one, as with LevelDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: live options, a NUL-terminated name, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let directory = path(name)?.to_owned();
            let order = handle(options, "options")?.order()?;
            on_own_thread(move || repair(&directory, &order))
        });
    }
}

fn repair(directory: &Path, order: &NamedOrder) -> Result<()> {
    catalog::refuse_leveldb(directory)?;
    if salvage::is_exchanging(directory) {
        let _lock = catalog::lock(directory)?;
        salvage::end_exchange(directory)?;
    }
    let pool = catalog::pool(directory);
    if !pool.exists() && matches!(Catalog::read(directory), Ok(None)) {
        return make_empty(directory, order);
    }
    // Checked before a lock file is created for nothing.
    mangrove::pool_info(&pool)?;
    let lock = catalog::lock(directory)?;
    let (catalog, is_new) = match Catalog::read(directory) {
        Ok(Some(catalog)) => (catalog, false),
        // The pool's kind determines the engine.
        _ => {
            let engine = RecordEngine::of_pool(&mangrove::pool_info(&pool)?.kind);
            (Catalog { engine, comparator: order.name.clone() }, true)
        }
    };
    if catalog.comparator != order.name {
        return Err(Failure::invalid(format!(
            "{} does not match existing comparator : {}",
            String::from_utf8_lossy(&catalog.comparator),
            String::from_utf8_lossy(&order.name)
        )));
    }
    // While the engine has the lock: without it another process could remove the database, or make one, meanwhile.
    let _engine = match verify(directory, &catalog, order, lock) {
        Err(failure) if failure.is_damage() && catalog.engine == RecordEngine::Map => {
            let lock = catalog::lock(directory)?;
            salvage::replace_pool(directory)?;
            verify(directory, &catalog, order, lock)?
        }
        verified => verified?,
    };
    if is_new { catalog.write(directory) } else { Ok(()) }
}

/// Opens the database and compares every record with its checksums.
fn verify(
    directory: &Path,
    catalog: &Catalog,
    order: &NamedOrder,
    lock: DirectoryLock,
) -> Result<Box<dyn StorageEngine>> {
    let (engine, _) = open_engine(directory, catalog, order, EngineRequest::Existing, lock)?;
    match engine.check()?.first() {
        Some(first) => Err(Failure::corruption(first.clone())),
        None => Ok(engine),
    }
}

/// Makes an empty database where there is none.
fn make_empty(directory: &Path, order: &NamedOrder) -> Result<()> {
    match std::fs::create_dir(directory) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Failure::io("create", directory, &e)),
        _ => {}
    }
    create(directory, order, EngineRequest::Create, catalog::lock(directory)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::db::open_database;
    use crate::api::options::OpenRequest;
    use crate::order::BYTEWISE;
    use mangrove::Map;
    use mangrove_durable::{Create, Options, Runtime, TrackerChoice};
    use mangrove_testkit::command::wait_until;
    use std::ffi::c_void;
    use std::ops::ControlFlow;
    use std::path::PathBuf;
    use std::ptr;
    use std::sync::Arc;

    fn bytewise() -> NamedOrder {
        NamedOrder::bytewise()
    }

    #[test]
    fn a_map_that_is_no_database_is_not_destroyed() {
        let directory = tempfile::tempdir().unwrap();
        let pool = catalog::pool(directory.path());
        let map = Map::open(&pool).unwrap();
        map.put("words", "of somebody").unwrap();
        let busy = destroy(directory.path()).unwrap_err().to_string();
        assert!(busy.contains("in use"), "{busy}");
        assert_eq!(map.get("words").unwrap().as_deref(), Some(&b"of somebody"[..]));
        map.close().unwrap();
        let full = destroy(directory.path()).unwrap_err().to_string();
        assert!(full.contains("holds records"), "{full}");
        assert!(Map::options().create(Create::Never).open(&pool).unwrap().contains("words").unwrap());
    }

    /// Stores a word of the region.
    unsafe extern "C" fn set(arg: *mut c_void) {
        // SAFETY: the argument is a word of the region, and its new content.
        unsafe {
            let (place, word) = *arg.cast::<(*mut usize, usize)>();
            mangrove_durable::will_write(place.cast(), size_of::<usize>());
            place.write(word);
        }
    }

    #[test]
    fn a_durable_application_is_left_alone_whatever_its_roots_say() {
        for (root, word) in [(0, 12_345), (0, 64), (1, 7), (0, usize::MAX & !31)] {
            let directory = tempfile::tempdir().unwrap();
            let pool = catalog::pool(directory.path());
            let options =
                Options::new().create(Create::IfMissing).capacity(1 << 30).tracker(TrackerChoice::Explicit);
            // SAFETY: nothing is initialised.
            let runtime = unsafe { Runtime::open(&pool, &options, None) }.unwrap();
            let mut client = runtime.client().unwrap();
            let mut arg = (runtime.roots().wrapping_add(root), word);
            // SAFETY: `set` gets its argument.
            unsafe { client.write_synced(set, &[(&raw mut arg).cast()]) }.unwrap();
            drop(client);
            runtime.close().unwrap();
            destroy(directory.path()).unwrap_err();
            assert!(repair(directory.path(), &bytewise()).is_err());
            let request = OpenRequest {
                order: bytewise(),
                create_if_missing: true,
                error_if_exists: false,
                paranoid_checks: false,
                is_import: false,
            };
            assert!(open_database(directory.path(), &request).is_err(), "no database is made in it");
            // SAFETY: as above.
            let runtime = unsafe { Runtime::open(&pool, &options, None) }.unwrap();
            // SAFETY: words of the region.
            let words = unsafe { [*runtime.roots(), *runtime.roots().add(1)] };
            assert_eq!((words[root], words[1 - root]), (word, 0));
            runtime.close().unwrap();
        }
    }

    /// A state as the first command of a creation finds it.
    fn empty_state(pool: &Path) -> Arc<Runtime> {
        let options = Options::new()
            .create(Create::IfMissing)
            .capacity(1 << 30)
            .tracker(TrackerChoice::Explicit)
            .self_contained(true);
        // SAFETY: nothing is initialised.
        unsafe { Runtime::open(pool, &options, None) }.unwrap()
    }

    /// Allocates a block that nothing refers to.
    unsafe extern "C" fn allocate(_: *mut c_void) {
        // SAFETY: inside a command.
        let block = unsafe { mangrove_durable::route::mangrove_arena_alloc(32, 16) };
        assert!(!block.is_null());
    }

    #[test]
    fn a_state_without_a_tree_is_destroyed_if_there_is_nothing_in_it() {
        let directory = tempfile::tempdir().unwrap().keep();
        let pool = catalog::pool(&directory);
        empty_state(&pool).close().unwrap();
        destroy(&directory).unwrap();
        assert!(!directory.exists());
        std::fs::create_dir(&directory).unwrap();
        let runtime = empty_state(&pool);
        // SAFETY: `allocate` uses no argument.
        unsafe { runtime.client().unwrap().write_synced(allocate, &[ptr::null_mut()]) }.unwrap();
        runtime.close().unwrap();
        let failure = destroy(&directory).unwrap_err().to_string();
        assert!(failure.contains("no records' root"), "{failure}");
        let runtime = empty_state(&pool);
        assert!(!runtime.is_new());
        runtime.close().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_pool_that_was_begun_and_never_finished_is_destroyed_and_no_other_folder() {
        let begun = |superblock: &[u8]| {
            let directory = tempfile::tempdir().unwrap().keep();
            let pool = catalog::pool(&directory);
            std::fs::create_dir(&pool).unwrap();
            let parts: [(&str, &[u8]); 4] =
                [("image", &[]), ("sums", &[]), ("log", &[0; 9000]), ("pool", superblock)];
            for (name, bytes) in parts {
                std::fs::write(pool.join(name), bytes).unwrap();
            }
            directory
        };
        let mut torn = vec![0; 8192];
        for (place, copy) in [0, 4096].into_iter().enumerate() {
            torn[copy..copy + 8].copy_from_slice(b"MANGROVE");
            // The format's version, and the number of a copy that was not changed since the creation.
            (torn[copy + 8], torn[copy + 16]) = (1, place as u8);
        }
        for superblock in [&torn[..], &[0; 8192], &[]] {
            let directory = begun(superblock);
            destroy(&directory).unwrap();
            assert!(!directory.exists(), "{} bytes", superblock.len());
        }
        // A file that a pool never has, and a data file that is not empty.
        let strange: [(&str, &[u8]); 2] = [("diary", b"of somebody"), ("image", &[1; 4096])];
        for (name, bytes) in strange {
            let directory = begun(&torn);
            std::fs::write(catalog::pool(&directory).join(name), bytes).unwrap();
            destroy(&directory).unwrap_err();
            assert_eq!(std::fs::read(catalog::pool(&directory).join(name)).unwrap(), bytes);
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }

    #[test]
    fn what_an_interrupted_creation_left_is_destroyed() {
        for engine in [RecordEngine::Durable, RecordEngine::Map] {
            let directory = tempfile::tempdir().unwrap().keep();
            let catalog = Catalog { engine, comparator: BYTEWISE.to_vec() };
            let lock = catalog::lock(&directory).unwrap();
            drop(open_engine(&directory, &catalog, &bytewise(), EngineRequest::Create, lock).unwrap());
            destroy(&directory).unwrap();
            assert!(!directory.exists(), "{engine:?}");
        }
    }

    #[test]
    fn a_database_that_somebody_reads_as_a_pool_is_not_destroyed() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = Catalog { engine: RecordEngine::Map, comparator: BYTEWISE.to_vec() };
        let lock = catalog::lock(directory.path()).unwrap();
        drop(open_engine(directory.path(), &catalog, &bytewise(), EngineRequest::Create, lock).unwrap());
        catalog.write(directory.path()).unwrap();
        let map = Map::options().create(Create::Never).open(catalog::pool(directory.path())).unwrap();
        assert!(destroy(directory.path()).unwrap_err().to_string().contains("in use"));
        map.close().unwrap();
        let directory = directory.keep();
        destroy(&directory).unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn a_folder_without_a_database_is_repaired_to_an_empty_one() {
        let parent = tempfile::tempdir().unwrap();
        let missing = parent.path().join("missing");
        let empty = parent.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        for directory in [missing, empty] {
            repair(&directory, &bytewise()).unwrap();
            repair(&directory, &bytewise()).unwrap();
            let catalog = Catalog::read(&directory).unwrap().expect("a database");
            let lock = catalog::lock(&directory).unwrap();
            assert!(
                open_engine(&directory, &catalog, &bytewise(), EngineRequest::Existing, lock).unwrap().1,
                "it is empty"
            );
        }
        repair(&parent.path().join("no/such/folder"), &bytewise()).unwrap_err();
    }

    #[test]
    fn a_lost_catalog_is_written_anew_under_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("database");
        repair(&directory, &bytewise()).unwrap();
        std::fs::remove_file(directory.join("MANGROVE")).unwrap();
        // Made before the catalog is.
        let current = directory.join("CURRENT");
        std::fs::remove_file(&current).unwrap();
        // The file that becomes the catalog is a pipe: its writer waits until it is opened for reading.
        let pipe = directory.join("MANGROVE.new");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let place = directory.clone();
        let repairer = std::thread::spawn(move || repair(&place, &bytewise()));
        wait_until("the catalog is being written", || current.exists() || repairer.is_finished());
        let is_locked = catalog::lock(&directory).is_err();
        assert!(current.exists() && is_locked, "locked: {is_locked}");
        let reader = std::fs::File::open(&pipe).unwrap();
        // A pipe cannot be synced.
        repairer.join().unwrap().unwrap_err();
        drop(reader);
        std::fs::remove_file(&pipe).unwrap();
        repair(&directory, &bytewise()).unwrap();
        assert!(Catalog::read(&directory).unwrap().is_some());
    }

    #[test]
    fn a_damaged_map_is_repaired_and_what_was_damaged_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = Catalog { engine: RecordEngine::Map, comparator: BYTEWISE.to_vec() };
        let lock = catalog::lock(directory.path()).unwrap();
        let (engine, _) =
            open_engine(directory.path(), &catalog, &bytewise(), EngineRequest::Create, lock).unwrap();
        for i in 0..500u32 {
            engine.put(&i.to_be_bytes(), &[b'v'; 100], i == 499).unwrap();
        }
        drop(engine);
        catalog.write(directory.path()).unwrap();
        for round in 1..3 {
            let image = catalog::pool(directory.path()).join("image");
            let mut bytes = std::fs::read(&image).unwrap();
            let at = bytes.windows(100).position(|part| part == [b'v'; 100]).unwrap();
            bytes[at] ^= 1;
            std::fs::write(&image, &bytes).unwrap();
            repair(directory.path(), &bytewise()).unwrap();
            let lock = catalog::lock(directory.path()).unwrap();
            let (engine, _) =
                open_engine(directory.path(), &catalog, &bytewise(), EngineRequest::Existing, lock).unwrap();
            assert_eq!(engine.figures().records, 500 - round);
            assert!(engine.check().unwrap().is_empty());
            let lost = directory.path().join("lost").join(format!("pool-{round}"));
            assert_eq!(std::fs::read(lost.join("image")).unwrap(), bytes, "the damaged pool is kept");
            let report = std::fs::read_to_string(lost.with_extension("txt")).unwrap();
            assert!(report.contains("image"), "{report}");
        }
    }

    #[test]
    fn what_a_repair_that_was_killed_has_left_is_destroyed_with_the_database() {
        // Before or after the exchange, and before its last step.
        for left in ["pool.salvaged", "pool.damaged"] {
            let directory = tempfile::tempdir().unwrap().keep();
            let catalog = Catalog { engine: RecordEngine::Map, comparator: BYTEWISE.to_vec() };
            let lock = catalog::lock(&directory).unwrap();
            drop(open_engine(&directory, &catalog, &bytewise(), EngineRequest::Create, lock).unwrap());
            catalog.write(&directory).unwrap();
            std::fs::create_dir(directory.join(left)).unwrap();
            std::fs::write(directory.join(left).join("image"), "records").unwrap();
            destroy(&directory).unwrap();
            assert!(!directory.exists(), "{left}");
        }
    }

    /// A map of one record whose repair was killed behind the first of the three steps of an exchange.
    fn in_the_middle_of_an_exchange(directory: PathBuf) -> PathBuf {
        std::fs::create_dir(&directory).unwrap();
        let catalog = Catalog { engine: RecordEngine::Map, comparator: BYTEWISE.to_vec() };
        let lock = catalog::lock(&directory).unwrap();
        let (engine, _) =
            open_engine(&directory, &catalog, &bytewise(), EngineRequest::Create, lock).unwrap();
        engine.put(b"kept", b"1", true).unwrap();
        drop(engine);
        catalog.write(&directory).unwrap();
        let pool = catalog::pool(&directory);
        let new = directory.join("pool.salvaged");
        Map::salvage(&pool, &new, |_| ControlFlow::Continue(())).unwrap();
        std::fs::rename(&pool, directory.join("pool.damaged")).unwrap();
        directory
    }

    #[test]
    fn the_exchange_of_a_repair_that_was_killed_is_ended() {
        let parent = tempfile::tempdir().unwrap();
        let [opened, repaired, destroyed] = ["opened", "repaired", "destroyed"]
            .map(|name| in_the_middle_of_an_exchange(parent.path().join(name)));
        let records = |directory: &Path, create_if_missing: bool| {
            let request = OpenRequest {
                order: bytewise(),
                create_if_missing,
                error_if_exists: false,
                paranoid_checks: false,
                is_import: false,
            };
            open_database(directory, &request).unwrap().engine().unwrap().record_count().unwrap()
        };
        assert_eq!(records(&opened, false), 1);
        repair(&repaired, &bytewise()).unwrap();
        assert_eq!(records(&repaired, false), 1);
        destroy(&destroyed).unwrap();
        assert_eq!(records(&destroyed, true), 0);
    }
}
