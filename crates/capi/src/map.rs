//! Opening, single keys, durability, closing.

use crate::bytes::{allocate, caller_buffer, optional, overlaps};
use crate::options::mangrove_options;
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, guard_look_up, mangrove_status};
use mangrove::Map;
use mangrove_cabi::{Checked, array, array_out, give, handle, on_own_thread, out, path, slice};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// The most bytes of a key. The empty key is a key.
pub const MANGROVE_KEY_BYTES_MAX: usize = 1024;
/// The most bytes of a value: 1 GiB.
pub const MANGROVE_VALUE_BYTES_MAX: usize = 1073741824;

// The header needs the numbers as literals; they are the facade's.
const _: () = assert!(MANGROVE_KEY_BYTES_MAX == mangrove::KEY_BYTES_MAX);
const _: () = assert!(MANGROVE_VALUE_BYTES_MAX == mangrove::VALUE_BYTES_MAX);

/// An open map. Snapshots and iterators of it must be freed before it can be closed.
pub struct mangrove_map {
    /// Shared with the snapshots, which keep it open.
    pub(crate) map: Arc<Map>,
}

const _: fn() = || {
    fn any_thread<T: Send + Sync>() {}
    any_thread::<mangrove_map>();
};

pub(crate) const fn yes_or(answer: bool, otherwise: mangrove_status) -> mangrove_status {
    if answer { MANGROVE_OK } else { otherwise }
}

/// The caller's keys.
///
/// # Safety
/// The header's contract for arrays and bytes.
unsafe fn keys_of<'a>(
    keys: *const *const c_void,
    key_lens: *const usize,
    count: usize,
) -> Checked<Vec<&'a [u8]>> {
    // SAFETY: the caller's contract.
    let (keys, key_lens) = unsafe { (array(keys, count, "keys")?, array(key_lens, count, "key_lens")?) };
    // SAFETY: as above.
    keys.iter().zip(key_lens).map(|(key, len)| unsafe { slice(*key, *len, "keys[i]") }).collect()
}

/// Runs `body` with the caller's map and key.
///
/// # Safety
/// The header's contract for handles and bytes.
unsafe fn with_key(
    map: *const mangrove_map,
    key: (*const c_void, usize),
    body: impl FnOnce(&Map, &[u8]) -> Result<mangrove_status, Failure>,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (map, key) = unsafe { (handle(map, "map")?, slice(key.0, key.1, "key")?) };
        body(&map.map, key)
    })
}

/// Runs `body` with the caller's map, key and value.
///
/// # Safety
/// The header's contract for handles and bytes.
unsafe fn with_record(
    map: *const mangrove_map,
    key: (*const c_void, usize),
    value: (*const c_void, usize),
    body: impl FnOnce(&Map, &[u8], &[u8]) -> Result<mangrove_status, Failure>,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (map, key, value) =
            unsafe { (handle(map, "map")?, slice(key.0, key.1, "key")?, slice(value.0, value.1, "value")?) };
        body(&map.map, key, value)
    })
}

/// Opens the pool at `path`, a directory, and recovers the map in it. `options` may be NULL: then
/// the pool is created when missing, with all defaults.
///
/// Time: reads the pool's data file once, and its log, plus about 100 ns a record and CPU. Of a
/// large map that was closed, milliseconds; then the calls that need the whole map wait that long
/// (mangrove_options_set_background_recovery), and report what is found to be damaged.
/// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_EXISTS, _POOL_BUSY, _FOREIGN, _NEWER, _WRONG_KIND,
/// _CORRUPT, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY, _UNSUPPORTED, _IO; the pool is as it was.
/// Crash: during a creation it leaves either no pool or a whole one, which opens.
/// Give back with mangrove_map_close. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_open(
    path: *const c_char,
    options: *const mangrove_options,
    map: *mut *mut mangrove_map,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters, paths and handles.
        let (map, path, options) =
            unsafe { (out(map, std::ptr::null_mut(), "map")?, self::path(path, "path")?, options.as_ref()) };
        let options = options.map_or_else(Map::options, mangrove_options::for_open);
        let path = path.to_owned();
        let opened = on_own_thread(move || options.open(path))?;
        *map = give(mangrove_map { map: Arc::new(opened) });
        Ok(MANGROVE_OK)
    })
}

