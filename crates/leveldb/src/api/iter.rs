//! Iterators.

use crate::api::db::leveldb_t;
use crate::api::fork_guard::OwnedByProcess;
use crate::api::options::leveldb_readoptions_t;
use crate::bytes::slice;
use crate::engine::engine::RecordCursor;
use crate::status::{Failure, Result, caught, quietly, tell};
use mangrove_cabi::{give, handle, take_back};
use std::ffi::c_char;
use std::ptr;

/// Where key and value of the current record lie; `key` is NULL when there is none. The classes read it in place
/// (`cpp/src/engine.h` declares the same), so that a step of theirs takes no call more than one through the C API.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CurrentRecord {
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
}

impl CurrentRecord {
    const NONE: Self = Self { key: ptr::null(), key_len: 0, value: ptr::null(), value_len: 0 };
}

/// A place among the records of one instant. One thread at a time.
pub struct leveldb_iterator_t {
    /// None when the iterator could not be created, or has failed.
    cursor: Option<OwnedByProcess<Box<dyn RecordCursor>>>,
    /// The record that the cursor stands on; the caller reads it several times between two moves.
    current: CurrentRecord,
    /// Why the cursor stands on no record.
    error: Option<Failure>,
}

impl leveldb_iterator_t {
    #[inline]
    fn go(&mut self, walk: impl FnOnce(&mut dyn RecordCursor) -> Result<()>) {
        let Some(ours) = &mut self.cursor else { return };
        let gone = caught(|| {
            let cursor = ours.get_mut()?;
            walk(&mut **cursor)?;
            Ok(cursor.record().map_or(CurrentRecord::NONE, |(key, value)| CurrentRecord {
                key: key.as_ptr().cast(),
                key_len: key.len(),
                value: value.as_ptr().cast(),
                value_len: value.len(),
            }))
        });
        match gone {
            Ok(current) => self.current = current,
            Err(failure) => self.fail(failure),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) {
        (self.current, self.error) = (CurrentRecord::NONE, Some(failure));
        let cursor = self.cursor.take();
        quietly(|| {
            drop(cursor);
            Ok(())
        });
    }
}

/// Creates an iterator over the records of the snapshot in the options, or of this instant. It stands on no record
/// yet; leveldb_iter_get_error() reports why it could not be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    let cursor = caught(|| {
        // SAFETY: the API's contract: live handles.
        let view = unsafe { handle(db, "db")?.view(handle(options, "options")?) }?;
        Ok(OwnedByProcess::new(view.cursor()))
    });
    let (cursor, error) = match cursor {
        Ok(cursor) => (Some(cursor), None),
        Err(failure) => (None, Some(failure)),
    };
    give(leveldb_iterator_t { cursor, current: CurrentRecord::NONE, error })
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    quietly(|| {
        // SAFETY: the API's contract: a live handle, not used any more.
        unsafe { take_back(iterator) };
        Ok(())
    });
}

/// 1 when the iterator stands on a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    // SAFETY: the API's contract: a live handle.
    u8::from(unsafe { iterator.as_ref() }.is_some_and(|i| !i.current.key.is_null()))
}

/// Defines an entry point that moves an iterator.
macro_rules! moves {
    ($(#[$doc:meta])* $name:ident, $how:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(iterator: *mut leveldb_iterator_t) {
            // SAFETY: the API's contract: a live handle that no other thread uses now.
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
    // SAFETY: the API's contract: a live handle that no other thread uses now, and readable bytes.
    unsafe {
        if let Some(iterator) = iterator.as_mut() {
            iterator.go(|cursor| cursor.seek(slice(key, key_len)?));
        }
    }
}

/// Defines an entry point that returns a part of the record. The bytes stay until the iterator moves.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident, $part:ident, $part_len:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(iterator: *const leveldb_iterator_t, len: *mut usize) -> *const c_char {
            // SAFETY: the API's contract: a live handle, and space for a length.
            unsafe {
                let current = iterator.as_ref().map_or(CurrentRecord::NONE, |i| i.current);
                if let Some(len) = len.as_mut() {
                    *len = current.$part_len;
                }
                current.$part
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

/// Where the iterator keeps its current record, for the classes: the place stays the same until the iterator is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_leveldb_iter_record(
    iterator: *const leveldb_iterator_t,
) -> *const CurrentRecord {
    // SAFETY: the classes' contract: a live handle.
    unsafe { &raw const (*iterator).current }
}

/// Why the iterator stands on no record, if something went wrong.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::options::leveldb_readoptions_create;
    use crate::change_list::ChangeList;
    use crate::engine::engine::{Figures, ReadView, StorageEngine};
    use std::cmp::Ordering;
    use std::ffi::CStr;
    use std::sync::Arc;

    /// An engine that panics when an iterator uses it: at once, or at the end.
    struct Broken {
        at_once: bool,
    }

    impl StorageEngine for Broken {
        fn put(&self, _: &[u8], _: &[u8], _: bool) -> Result<()> {
            Ok(())
        }
        fn delete(&self, _: &[u8], _: bool) -> Result<()> {
            Ok(())
        }
        fn write(&self, _: ChangeList<'_>, _: bool) -> Result<()> {
            Ok(())
        }
        fn get(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<()> {
            Ok(())
        }
        fn view(&self) -> Result<Arc<dyn ReadView>> {
            assert!(!self.at_once, "a bug below");
            Ok(Arc::new(BrokenView))
        }
        fn compact(&self) -> Result<()> {
            Ok(())
        }
        fn check(&self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn figures(&self) -> Figures {
            Figures::default()
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
    }

    struct BrokenView;

    impl ReadView for BrokenView {
        fn get(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<()> {
            Ok(())
        }
        fn cursor(self: Arc<Self>) -> Box<dyn RecordCursor> {
            Box::new(BrokenCursor)
        }
    }

    struct BrokenCursor;

    impl Drop for BrokenCursor {
        fn drop(&mut self) {
            panic!("a bug below");
        }
    }

    impl RecordCursor for BrokenCursor {
        fn seek_to_first(&mut self) -> Result<()> {
            panic!("a bug below")
        }
        fn seek_to_last(&mut self) -> Result<()> {
            Ok(())
        }
        fn seek(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            Ok(())
        }
        fn record(&self) -> Option<(&[u8], &[u8])> {
            None
        }
    }

    #[test]
    fn no_panic_below_passes_an_iterator() {
        for (at_once, moves) in [(true, false), (false, false), (false, true)] {
            let mut db = leveldb_t::new(Box::new(Broken { at_once }), "broken");
            let mut error = ptr::null_mut();
            // SAFETY: live handles, and a string of this library's.
            unsafe {
                let iterator = leveldb_create_iterator(&raw mut db, leveldb_readoptions_create());
                if moves {
                    leveldb_iter_seek_to_first(iterator);
                }
                leveldb_iter_get_error(iterator, &raw mut error);
                assert_eq!(error.is_null(), !at_once && !moves);
                if !error.is_null() {
                    assert!(CStr::from_ptr(error).to_string_lossy().contains("a bug below"));
                    libc::free(error.cast());
                }
                leveldb_iter_destroy(iterator);
            }
        }
    }
}
