//! For the crash simulator: leaves out steps of the commit protocols that are neither flushes nor fences, one call site
//! at a time, stops a commit where its writes are visible and not durable, and ends waits that no thread can end. Not
//! for other users.

use parking_lot::RwLock;
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Site = &'static Location<'static>;
type Silencer = Arc<dyn Fn(Site) -> bool + Send + Sync>;

static SILENCER: RwLock<Option<Silencer>> = RwLock::new(None);

/// From now on asks `silencer` at each such step; if it returns true, the step is left out.
pub fn set_silencer(silencer: Option<Silencer>) {
    *SILENCER.write() = silencer;
}

/// Time stamps count from opening to opening instead of being read: then each run of a simulation is the same.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// From now on the clocks of logs that are made count by one.
pub fn count_stamps() {
    // Relaxed: it orders nothing.
    COUNTED.store(true, Ordering::Relaxed);
}

pub(crate) fn counts_stamps() -> bool {
    COUNTED.load(Ordering::Relaxed)
}

static WAIT_WATCH: RwLock<Option<fn() -> bool>> = RwLock::new(None);

/// From now on asks `watch` in each turn of a wait for other commits, on the thread that waits; if it returns true, no
/// thread can end the wait, and the commit or read fails.
pub fn set_wait_watch(watch: Option<fn() -> bool>) {
    *WAIT_WATCH.write() = watch;
}

pub(crate) fn waits_in_vain() -> bool {
    let watch = *WAIT_WATCH.read();
    watch.is_some_and(|watch| watch())
}

thread_local! {
    static WINDOW: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on calls `window` in each commit of the calling thread, when its locks are released and nothing is fenced.
pub fn set_window(window: Option<fn()>) {
    WINDOW.set(window);
}

pub(crate) fn window() {
    if let Some(window) = WINDOW.get() {
        window();
    }
}

pub(crate) fn leaves_out(site: Site) -> bool {
    let silencer = SILENCER.read().clone();
    silencer.is_some_and(|silencer| silencer(site))
}
