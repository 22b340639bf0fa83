//! Removing and repairing databases that are not open.

use crate::aside::aside;
use crate::bytes::{handle, path};
use crate::catalog::{self, Catalog, EngineKind, Lock};
use crate::db::open_engine;
use crate::durable_engine;
use crate::options::{BYTEWISE, Order, leveldb_options_t};
use crate::status::{Failure, Result, guard};
use mangrove::PoolInfo;
use std::ffi::c_char;
use std::path::Path;

/// Removes a database with all it holds. None there: nothing to do. What else is in the folder stays, and so does a pool
/// of somebody else's that goes by the name of the engine's: that is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: a NUL-terminated name, an error string or NULL.
    unsafe { guard(errptr, || destroy(path(name)?)) };
}

fn destroy(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    catalog::refuse_leveldb(folder)?;
    let lock = catalog::lock(folder)?;
    let pool = catalog::pool(folder);
    let info = mangrove::pool_info(&pool);
    if info.as_ref().is_ok_and(|info| info.busy) {
        return Err(mangrove::Error::Busy { path: pool }.into());
    }
    // A catalog that cannot be read is still one of ours.
    if !matches!(Catalog::read(folder), Ok(None)) {
        return catalog::remove(folder, true);
    }
    match info {
        Ok(info) => destroy_unfinished(folder, &info, lock),
        Err(_) if mangrove::pool_is_unfinished(&pool) => catalog::remove(folder, true),
        // A folder that happens to be called as the engine's.
        Err(mangrove::Error::NotFound { .. } | mangrove::Error::Foreign { .. }) => {
            catalog::remove(folder, false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes what is left where the making of a database was interrupted: without a catalog a pool is only then a
/// database's for sure when it is empty.
fn destroy_unfinished(folder: &Path, info: &PoolInfo, lock: Lock) -> Result<()> {
    let order = Order { name: BYTEWISE.to_vec(), comparator: None };
    let catalog = Catalog { engine: engine_of(info), comparator: order.name.clone() };
    let remove = || catalog::remove(folder, true);
    if catalog.engine == EngineKind::Durable && durable_engine::if_blank(&info.path, remove)? {
        return Ok(());
    }
    let (_engine, is_empty) = open_engine(folder, &catalog, &order, false, lock)?;
    if is_empty {
        // While it is open nobody else can come to have it.
        return remove();
    }
    Err(Failure::invalid(format!(
        "{}: holds records, and no file says that they are a database's; leveldb_repair_db writes it, if they are",
        info.path.display()
    )))
}

/// The engine that wrote a pool.
fn engine_of(info: &PoolInfo) -> EngineKind {
    if info.kind == "map" { EngineKind::Map } else { EngineKind::Durable }
}

/// Verifies a database, and writes anew the file that says what it is if that is lost or damaged; the
/// options then say its comparator. Damaged records are told, not guessed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: live options, a NUL-terminated name, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let folder = path(name)?.to_owned();
            let order = handle(options, "options")?.order()?;
            aside(move || repair(&folder, &order))
        });
    }
}