/// Makes everything durable, brings the data file up to date, marks the pool clean, unlocks it and
/// frees the handle.
///
/// Errors: MANGROVE_ERR_IN_USE: snapshots or iterators are alive; the map stays open and the handle
/// valid. After any other result the handle is gone. MANGROVE_ERR_POISONED, _IO: the pool is not clean;
/// what was acknowledged is in its log all the same. Of a map that could not be recovered in the
/// background, the error that says why: nothing was written.
/// A process that ends without closing loses nothing acknowledged; the next opening replays the log.
/// Closing twice is undefined, as is a call on the map that runs at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_close(map: *mut mangrove_map) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        if Arc::strong_count(&unsafe { handle(map, "map") }?.map) > 1 {
            return Err(Failure::new(
                MANGROVE_ERR_IN_USE,
                "the map has snapshots or iterators that are alive; free them, then close",
            ));
        }
        // SAFETY: not null, from mangrove_map_open and, by contract, not closed before.
        let map = unsafe { Box::from_raw(map) }.map;
        // The count was 1, and only a call on this map could have raised it.
        Arc::into_inner(map)
            .ok_or_else(|| Failure::new(MANGROVE_ERR_INTERNAL, "the map was used while it was being closed"))?
            .close()?;
        Ok(MANGROVE_OK)
    })
}

/// The value of `key`, copied into new memory: give *value back with mangrove_free. One NUL byte
/// follows it that *value_len does not count, so text can be printed as it is.
///
/// Returns MANGROVE_NOT_FOUND, with *value NULL and *value_len 0, when there is no such key.
/// Errors: MANGROVE_ERR_KEY_TOO_LONG; _CORRUPT: the value is not what was written; _POISONED: it was
/// never made durable; _NO_MEMORY. While the durability is sync, it never returns a value that a crash
/// could still undo.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_get(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
) -> mangrove_status {
    guard_look_up(|| {
        // SAFETY: the header's contract for out-parameters, handles and bytes.
        let (value, value_len) =
            unsafe { (out(value, std::ptr::null_mut(), "value"), out(value_len, 0, "value_len")) };
        let (value, value_len) = (value?, value_len?);
        // SAFETY: as above.
        let (map, key) = unsafe { (handle(map, "map")?, slice(key, key_len, "key")?) };
        match map.map.get_with(key, |v| Ok((allocate(v)?, v.len())))? {
            Some(copy) => (*value, *value_len) = copy.map_err(|f: Failure| f)?,
            None => return Ok(MANGROVE_NOT_FOUND),
        }
        Ok(MANGROVE_OK)
    })
}

/// The value of `key`, copied into the caller's `buffer` of `capacity` bytes. *value_len is the length
/// of the value in any case, so a call with (NULL, 0) finds it out. No NUL is added.
///
/// Returns MANGROVE_BUFFER_TOO_SMALL when the value does not fit, and MANGROVE_NOT_FOUND when there is
/// no such key. After any result but MANGROVE_OK the buffer may hold anything: the value is copied
/// once, and checked as it is copied. The key may lie in the buffer.
/// Errors: as mangrove_map_get, also where only the length is asked for. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_get_into(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
) -> mangrove_status {
    guard_look_up(|| {
        // SAFETY: the header's contract for out-parameters, handles and bytes.
        let value_len = unsafe { out(value_len, 0, "value_len") }?;
        // SAFETY: as above.
        let (map, key) = unsafe { (handle(map, "map")?, slice(key, key_len, "key")?) };
        // A lookup reads the key again when the value is in the buffer.
        let copy;
        let key = if key.len() <= MANGROVE_KEY_BYTES_MAX && overlaps(key, buffer, capacity) {
            copy = key.to_vec();
            &copy[..]
        } else {
            key
        };
        // SAFETY: as above, and the header says that `capacity` bytes are there.
        let buffer = unsafe { caller_buffer(buffer, capacity)? };
        match map.map.get_to(key, buffer)? {
            Some(len) => {
                *value_len = len;
                Ok(yes_or(len <= capacity, MANGROVE_BUFFER_TOO_SMALL))
            }
            None => Ok(MANGROVE_NOT_FOUND),
        }
    })
}

