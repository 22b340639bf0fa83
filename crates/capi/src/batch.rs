//! Writes that take effect together, and the removal of ranges.

use crate::bytes::optional;
use crate::iter::{mangrove_range, removal_bounds};
use crate::map::mangrove_map;
use crate::status::mangrove_status::*;
use crate::status::{guard, mangrove_status};
use mangrove::Batch;
use mangrove_cabi::{give, handle, handle_mut, put_out, slice, take_back};
use std::ffi::c_void;

/// A list of puts and deletes for mangrove_map_write. Costs the memory of its keys and values.
/// Threads: one at a time.
pub struct mangrove_batch(Batch);

/// An empty batch. Never NULL. Give back with mangrove_batch_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_batch_new() -> *mut mangrove_batch {
    give(mangrove_batch(Batch::new()))
}

/// Frees a batch; entries that were not written are forgotten. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_free(batch: *mut mangrove_batch) {
    // SAFETY: NULL, or from mangrove_batch_new and, by contract, not freed before.
    unsafe { take_back(batch) };
}

/// Adds "set `key` to `value`". Of several entries for one key the last one counts.
/// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG; the batch is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_put(
    batch: *mut mangrove_batch,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and bytes.
        let (batch, key, value) = unsafe {
            (handle_mut(batch, "batch")?, slice(key, key_len, "key")?, slice(value, value_len, "value")?)
        };
        check_limits(key, value)?;
        batch.0.put(key, value);
        Ok(MANGROVE_OK)
    })
}

/// Adds "remove `key`", which need not be there.
/// Errors: MANGROVE_ERR_KEY_TOO_LONG; the batch is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_delete(
    batch: *mut mangrove_batch,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and bytes.
        let (batch, key) = unsafe { (handle_mut(batch, "batch")?, slice(key, key_len, "key")?) };
        check_limits(key, &[])?;
        batch.0.delete(key);
        Ok(MANGROVE_OK)
    })
}

/// Adds a condition: the batch takes effect only if `key` has the value `expected` at that moment, or is
/// absent where `expected` is NULL (the empty value is a pointer to anything and the length 0). Otherwise
/// mangrove_map_write returns MANGROVE_MISMATCH and changes nothing.
/// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG; the batch is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_expect(
    batch: *mut mangrove_batch,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and bytes.
        let (batch, key, expected) = unsafe {
            (
                handle_mut(batch, "batch")?,
                slice(key, key_len, "key")?,
                optional(expected, expected_len, "expected")?,
            )
        };
        check_limits(key, expected.unwrap_or_default())?;
        batch.0.expect(key, expected);
        Ok(MANGROVE_OK)
    })
}

/// The facade checks limits when a batch is written; here the wrong call itself fails.
fn check_limits(key: &[u8], value: &[u8]) -> mangrove::Result<()> {
    use mangrove::{Error, KEY_BYTES_MAX, VALUE_BYTES_MAX};
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { len: key.len() as u64, max: KEY_BYTES_MAX as u64 });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { len: value.len() as u64, max: VALUE_BYTES_MAX as u64 });
    }
    Ok(())
}

/// Puts and deletes added; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_len(batch: *const mangrove_batch) -> usize {
    // SAFETY: the header's contract for handles. Nothing here can panic.
    unsafe { batch.as_ref() }.map_or(0, |b| b.0.len())
}

/// Bytes of all keys and values added; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_bytes(batch: *const mangrove_batch) -> u64 {
    // SAFETY: the header's contract for handles. Nothing here can panic.
    unsafe { batch.as_ref() }.map_or(0, |b| b.0.bytes())
}

/// Forgets all entries and conditions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_batch_clear(batch: *mut mangrove_batch) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        unsafe { handle_mut(batch, "batch") }?.0.clear();
        Ok(MANGROVE_OK)
    })
}

/// Applies a batch: all of it or nothing, and no reader sees a part. The entries move into the map:
/// afterwards the batch is empty, whatever the result, and may be filled again.
///
/// Returns MANGROVE_MISMATCH, and changes nothing, when a record is not as the batch expects.
/// Errors: MANGROVE_ERR_READ_ONLY, _NO_SPACE, _FULL: nothing of it happened. MANGROVE_ERR_POISONED, _IO:
/// not acknowledged; it may survive a restart, as a whole, or not.
/// Crash: once acknowledged all of it is kept; during the call all of it or nothing.
/// Threads: any for the map, one at a time for the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_write(
    map: *const mangrove_map,
    batch: *mut mangrove_batch,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let (map, batch) = unsafe { (handle(map, "map")?, handle_mut(batch, "batch")?) };
        match map.map.write(std::mem::take(&mut batch.0)) {
            Err(mangrove::Error::Mismatch { .. }) => Ok(MANGROVE_MISMATCH),
            written => Ok(written.map(|()| MANGROVE_OK)?),
        }
    })
}

/// Removes every key in `range`, all or nothing; it takes no space, also on a full map. *removed, which may be
/// NULL, is how many there were. To remove every key give { .flags = MANGROVE_RANGE_EVERYTHING }: NULL, or a
/// range with neither start nor end, or with an empty start and no end, is MANGROVE_ERR_INVALID_ARGUMENT here.
/// Errors and crash: as mangrove_map_write. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_delete_range(
    map: *const mangrove_map,
    range: *const mangrove_range,
    removed: *mut u64,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(removed, 0) };
        // SAFETY: the header's contract for handles and ranges.
        let (map, bounds) = unsafe { (handle(map, "map")?, removal_bounds(range)?) };
        let count = map.map.delete_range::<Vec<u8>>(bounds)?;
        // SAFETY: as above.
        unsafe { put_out(removed, count) };
        Ok(MANGROVE_OK)
    })
}
