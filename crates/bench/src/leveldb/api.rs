//! LevelDB's C API, loaded at run time from any library that implements it. Every subject gets the same calls, and
//! this program links none of them.

use crate::harness::library::{Library, Object, functions};
use anyhow::{Context as _, bail};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

type Error = *mut *mut c_char;

/// Cache of each subject that has one, in bytes: the records of the bench fit into it.
const CACHE_BYTES: usize = 512 << 20;
/// Bits a key of the Bloom filters.
const FILTER_BITS: c_int = 10;

functions! {
    options_create: fn() -> Object;
    options_destroy: fn(Object);
    options_set_create_if_missing: fn(Object, c_uchar);
    open: fn(Object, *const c_char, Error) -> Object;
    close: fn(Object);
    put: fn(Object, Object, *const c_char, usize, *const c_char, usize, Error);
    delete: fn(Object, Object, *const c_char, usize, Error);
    get: fn(Object, Object, *const c_char, usize, *mut usize, Error) -> *mut c_char;
    free: fn(Object);
    write: fn(Object, Object, Object, Error);
    writebatch_create: fn() -> Object;
    writebatch_destroy: fn(Object);
    writebatch_put: fn(Object, *const c_char, usize, *const c_char, usize);
    writeoptions_create: fn() -> Object;
    writeoptions_destroy: fn(Object);
    writeoptions_set_sync: fn(Object, c_uchar);
    readoptions_create: fn() -> Object;
    readoptions_destroy: fn(Object);
    create_iterator: fn(Object, Object) -> Object;
    iter_destroy: fn(Object);
    iter_valid: fn(Object) -> c_uchar;
    iter_seek_to_first: fn(Object);
    iter_seek_to_last: fn(Object);
    iter_next: fn(Object);
    iter_prev: fn(Object);
    iter_key: fn(Object, *mut usize) -> *const c_char;
    iter_value: fn(Object, *mut usize) -> *const c_char;
    iter_get_error: fn(Object, Error);
    compact_range: fn(Object, *const c_char, usize, *const c_char, usize);
}

/// A library under test.
pub(super) struct ApiLibrary {
    pub(super) name: &'static str,
    functions: Functions,
    library: Library,
    /// Mangrove's engine for new databases.
    engine: Option<&'static str>,
}

impl ApiLibrary {
    /// The library in `file`, whose functions begin with `prefix`.
    pub(super) fn load(
        name: &'static str,
        file: &Path,
        prefix: &'static str,
        engine: Option<&'static str>,
    ) -> anyhow::Result<Self> {
        let library = Library::open(file, prefix)?;
        Ok(Self { name, functions: Functions::of(library)?, library, engine })
    }

    /// Sets what a user would set after reading each project's first page: a cache that holds everything, and a
    /// Bloom filter.
    ///
    /// # Safety
    /// `options` are live options of this library.
    unsafe fn tune(&self, options: Object) -> anyhow::Result<()> {
        let get = self.library;
        // SAFETY: the types are those of the libraries' headers; caches and policies must outlive the
        // databases, and are left to the process.
        unsafe {
            let cache = get.get::<unsafe extern "C" fn(usize) -> Object>("cache_create_lru")?(CACHE_BYTES);
            if get.prefix == "rocksdb" {
                type Set = unsafe extern "C" fn(Object, Object);
                let bloom = get.get::<unsafe extern "C" fn(f64) -> Object>("filterpolicy_create_bloom")?;
                let table = get.get::<unsafe extern "C" fn() -> Object>("block_based_options_create")?();
                get.get::<Set>("block_based_options_set_block_cache")?(table, cache);
                get.get::<Set>("block_based_options_set_filter_policy")?(
                    table,
                    bloom(f64::from(FILTER_BITS)),
                );
                get.get::<Set>("options_set_block_based_table_factory")?(options, table);
                get.get::<unsafe extern "C" fn(Object)>("block_based_options_destroy")?(table);
                // Fatal errors only: the information log is not part of the comparison.
                get.get::<unsafe extern "C" fn(Object, c_int)>("options_set_info_log_level")?(options, 4);
            } else {
                type Set = unsafe extern "C" fn(Object, Object);
                let bloom = get.get::<unsafe extern "C" fn(c_int) -> Object>("filterpolicy_create_bloom")?;
                get.get::<Set>("options_set_cache")?(options, cache);
                get.get::<Set>("options_set_filter_policy")?(options, bloom(FILTER_BITS));
            }
        }
        Ok(())
    }