fn repair(folder: &Path, order: &Order) -> Result<()> {
    catalog::refuse_leveldb(folder)?;
    let pool = catalog::pool(folder);
    // Before a lock is made for nothing.
    mangrove::pool_info(&pool)?;
    let lock = catalog::lock(folder)?;
    let (catalog, is_new) = match Catalog::read(folder) {
        Ok(Some(catalog)) => (catalog, false),
        // The pool says which engine wrote it.
        _ => {
            let engine = engine_of(&mangrove::pool_info(&pool)?);
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
    let (engine, _) = open_engine(folder, &catalog, order, false, lock)?;
    if let Some(first) = engine.check()?.first() {
        return Err(Failure::corruption(first.clone()));
    }
    if is_new { catalog.write(folder) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove::Map;
    use mangrove_durable::{CreateMode, Options, Runtime, TrackerChoice};
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::Arc;

    fn bytewise() -> Order {
        Order { name: BYTEWISE.to_vec(), comparator: None }
    }

    #[test]
    fn a_map_that_is_no_database_is_not_destroyed() {
        let folder = tempfile::tempdir().unwrap();
        let pool = catalog::pool(folder.path());
        let map = Map::open(&pool).unwrap();
        map.put("words", "of somebody").unwrap();
        let busy = destroy(folder.path()).unwrap_err().to_string();
        assert!(busy.contains("in use"), "{busy}");
        assert_eq!(map.get("words").unwrap().as_deref(), Some(&b"of somebody"[..]));
        map.close().unwrap();
        let full = destroy(folder.path()).unwrap_err().to_string();
        assert!(full.contains("holds records"), "{full}");
        assert!(Map::options().open(&pool).unwrap().contains("words").unwrap());
    }

    /// Sets the word that it is given.
    unsafe extern "C" fn set(arg: *mut c_void) {
        // SAFETY: a word of the region, and what it shall be.
        unsafe {
            let (place, word) = *arg.cast::<(*mut usize, usize)>();
            mangrove_durable::will_write(place.cast(), size_of::<usize>());
            place.write(word);
        }
    }

    #[test]
    fn a_durable_application_is_not_destroyed_whatever_its_roots_say() {
        for (root, word) in [(0, 12_345), (0, 64), (1, 7), (0, usize::MAX & !31)] {
            let folder = tempfile::tempdir().unwrap();
            let pool = catalog::pool(folder.path());
            let options = Options::new()
                .create(CreateMode::CreateIfMissing)
                .capacity(1 << 30)
                .tracker(TrackerChoice::Explicit);
            // SAFETY: nothing is initialised.
            let runtime = unsafe { Runtime::open(&pool, &options, None) }.unwrap();
            let mut client = runtime.client().unwrap();
            let mut arg = (runtime.roots().wrapping_add(root), word);
            // SAFETY: `set` gets what it wants.
            unsafe { client.write_synced(set, &[(&raw mut arg).cast()]) }.unwrap();
            drop(client);
            runtime.close().unwrap();
            destroy(folder.path()).unwrap_err();
            assert!(repair(folder.path(), &bytewise()).is_err());
            // SAFETY: as above.
            let runtime = unsafe { Runtime::open(&pool, &options, None) }.unwrap();
            // SAFETY: words of the region.
            let words = unsafe { [*runtime.roots(), *runtime.roots().add(1)] };
            assert_eq!((words[root], words[1 - root]), (word, 0));
            runtime.close().unwrap();
        }
    }

    /// As `make` of a creation finds it.
    fn empty_state(pool: &Path) -> Arc<Runtime> {
        let options = Options::new()
            .create(CreateMode::CreateIfMissing)
            .capacity(1 << 30)
            .tracker(TrackerChoice::Explicit)
            .self_contained(true);
        // SAFETY: nothing is initialised.
        unsafe { Runtime::open(pool, &options, None) }.unwrap()
    }

    /// Allocates what nothing leads to.
    unsafe extern "C" fn allocate(_: *mut c_void) {
        // SAFETY: inside a command.
        let block = unsafe { mangrove_durable::route::mangrove_arena_alloc(32, 16) };
        assert!(!block.is_null());
    }

    #[test]
    fn a_state_without_a_tree_is_destroyed_if_there_is_nothing_in_it() {
        let folder = tempfile::tempdir().unwrap().keep();
        let pool = catalog::pool(&folder);
        empty_state(&pool).close().unwrap();
        destroy(&folder).unwrap();
        assert!(!folder.exists());
        std::fs::create_dir(&folder).unwrap();
        let runtime = empty_state(&pool);
        // SAFETY: `allocate` wants nothing.
        unsafe { runtime.client().unwrap().write_synced(allocate, &[ptr::null_mut()]) }.unwrap();
        runtime.close().unwrap();
        let failure = destroy(&folder).unwrap_err().to_string();
        assert!(failure.contains("no records' root"), "{failure}");
        let runtime = empty_state(&pool);
        assert!(!runtime.is_new());
        runtime.close().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_pool_that_was_begun_and_never_finished_is_destroyed_and_no_other_folder() {
        let begun = |superblock: &[u8]| {
            let folder = tempfile::tempdir().unwrap().keep();
            let pool = catalog::pool(&folder);
            std::fs::create_dir(&pool).unwrap();
            let parts: [(&str, &[u8]); 4] =
                [("image", &[]), ("sums", &[]), ("log", &[0; 9000]), ("pool", superblock)];
            for (name, bytes) in parts {
                std::fs::write(pool.join(name), bytes).unwrap();
            }
            folder
        };
        let mut torn = vec![0; 8192];
        for copy in [0, 4096] {
            torn[copy..copy + 8].copy_from_slice(b"MANGROVE");
        }
        for superblock in [&torn[..], &[0; 8192], &[]] {
            let folder = begun(superblock);
            destroy(&folder).unwrap();
            assert!(!folder.exists(), "{} bytes", superblock.len());
        }
        // What a pool never has, and an image that was filled.
        let strange: [(&str, &[u8]); 2] = [("diary", b"of somebody"), ("image", &[1; 4096])];
        for (name, bytes) in strange {
            let folder = begun(&torn);
            std::fs::write(catalog::pool(&folder).join(name), bytes).unwrap();
            destroy(&folder).unwrap_err();
            assert_eq!(std::fs::read(catalog::pool(&folder).join(name)).unwrap(), bytes);
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn what_an_interrupted_creation_left_is_destroyed() {
        for engine in [EngineKind::Durable, EngineKind::Map] {
            let folder = tempfile::tempdir().unwrap().keep();
            let catalog = Catalog { engine, comparator: BYTEWISE.to_vec() };
            let lock = catalog::lock(&folder).unwrap();
            drop(open_engine(&folder, &catalog, &bytewise(), true, lock).unwrap());
            destroy(&folder).unwrap();
            assert!(!folder.exists(), "{engine:?}");
        }
    }

    #[test]
    fn a_database_that_somebody_reads_as_a_pool_is_not_destroyed() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog { engine: EngineKind::Map, comparator: BYTEWISE.to_vec() };
        let lock = catalog::lock(folder.path()).unwrap();
        drop(open_engine(folder.path(), &catalog, &bytewise(), true, lock).unwrap());
        catalog.write(folder.path()).unwrap();
        let map = Map::options().open(catalog::pool(folder.path())).unwrap();
        assert!(destroy(folder.path()).unwrap_err().to_string().contains("in use"));
        map.close().unwrap();
        let folder = folder.keep();
        destroy(&folder).unwrap();
        assert!(!folder.exists());
    }
}
