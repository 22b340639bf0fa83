//! A database: opening, closing, reading, writing, snapshots, properties.

use crate::api::fork_guard::OwnedByProcess;
use crate::api::handles::leveldb_snapshot_t;
use crate::api::options::{OpenRequest, leveldb_options_t, leveldb_readoptions_t, leveldb_writeoptions_t};
use crate::batch::leveldb_writebatch_t;
use crate::bytes::{path, slice};
use crate::engine::catalog;
use crate::engine::catalog::{Catalog, DirectoryLock, RecordEngine};
use crate::engine::engine::{EngineRequest, ReadView, StorageEngine};
use crate::engine::map_engine::MapEngine;
use crate::engine::salvage;
use crate::engine::tree_engine::TreeEngine;
use crate::order::{BYTEWISE, NamedOrder};
use crate::status::{Failure, FailureKind, Result, caught_uncancelled, guard, guard_look_up, quietly};
use mangrove_cabi::{allocate, give, handle, on_own_thread, take_back};
use std::ffi::{CStr, c_char, c_int};
use std::io::ErrorKind;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Selects the engine of new databases.
const ENGINE_VARIABLE: &str = "MANGROVE_LEVELDB_ENGINE";
/// The most memory in bytes that this process may have, for a database to be opened or to grow.
const MEMORY_VARIABLE: &str = "MANGROVE_LEVELDB_MEMORY_MAX";
/// LevelDB has this many levels, each with a property.
const LEVELS: u64 = 7;

/// An open database. Any number of threads may use it at the same time.
pub struct leveldb_t {
    engine: OwnedByProcess<Box<dyn StorageEngine>>,
    engine_name: &'static str,
}

/// The engine that a new database gets: that of the pool which an interrupted creation left, or the one that the
/// environment names.
fn engine_of_new(directory: &Path) -> Result<RecordEngine> {
    if let Ok(begun) = mangrove::pool_info(catalog::pool(directory)) {
        return Ok(RecordEngine::of_pool(&begun.kind));
    }
    match std::env::var(ENGINE_VARIABLE) {
        Err(_) => Ok(RecordEngine::Durable),
        Ok(name) => RecordEngine::from_name(&name)
            .ok_or_else(|| Failure::invalid(format!("{ENGINE_VARIABLE}={name}: there is no such engine"))),
    }
}

/// What [`MEMORY_VARIABLE`] says; `None`: the default.
fn memory_bytes_max() -> Result<Option<u64>> {
    match std::env::var(MEMORY_VARIABLE) {
        Err(_) => Ok(None),
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Failure::invalid(format!("{MEMORY_VARIABLE}={text}: this is no number of bytes"))),
    }
}

/// Opens the engine of a database whose directory is locked. Also returns whether it has no records. `opening` says
/// whether its files may be missing.
pub(crate) fn open_engine(
    directory: &Path,
    catalog: &Catalog,
    order: &NamedOrder,
    opening: EngineRequest,
    lock: DirectoryLock,
) -> Result<(Box<dyn StorageEngine>, bool)> {
    let pool = catalog::pool(directory);
    match catalog.engine {
        RecordEngine::Durable => {
            let engine = TreeEngine::open(&pool, opening, memory_bytes_max()?, order, lock)?;
            let is_empty = engine.is_empty()?;
            Ok((Box::new(engine), is_empty))
        }
        RecordEngine::Map if catalog.comparator != BYTEWISE => Err(Failure::unsupported(format!(
            "{}: the engine 'map' orders keys byte by byte, and not by the comparator {}; use the engine 'durable'",
            directory.display(),
            String::from_utf8_lossy(&catalog.comparator)
        ))),
        RecordEngine::Map => {
            let engine = MapEngine::open(&pool, opening, memory_bytes_max()?, lock)?;
            let is_empty = engine.is_empty()?;
            Ok((Box::new(engine), is_empty))
        }
    }
}

/// Creates the database in a locked directory that has no catalog. If the process dies before the end, there is no
/// catalog and there are no records.
pub(crate) fn create(
    directory: &Path,
    order: &NamedOrder,
    opening: EngineRequest,
    lock: DirectoryLock,
) -> Result<(Box<dyn StorageEngine>, RecordEngine)> {
    let catalog = Catalog { engine: engine_of_new(directory)?, comparator: order.name.clone() };
    let (engine, is_empty) = open_engine(directory, &catalog, order, opening, lock)?;
    if !is_empty {
        return Err(Failure::corruption(format!(
            "{}: the file that describes the database has been lost; leveldb_repair_db writes it anew",
            directory.display()
        )));
    }
    catalog.write(directory)?;
    Ok((engine, catalog.engine))
}

/// Why a directory that has no catalog is not opened.
fn missing(directory: &Path) -> Failure {
    // Its creation was interrupted, or its catalog was lost.
    let rest = if catalog::pool(directory).exists() {
        "; its directory pool is there, and leveldb_repair_db finds out what is in it"
    } else {
        ""
    };
    Failure::invalid(format!("{}: does not exist (create_if_missing is false){rest}", directory.display()))
}

