//! One instant of a map.

use crate::bytes::{allocate, check_buffer, fill};
use crate::map::mangrove_map;
use crate::status::mangrove_status::*;
use crate::status::{guard, mangrove_status};
use mangrove::Snapshot;
use mangrove_cabi::{give, handle, out, slice, take_back};
use std::ffi::c_void;
use std::sync::Arc;

/// A map as it was at one instant, to read from while writers continue. Costs DRAM for each record that
/// changes while it lives, bounded by mangrove_options_set_snapshot_bytes_max; beyond that, reads
/// return MANGROVE_ERR_SNAPSHOT_EXPIRED.
pub struct mangrove_snapshot(pub(crate) Arc<Snapshot<'static>>);

/// Takes a snapshot. Waits for the writes that are under way, not for any reader.
/// Errors: MANGROVE_ERR_POISONED. A crash ends it, as it ends the process.
/// Give back with mangrove_snapshot_free, before the map is closed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_snapshot(
    map: *const mangrove_map,
    snapshot: *mut *mut mangrove_snapshot,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (snapshot, map) =
            unsafe { (out(snapshot, std::ptr::null_mut(), "snapshot")?, handle(map, "map")?) };
        *snapshot = give(mangrove_snapshot(Arc::new(map.map.snapshot_owned()?)));
        Ok(MANGROVE_OK)
    })
}

/// Frees a snapshot. Iterators made from it stay valid, and keep what they need of it. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_snapshot_free(snapshot: *mut mangrove_snapshot) {
    guard(|| {
        // SAFETY: NULL, or from mangrove_map_snapshot and, by contract, not freed before.
        unsafe { take_back(snapshot) };
        Ok(MANGROVE_OK)
    });
}

/// As mangrove_map_get, at the snapshot's instant. One more error: MANGROVE_ERR_SNAPSHOT_EXPIRED.
/// Give *value back with mangrove_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_snapshot_get(
    snapshot: *const mangrove_snapshot,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        let (value, value_len) =
            unsafe { (out(value, std::ptr::null_mut(), "value"), out(value_len, 0, "value_len")) };
        let (value, value_len) = (value?, value_len?);
        // SAFETY: the header's contract for handles and bytes.
        let (snapshot, key) = unsafe { (handle(snapshot, "snapshot")?, slice(key, key_len, "key")?) };
        let Some(found) = snapshot.0.get(key)? else { return Ok(MANGROVE_NOT_FOUND) };
        *value = allocate(&found)?;
        *value_len = found.len();
        Ok(MANGROVE_OK)
    })
}

/// As mangrove_map_get_into, at the snapshot's instant. One more error:
/// MANGROVE_ERR_SNAPSHOT_EXPIRED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_snapshot_get_into(
    snapshot: *const mangrove_snapshot,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        let value_len = unsafe { out(value_len, 0, "value_len") }?;
        // SAFETY: the header's contract for handles and bytes.
        let (snapshot, key) = unsafe { (handle(snapshot, "snapshot")?, slice(key, key_len, "key")?) };
        check_buffer(buffer, capacity)?;
        let Some(found) = snapshot.0.get(key)? else { return Ok(MANGROVE_NOT_FOUND) };
        // SAFETY: the buffer was checked, and the header says that `capacity` bytes are there.
        unsafe { fill(&found, buffer, capacity, value_len) }
    })
}

/// How many records there were at the snapshot's instant, in *len.
/// Errors: as mangrove_map_len. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_snapshot_len(
    snapshot: *const mangrove_snapshot,
    len: *mut u64,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (len, snapshot) = unsafe { (out(len, 0, "len"), handle(snapshot, "snapshot")) };
        *len? = snapshot?.0.len()?;
        Ok(MANGROVE_OK)
    })
}
