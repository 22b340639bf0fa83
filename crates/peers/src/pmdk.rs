//! PMDK's libpmemobj (Debian's package): undo-log transactions on a pool. `PMEM_IS_PMEM_FORCE=1` makes it treat the
//! pool, a file in memory, as persistent memory: it flushes by CLWB and fences, and makes no system call.
//! `PMEM_NO_FLUSH=1` is its own setting for caches that are durable. Both are read when the library is loaded.
//!
//! The library isolates nothing; a lock for many readers or one writer does it here, as in the published comparisons.

use mangrove_bench::{OneTransaction, TxnDomain, TxnHeap, TxnKind, TxnWork, WordAccess, WorkDone, drive};
use parking_lot::RwLock;
use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;

#[repr(C)]
struct PmemOid {
    pool: u64,
    offset: u64,
}

#[link(name = "pmemobj")]
unsafe extern "C" {
    fn pmemobj_create(
        path: *const c_char,
        layout: *const c_char,
        size: usize,
        mode: libc::mode_t,
    ) -> *mut c_void;
    fn pmemobj_close(pool: *mut c_void);
    fn pmemobj_root(pool: *mut c_void, size: usize) -> PmemOid;
    fn pmemobj_direct(oid: PmemOid) -> *mut c_void;
    fn pmemobj_persist(pool: *mut c_void, address: *const c_void, len: usize);
    fn pmemobj_errormsg() -> *const c_char;
    /// Without a jump buffer an abort makes the calls return an error. Parameters end with 0 (`TX_PARAM_NONE`).
    fn pmemobj_tx_begin(pool: *mut c_void, jump: *mut c_void, ...) -> c_int;
    fn pmemobj_tx_add_range_direct(address: *const c_void, size: usize) -> c_int;
    fn pmemobj_tx_commit();
    fn pmemobj_tx_end() -> c_int;
}

/// What a pool has beside the words: logs of all lanes and the allocator's zones.
const POOL_EXTRA_BYTES: usize = 64 << 20;

/// See the file head.
pub(crate) struct Pmdk;

struct Heap {
    pool: NonNull<c_void>,
    words: NonNull<u64>,
    count: usize,
    path: PathBuf,
    isolation: RwLock<()>,
}

// SAFETY: a pool may be used by every thread; the words are used under the lock.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

fn failed(call: &str) -> anyhow::Error {
    // SAFETY: a C string of the calling thread, or null.
    let text = unsafe {
        pmemobj_errormsg().as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    anyhow::anyhow!("{call}: {}", text.unwrap_or_default())
}

impl TxnKind for Pmdk {
    fn name(&self) -> &'static str {
        "PMDK"
    }

    fn environment(&self, domain: TxnDomain) -> Vec<(&'static str, &'static str)> {
        let mut variables = vec![("PMEM_IS_PMEM_FORCE", "1")];
        if domain == TxnDomain::Eadr {
            variables.push(("PMEM_NO_FLUSH", "1"));
        }
        variables
    }

    fn open(
        &self,
        dir: &Path,
        _domain: TxnDomain,
        _work: TxnWork,
        words: &[u64],
    ) -> anyhow::Result<Box<dyn TxnHeap>> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(format!("mangrove-bench-pmdk-{}", std::process::id()));
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        let name = CString::new(path.to_str().unwrap_or_default())?;
        let bytes = size_of_val(words);
        // SAFETY: C strings that outlive the call.
        let pool =
            unsafe { pmemobj_create(name.as_ptr(), c"words".as_ptr(), bytes + POOL_EXTRA_BYTES, 0o600) };
        let pool = NonNull::new(pool).ok_or_else(|| failed("pmemobj_create"))?;
        // SAFETY: an open pool.
        let root = unsafe { pmemobj_root(pool.as_ptr(), bytes) };
        let root = if root.offset == 0 {
            None
        } else {
            // SAFETY: an object of an open pool.
            NonNull::new(unsafe { pmemobj_direct(root) }.cast::<u64>())
        };
        let Some(root) = root else {
            let error = failed("pmemobj_root");
            // SAFETY: opened above, and not used afterwards.
            unsafe { pmemobj_close(pool.as_ptr()) };
            std::fs::remove_file(&path)?;
            return Err(error);
        };
        // SAFETY: the root object has `bytes` bytes, and no other thread knows it.
        unsafe {
            root.as_ptr().copy_from_nonoverlapping(words.as_ptr(), words.len());
            pmemobj_persist(pool.as_ptr(), root.as_ptr().cast(), bytes);
        }
        Ok(Box::new(Heap { pool, words: root, count: words.len(), path, isolation: RwLock::new(()) }))
    }
}

/// The words, inside a transaction or under the readers' lock.
struct Words {
    words: *mut u64,
    failed: bool,
}

impl WordAccess for Words {
    type Interrupted = Infallible;

    #[inline(always)]
    fn read(&mut self, at: usize) -> Result<u64, Infallible> {
        // SAFETY: the index is below the number of words, and the lock is held.
        Ok(unsafe { self.words.add(at).read() })
    }

    #[inline(always)]
    fn write(&mut self, at: usize, value: u64) -> Result<(), Infallible> {
        // SAFETY: as above; a transaction is under way on this thread.
        unsafe {
            let place = self.words.add(at);
            // The snapshot comes before the store. Once it has failed, the transaction is aborted.
            self.failed |= pmemobj_tx_add_range_direct(place.cast(), 8) != 0;
            if !self.failed {
                place.write(value);
            }
        }
        Ok(())
    }
}

impl Heap {
    fn update(&self, one: OneTransaction) -> anyhow::Result<()> {
        let mut words = Words { words: self.words.as_ptr(), failed: false };
        let _alone = self.isolation.write();
        // SAFETY: an open pool, and no transaction on this thread. Each begin has its end.
        let ended = unsafe {
            if pmemobj_tx_begin(self.pool.as_ptr(), ptr::null_mut(), 0 as c_int) == 0 {
                let Ok(()) = one.body(&mut words);
                if !words.failed {
                    pmemobj_tx_commit();
                }
            }
            pmemobj_tx_end()
        };
        if ended == 0 { Ok(()) } else { Err(failed("a transaction")) }
    }
}

impl TxnHeap for Heap {
    fn work(&self, work: TxnWork, seed: u64, stop: &AtomicBool) -> anyhow::Result<WorkDone> {
        drive(work, self.count, seed, stop, |one| {
            if one.is_read_only() {
                let _shared = self.isolation.read();
                let Ok(()) = one.body(&mut Words { words: self.words.as_ptr(), failed: false });
                return Ok(());
            }
            self.update(one)
        })
    }

    fn words(&mut self) -> Vec<u64> {
        // SAFETY: as many words as were put there, and no thread works.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }.to_vec()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: nothing uses the pool afterwards.
        unsafe { pmemobj_close(self.pool.as_ptr()) };
        // What remains of it is in the way of nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_bench::verified_rate;
    use std::time::Duration;

    /// `verified_rate` looks at the words: nothing is lost, and no transaction is half done.
    #[test]
    fn two_threads_swap_and_update() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        for work in [TxnWork::Swaps(4), TxnWork::Map { updates: 50 }] {
            let mut heap = Pmdk.open(dir.path(), TxnDomain::Adr, work, &work.initial(1 << 12))?;
            assert!(verified_rate(&mut *heap, work, 2, Duration::from_millis(50))? > 0.0);
        }
        Ok(())
    }
}
