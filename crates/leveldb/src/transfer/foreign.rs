//! LevelDB itself, from its shared library. Its functions have the names of this library's own, so they are looked up
//! in the loaded library alone, and it looks for its own in itself (`RTLD_LOCAL`, `RTLD_DEEPBIND`).

use super::outcome::{Result, TransferError};
use crate::order::BYTEWISE;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The names under which the dynamic linker finds LevelDB.
const NAMES: [&CStr; 3] = [c"libleveldb.so.1d", c"libleveldb.so.1", c"libleveldb.so"];
/// The major version of the files and the functions that this code knows.
const MAJOR: c_int = 1;
/// The least that LevelDB takes: 64 files of records, each of which it maps into memory while it is open. They are read
/// in their order, each once.
const FILES_OPEN_MAX: c_int = 74;
/// A symbol that only Mangrove's library has.
const OURS: &CStr = c"mangrove_leveldb_version";

type Handle = *mut c_void;
type Strings = *const *const c_char;
/// A key and its value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// Declares the functions that are looked up.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks all of them up; the name of the first that is not there otherwise.
            ///
            /// # Safety
            /// As [`lookup`].
            unsafe fn of(library: Handle) -> std::result::Result<Self, &'static str> {
                // SAFETY: the caller's promise.
                Ok(unsafe { Self { $($name: lookup(library, concat!(stringify!($name), "\0"))?,)* } })
            }
        }
    };
}

