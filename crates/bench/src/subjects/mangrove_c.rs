//! Mangrove through its C API, as a C program calls it: the shared library, loaded at run time.

use crate::harness::library::{Library, Object, functions};
use crate::harness::store::{OpenStore, StoreKind, SyncMode};
use anyhow::{Context as _, Result, bail};
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The library as cargo names it, beside this program; and as `make install` does.
const LIBRARIES: [&str; 2] = ["libmangrove_c.so", "../lib/libmangrove.so.0"];
/// Interval durability of unsynced writes, as of the Rust facade's store.
const INTERVAL_MS: u32 = 100;

// From mangrove.h.
const OK: i32 = 0;
const NOT_FOUND: i32 = 1;
const BUFFER_TOO_SMALL: i32 = 3;
const MEDIUM_FILE: i32 = 1;

type Bytes = *const u8;

// The types are those of mangrove.h.
functions! {
    options_new: fn() -> Object;
    options_free: fn(Object);
    options_set_medium: fn(Object, i32) -> i32;
    options_set_durability_interval: fn(Object, u32) -> i32;
    map_open: fn(*const c_char, Object, *mut Object) -> i32;
    map_close: fn(Object) -> i32;
    map_get_into: fn(Object, Bytes, usize, *mut u8, usize, *mut usize) -> i32;
    map_put: fn(Object, Bytes, usize, Bytes, usize) -> i32;
    map_delete: fn(Object, Bytes, usize) -> i32;
    map_sync: fn(Object) -> i32;
    map_write: fn(Object, Object) -> i32;
    map_iter: fn(Object, *const u8, *mut Object) -> i32;
    batch_new: fn() -> Object;
    batch_free: fn(Object);
    batch_put: fn(Object, Bytes, usize, Bytes, usize) -> i32;
    iter_free: fn(Object);
    iter_first: fn(Object) -> i32;
    iter_seek: fn(Object, Bytes, usize) -> i32;
    iter_next: fn(Object) -> i32;
    iter_key: fn(Object, *mut usize) -> Bytes;
    iter_value: fn(Object, *mut usize) -> Bytes;
}

/// The map through C.
pub(crate) struct MangroveC {
    functions: Functions,
}

impl MangroveC {
    pub(crate) const NAME: &'static str = "Mangrove (C)";

    /// The library of this program.
    ///
    /// # Errors
    /// It is not there, or not of this version.
    pub(crate) fn load() -> Result<Self> {
        let exe = std::env::current_exe().context("cannot find this program's file")?;
        let files = LIBRARIES.map(|file| exe.with_file_name(file));
        let Some(file) = files.iter().find(|file| file.exists()) else {
            bail!(
                "{} is not there; build it (cargo build --release --package mangrove-capi)",
                files[0].display()
            );
        };
        Ok(Self { functions: Functions::of(Library::open(file, "mangrove")?)? })
    }
}

struct Open {
    call: Functions,
    map: Object,
}

// SAFETY: mangrove.h allows calls on one map from any thread.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

fn check(status: i32) -> Result<()> {
    if status < OK {
        bail!("the C API returned the status {status}");
    }
    Ok(())
}

impl StoreKind for MangroveC {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> Result<Box<dyn OpenStore>> {
        let call = self.functions;
        let path = CString::new(dir.join("pool").as_os_str().as_bytes())?;
        let mut map = ptr::null_mut();
        // SAFETY: the calls in the order that mangrove.h prescribes; the path is a C string.
        unsafe {
            let options = (call.options_new)();
            check((call.options_set_medium)(options, MEDIUM_FILE))?;
            if mode == SyncMode::Async {
                check((call.options_set_durability_interval)(options, INTERVAL_MS))?;
            }
            let opened = (call.map_open)(path.as_ptr(), options, &raw mut map);
            (call.options_free)(options);
            check(opened)?;
        }
        Ok(Box::new(Open { call, map }))
    }
}

impl Open {
    /// Visits up to `count` records in order, all or from `from` on.
    fn walk(&self, from: Option<&[u8]>, count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let call = self.call;
        let (mut iter, mut seen) = (ptr::null_mut(), 0);
        // SAFETY: an open map; the iterator lives for this block only, and key and value are valid until it moves.
        unsafe {
            check((call.map_iter)(self.map, ptr::null(), &raw mut iter))?;
            let mut status = match from {
                Some(key) => (call.iter_seek)(iter, key.as_ptr(), key.len()),
                None => (call.iter_first)(iter),
            };
            while status == OK && seen < count {
                let (mut key_len, mut value_len) = (0, 0);
                let key = (call.iter_key)(iter, &raw mut key_len);
                let value = (call.iter_value)(iter, &raw mut value_len);
                visit(std::slice::from_raw_parts(key, key_len), std::slice::from_raw_parts(value, value_len));
                seen += 1;
                if seen < count {
                    status = (call.iter_next)(iter);
                }
            }
            (call.iter_free)(iter);
            check(status)?;
        }
        Ok(seen)
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: an open map; the slices outlive the call.
        check(unsafe { (self.call.map_put)(self.map, key.as_ptr(), key.len(), value.as_ptr(), value.len()) })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        loop {
            let (space, mut len) = (value.capacity(), 0);
            // SAFETY: an open map, and a buffer with that capacity.
            let status = unsafe {
                let buffer = value.as_mut_ptr();
                (self.call.map_get_into)(self.map, key.as_ptr(), key.len(), buffer, space, &raw mut len)
            };
            match status {
                OK => {
                    // SAFETY: the call has written `len` bytes, which fit.
                    unsafe { value.set_len(len) };
                    return Ok(true);
                }
                BUFFER_TOO_SMALL => value.reserve(len),
                NOT_FOUND => return Ok(false),
                _ => check(status)?,
            }
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        // SAFETY: an open map; the slice outlives the call.
        check(unsafe { (self.call.map_delete)(self.map, key.as_ptr(), key.len()) })
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let call = self.call;
        // SAFETY: the batch lives for this block only and copies what is put into it.
        unsafe {
            let batch = (call.batch_new)();
            for (k, v) in records {
                check((call.batch_put)(batch, k.as_ptr(), k.len(), v.as_ptr(), v.len()))?;
            }
            let status = (call.map_write)(self.map, batch);
            (call.batch_free)(batch);
            check(status)
        }
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.walk(None, usize::MAX, visit).map(|seen| seen as u64)
    }

    fn scan_from(&self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.walk(Some(from), count, visit)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: an open map.
        check(unsafe { (self.call.map_sync)(self.map) })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let open = std::mem::ManuallyDrop::new(self);
        // SAFETY: an open map, which nothing uses afterwards; `drop` does not run.
        check(unsafe { (open.call.map_close)(open.map) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: as in `close`.
        unsafe { (self.call.map_close)(self.map) };
    }
}