    /// Opens the database in `dir`, and makes it if there is none.
    pub(super) fn open(&self, dir: &Path) -> anyhow::Result<Database> {
        if let Some(engine) = self.engine {
            // SAFETY: no thread of this program runs between two databases, so none reads the environment.
            unsafe { std::env::set_var("MANGROVE_LEVELDB_ENGINE", engine) };
        }
        let f = self.functions;
        let path = CString::new(dir.join("db").as_os_str().as_bytes())?;
        let mut error = ptr::null_mut();
        // SAFETY: the options live until after the call; the path is a C string.
        let db = unsafe {
            let options = (f.options_create)();
            (f.options_set_create_if_missing)(options, 1);
            let tuned = self.tune(options);
            let db = (f.open)(options, path.as_ptr(), &raw mut error);
            (f.options_destroy)(options);
            tuned?;
            db
        };
        check(f, error).context(self.name)?;
        // SAFETY: constructors without preconditions, and a setter of what they made.
        unsafe {
            let (synced, hasty, reads) =
                ((f.writeoptions_create)(), (f.writeoptions_create)(), (f.readoptions_create)());
            (f.writeoptions_set_sync)(synced, 1);
            Ok(Database { f, db, synced, hasty, reads })
        }
    }
}

/// Turns an error string into an error, and frees it.
fn check(f: Functions, error: *mut c_char) -> anyhow::Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a C string from the library, freed once, here.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        (f.free)(error.cast());
        text
    };
    bail!("{text}")
}

/// An open database.
pub(super) struct Database {
    f: Functions,
    db: Object,
    synced: Object,
    hasty: Object,
    reads: Object,
}

// SAFETY: databases may be used from several threads; the option objects are only read.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Sets a key; with `sync` it returns when that is durable.
    pub(super) fn put(&self, key: &[u8], value: &[u8], sync: bool) -> anyhow::Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: an open database; the slices outlive the call.
        unsafe {
            (self.f.put)(
                self.db,
                self.writes(sync),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        check(self.f, error)
    }

    /// Removes a key, as `put` sets one.
    pub(super) fn delete(&self, key: &[u8], sync: bool) -> anyhow::Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: an open database; the slice outlives the call.
        unsafe {
            (self.f.delete)(self.db, self.writes(sync), key.as_ptr().cast(), key.len(), &raw mut error);
        }
        check(self.f, error)
    }

    fn writes(&self, sync: bool) -> Object {
        if sync { self.synced } else { self.hasty }
    }

    /// Sets many keys at once, synced or not.
    pub(super) fn batch<'a>(
        &self,
        records: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        sync: bool,
    ) -> anyhow::Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch lives for this block only and copies what is put into it.
        unsafe {
            let batch = (self.f.writebatch_create)();
            for (k, v) in records {
                (self.f.writebatch_put)(batch, k.as_ptr().cast(), k.len(), v.as_ptr().cast(), v.len());
            }
            (self.f.write)(self.db, self.writes(sync), batch, &raw mut error);
            (self.f.writebatch_destroy)(batch);
        }
        check(self.f, error)
    }

    /// The length of a key's value, if there is one.
    pub(super) fn get(&self, key: &[u8]) -> anyhow::Result<Option<usize>> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: an open database; the slice outlives the call; the value is freed once.
        let found = unsafe {
            let value = (self.f.get)(
                self.db,
                self.reads,
                key.as_ptr().cast(),
                key.len(),
                &raw mut len,
                &raw mut error,
            );
            (self.f.free)(value.cast());
            !value.is_null()
        };
        check(self.f, error)?;
        Ok(found.then_some(len))
    }

    /// Reads all records forwards or backwards, and the first byte of each value. Returns how many records there
    /// are, and how many bytes.
    pub(super) fn scan(&self, backwards: bool) -> anyhow::Result<(u64, u64)> {
        let f = self.f;
        let (mut count, mut bytes, mut first) = (0, 0, 0u64);
        let mut error = ptr::null_mut();
        // SAFETY: the iterator lives for this block only; key and value are valid until it moves.
        unsafe {
            let iter = (f.create_iterator)(self.db, self.reads);
            if backwards {
                (f.iter_seek_to_last)(iter)
            } else {
                (f.iter_seek_to_first)(iter)
            }
            let step = if backwards { f.iter_prev } else { f.iter_next };
            while (f.iter_valid)(iter) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                (f.iter_key)(iter, &raw mut key_len);
                let value = (f.iter_value)(iter, &raw mut value_len);
                if value_len > 0 {
                    first += u64::from(*value.cast::<u8>());
                }
                count += 1;
                bytes += (key_len + value_len) as u64;
                step(iter);
            }
            (f.iter_get_error)(iter, &raw mut error);
            (f.iter_destroy)(iter);
        }
        std::hint::black_box(first);
        check(f, error)?;
        Ok((count, bytes))
    }

    /// Compacts the database's files.
    pub(super) fn compact(&self) {
        // SAFETY: an open database; NULL is "no bound".
        unsafe { (self.f.compact_range)(self.db, ptr::null(), 0, ptr::null(), 0) };
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: nothing uses these objects afterwards.
        unsafe {
            (self.f.close)(self.db);
            (self.f.writeoptions_destroy)(self.synced);
            (self.f.writeoptions_destroy)(self.hasty);
            (self.f.readoptions_destroy)(self.reads);
        }
    }
}
