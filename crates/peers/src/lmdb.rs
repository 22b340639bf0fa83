//! LMDB 0.9.24: one environment, its unnamed database; each put is a transaction. Unsynced means
//! MDB_NOSYNC. Read transactions are reset and renewed, as its documentation advises.

use anyhow::bail;
use mangrove_bench::{OpenStore, StoreKind, SyncMode};
use parking_lot::Mutex;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

#[repr(C)]
struct Val {
    size: usize,
    data: *mut c_void,
}

#[link(name = "lmdb")]
unsafe extern "C" {
    fn mdb_strerror(code: c_int) -> *const c_char;
    fn mdb_env_create(env: *mut *mut c_void) -> c_int;
    fn mdb_env_set_mapsize(env: *mut c_void, bytes: usize) -> c_int;
    fn mdb_env_set_maxreaders(env: *mut c_void, readers: c_uint) -> c_int;
    fn mdb_env_open(env: *mut c_void, path: *const c_char, flags: c_uint, mode: c_uint) -> c_int;
    fn mdb_env_sync(env: *mut c_void, force: c_int) -> c_int;
    fn mdb_env_close(env: *mut c_void);
    fn mdb_txn_begin(env: *mut c_void, parent: *mut c_void, flags: c_uint, txn: *mut *mut c_void) -> c_int;
    fn mdb_txn_commit(txn: *mut c_void) -> c_int;
    fn mdb_txn_abort(txn: *mut c_void);
    fn mdb_txn_reset(txn: *mut c_void);
    fn mdb_txn_renew(txn: *mut c_void) -> c_int;
    fn mdb_dbi_open(txn: *mut c_void, name: *const c_char, flags: c_uint, dbi: *mut c_uint) -> c_int;
    fn mdb_get(txn: *mut c_void, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_put(txn: *mut c_void, dbi: c_uint, key: *mut Val, data: *mut Val, flags: c_uint) -> c_int;
    fn mdb_del(txn: *mut c_void, dbi: c_uint, key: *mut Val, data: *mut Val) -> c_int;
    fn mdb_cursor_open(txn: *mut c_void, dbi: c_uint, cursor: *mut *mut c_void) -> c_int;
    fn mdb_cursor_get(cursor: *mut c_void, key: *mut Val, data: *mut Val, op: c_uint) -> c_int;
    fn mdb_cursor_close(cursor: *mut c_void);
}

// From lmdb.h.
const NOSYNC: c_uint = 0x10000;
const RDONLY: c_uint = 0x20000;
const NOTLS: c_uint = 0x0020_0000;
const NOTFOUND: c_int = -30798;
const NEXT: c_uint = 8;
const SET_RANGE: c_uint = 17;

/// Address space of the map: more than any run of the bench fills.
const MAP_BYTES: usize = 64 << 30;

/// See the file head.
pub(crate) struct Lmdb;

struct Open {
    env: *mut c_void,
    dbi: c_uint,
    /// Read transactions that no thread uses.
    readers: Mutex<Vec<*mut c_void>>,
}

// SAFETY: an environment may be used from several threads; with MDB_NOTLS a read transaction may
// move between threads, and each is used by one at a time.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

fn check(code: c_int) -> anyhow::Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: a static C string for every code.
    let text = unsafe { CStr::from_ptr(mdb_strerror(code)) };
    bail!("LMDB: {}", text.to_string_lossy())
}

fn val(bytes: &[u8]) -> Val {
    Val { size: bytes.len(), data: bytes.as_ptr().cast_mut().cast() }
}

/// # Safety
/// `v` must have been filled by LMDB within a transaction that outlives the slice.
unsafe fn bytes<'a>(v: &Val) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(v.data.cast(), v.size) }
}

impl StoreKind for Lmdb {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> anyhow::Result<Box<dyn OpenStore>> {
        let path = CString::new(dir.to_str().unwrap_or_default())?;
        let (mut env, mut txn, mut dbi) = (ptr::null_mut(), ptr::null_mut(), 0);
        let flags = NOTLS | if mode == SyncMode::Async { NOSYNC } else { 0 };
        // SAFETY: the calls in the order that lmdb.h prescribes; the path is a C string.
        unsafe {
            check(mdb_env_create(&raw mut env))?;
            check(mdb_env_set_mapsize(env, MAP_BYTES))?;
            check(mdb_env_set_maxreaders(env, 256))?;
            check(mdb_env_open(env, path.as_ptr(), flags, 0o644))?;
            check(mdb_txn_begin(env, ptr::null_mut(), 0, &raw mut txn))?;
            check(mdb_dbi_open(txn, ptr::null(), 0, &raw mut dbi))?;
            check(mdb_txn_commit(txn))?;
        }
        Ok(Box::new(Open { env, dbi, readers: Mutex::new(Vec::new()) }))
    }
}