/// The values of `count` keys. All four arrays have `count` elements: the keys, their lengths, and in
/// their order copies of their values and the lengths of these; give each copy back with mangrove_free.
/// A copy is NULL where there is no such key; a NUL byte follows it, as in mangrove_map_get. Where the
/// map is larger than the processor's caches, this takes a fraction of the time of single calls,
/// because the cache misses of the lookups overlap.
///
/// Each value is what mangrove_map_get would return at some moment during the call; for values of one
/// moment see mangrove_map_snapshot. Returns MANGROVE_OK whether keys are there or not. One array may
/// hold the keys' lengths before the call and the values' after it.
/// Errors: as mangrove_map_get, at the first key that fails: then every copy is NULL. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_get_many(
    map: *const mangrove_map,
    count: usize,
    keys: *const *const c_void,
    key_lens: *const usize,
    values: *mut *mut c_void,
    value_lens: *mut usize,
) -> mangrove_status {
    guard_look_up(|| {
        // Before the lengths of the values are set, which may lie in the same array.
        // SAFETY: the header's contract for arrays, NULL or `count` elements each, and for bytes.
        let wanted = unsafe { keys_of(keys, key_lens, count) };
        // SAFETY: as above.
        let (values, value_lens) = unsafe {
            (
                array_out(values, count, std::ptr::null_mut(), "values")?,
                array_out(value_lens, count, 0, "value_lens")?,
            )
        };
        // SAFETY: the header's contract for handles.
        let map = unsafe { handle(map, "map") }?;
        let keys = wanted?;
        let mut failure = None;
        let read = map.map.get_many_with(&keys, |place, value| match value.map(allocate) {
            Some(Ok(copy)) => {
                (values[place], value_lens[place]) = (copy, value.map_or(0, <[u8]>::len));
            }
            Some(Err(no_memory)) => failure = Some(no_memory),
            None => {}
        });
        if let Some(failure) = read.err().map(Failure::from).or(failure) {
            for (value, len) in values.iter_mut().zip(value_lens) {
                // SAFETY: NULL, or from `allocate` above, and not handed out yet.
                unsafe { libc::free(*value) };
                (*value, *len) = (std::ptr::null_mut(), 0);
            }
            return Err(failure);
        }
        Ok(MANGROVE_OK)
    })
}

/// MANGROVE_OK when `key` is there, MANGROVE_NOT_FOUND when not. Note that MANGROVE_OK is 0.
/// Errors: as mangrove_map_get. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_contains(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe { with_key(map, (key, key_len), |map, key| Ok(yes_or(map.contains(key)?, MANGROVE_NOT_FOUND))) }
}

/// Sets `key` to `value`.
///
/// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY: nothing
/// changed.
/// MANGROVE_ERR_POISONED, _IO: not acknowledged; it may survive a restart or not.
/// Crash: once acknowledged it is kept; during the call the key has its old or its new value, whole.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_put(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe {
        with_record(map, (key, key_len), (value, value_len), |map, key, value| {
            map.put(key, value)?;
            Ok(MANGROVE_OK)
        })
    }
}

/// As mangrove_map_put, but returns before the write is durable, whatever the durability. It becomes
/// durable within about 100 ms (mangrove_options_set_nowait_within), with interval durability within
/// about the interval, or when the process returns from main or calls exit, whichever comes first;
/// _exit and exec wait for nothing.
/// Crash: a prefix of such writes is kept; mangrove_map_sync waits for all. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_put_nowait(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe {
        with_record(map, (key, key_len), (value, value_len), |map, key, value| {
            map.put_nowait(key, value)?;
            Ok(MANGROVE_OK)
        })
    }
}

