//! Reports that the crash simulator can silence: those of the arena, of the variables and of the header, one call
//! site at a time. Without a silencer every report passes.

use mangrove_arena::Writes;
use parking_lot::RwLock;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Site = &'static Location<'static>;
type Silencer = Arc<dyn Fn(Site) -> bool + Send + Sync>;

static ON: AtomicBool = AtomicBool::new(false);
static SILENCER: RwLock<Option<Silencer>> = RwLock::new(None);

/// From now on asks `silencer` at each call site that reports a write to the state; if it returns true, the report
/// is left out. Reports of the arena are asked about only in `alloc`, `resize`, `free` and `system_call` of
/// `crash_hooks.rs`.
pub fn set_silencer(silencer: Option<Silencer>) {
    ON.store(silencer.is_some(), Ordering::Relaxed);
    *SILENCER.write() = silencer;
}

#[inline]
pub(crate) fn is_silent(site: Site) -> bool {
    // Relaxed: set before the runtime is opened, on the same thread.
    ON.load(Ordering::Relaxed) && SILENCER.read().as_ref().is_some_and(|silencer| silencer(site))
}

/// Reports that pass the silencer.
pub(crate) struct SilencedWrites<'a, W: Writes>(pub(crate) &'a mut W);

impl<W: Writes> Writes for SilencedWrites<'_, W> {
    #[inline]
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize) {
        if !is_silent(Location::caller()) {
            self.0.wrote(ptr, len);
        }
    }
}
