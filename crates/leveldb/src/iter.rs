//! Iterators.

use crate::bytes::{give, handle, slice, take_back};
use crate::db::leveldb_t;
use crate::engine::Cursor;
use crate::options::leveldb_readoptions_t;
use crate::status::{Failure, Result, guard, tell};
use std::ffi::c_char;
use std::ptr;

/// Where key and value of the present record lie.
#[derive(Clone, Copy)]
struct Present {
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
}

/// A place among the records of one instant. One thread at a time.
pub struct leveldb_iterator_t {
    /// None when the iterator could not be made, or has failed.
    cursor: Option<Box<dyn Cursor>>,
    /// What the cursor stands on: looked at several times between two moves.
    present: Option<Present>,
    /// Why it stands nowhere.
    error: Option<Failure>,
}

impl leveldb_iterator_t {
    #[inline]
    fn go(&mut self, walk: impl FnOnce(&mut dyn Cursor) -> Result<()>) {
        let Some(cursor) = &mut self.cursor else { return };
        let mut told: *mut c_char = ptr::null_mut();
        let mut failure = None;
        // SAFETY: a string of this function's own.
        let done = unsafe {
            guard(&raw mut told, || walk(&mut **cursor).inspect_err(|f| failure = Some(f.clone())))
        };
        if done.is_none() {
            (self.cursor, self.present) = (None, None);
            self.error = failure.or_else(|| Some(Failure::corruption("a bug in Mangrove; please report it")));
            // SAFETY: from malloc(), or NULL.
            unsafe { libc::free(told.cast()) };
            return;
        }
        self.present = cursor.record().map(|(key, value)| Present {
            key: key.as_ptr().cast(),
            key_len: key.len(),
            value: value.as_ptr().cast(),
            value_len: value.len(),
        });
    }
}

/// An iterator over the records of the snapshot in the options, or of this instant. It stands nowhere;
/// why not, if it could not be made, leveldb_iter_get_error() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    let mut iterator = leveldb_iterator_t { cursor: None, present: None, error: None };
    // SAFETY: the API's contract: live handles.
    let view = unsafe { handle(db, "db").and_then(|db| db.view(handle(options, "options")?)) };
    match view {
        Ok(view) => iterator.cursor = Some(view.cursor()),
        Err(failure) => iterator.error = Some(failure),
    }
    give(iterator)
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the API's contract: a live handle, not used any more.
    unsafe { take_back(iterator) };
}

/// 1 when the iterator stands on a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    // SAFETY: the API's contract: a live handle.
    u8::from(unsafe { iterator.as_ref() }.is_some_and(|i| i.present.is_some()))
}

/// Makes an entry point that moves an iterator.
macro_rules! moves {
    ($(#[$doc:meta])* $name:ident, $how:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(iterator: *mut leveldb_iterator_t) {
            // SAFETY: the API's contract: a live handle that nobody else uses now.
            if let Some(iterator) = unsafe { iterator.as_mut() } {
                iterator.go(|cursor| cursor.$how());
            }
        }
    };
}

moves!(
    /// Goes to the first record.
    leveldb_iter_seek_to_first,
    seek_to_first
);
moves!(
    /// Goes to the last record.
    leveldb_iter_seek_to_last,
    seek_to_last
);
moves!(
    /// Goes to the next record.
    leveldb_iter_next,
    next
);
moves!(
    /// Goes to the record before.
    leveldb_iter_prev,
    prev
);

/// Goes to the first record whose key is `key` or comes after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: *mut leveldb_iterator_t,
    key: *const c_char,
    key_len: usize,
) {
    // SAFETY: the API's contract: a live handle that nobody else uses now, and readable bytes.
    unsafe {
        if let Some(iterator) = iterator.as_mut() {
            iterator.go(|cursor| cursor.seek(slice(key, key_len)));
        }
    }
}

/// Makes an entry point that hands out a part of the record. The bytes stay until the iterator moves.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident, $part:ident, $part_len:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(iterator: *const leveldb_iterator_t, len: *mut usize) -> *const c_char {
            // SAFETY: the API's contract: a live handle, and room for a length.
            unsafe {
                let present = iterator.as_ref().and_then(|i| i.present);
                if let Some(len) = len.as_mut() {
                    *len = present.map_or(0, |p| p.$part_len);
                }
                present.map_or(ptr::null(), |p| p.$part)
            }
        }
    };
}

part!(
    /// The key of the record that the iterator stands on; NULL when it stands on none.
    leveldb_iter_key,
    key,
    key_len
);
part!(
    /// The value of the record that the iterator stands on; NULL when it stands on none.
    leveldb_iter_value,
    value,
    value_len
);

/// Why the iterator stands nowhere, if something went wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: *const leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the API's contract: a live handle, an error string or NULL.
    unsafe {
        if let Some(error) = iterator.as_ref().and_then(|i| i.error.as_ref()) {
            tell(errptr, error);
        }
    }
}