impl Open {
    /// Runs `body` in a write transaction and commits it.
    fn write(&self, body: impl FnOnce(*mut c_void) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut txn = ptr::null_mut();
        // SAFETY: an open environment.
        check(unsafe { mdb_txn_begin(self.env, ptr::null_mut(), 0, &raw mut txn) })?;
        match body(txn) {
            // SAFETY: the transaction is live and ends here.
            Ok(()) => check(unsafe { mdb_txn_commit(txn) }),
            Err(e) => {
                // SAFETY: as above.
                unsafe { mdb_txn_abort(txn) };
                Err(e)
            }
        }
    }

    /// Runs `body` in a read transaction.
    fn read<R>(&self, body: impl FnOnce(*mut c_void) -> anyhow::Result<R>) -> anyhow::Result<R> {
        let rested = self.readers.lock().pop();
        let txn = match rested {
            Some(txn) => {
                // SAFETY: a reset read transaction.
                check(unsafe { mdb_txn_renew(txn) })?;
                txn
            }
            None => {
                let mut txn = ptr::null_mut();
                // SAFETY: an open environment.
                check(unsafe { mdb_txn_begin(self.env, ptr::null_mut(), RDONLY, &raw mut txn) })?;
                txn
            }
        };
        let result = body(txn);
        // SAFETY: a live read transaction, used by this thread.
        unsafe { mdb_txn_reset(txn) };
        self.readers.lock().push(txn);
        result
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
        self.read(|txn| {
            let mut cursor = ptr::null_mut();
            // SAFETY: a live transaction.
            check(unsafe { mdb_cursor_open(txn, self.dbi, &raw mut cursor) })?;
            let (mut seen, mut code) = (0, 0);
            let mut op = if from.is_some() { SET_RANGE } else { NEXT };
            while seen < count {
                let (mut k, mut v) = (val(from.unwrap_or_default()), val(&[]));
                // SAFETY: a live cursor; the key to seek outlives the call.
                code = unsafe { mdb_cursor_get(cursor, &raw mut k, &raw mut v, op) };
                if code != 0 {
                    break;
                }
                // SAFETY: LMDB filled both in this transaction.
                unsafe { visit(bytes(&k), bytes(&v)) };
                (seen, op) = (seen + 1, NEXT);
            }
            // SAFETY: the cursor ends here.
            unsafe { mdb_cursor_close(cursor) };
            if code != NOTFOUND {
                check(code)?;
            }
            Ok(seen)
        })
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.batch(&[(key, value)])
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> anyhow::Result<bool> {
        value.clear();
        self.read(|txn| {
            let (mut k, mut v) = (val(key), val(&[]));
            // SAFETY: a live transaction; the key outlives the call.
            match unsafe { mdb_get(txn, self.dbi, &raw mut k, &raw mut v) } {
                NOTFOUND => Ok(false),
                code => {
                    check(code)?;
                    // SAFETY: LMDB filled `v` in this transaction.
                    value.extend_from_slice(unsafe { bytes(&v) });
                    Ok(true)
                }
            }
        })
    }

    /// In one read transaction.
    fn get_many(&self, keys: &[&[u8]], len: usize) -> anyhow::Result<usize> {
        self.read(|txn| {
            let mut value = Vec::with_capacity(len);
            let mut found = 0;
            for key in keys {
                let (mut k, mut v) = (val(key), val(&[]));
                // SAFETY: a live transaction; the key outlives the call.
                match unsafe { mdb_get(txn, self.dbi, &raw mut k, &raw mut v) } {
                    NOTFOUND => {}
                    code => {
                        check(code)?;
                        value.clear();
                        // SAFETY: LMDB filled `v` in this transaction.
                        value.extend_from_slice(unsafe { bytes(&v) });
                        found += usize::from(value.len() == len);
                    }
                }
            }
            Ok(found)
        })
    }

    fn delete(&self, key: &[u8]) -> anyhow::Result<()> {
        self.write(|txn| {
            let mut k = val(key);
            // SAFETY: a live transaction; the key outlives the call.
            match unsafe { mdb_del(txn, self.dbi, &raw mut k, ptr::null_mut()) } {
                NOTFOUND => Ok(()),
                code => check(code),
            }
        })
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
        self.write(|txn| {
            for (key, value) in records {
                let (mut k, mut v) = (val(key), val(value));
                // SAFETY: a live transaction; key and value are copied.
                check(unsafe { mdb_put(txn, self.dbi, &raw mut k, &raw mut v, 0) })?;
            }
            Ok(())
        })
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<u64> {
        // MDB_NEXT on a fresh cursor is the first record.
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
        // SAFETY: an open environment.
        check(unsafe { mdb_env_sync(self.env, 1) })
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.sync()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: no transaction is in use, and nothing uses the environment afterwards.
        unsafe {
            for txn in self.readers.get_mut().drain(..) {
                mdb_txn_abort(txn);
            }
            mdb_env_close(self.env);
        }
    }
}