/// Opens the database in a directory. Its threads are started by the calling thread.
pub(crate) fn open_database(directory: &Path, options: &OpenRequest) -> Result<leveldb_t> {
    catalog::refuse_leveldb(directory)?;
    if Catalog::read(directory)?.is_none() {
        if !options.create_if_missing {
            return Err(missing(directory));
        }
        match std::fs::create_dir(directory) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(Failure::io("create", directory, &e));
            }
            _ => {}
        }
    }
    open_locked(directory, options, catalog::lock(directory)?)
}

/// Opens the database of a locked directory. Another process may have created or removed it before this one got the
/// lock.
fn open_locked(directory: &Path, options: &OpenRequest, lock: DirectoryLock) -> Result<leveldb_t> {
    salvage::end_exchange(directory)?;
    salvage::keep_names(directory)?;
    let order = &options.order;
    let (engine, kind) = match Catalog::read(directory)? {
        Some(_) if options.error_if_exists => {
            let name = directory.display();
            return Err(Failure::invalid(format!("{name}: exists (error_if_exists is true)")));
        }
        Some(catalog) if catalog.comparator != order.name => {
            return Err(Failure::invalid(format!(
                "{} does not match existing comparator : {}",
                String::from_utf8_lossy(&catalog.comparator),
                String::from_utf8_lossy(&order.name)
            )));
        }
        Some(catalog) => {
            catalog::keep_leveldb_out(directory);
            (open_engine(directory, &catalog, order, EngineRequest::Existing, lock)?.0, catalog.engine)
        }
        None if options.is_import => create(directory, order, EngineRequest::Import, lock)?,
        None if options.create_if_missing => create(directory, order, EngineRequest::Create, lock)?,
        None => return Err(missing(directory)),
    };
    if options.paranoid_checks
        && let Some(first) = engine.check()?.first()
    {
        return Err(Failure::corruption(first.clone()));
    }
    Ok(leveldb_t::new(engine, kind.name()))
}

/// Opens a database. NULL on error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the API's contract: live options, a NUL-terminated name, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let options = handle(options, "options")?.open_request()?;
            let directory = path(name)?.to_owned();
            on_own_thread(move || open_database(&directory, &options))
        })
    }
    .map_or(ptr::null_mut(), give)
}

/// Makes everything durable and closes the database. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut leveldb_t) {
    quietly(|| {
        // SAFETY: the API's contract: a live handle, not used any more.
        unsafe { take_back(db) };
        Ok(())
    });
}

/// Sets `key` to `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: live handles, readable bytes, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let (db, options) = (handle(db, "db")?, handle(options, "options")?);
            db.engine.get()?.put(slice(key, key_len)?, slice(value, value_len)?, options.sync)
        });
    }
}

/// Removes `key`, which need not be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    key_len: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: as in leveldb_put.
    unsafe {
        guard(errptr, || {
            let (db, options) = (handle(db, "db")?, handle(options, "options")?);
            db.engine.get()?.delete(slice(key, key_len)?, options.sync)
        });
    }
}

/// Applies a batch: all of it or nothing. The batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: as in leveldb_put.
    unsafe {
        guard(errptr, || {
            let (db, options) = (handle(db, "db")?, handle(options, "options")?);
            db.engine.get()?.write(handle(batch, "batch")?.list()?, options.sync)
        });
    }
}

/// The value of `key` in a block from malloc(), with its length; NULL when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    key_len: usize,
    value_len: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let mut len = 0;
    // SAFETY: the API's contract: live handles, readable bytes, an error string or NULL.
    let value = unsafe {
        guard_look_up(errptr, || {
            let (db, options, key) = (handle(db, "db")?, handle(options, "options")?, slice(key, key_len)?);
            let mut copy = None;
            let mut found = |value: &[u8]| {
                len = value.len();
                copy = Some(allocate(value));
            };
            match (db.get(options.snapshot, key, &mut found), copy) {
                (Err(failure), block) => {
                    // A value was found, but the caller must not get it.
                    libc::free(block.unwrap_or(ptr::null_mut()));
                    Err(failure)
                }
                (Ok(()), Some(block)) if block.is_null() => {
                    Err(Failure::new(FailureKind::IoError, format!("no memory for a value of {len} bytes")))
                }
                (Ok(()), block) => Ok(block.unwrap_or(ptr::null_mut())),
            }
        })
    };
    let value = value.unwrap_or(ptr::null_mut());
    if !value_len.is_null() {
        // SAFETY: not null, and the API's contract: space for a length.
        unsafe { *value_len = if value.is_null() { 0 } else { len } };
    }
    value.cast()
}

impl leveldb_t {
    pub(crate) fn new(engine: Box<dyn StorageEngine>, engine_name: &'static str) -> Self {
        Self { engine: OwnedByProcess::new(engine), engine_name }
    }

    /// The engine; an error in a child of the process that opened the database.
    pub(crate) fn engine(&self) -> Result<&dyn StorageEngine> {
        Ok(&**self.engine.get()?)
    }

