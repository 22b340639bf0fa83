//! Write batches of the C API: their entry points.

use crate::bytes::slice;
use crate::change_list::{Change, ChangeBytes, ChangeList};
use crate::status::{Failure, Result};
use mangrove_cabi::{give, take_back};
use std::ffi::{c_char, c_void};

/// Puts and deletions that take effect together.
#[derive(Clone, Debug, Default)]
pub struct leveldb_writebatch_t {
    bytes: ChangeBytes,
    /// Why the first entry that could not be added was refused.
    refused: Option<Failure>,
}

impl leveldb_writebatch_t {
    fn append(&mut self, other: &Self) {
        if self.bytes.has_room(other.bytes.list().len()) {
            self.bytes.append(&other.bytes);
        } else {
            self.refuse(too_many());
        }
        if let Some(failure) = &other.refused {
            self.refuse(failure.clone());
        }
    }

    /// Remembers that an entry could not be added, so that the batch is not applied without it.
    fn refuse(&mut self, failure: Failure) {
        self.refused.get_or_insert(failure);
    }

    /// The entries; fails if one could not be added.
    pub(crate) fn list(&self) -> Result<ChangeList<'_>> {
        self.refused.clone().map_or(Ok(self.bytes.list()), Err)
    }
}

#[cold]
fn too_many() -> Failure {
    Failure::invalid(format!("a batch has at most {} changes", u32::MAX))
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    give(leveldb_writebatch_t::default())
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(batch) };
}

/// Removes all entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the API's contract: a live handle that no other thread uses now.
    if let Some(batch) = unsafe { batch.as_mut() } {
        batch.bytes.clear();
        batch.refused = None;
    }
}

/// Adds "set `key` to `value`".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) {
    // SAFETY: the API's contract: a live handle that no other thread uses now, and readable bytes.
    unsafe {
        if let Some(batch) = batch.as_mut() {
            match (slice(key, key_len), slice(value, value_len)) {
                (Ok(key), Ok(value)) if batch.bytes.has_room(1) => batch.bytes.put(key, value),
                (Ok(_), Ok(_)) => batch.refuse(too_many()),
                (Err(failure), _) | (_, Err(failure)) => batch.refuse(failure),
            }
        }
    }
}

/// Adds "remove `key`", which need not be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    key_len: usize,
) {
    // SAFETY: the API's contract: a live handle that no other thread uses now, and readable bytes.
    unsafe {
        if let Some(batch) = batch.as_mut() {
            match slice(key, key_len) {
                Ok(key) if batch.bytes.has_room(1) => batch.bytes.delete(key),
                Ok(_) => batch.refuse(too_many()),
                Err(failure) => batch.refuse(failure),
            }
        }
    }
}

/// Calls `put` or `deleted` for each entry, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
) {
    // SAFETY: the API's contract: a live handle.
    let (Some(batch), Some(put), Some(deleted)) = (unsafe { batch.as_ref() }, put, deleted) else { return };
    for change in batch.bytes.list().changes() {
        // SAFETY: the API's contract for the callbacks; the slices outlive the calls.
        unsafe {
            match change {
                Change::Put(k, v) => put(state, k.as_ptr().cast(), k.len(), v.as_ptr().cast(), v.len()),
                Change::Delete(k) => deleted(state, k.as_ptr().cast(), k.len()),
            }
        }
    }
}

/// Appends the entries of `source` to those of `destination`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    // SAFETY: the API's contract: live handles. A batch may be appended to itself, so the source is
    // copied before the destination is borrowed.
    unsafe {
        let Some(source) = source.as_ref().cloned() else { return };
        if let Some(destination) = destination.as_mut() {
            destination.append(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_with_more_changes_than_it_can_count_is_refused() {
        let adds: [fn(&mut leveldb_writebatch_t); 3] = [
            // SAFETY: a live batch, readable bytes.
            |batch| unsafe { leveldb_writebatch_put(batch, c"k".as_ptr(), 1, c"v".as_ptr(), 1) },
            // SAFETY: as above.
            |batch| unsafe { leveldb_writebatch_delete(batch, c"k".as_ptr(), 1) },
            |batch| {
                let mut other = leveldb_writebatch_t::default();
                other.bytes.delete(b"k");
                batch.append(&other);
            },
        ];
        for add in adds {
            let bytes = ChangeBytes::that_counts(u32::MAX - 1);
            let mut batch = leveldb_writebatch_t { bytes, refused: None };
            add(&mut batch);
            assert_eq!(batch.list().unwrap().len(), u32::MAX as usize);
            add(&mut batch);
            let said = batch.list().unwrap_err().to_string();
            assert_eq!(said, "Invalid argument: a batch has at most 4294967295 changes");
        }
    }
}
