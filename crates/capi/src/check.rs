//! Checks of a map and of a pool.

use crate::bytes::allocate;
use crate::map::mangrove_map;
use crate::status::mangrove_status::*;
use crate::status::{Answer, guard, mangrove_status};
use mangrove_cabi::{handle, on_own_thread, path, put_out};
use std::ffi::c_char;

/// Returns OK, or UNSOUND with the problems, one a line.
pub(crate) unsafe fn answer(problems: &[String], to: *mut *mut c_char) -> Answer {
    if problems.is_empty() {
        return Ok(MANGROVE_OK);
    }
    if !to.is_null() {
        let lines = problems.join("\n").replace('\0', "?");
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(to, allocate(lines.as_bytes())?.cast()) };
    }
    Ok(MANGROVE_UNSOUND)
}

/// Reads every record against its checksums and every structure against its rules, while readers
/// continue and writers wait. Returns MANGROVE_UNSOUND when something is wrong: *problems is then
/// text, one problem a line, to give back with mangrove_free; otherwise NULL. *records is how many
/// records are sound. Both may be NULL.
/// Errors: only when the check itself cannot run. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_check(
    map: *const mangrove_map,
    records: *mut u64,
    problems: *mut *mut c_char,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe {
            put_out(records, 0);
            put_out(problems, std::ptr::null_mut());
        }
        // SAFETY: the header's contract for handles.
        let report = unsafe { handle(map, "map") }?.map.check()?;
        // SAFETY: as above.
        unsafe {
            put_out(records, report.records);
            answer(&report.problems, problems)
        }
    })
}

/// Reads every byte of the pool at `path` against its checksums, without opening the map in it; of a heap,
/// also its roots, what they point to, and every structure of its allocator. Writes nothing. Returns
/// MANGROVE_UNSOUND when something is damaged, with *problems (which may be NULL) as in mangrove_map_check.
/// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_BUSY, _FOREIGN, _NEWER, _CORRUPT, _IO; of a heap,
/// _UNSUPPORTED: something else lies at its address. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_pool_check(
    path: *const c_char,
    problems: *mut *mut c_char,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(problems, std::ptr::null_mut()) };
        // SAFETY: the header's contract for paths.
        let path = unsafe { self::path(path, "path") }?.to_owned();
        let found = on_own_thread(move || mangrove::pool_check(path))?;
        // SAFETY: as above.
        unsafe { answer(&found, problems) }
    })
}