    /// Calls `found` with the value of `key` in a snapshot, or now.
    pub(super) fn get(
        &self,
        snapshot: *const leveldb_snapshot_t,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        // SAFETY: the API's contract: a snapshot in read options is NULL or live.
        match unsafe { snapshot.as_ref() } {
            None => self.engine.get()?.get(key, found),
            Some(snapshot) => snapshot.view()?.get(key, found),
        }
    }

    /// The instant that read options ask for: their snapshot, or now.
    pub(crate) fn view(&self, options: &leveldb_readoptions_t) -> Result<Arc<dyn ReadView>> {
        // SAFETY: the API's contract: a snapshot in read options is NULL or live.
        match unsafe { options.snapshot.as_ref() } {
            Some(snapshot) => Ok(Arc::clone(snapshot.view()?)),
            None => self.engine.get()?.view(),
        }
    }

    /// Bytes of the keys and values from `start` up to `limit`.
    fn size(&self, start: &[u8], limit: &[u8]) -> Result<u64> {
        let engine = self.engine.get()?;
        let mut cursor = engine.view()?.cursor();
        cursor.seek(start)?;
        let mut bytes = 0;
        while let Some((key, value)) = cursor.record() {
            if engine.compare(key, limit) != std::cmp::Ordering::Less {
                break;
            }
            bytes += (key.len() + value.len()) as u64;
            cursor.next()?;
        }
        Ok(bytes)
    }

    fn property(&self, name: &str) -> Option<String> {
        let rest = name.strip_prefix("leveldb.")?;
        let figures = self.engine.get().ok()?.figures();
        if let Some(level) = rest.strip_prefix("num-files-at-level") {
            let level: u64 = level.parse().ok()?;
            return (level < LEVELS).then(|| "0".to_owned());
        }
        match rest {
            "approximate-memory-usage" => Some(figures.memory_bytes.to_string()),
            "sstables" => Some("no tables: all records are in memory, with a redo log and an image\n".into()),
            "stats" => Some(format!(
                "engine                {}\nrecords               {}\nbytes of memory       {}\nbytes of the image    {}\nbytes of redo log     {}\ncommits to the log    {}\nsnapshots, iterators  {}\n",
                self.engine_name,
                figures.records,
                figures.memory_bytes,
                figures.durable_bytes,
                figures.log_bytes_used,
                figures.commits,
                figures.views,
            )),
            _ => None,
        }
    }
}

/// This instant, to read from while writers continue. When the database has failed, every read from it fails. Freed
/// with leveldb_release_snapshot().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    // SAFETY: the API's contract: a live handle.
    let view = caught_uncancelled(|| unsafe { handle(db, "db") }?.engine.get()?.view());
    give(leveldb_snapshot_t::of(view)).cast_const()
}

/// Frees a snapshot. Iterators over it continue to work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(_db: *mut leveldb_t, snapshot: *const leveldb_snapshot_t) {
    quietly(|| {
        // SAFETY: the API's contract: a live handle, not used any more.
        unsafe { take_back(snapshot.cast_mut()) };
        Ok(())
    });
}

/// The value of a property, from malloc(); NULL when there is no such property.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(db: *mut leveldb_t, name: *const c_char) -> *mut c_char {
    let text = quietly(|| {
        // SAFETY: the API's contract: a live handle and a NUL-terminated name.
        let (db, name) = unsafe { (handle(db, "db")?, CStr::from_ptr(name)) };
        Ok(name.to_str().ok().and_then(|name| db.property(name)))
    });
    text.flatten().map_or(ptr::null_mut(), |text| allocate(text.as_bytes()).cast())
}

/// Bytes of the keys and values in each range. Walks the range, at some ten nanoseconds per record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    num_ranges: c_int,
    start_keys: *const *const c_char,
    start_lens: *const usize,
    limit_keys: *const *const c_char,
    limit_lens: *const usize,
    sizes: *mut u64,
) {
    for i in 0..usize::try_from(num_ranges).unwrap_or(0) {
        let size = quietly(|| {
            // SAFETY: the API's contract: a live handle, and arrays of `num_ranges` keys and lengths.
            unsafe {
                let start = slice(*start_keys.add(i), *start_lens.add(i))?;
                let limit = slice(*limit_keys.add(i), *limit_lens.add(i))?;
                handle(db, "db")?.size(start, limit)
            }
        });
        // SAFETY: the API's contract: space for `num_ranges` sizes.
        unsafe { sizes.add(i).write(size.unwrap_or(0)) };
    }
}

/// Makes everything durable, brings the files up to date, and gives space back, whatever the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    _start_key: *const c_char,
    _start_len: usize,
    _limit_key: *const c_char,
    _limit_len: usize,
) {
    // SAFETY: the API's contract: a live handle.
    quietly(|| unsafe { handle(db, "db") }?.engine.get()?.compact());
}

#[cfg(test)]
#[path = "db_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod compaction_tests;
