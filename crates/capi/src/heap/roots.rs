//! Roots: where a program begins to look, by name.

use super::frame::{End, mangrove_tx, with_tx};
use crate::map::yes_or;
use crate::status::mangrove_status::*;
use crate::status::{Failure, mangrove_status};
use mangrove_cabi::{out, put_out, text};
use std::ffi::{c_char, c_void};

unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a str, End> {
    // SAFETY: the header's contract for text.
    let name = unsafe { text(name, "name") }?;
    // The C++ header passes a NUL as bytes that are no UTF-8.
    name.to_str().map_err(|_| Failure::invalid("'name' is not UTF-8, or holds a NUL byte").into())
}

/// What the root `name` points to, into *at. Returns MANGROVE_NOT_FOUND, with *at NULL, when there is no
/// such root. `bytes` is the size of what it points to, and must be what it was set with, from any language:
/// MANGROVE_ERR_INVALID_ARGUMENT otherwise. Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_root(
    tx: *mut mangrove_tx,
    name: *const c_char,
    bytes: usize,
    at: *mut *mut c_void,
) -> mangrove_status {
    // SAFETY: the header's contract for out-parameters. (Also where there is no transaction.)
    unsafe { put_out(at, std::ptr::null_mut()) };
    with_tx(tx, |access| {
        // SAFETY: the header's contract for out-parameters and text.
        let (at, name) = unsafe { (out(at, std::ptr::null_mut(), "at")?, name_of(name)?) };
        let Some(found) = access.tx().root_bytes(name, bytes as u64)? else { return Ok(MANGROVE_NOT_FOUND) };
        *at = std::ptr::with_exposed_provenance_mut(found);
        Ok(MANGROVE_OK)
    })
}

/// Makes the root `name` (1 to MANGROVE_ROOT_NAME_BYTES_MAX bytes of UTF-8) point to `at`, where `bytes`
/// bytes lie; replaces one of the same name.
/// Errors: MANGROVE_ERR_INVALID_ARGUMENT: the name, or there are MANGROVE_ROOT_COUNT_MAX roots already.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_set_root(
    tx: *mut mangrove_tx,
    name: *const c_char,
    at: *const c_void,
    bytes: usize,
) -> mangrove_status {
    with_tx(tx, |access| {
        // SAFETY: the header's contract for text.
        let name = unsafe { name_of(name) }?;
        if !at.is_null() {
            access.must_hold(at.addr(), bytes)?;
        }
        access.tx().set_root_bytes(name, at.addr(), bytes as u64)?;
        Ok(MANGROVE_OK)
    })
}

/// Removes the root `name`; what it pointed to stays. Returns MANGROVE_NOT_FOUND when there is none.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_remove_root(
    tx: *mut mangrove_tx,
    name: *const c_char,
) -> mangrove_status {
    with_tx(tx, |access| {
        // SAFETY: the header's contract for text.
        let name = unsafe { name_of(name) }?;
        Ok(yes_or(access.tx().remove_root(name)?, MANGROVE_NOT_FOUND))
    })
}
