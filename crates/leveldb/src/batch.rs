//! Write batches: the list itself, and its entry points.

use crate::bytes::slice;
use crate::status::{Failure, Result};
use mangrove_cabi::{give, take_back};
use std::ffi::{c_char, c_void};

/// What one entry does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// Where an entry's bytes begin, and how many there are.
#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    at: usize,
    key_len: usize,
    /// None for a deletion.
    value_len: Option<usize>,
}

/// Puts and deletions that take effect together. It costs its keys and values, and 40 bytes per entry.
#[derive(Clone, Debug, Default)]
pub struct leveldb_writebatch_t {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
    /// Why the first entry that could not be added was refused.
    refused: Option<Failure>,
}

impl leveldb_writebatch_t {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.push(BatchEntry {
            at: self.bytes.len(),
            key_len: key.len(),
            value_len: Some(value.len()),
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.entries.push(BatchEntry { at: self.bytes.len(), key_len: key.len(), value_len: None });
        self.bytes.extend_from_slice(key);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        let moved = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.entries.extend(other.entries.iter().map(|e| BatchEntry { at: e.at + moved, ..*e }));
        if let Some(failure) = &other.refused {
            self.refuse(failure.clone());
        }
    }

    /// Remembers that an entry could not be added, so that the batch is not applied without it.
    fn refuse(&mut self, failure: Failure) {
        self.refused.get_or_insert(failure);
    }

    /// Fails if an entry could not be added.
    pub(crate) fn is_whole(&self) -> Result<()> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// The entries, in the order in which they were added.
    pub(crate) fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> + Clone {
        self.entries.iter().map(|e| {
            let key = &self.bytes[e.at..e.at + e.key_len];
            match e.value_len {
                Some(len) => Change::Put(key, &self.bytes[e.at + e.key_len..e.at + e.key_len + len]),
                None => Change::Delete(key),
            }
        })
    }
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
        batch.entries.clear();
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
                (Ok(key), Ok(value)) => batch.put(key, value),
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
                Ok(key) => batch.delete(key),
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
    for change in batch.changes() {
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
    fn a_batch_says_what_was_put_into_it() {
        let mut batch = leveldb_writebatch_t::default();
        batch.put(b"", b"empty key");
        batch.delete(b"gone");
        batch.put(b"k", b"");
        let mut twice = batch.clone();
        twice.append(&batch);
        let expected = [Change::Put(b"", b"empty key"), Change::Delete(b"gone"), Change::Put(b"k", b"")];
        assert_eq!(twice.changes().collect::<Vec<_>>(), [expected, expected].concat());
    }
}
