//! Online backup.

use crate::map::mangrove_map;
use crate::status::mangrove_status::*;
use crate::status::{guard, mangrove_status};
use mangrove::Progress;
use mangrove_cabi::{handle, on_own_thread_asking, path, put_out};
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::sync::Arc;

/// How far a backup is. Later versions may append fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_progress {
    /// Records done.
    pub records: u64,
    /// Records in all, as far as known.
    pub records_total: u64,
    /// Bytes of keys and values done.
    pub bytes: u64,
}

/// Called during a backup, on the thread that asked for it. Returns 0 to continue, another number to
/// stop. `progress` is valid during the call. It may read and write the map, not close it.
pub type mangrove_progress_callback =
    Option<unsafe extern "C" fn(progress: *const mangrove_progress, context: *mut c_void) -> i32>;

/// Copies the map as it is at this instant into a new pool at `path`, while readers and writers
/// continue. `callback` (NULL for none) is called every few thousand records, with `context`. *records,
/// which may be NULL, is how many were copied.
///
/// Errors: MANGROVE_ERR_POOL_EXISTS, _NO_SPACE, _FULL, _IO, _SNAPSHOT_EXPIRED, _STOPPED, _CORRUPT; _FOREIGN:
/// something else lies at `path`; _UNSUPPORTED: `path` lies in a pool's directory; _POOL_BUSY: another backup
/// to `path` is at work. Nothing is left at `path`.
/// Crash: the new pool appears whole and durable, or not at all. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_backup(
    map: *const mangrove_map,
    path: *const c_char,
    callback: mangrove_progress_callback,
    context: *mut c_void,
    records: *mut u64,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(records, 0) };
        // SAFETY: the header's contract for handles and paths.
        let (map, path) = unsafe { (handle(map, "map")?, self::path(path, "path")?) };
        let (map, path) = (Arc::clone(&map.map), path.to_owned());
        let copy = move |ask: &mut dyn FnMut(Progress) -> ControlFlow<()>| map.backup(path, ask);
        // SAFETY: the caller's function, as the header says.
        let report = on_own_thread_asking(copy, |p| unsafe { ask(callback, context, p) })?;
        // SAFETY: as above.
        unsafe { put_out(records, report.records) };
        Ok(MANGROVE_OK)
    })
}

/// Asks the caller's function whether to continue.
pub(crate) unsafe fn ask(
    callback: mangrove_progress_callback,
    context: *mut c_void,
    p: Progress,
) -> ControlFlow<()> {
    let Some(callback) = callback else { return ControlFlow::Continue(()) };
    let progress = mangrove_progress { records: p.records, records_total: p.records_total, bytes: p.bytes };
    // SAFETY: the caller's function, called as the header says.
    match unsafe { callback(&raw const progress, context) } {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    }
}
