//! Salvage of a damaged map.

use crate::backup::{ask, mangrove_progress_callback};
use crate::check::answer;
use crate::status::{guard, mangrove_status};
use mangrove::{Map, Progress};
use mangrove_cabi::{on_own_thread_asking, path, put_out};
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;

/// Copies every sound record of the map in the pool at `bad`, which may be damaged, into a new pool at
/// `path`; `bad` stays as it is. Left out are records whose bytes do not have their checksum, and the
/// writes of a log from its first damaged place on. `callback` and `context` are as in
/// mangrove_map_backup. *records, which may be NULL, is how many were copied.
///
/// Returns MANGROVE_UNSOUND when something is damaged: *damage, which may be NULL, is then text, one
/// damaged place a line, to give back with mangrove_free; otherwise NULL. The new pool is there then, too.
/// Errors: as mangrove_map_backup about `path`; about `bad`: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_BUSY,
/// _WRONG_KIND, _FOREIGN, _NEWER, _IO; _CORRUPT: its file `pool` is damaged, or another file is missing.
/// Crash: the new pool appears whole and durable, or not at all. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_salvage(
    bad: *const c_char,
    path: *const c_char,
    callback: mangrove_progress_callback,
    context: *mut c_void,
    records: *mut u64,
    damage: *mut *mut c_char,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe {
            put_out(records, 0);
            put_out(damage, std::ptr::null_mut());
        }
        // SAFETY: the header's contract for paths.
        let (bad, path) =
            unsafe { (self::path(bad, "bad")?.to_owned(), self::path(path, "path")?.to_owned()) };
        let copy = move |ask: &mut dyn FnMut(Progress) -> ControlFlow<()>| Map::salvage(bad, path, ask);
        // SAFETY: the caller's function, as the header says.
        let report = on_own_thread_asking(copy, |p| unsafe { ask(callback, context, p) })?;
        // SAFETY: as above.
        unsafe {
            put_out(records, report.records);
            answer(&report.damage, damage)
        }
    })
}
