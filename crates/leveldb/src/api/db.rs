//! A database: opening, closing, reading, writing, snapshots, properties.

use crate::aside::aside;
use crate::batch::leveldb_writebatch_t;
use crate::bytes::{allocate, give, handle, path, slice, take_back};
use crate::catalog::{self, Catalog, EngineKind, Lock};
use crate::durable_engine::DurableEngine;
use crate::engine::{Engine, View};
use crate::hart_engine::HartEngine;
use crate::options::{
    BYTEWISE, Opening, Order, leveldb_options_t, leveldb_readoptions_t, leveldb_writeoptions_t,
};
use crate::ours::Ours;
use crate::status::{Failure, Kind, Result, guard, quietly};
use std::ffi::{CStr, c_char, c_int};
use std::io::ErrorKind;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Names the engine of new databases.
const ENGINE_VARIABLE: &str = "MANGROVE_LEVELDB_ENGINE";
/// LevelDB has this many levels, each with a property.
const LEVELS: u64 = 7;

/// An open database. Any number of threads may use it at the same time.
pub struct leveldb_t {
    engine: Ours<Box<dyn Engine>>,
    kind: EngineKind,
}

/// An instant of a database.
pub struct leveldb_snapshot_t {
    view: Ours<Arc<dyn View>>,
}

/// The engine that a new database gets.
fn engine_of_new() -> Result<EngineKind> {
    match std::env::var(ENGINE_VARIABLE) {
        Err(_) => Ok(EngineKind::Durable),
        Ok(name) => EngineKind::from_name(&name)
            .ok_or_else(|| Failure::invalid(format!("{ENGINE_VARIABLE}={name}: there is no such engine"))),
    }
}

/// Opens the engine of a database whose folder is locked, and says whether it has no records. With `create` its files
/// may be missing.
pub(crate) fn open_engine(
    folder: &Path,
    catalog: &Catalog,
    order: &Order,
    create: bool,
    lock: Lock,
) -> Result<(Box<dyn Engine>, bool)> {
    let pool = catalog::pool(folder);
    match catalog.engine {
        EngineKind::Durable => {
            let engine = DurableEngine::open(&pool, create, order, lock)?;
            let is_empty = engine.is_empty()?;
            Ok((Box::new(engine), is_empty))
        }
        EngineKind::Map if catalog.comparator != BYTEWISE => Err(Failure::unsupported(format!(
            "{}: the engine 'map' orders keys byte by byte, and not by the comparator {}; use the engine 'durable'",
            folder.display(),
            String::from_utf8_lossy(&catalog.comparator)
        ))),
        EngineKind::Map => {
            let engine = HartEngine::open(&pool, create, lock)?;
            let is_empty = engine.is_empty();
            Ok((Box::new(engine), is_empty))
        }
    }
}

/// Makes the database of a locked folder that has no catalog. Killed before the end it leaves none, and no records.
fn create(folder: &Path, order: &Order, lock: Lock) -> Result<(Box<dyn Engine>, EngineKind)> {
    let catalog = Catalog { engine: engine_of_new()?, comparator: order.name.clone() };
    let (engine, is_empty) = open_engine(folder, &catalog, order, true, lock)?;
    if !is_empty {
        return Err(Failure::corruption(format!(
            "{}: the file that says what the database is has been lost; leveldb_repair_db writes it anew",
            folder.display()
        )));
    }
    catalog.write(folder)?;
    Ok((engine, catalog.engine))
}

/// Why a folder that has no catalog is not opened.
fn missing(folder: &Path) -> Failure {
    // Made halfway, or deprived of its file.
    let rest = if catalog::pool(folder).exists() {
        "; its folder pool is there, and leveldb_repair_db finds out what is in it"
    } else {
        ""
    };
    Failure::invalid(format!("{}: does not exist (create_if_missing is false){rest}", folder.display()))
}

fn open(folder: &Path, options: &Opening) -> Result<leveldb_t> {
    catalog::refuse_leveldb(folder)?;
    if Catalog::read(folder)?.is_none() {
        if !options.create_if_missing {
            return Err(missing(folder));
        }
        match std::fs::create_dir(folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Failure::io("create", folder, &e)),
            _ => {}
        }
    }
    open_locked(folder, options, catalog::lock(folder)?)
}

