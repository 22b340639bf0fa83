//! At the end of the process, by `exit` or a return from `main`, the open pools write what no thread waits for.
//!
//! Invariants:
//! 1. The thread that ends the process takes no lock of a pool: it may hold one (`exit` is called in a callback, or in
//!    the handler of a signal). It asks each pool's flusher, and waits for a limited time.
//! 2. A child of fork writes nothing of its parent's, and does not wait for locks that threads of its parent hold.
//! 3. A pool that was closed or dropped is left alone.
//!
//! `_exit`, `exec` and a signal that ends the process run no hook.

use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Together the pools may delay the end of the process by so much; only a pool that cannot write, because the thread
/// that ends the process holds a lock, or the disk hangs, takes so long.
const EXIT_WAIT: Duration = Duration::from_secs(5);
/// After so long the thread that holds the lock of [`POOLS`] is not in this process.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// An open pool.
pub(crate) trait FlushAtExit: Send + Sync {
    /// Has the pool write what it was given so far. Takes no lock.
    fn ask_to_flush(&self);

    /// Waits until what the pool was given so far is durable, or never will be, or `end` has come. Takes no lock.
    fn wait_flushed(&self, end: Instant);
}

/// The pools that are open, and some that were. This lock is the outermost.
static POOLS: Mutex<Vec<Weak<dyn FlushAtExit>>> = Mutex::new(Vec::new());

/// Has the end of the process call [`flush_all`]. A thread that is to open a pool later needs this first: what its
/// process hooks meanwhile then still finds the pool unflushed.
pub(crate) fn hook_exit() {
    if let Some(pools) = POOLS.try_lock_for(LOCK_WAIT) {
        hook_once(&pools);
    }
}

/// As [`hook_exit`], with the lock of [`POOLS`].
fn hook_once(_pools: &[Weak<dyn FlushAtExit>]) {
    static HOOKED: AtomicBool = AtomicBool::new(false);
    // Relaxed: the lock orders it.
    if !HOOKED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function may run at any time. (It fails when there is no memory; then there is no hook.)
        let _ = unsafe { libc::atexit(flush_all) };
    }
}

/// Has `pool` flushed at the end of the process, if it is still open then.
pub(crate) fn flush_at_exit(pool: &Arc<impl FlushAtExit + 'static>) {
    let pool: Weak<dyn FlushAtExit> = Arc::downgrade(&(Arc::clone(pool) as Arc<dyn FlushAtExit>));
    // Without the lock (invariant 2) the pool goes without the hook, as if the process ended by `_exit`.
    let Some(mut pools) = POOLS.try_lock_for(LOCK_WAIT) else { return };
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(pool);
    hook_once(&pools);
}

extern "C" fn flush_all() {
    let Some(pools) = POOLS.try_lock_for(LOCK_WAIT) else { return };
    let end = Instant::now() + EXIT_WAIT;
    for pool in pools.iter().filter_map(Weak::upgrade) {
        pool.ask_to_flush();
    }
    for pool in pools.iter().filter_map(Weak::upgrade) {
        pool.wait_flushed(end);
    }
}
