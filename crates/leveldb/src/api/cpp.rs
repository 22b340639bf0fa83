//! What the C++ classes (`cpp/src`) need beyond the C API. `cpp/src/engine.h` declares these entry points; no program
//! calls them.

use crate::api::db::leveldb_t;
use crate::api::handles::leveldb_snapshot_t;
use crate::api::options::leveldb_options_t;
use crate::bytes::slice;
use crate::change_list::ChangeList;
use crate::engine::memory_engine::MemoryEngine;
use crate::order::note_no_answer;
use crate::status::{guard, guard_look_up};
use mangrove_cabi::{give, handle};
use std::ffi::{c_char, c_void};
use std::ptr;

/// The version of Mangrove. A library that has this name under LevelDB's file name is not LevelDB.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_leveldb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// As leveldb_write(), with the batch in the bytes of a C++ batch (`change_list.rs`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_leveldb_write(
    db: *mut leveldb_t,
    sync: u8,
    batch: *const c_char,
    batch_len: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the classes' contract: a live handle, readable bytes, an error string or NULL.
    unsafe {
        guard(errptr, || {
            let batch = ChangeList::verified(slice(batch, batch_len)?)?;
            handle(db, "db")?.engine()?.write(batch, sync != 0)
        });
    }
}

/// As leveldb_get(), and calls `found` with the value instead of copying it. Returns 1 when there is a value and it
/// may be used. When reading fails after all, `found` may have been called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_leveldb_get(
    db: *mut leveldb_t,
    snapshot: *const leveldb_snapshot_t,
    key: *const c_char,
    key_len: usize,
    found: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    state: *mut c_void,
    errptr: *mut *mut c_char,
) -> u8 {
    let mut there = false;
    // SAFETY: the classes' contract: live handles, readable bytes, an error string or NULL; `found` may be called with
    // `state` and readable bytes.
    let read = unsafe {
        guard_look_up(errptr, || {
            handle(db, "db")?.get(snapshot, slice(key, key_len)?, &mut |value| {
                there = true;
                found(state, value.as_ptr().cast(), value.len());
            })
        })
    };
    u8::from(read.is_some() && there)
}

/// A new database in memory only, with the options' order; leveldb_close() frees it. NULL on error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_leveldb_open_memory(
    options: *const leveldb_options_t,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the classes' contract: live options, an error string or NULL.
    let engine = unsafe { guard(errptr, || MemoryEngine::new(&handle(options, "options")?.order()?)) };
    engine.map_or(ptr::null_mut(), |engine| give(leveldb_t::new(Box::new(engine), "memory")))
}

/// The comparator that the engine calls at this moment threw an exception, and its answer means nothing.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_leveldb_comparator_threw() {
    note_no_answer();
}