/// The function of that name, which ends with a byte of 0; the name without it when there is none.
///
/// # Safety
/// A library that was loaded and stays, whose function of this name has the type `F`.
unsafe fn lookup<F: Copy>(library: Handle, name: &'static str) -> std::result::Result<F, &'static str> {
    const { assert!(size_of::<F>() == size_of::<Handle>()) };
    // SAFETY: a loaded library, and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if found.is_null() {
        return Err(name.trim_end_matches('\0'));
    }
    // SAFETY: a function of that type, by the caller's promise.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

functions! {
    leveldb_major_version() -> c_int;
    leveldb_free(*mut c_void);
    leveldb_open(Handle, *const c_char, *mut *mut c_char) -> Handle;
    leveldb_close(Handle);
    leveldb_options_create() -> Handle;
    leveldb_options_destroy(Handle);
    leveldb_options_set_create_if_missing(Handle, u8);
    leveldb_options_set_error_if_exists(Handle, u8);
    leveldb_options_set_paranoid_checks(Handle, u8);
    leveldb_options_set_max_open_files(Handle, c_int);
    leveldb_readoptions_create() -> Handle;
    leveldb_readoptions_destroy(Handle);
    leveldb_readoptions_set_verify_checksums(Handle, u8);
    leveldb_readoptions_set_fill_cache(Handle, u8);
    leveldb_writeoptions_create() -> Handle;
    leveldb_writeoptions_destroy(Handle);
    leveldb_writeoptions_set_sync(Handle, u8);
    leveldb_write(Handle, Handle, Handle, *mut *mut c_char);
    leveldb_writebatch_create() -> Handle;
    leveldb_writebatch_destroy(Handle);
    leveldb_writebatch_clear(Handle);
    leveldb_writebatch_put(Handle, *const c_char, usize, *const c_char, usize);
    leveldb_create_iterator(Handle, Handle) -> Handle;
    leveldb_iter_destroy(Handle);
    leveldb_iter_valid(Handle) -> u8;
    leveldb_iter_seek_to_first(Handle);
    leveldb_iter_seek(Handle, *const c_char, usize);
    leveldb_iter_next(Handle);
    leveldb_iter_key(Handle, *mut usize) -> *const c_char;
    leveldb_iter_value(Handle, *mut usize) -> *const c_char;
    leveldb_iter_get_error(Handle, *mut *mut c_char);
    leveldb_approximate_sizes(Handle, c_int, Strings, *const usize, Strings, *const usize, *mut u64);
}

/// LevelDB's library. It stays loaded until the process ends, because its background thread does.
pub(super) struct ForeignLibrary(Functions, Decompress);

/// Functions of Snappy's C interface, in the library that LevelDB's has loaded. A LevelDB that was linked with Snappy
/// inside, or without, has none.
#[derive(Clone, Copy, Default)]
pub(super) struct Decompress {
    snappy: Option<(SnappyLen, SnappyInto)>,
    /// A test has shorter blocks unknown.
    #[cfg(test)]
    len_min: usize,
}

type SnappyLen = unsafe extern "C" fn(*const c_char, usize, *mut usize) -> c_int;
type SnappyInto = unsafe extern "C" fn(*const c_char, usize, *mut c_char, *mut usize) -> c_int;

impl Decompress {
    /// # Safety
    /// As [`lookup`].
    unsafe fn of(library: Handle) -> Self {
        // SAFETY: the caller's promise.
        let functions = unsafe {
            (lookup(library, "snappy_uncompressed_length\0"), lookup(library, "snappy_uncompress\0"))
        };
        let snappy = functions.0.ok().zip(functions.1.ok());
        Self {
            snappy,
            #[cfg(test)]
            len_min: 0,
        }
    }

    /// The length of what was compressed to these bytes, which may be anything. `None`: not known.
    pub(super) fn len_of(&self, bytes: &[u8]) -> Option<usize> {
        let mut len = 0;
        // SAFETY: readable bytes; Snappy believes none of them.
        let failed = unsafe { self.snappy?.0(bytes.as_ptr().cast(), bytes.len(), &raw mut len) };
        #[cfg(test)]
        if len < self.len_min {
            return None;
        }
        (failed == 0).then_some(len)
    }

    /// Decompresses to exactly `to`. `None`: damaged, or not known.
    pub(super) fn into(&self, bytes: &[u8], to: &mut [u8]) -> Option<()> {
        let mut len = to.len();
        // SAFETY: readable bytes; Snappy believes none of them, and writes at most `len`.
        let failed = unsafe {
            self.snappy?.1(bytes.as_ptr().cast(), bytes.len(), to.as_mut_ptr().cast(), &raw mut len)
        };
        (failed == 0 && len == to.len()).then_some(())
    }
}

impl ForeignLibrary {
    /// Loads the library in that file, or the one that the dynamic linker finds.
    pub(super) fn load(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else {
            let mut first = None;
            for name in NAMES {
                match Self::open(name, &name.to_string_lossy()) {
                    Ok(library) => return Ok(library),
                    Err(why) => _ = first.get_or_insert(why),
                }
            }
            let why = first.map(|why| why.to_string()).unwrap_or_default();
            return Err(TransferError::refused(format!(
                "{why}; install LevelDB (Debian: libleveldb1d), or say where its library is with --library"
            )));
        };
        // With a directory in it the name is a file's, and not one to search for.
        let file = file.canonicalize().map_err(|e| TransferError::io("find the library", file, &e))?;
        let name = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| TransferError::refused("the library's name has a byte of 0 in it"))?;
        Self::open(&name, &file.display().to_string())
    }

    fn open(name: &CStr, shown: &str) -> Result<Self> {
        // SAFETY: loading runs the library's own constructors; the caller named it, or the dynamic linker found it
        // under LevelDB's name.
        let library =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND) };
        if library.is_null() {
            // SAFETY: after a failure a string, which stays until the next call.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            return Err(TransferError::refused(format!("cannot load LevelDB's library: {why}")));
        }
        // SAFETY: a loaded library.
        if !unsafe { libc::dlsym(library, OURS.as_ptr()) }.is_null() {
            return Err(TransferError::refused(format!(
                "{shown} is Mangrove's own library, and not LevelDB's"
            )));
        }
        // SAFETY: it stays loaded; that functions of LevelDB's names have LevelDB's types is what the caller relies
        // on.
        let functions = unsafe { Functions::of(library) }.map_err(|missing| {
            TransferError::refused(format!("{shown} is not LevelDB's library: it has no function {missing}"))
        })?;
        // SAFETY: takes nothing.
        match unsafe { (functions.leveldb_major_version)() } {
            // SAFETY: a loaded library, which stays, and so do those that it has loaded.
            MAJOR => Ok(Self(functions, unsafe { Decompress::of(library) })),
            other => Err(TransferError::refused(format!(
                "{shown} is LevelDB {other}, and only LevelDB {MAJOR} is known"
            ))),
        }
    }

    /// What LevelDB decompresses with, as far as it can be called.
    pub(super) fn decompress(&self) -> &Decompress {
        &self.1
    }

    /// As if compressed blocks that become shorter could not be read.
    #[cfg(test)]
    pub(super) fn forget_blocks_below(&mut self, len_min: usize) {
        self.1.len_min = len_min;
    }

    /// Takes an error string: success is none.
    fn outcome(&self, error: *mut c_char) -> std::result::Result<(), String> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: an error string of this library's, freed once.
        unsafe {
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            (self.0.leveldb_free)(error.cast());
            Err(text)
        }
    }
}