/// Opens the database of a locked folder, which somebody else may have made, or removed, before the lock was ours.
fn open_locked(folder: &Path, options: &Opening, lock: Lock) -> Result<leveldb_t> {
    let order = &options.order;
    let (engine, kind) = match Catalog::read(folder)? {
        Some(_) if options.error_if_exists => {
            let name = folder.display();
            return Err(Failure::invalid(format!("{name}: exists (error_if_exists is true)")));
        }
        Some(catalog) if catalog.comparator != order.name => {
            return Err(Failure::invalid(format!(
                "{} does not match existing comparator : {}",
                String::from_utf8_lossy(&catalog.comparator),
                String::from_utf8_lossy(&order.name)
            )));
        }
        Some(catalog) => (open_engine(folder, &catalog, order, false, lock)?.0, catalog.engine),
        None if options.create_if_missing => create(folder, order, lock)?,
        None => return Err(missing(folder)),
    };
    if options.paranoid_checks
        && let Some(first) = engine.check()?.first()
    {
        return Err(Failure::corruption(first.clone()));
    }
    Ok(leveldb_t::new(engine, kind))
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
            let options = handle(options, "options")?.opening()?;
            let folder = path(name)?.to_owned();
            aside(move || open(&folder, &options))
        })
    }
    .map_or(ptr::null_mut(), give)
}

/// Makes everything durable and closes the database. NULL: nothing.
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
            let batch = handle(batch, "batch")?;
            batch.is_whole()?;
            db.engine.get()?.write(batch, options.sync)
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
        guard(errptr, || {
            let (db, options, key) = (handle(db, "db")?, handle(options, "options")?, slice(key, key_len)?);
            let mut copy = None;
            let mut found = |value: &[u8]| {
                len = value.len();
                copy = Some(allocate(value));
            };
            let read = match options.snapshot.as_ref() {
                None => db.engine.get()?.get(key, &mut found),
                Some(snapshot) => snapshot.view.get()?.get(key, &mut found),
            };
            match (read, copy) {
                (Err(failure), block) => {
                    // Found, and then not to be told.
                    libc::free(block.unwrap_or(ptr::null_mut()));
                    Err(failure)
                }
                (Ok(()), Some(block)) if block.is_null() => {
                    Err(Failure::new(Kind::IoError, format!("no memory for a value of {len} bytes")))
                }
                (Ok(()), block) => Ok(block.unwrap_or(ptr::null_mut())),
            }
        })
    };
    let value = value.unwrap_or(ptr::null_mut());
    if !value_len.is_null() {
        // SAFETY: not null, and the API's contract: room for a length.
        unsafe { *value_len = if value.is_null() { 0 } else { len } };
    }
    value.cast()
}

impl leveldb_t {
    pub(crate) fn new(engine: Box<dyn Engine>, kind: EngineKind) -> Self {
        Self { engine: Ours::new(engine), kind }
    }

    /// The instant that read options ask for: their snapshot, or now.
    pub(crate) fn view(&self, options: &leveldb_readoptions_t) -> Result<Arc<dyn View>> {
        // SAFETY: the API's contract: a snapshot in read options is NULL or live.
        match unsafe { options.snapshot.as_ref() } {
            Some(snapshot) => Ok(Arc::clone(snapshot.view.get()?)),
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
                "engine                {}\nrecords               {}\nbytes of memory       {}\nbytes of the image    {}\nbytes of redo log     {}\ndevice writes of log  {}\nsnapshots, iterators  {}\n",
                self.kind.name(),
                figures.records,
                figures.memory_bytes,
                figures.durable_bytes,
                figures.log_bytes_used,
                figures.group_commits,
                figures.views,
            )),
            _ => None,
        }
    }
}

/// This instant, to read from while writers go on; NULL when the database failed. Freed with
/// leveldb_release_snapshot().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    // SAFETY: the API's contract: a live handle.
    let view = quietly(|| unsafe { handle(db, "db") }?.engine.get()?.view());
    view.map_or(ptr::null(), |view| give(leveldb_snapshot_t { view: Ours::new(view) }).cast_const())
}

/// Frees a snapshot. Iterators over it go on.
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

/// Bytes of the keys and values in each range. Walks the range: some ten nanoseconds a record.
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
        // SAFETY: the API's contract: room for `num_ranges` sizes.
        unsafe { sizes.add(i).write(size.unwrap_or(0)) };
    }
}

/// Makes everything durable and brings the files up to date, whatever the range.
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
