//! What the crash simulator can leave out, one call site at a time: reports of the arena, of the variables and of the
//! header, and steps of giving pages back. Without a silencer every report passes, and no step is left out.

use mangrove_arena::Writes;
use parking_lot::RwLock;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Site = &'static Location<'static>;
type Silencer = Arc<dyn Fn(Site) -> bool + Send + Sync>;

static ON: AtomicBool = AtomicBool::new(false);
static SILENCER: RwLock<Option<Silencer>> = RwLock::new(None);
static STEP_SILENCER: RwLock<Option<Silencer>> = RwLock::new(None);

/// From now on asks `silencer` at each call site that reports a write to the state; if it returns true, the report
/// is left out. Reports of the arena are asked about only in `alloc`, `resize`, `free` and `system_call` of
/// `crash_hooks.rs`.
pub fn set_silencer(silencer: Option<Silencer>) {
    ON.store(silencer.is_some(), Ordering::Relaxed);
    *SILENCER.write() = silencer;
}

/// From now on asks `silencer` at each call site of a step that orders what is given back and used again; if it returns
/// true, the step is left out.
pub fn set_step_silencer(silencer: Option<Silencer>) {
    *STEP_SILENCER.write() = silencer;
}

/// Whether the step at the caller is left out. Not for paths that are often taken.
#[track_caller]
pub(crate) fn is_left_out() -> bool {
    let site = Location::caller();
    STEP_SILENCER.read().as_ref().is_some_and(|silencer| silencer(site))
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
