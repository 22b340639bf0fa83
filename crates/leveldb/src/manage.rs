//! Removing and repairing databases that are not open.

use crate::aside::aside;
use crate::bytes::path;
use crate::catalog::{self, Catalog, EngineKind};
use crate::db::open_engine;
use crate::options::{BYTEWISE, leveldb_options_t};
use crate::status::{Failure, Result, guard};
use std::ffi::c_char;
use std::path::Path;

/// Removes a database with all it holds. None there: nothing to do. What else is in the folder stays.
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
    let _lock = catalog::lock(folder)?;
    // A catalog that cannot be read is still one of ours; a folder that happens to be called as the
    // engine's is not.
    let is_ours = !matches!(Catalog::read(folder), Ok(None))
        || matches!(
            mangrove::pool_info(catalog::pool(folder)),
            Ok(_) | Err(mangrove::Error::Corrupt { .. } | mangrove::Error::Newer { .. })
        );
    catalog::remove(folder, is_ours)
}

/// Verifies a database, and writes anew the file that says what it is if that is lost or damaged.
/// Damaged records are told, not guessed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: a NUL-terminated name, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let folder = path(name)?.to_owned();
            aside(move || repair(&folder))
        });
    }
}

fn repair(folder: &Path) -> Result<()> {
    catalog::refuse_leveldb(folder)?;
    let (catalog, is_new) = match Catalog::read(folder) {
        Ok(Some(catalog)) => (catalog, false),
        // The map is the one engine whose order needs no name.
        _ => (Catalog { engine: EngineKind::Map, comparator: BYTEWISE.to_vec() }, true),
    };
    if !catalog::pool(folder).is_dir() {
        return Err(Failure::invalid(format!("{}: there is no database to repair", folder.display())));
    }
    let engine = open_engine(folder, &catalog, false, catalog::lock(folder)?)?;
    if let Some(first) = engine.check()?.first() {
        return Err(Failure::corruption(first.clone()));
    }
    if is_new { catalog.write(folder) } else { Ok(()) }
}
