//! LevelDB's C API, which RocksDB has too under another prefix.

/// Makes a module of bindings and a `StoreKind` for one of them. `$tune` sets the options that differ, `$get_many`,
/// if the library has a call for that, reads several keys.
macro_rules! lsm_store {
    ($kind:ident, $name:literal, $library:literal, $prefix:literal, $tune:path $(, $get_many:path)?) => {
        use mangrove_bench::{OpenStore, StoreKind, SyncMode};
        use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
        use std::path::Path;
        use std::ptr::{self, NonNull};

        #[link(name = $library)]
        unsafe extern "C" {
            #[link_name = concat!($prefix, "_options_create")]
            fn options_create() -> *mut c_void;
            #[link_name = concat!($prefix, "_options_destroy")]
            fn options_destroy(options: *mut c_void);
            #[link_name = concat!($prefix, "_options_set_create_if_missing")]
            fn options_set_create_if_missing(options: *mut c_void, yes: c_uchar);
            #[link_name = concat!($prefix, "_open")]
            fn open(options: *const c_void, name: *const c_char, error: *mut *mut c_char) -> *mut c_void;
            #[link_name = concat!($prefix, "_close")]
            fn close(db: *mut c_void);
            #[link_name = concat!($prefix, "_writeoptions_create")]
            fn writeoptions_create() -> *mut c_void;
            #[link_name = concat!($prefix, "_writeoptions_destroy")]
            fn writeoptions_destroy(options: *mut c_void);
            #[link_name = concat!($prefix, "_writeoptions_set_sync")]
            fn writeoptions_set_sync(options: *mut c_void, yes: c_uchar);
            #[link_name = concat!($prefix, "_readoptions_create")]
            fn readoptions_create() -> *mut c_void;
            #[link_name = concat!($prefix, "_readoptions_destroy")]
            fn readoptions_destroy(options: *mut c_void);
            #[link_name = concat!($prefix, "_put")]
            fn put(
                db: *mut c_void,
                options: *const c_void,
                key: *const c_char,
                key_len: usize,
                value: *const c_char,
                value_len: usize,
                error: *mut *mut c_char,
            );
            #[link_name = concat!($prefix, "_delete")]
            fn delete(
                db: *mut c_void,
                options: *const c_void,
                key: *const c_char,
                key_len: usize,
                error: *mut *mut c_char,
            );
            #[link_name = concat!($prefix, "_get")]
            fn get(
                db: *mut c_void,
                options: *const c_void,
                key: *const c_char,
                key_len: usize,
                value_len: *mut usize,
                error: *mut *mut c_char,
            ) -> *mut c_char;
            #[link_name = concat!($prefix, "_compact_range")]
            fn compact_range(
                db: *mut c_void,
                from: *const c_char,
                from_len: usize,
                to: *const c_char,
                to_len: usize,
            );
            #[link_name = concat!($prefix, "_free")]
            fn free(ptr: *mut c_void);
            #[link_name = concat!($prefix, "_writebatch_create")]
            fn writebatch_create() -> *mut c_void;
            #[link_name = concat!($prefix, "_writebatch_destroy")]
            fn writebatch_destroy(batch: *mut c_void);
            #[link_name = concat!($prefix, "_writebatch_put")]
            fn writebatch_put(
                batch: *mut c_void,
                key: *const c_char,
                key_len: usize,
                value: *const c_char,
                value_len: usize,
            );
            #[link_name = concat!($prefix, "_write")]
            fn write(db: *mut c_void, options: *const c_void, batch: *mut c_void, error: *mut *mut c_char);
            #[link_name = concat!($prefix, "_create_iterator")]
            fn create_iterator(db: *mut c_void, options: *const c_void) -> *mut c_void;
            #[link_name = concat!($prefix, "_iter_destroy")]
            fn iter_destroy(iter: *mut c_void);
            #[link_name = concat!($prefix, "_iter_valid")]
            fn iter_valid(iter: *const c_void) -> c_uchar;
            #[link_name = concat!($prefix, "_iter_seek_to_first")]
            fn iter_seek_to_first(iter: *mut c_void);
            #[link_name = concat!($prefix, "_iter_seek")]
            fn iter_seek(iter: *mut c_void, key: *const c_char, len: usize);
            #[link_name = concat!($prefix, "_iter_next")]
            fn iter_next(iter: *mut c_void);
            #[link_name = concat!($prefix, "_iter_key")]
            fn iter_key(iter: *const c_void, len: *mut usize) -> *const c_char;
            #[link_name = concat!($prefix, "_iter_value")]
            fn iter_value(iter: *const c_void, len: *mut usize) -> *const c_char;
            #[link_name = concat!($prefix, "_iter_get_error")]
            fn iter_get_error(iter: *const c_void, error: *mut *mut c_char);
        }

        /// See the file head.
        pub(crate) struct $kind;

        struct Open {
            db: NonNull<c_void>,
            writes: *mut c_void,
            reads: *mut c_void,
        }

        // SAFETY: the database is documented to be safe for use from several threads; the option
        // objects are only read after they were made.
        unsafe impl Send for Open {}
        // SAFETY: as above.
        unsafe impl Sync for Open {}

        /// Turns the library's error string, if there is one, into an error.
        fn check(error: *mut c_char) -> anyhow::Result<()> {
            if error.is_null() {
                return Ok(());
            }
            // SAFETY: the library returns a C string that the caller frees.
            let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
            // SAFETY: as above; it is freed once.
            unsafe { free(error.cast()) };
            anyhow::bail!("{}: {text}", $name)
        }

        impl StoreKind for $kind {
            fn name(&self) -> &'static str {
                $name
            }

            fn open(&self, dir: &Path, mode: SyncMode) -> anyhow::Result<Box<dyn OpenStore>> {
                let path = CString::new(dir.join("db").to_str().unwrap_or_default())?;
                let mut error: *mut c_char = ptr::null_mut();
                // SAFETY: the options live until after the call; the path is a C string.
                let db = unsafe {
                    let options = options_create();
                    options_set_create_if_missing(options, 1);
                    $tune(options);
                    let db = open(options, path.as_ptr(), &raw mut error);
                    options_destroy(options);
                    db
                };
                check(error)?;
                let db = NonNull::new(db).ok_or_else(|| anyhow::anyhow!("{} gave no database", $name))?;
                // SAFETY: constructors without preconditions.
                let (writes, reads) = unsafe { (writeoptions_create(), readoptions_create()) };
                // SAFETY: the object was just made.
                unsafe { writeoptions_set_sync(writes, c_uchar::from(mode == SyncMode::Sync)) };
                Ok(Box::new(Open { db, writes, reads }))
            }
        }

        impl Open {
            /// Visits up to `count` records in order, all or from `from` on.
            fn walk(
                &self,
                from: Option<&[u8]>,
                count: usize,
                visit: &mut dyn FnMut(&[u8], &[u8]),
            ) -> anyhow::Result<usize> {
                let mut seen = 0;
                let mut error = ptr::null_mut();
                // SAFETY: the iterator lives for this block only; key and value are valid until it moves.
                unsafe {
                    let iter = create_iterator(self.db.as_ptr(), self.reads);
                    match from {
                        Some(key) => iter_seek(iter, key.as_ptr().cast(), key.len()),
                        None => iter_seek_to_first(iter),
                    }
                    while seen < count && iter_valid(iter) != 0 {
                        let (mut key_len, mut value_len) = (0, 0);
                        let key = iter_key(iter, &raw mut key_len);
                        let value = iter_value(iter, &raw mut value_len);
                        visit(
                            std::slice::from_raw_parts(key.cast(), key_len),
                            std::slice::from_raw_parts(value.cast(), value_len),
                        );
                        seen += 1;
                        iter_next(iter);
                    }
                    iter_get_error(iter, &raw mut error);
                    iter_destroy(iter);
                }
                check(error)?;
                Ok(seen)
            }
        }

        impl OpenStore for Open {
            fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
                let mut error = ptr::null_mut();
                // SAFETY: an open database; the slices outlive the call.
                unsafe {
                    put(
                        self.db.as_ptr(),
                        self.writes,
                        key.as_ptr().cast(),
                        key.len(),
                        value.as_ptr().cast(),
                        value.len(),
                        &raw mut error,
                    );
                }
                check(error)
            }

            fn get(&self, key: &[u8], value: &mut Vec<u8>) -> anyhow::Result<bool> {
                let (mut error, mut len) = (ptr::null_mut(), 0);
                // SAFETY: an open database; the slice outlives the call.
                let found = unsafe {
                    get(
                        self.db.as_ptr(),
                        self.reads,
                        key.as_ptr().cast(),
                        key.len(),
                        &raw mut len,
                        &raw mut error,
                    )
                };
                check(error)?;
                value.clear();
                if found.is_null() {
                    return Ok(false);
                }
                // SAFETY: the library returned `len` bytes that this call owns, freed once.
                unsafe {
                    value.extend_from_slice(std::slice::from_raw_parts(found.cast(), len));
                    free(found.cast());
                }
                Ok(true)
            }

            $(fn get_many(&self, keys: &[&[u8]], len: usize) -> anyhow::Result<usize> {
                $get_many(self, keys, len)
            })?

            fn delete(&self, key: &[u8]) -> anyhow::Result<()> {
                let mut error = ptr::null_mut();
                // SAFETY: an open database; the slice outlives the call.
                unsafe {
                    delete(self.db.as_ptr(), self.writes, key.as_ptr().cast(), key.len(), &raw mut error)
                };
                check(error)
            }

            fn batch(&self, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
                let mut error = ptr::null_mut();
                // SAFETY: the batch lives for this block only and copies what is put into it.
                unsafe {
                    let batch = writebatch_create();
                    for (k, v) in records {
                        writebatch_put(batch, k.as_ptr().cast(), k.len(), v.as_ptr().cast(), v.len());
                    }
                    write(self.db.as_ptr(), self.writes, batch, &raw mut error);
                    writebatch_destroy(batch);
                }
                check(error)
            }

            fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<u64> {
                self.walk(None, usize::MAX, visit).map(|seen| seen as u64)
            }

            fn scan_from(
                &self,
                from: &[u8],
                count: usize,
                visit: &mut dyn FnMut(&[u8], &[u8]),
            ) -> anyhow::Result<usize> {
                self.walk(Some(from), count, visit)
            }

            fn sync(&self) -> anyhow::Result<()> {
                // The common C API has no call for this: an empty synced batch makes the log durable up to here.
                let mut error = ptr::null_mut();
                // SAFETY: objects made and destroyed here.
                unsafe {
                    let options = writeoptions_create();
                    writeoptions_set_sync(options, 1);
                    let batch = writebatch_create();
                    write(self.db.as_ptr(), options, batch, &raw mut error);
                    writebatch_destroy(batch);
                    writeoptions_destroy(options);
                }
                check(error)
            }

            fn compact(&self) -> anyhow::Result<bool> {
                // SAFETY: an open database; null stands for the first and the last key.
                unsafe { compact_range(self.db.as_ptr(), ptr::null(), 0, ptr::null(), 0) };
                Ok(true)
            }

            fn close(self: Box<Self>) -> anyhow::Result<()> {
                Ok(())
            }
        }

        impl Drop for Open {
            fn drop(&mut self) {
                // SAFETY: nothing uses the three objects afterwards.
                unsafe {
                    close(self.db.as_ptr());
                    writeoptions_destroy(self.writes);
                    readoptions_destroy(self.reads);
                }
            }
        }
    };
}

pub(crate) use lsm_store;
