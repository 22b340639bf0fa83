//! Removing and repairing databases that are not open.

use crate::aside::aside;
use crate::bytes::{handle, path};
use crate::catalog::{self, Catalog, EngineKind};
use crate::db::open_engine;
use crate::options::{Order, leveldb_options_t};
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
    let (catalog, is_new) = match Catalog::read(folder) {
        Ok(Some(catalog)) => (catalog, false),
        // The pool says which engine wrote it.
        _ => {
            let info = mangrove::pool_info(&pool)?;
            let engine = if info.kind == "map" { EngineKind::Map } else { EngineKind::Durable };
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
    let engine = open_engine(folder, &catalog, order, false, catalog::lock(folder)?)?;
    if let Some(first) = engine.check()?.first() {
        return Err(Failure::corruption(first.clone()));
    }
    if is_new { catalog.write(folder) } else { Ok(()) }
}