/// A database that LevelDB has open.
pub(super) struct ForeignDb<'a> {
    library: &'a ForeignLibrary,
    db: Handle,
}

// SAFETY: LevelDB's contract: any thread may use a database.
unsafe impl Send for ForeignDb<'_> {}

impl<'a> ForeignDb<'a> {
    /// Opens the database in `directory`, which must be there, with every check that LevelDB has; with `create` a
    /// new one. The error is LevelDB's own message.
    pub(super) fn open(
        library: &'a ForeignLibrary,
        directory: &Path,
        create: bool,
    ) -> std::result::Result<Self, String> {
        let name = CString::new(directory.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let (functions, mut error) = (&library.0, ptr::null_mut());
        // SAFETY: handles of this library's, freed once; a string.
        let db = unsafe {
            let options = (functions.leveldb_options_create)();
            (functions.leveldb_options_set_create_if_missing)(options, create.into());
            (functions.leveldb_options_set_error_if_exists)(options, create.into());
            (functions.leveldb_options_set_paranoid_checks)(options, 1);
            (functions.leveldb_options_set_max_open_files)(options, FILES_OPEN_MAX);
            let db = (functions.leveldb_open)(options, name.as_ptr(), &raw mut error);
            (functions.leveldb_options_destroy)(options);
            db
        };
        library.outcome(error)?;
        Ok(Self { library, db })
    }

    /// About how many bytes of files hold the keys up to `limit`.
    pub(super) fn size_up_to(&self, limit: &[u8]) -> u64 {
        let (start, start_len, limit_len, mut size) = (c"".as_ptr(), 0, limit.len(), 0);
        let limit = limit.as_ptr().cast::<c_char>();
        // SAFETY: a live database; arrays of one.
        unsafe {
            (self.library.0.leveldb_approximate_sizes)(
                self.db,
                1,
                &raw const start,
                &raw const start_len,
                &raw const limit,
                &raw const limit_len,
                &raw mut size,
            );
        }
        size
    }

    /// A cursor at the first record, which verifies every checksum.
    pub(super) fn cursor(&self) -> ForeignCursor<'_> {
        let functions = &self.library.0;
        // SAFETY: live handles; LevelDB copies the options.
        let iterator = unsafe {
            let options = (functions.leveldb_readoptions_create)();
            (functions.leveldb_readoptions_set_verify_checksums)(options, 1);
            (functions.leveldb_readoptions_set_fill_cache)(options, 0);
            let iterator = (functions.leveldb_create_iterator)(self.db, options);
            (functions.leveldb_readoptions_destroy)(options);
            (functions.leveldb_iter_seek_to_first)(iterator);
            iterator
        };
        ForeignCursor { library: self.library, iterator, db: PhantomData }
    }

    /// A batch to fill and to write.
    pub(super) fn batch(&self) -> ForeignBatch<'_> {
        // SAFETY: takes nothing.
        ForeignBatch { db: self, batch: unsafe { (self.library.0.leveldb_writebatch_create)() }, bytes: 0 }
    }
}