/// Sets `key` to `value` when `key` is absent; else returns MANGROVE_MISMATCH and changes nothing.
/// Errors and crash: as mangrove_map_put. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_insert_new(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe {
        with_record(map, (key, key_len), (value, value_len), |map, key, value| {
            Ok(yes_or(map.insert_new(key, value)?, MANGROVE_MISMATCH))
        })
    }
}

/// Removes `key`; returns MANGROVE_NOT_FOUND when it was not there.
/// Errors: as mangrove_map_put.
/// Crash: once acknowledged the key stays removed; during the call its record is there, whole, or removed.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_delete(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe { with_key(map, (key, key_len), |map, key| Ok(yes_or(map.delete(key)?, MANGROVE_NOT_FOUND))) }
}

/// As mangrove_map_delete, but returns before it is durable. See mangrove_map_put_nowait.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_delete_nowait(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    // SAFETY: the header's contract for handles and bytes.
    unsafe {
        with_key(map, (key, key_len), |map, key| Ok(yes_or(map.delete_nowait(key)?, MANGROVE_NOT_FOUND)))
    }
}

/// Changes `key` from `expected` to `desired`, with nothing in between; returns MANGROVE_MISMATCH, and
/// changes nothing, when the key is not as expected. A NULL pointer stands for "absent" here, on either
/// side: (NULL, 0) as `desired` removes the key; the empty value is a pointer to anything and the
/// length 0.
/// Errors and crash: as mangrove_map_put. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_compare_and_set(
    map: *const mangrove_map,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    desired: *const c_void,
    desired_len: usize,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and bytes.
        let (map, key) = unsafe { (handle(map, "map")?, slice(key, key_len, "key")?) };
        // SAFETY: as above.
        let (expected, desired) = unsafe {
            (optional(expected, expected_len, "expected")?, optional(desired, desired_len, "desired")?)
        };
        Ok(yes_or(map.map.compare_and_set(key, expected, desired)?, MANGROVE_MISMATCH))
    })
}

/// How many records are in the map, in *len; as with mangrove_map_get, no crash can undo them.
/// Beside writers the number is off by at most what they insert and remove during the call;
/// mangrove_snapshot_len is right at any time.
/// Errors: MANGROVE_ERR_POISONED when some may never have been made durable. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_len(map: *const mangrove_map, len: *mut u64) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (len, map) = unsafe { (out(len, 0, "len"), handle(map, "map")) };
        *len? = map?.map.len()?;
        Ok(MANGROVE_OK)
    })
}

/// Waits until every write that returned so far is durable.
/// Errors: MANGROVE_ERR_POISONED, _IO: some may not be. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_sync(map: *const mangrove_map) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        unsafe { handle(map, "map") }?.map.sync()?;
        Ok(MANGROVE_OK)
    })
}

/// Brings the pool's data file up to date and empties the log, so that the next opening has nothing to
/// replay. Happens by itself in the background; call it before copying files or measuring.
/// Errors: MANGROVE_ERR_POISONED, _IO. Crash: keeps what it would keep without the call. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_checkpoint(map: *const mangrove_map) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        unsafe { handle(map, "map") }?.map.checkpoint()?;
        Ok(MANGROVE_OK)
    })
}

/// Gives disk space and memory of deleted records back: moves what is left together and makes holes of free parts of
/// the data file. Others read and write meanwhile; writes wait while up to 2,000 records
/// are looked at, of which 50 move at most. Snapshots
/// (iterators too) keep copies of what moves, and may expire. On dax and emulated media space stays with the pool.
/// Errors: MANGROVE_ERR_READ_ONLY, _POISONED, _IO. Crash: keeps every record. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_compact(map: *const mangrove_map) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        unsafe { handle(map, "map") }?.map.compact()?;
        Ok(MANGROVE_OK)
    })
}