impl Drop for ForeignDb<'_> {
    fn drop(&mut self) {
        // SAFETY: a live database; its cursors and batches borrow it, and are gone.
        unsafe { (self.library.0.leveldb_close)(self.db) };
    }
}

/// A place among the records of a database.
pub(super) struct ForeignCursor<'a> {
    library: &'a ForeignLibrary,
    iterator: Handle,
    db: PhantomData<&'a ForeignDb<'a>>,
}

impl ForeignCursor<'_> {
    /// The record that the cursor stands on; an error where LevelDB could not read one.
    pub(super) fn record(&self) -> std::result::Result<Option<Record<'_>>, String> {
        let (functions, mut len) = (&self.library.0, 0);
        // SAFETY: a live iterator; on a record, whose bytes stay until it moves.
        unsafe {
            if (functions.leveldb_iter_valid)(self.iterator) == 0 {
                let mut error = ptr::null_mut();
                (functions.leveldb_iter_get_error)(self.iterator, &raw mut error);
                return self.library.outcome(error).map(|()| None);
            }
            let key = (functions.leveldb_iter_key)(self.iterator, &raw mut len).cast::<u8>();
            let key = std::slice::from_raw_parts(key, len);
            let value = (functions.leveldb_iter_value)(self.iterator, &raw mut len).cast::<u8>();
            Ok(Some((key, std::slice::from_raw_parts(value, len))))
        }
    }

    /// Goes to the first record behind all up to `key`.
    pub(super) fn go_behind(&mut self, key: &[u8]) -> std::result::Result<(), String> {
        // SAFETY: a live iterator, readable bytes.
        unsafe { (self.library.0.leveldb_iter_seek)(self.iterator, key.as_ptr().cast(), key.len()) };
        if self.record()?.is_some_and(|(there, _)| there == key) {
            self.next();
        }
        Ok(())
    }

    /// Goes to the next record. The cursor stands on one.
    pub(super) fn next(&mut self) {
        // SAFETY: a live iterator on a record.
        unsafe { (self.library.0.leveldb_iter_next)(self.iterator) };
    }
}

impl Drop for ForeignCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: a live iterator.
        unsafe { (self.library.0.leveldb_iter_destroy)(self.iterator) };
    }
}

/// Records that are written together.
pub(super) struct ForeignBatch<'a> {
    db: &'a ForeignDb<'a>,
    batch: Handle,
    /// Bytes of the records in it.
    pub(super) bytes: usize,
}

impl ForeignBatch<'_> {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += key.len() + value.len();
        // SAFETY: a live batch, readable bytes.
        unsafe {
            (self.db.library.0.leveldb_writebatch_put)(
                self.batch,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    /// Writes the batch and empties it. With `sync` everything up to it is durable then.
    pub(super) fn write(&mut self, sync: bool) -> std::result::Result<(), String> {
        let (functions, mut error) = (&self.db.library.0, ptr::null_mut());
        // SAFETY: live handles.
        unsafe {
            let options = (functions.leveldb_writeoptions_create)();
            (functions.leveldb_writeoptions_set_sync)(options, sync.into());
            (functions.leveldb_write)(self.db.db, options, self.batch, &raw mut error);
            (functions.leveldb_writeoptions_destroy)(options);
            (functions.leveldb_writebatch_clear)(self.batch);
        }
        self.bytes = 0;
        self.db.library.outcome(error)
    }
}

impl Drop for ForeignBatch<'_> {
    fn drop(&mut self) {
        // SAFETY: a live batch.
        unsafe { (self.db.library.0.leveldb_writebatch_destroy)(self.batch) };
    }
}

/// Refuses an order that is not byte by byte: LevelDB's functions for another one are the program's, not the
/// library's.
pub(super) fn must_be_bytewise(directory: &Path, comparator: &[u8]) -> Result<()> {
    if comparator == BYTEWISE {
        return Ok(());
    }
    Err(TransferError::refused(format!(
        "{}: its keys are in the order of the comparator {}, which only its program knows; only databases in byte \
         order can be moved",
        directory.display(),
        String::from_utf8_lossy(comparator)
    )))
}
