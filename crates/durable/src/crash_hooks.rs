//! What the crash simulator needs: a runtime over a working copy of its own, the state's own check, and reports
//! of the arena, of the variables and of the header that it can silence, one place in the source at a time.
//! No promise to anybody else.

use crate::arena::Writes;
use crate::image::Image;
use crate::{Error, ImageStat, Initialise, Options, Result, Runtime, mappings, route};
use mangrove_shadow::Shadow;
use mangrove_tracker::Decision;
use parking_lot::RwLock;
use std::ffi::c_void;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Site = &'static Location<'static>;
type Silencer = Arc<dyn Fn(Site) -> bool + Send + Sync>;

static ON: AtomicBool = AtomicBool::new(false);
static SILENCER: RwLock<Option<Silencer>> = RwLock::new(None);

/// Asks `silencer` from now on, wherever something of the state is reported as written: true leaves it out.
/// Reports of the arena are asked for only in [`alloc`], [`resize`], [`free`] and [`system_call`].
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
pub(crate) struct Heard<'a, W: Writes>(pub(crate) &'a mut W);

impl<W: Writes> Writes for Heard<'_, W> {
    #[inline]
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize) {
        if !is_silent(Location::caller()) {
            self.0.wrote(ptr, len);
        }
    }
}

/// As [`Runtime::open`], in a working copy that is open already; `prepare` gets the roots before the
/// initialisation runs.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub unsafe fn open(
    shadow: Shadow,
    options: &Options,
    initialise: Option<(Initialise, *mut c_void)>,
    prepare: impl FnOnce(*mut usize),
) -> Result<Arc<Runtime>> {
    let (tracker, writes) = (options.make_tracker()?, options.write_set()?);
    let found = Image::over(shadow, &options.image())?;
    // SAFETY: passed on.
    unsafe { Runtime::over_image(tracker, writes, found, options.gated(), initialise, prepare) }
}

/// Counts everything, and says what is wrong with the state's own structures. No command runs.
#[must_use]
pub fn examine(runtime: &Runtime) -> (ImageStat, Vec<String>) {
    runtime.backing().examine()
}

/// As malloc in a command.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn alloc(bytes: usize) -> *mut u8 {
    route::with_command(|heap, writes| heap.alloc_aligned(&mut Heard(writes), bytes, 16))
}

/// As calloc in a command.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn alloc_zeroed(bytes: usize) -> *mut u8 {
    route::with_command(|heap, writes| heap.alloc_zeroed(&mut Heard(writes), bytes, 16))
}

/// As realloc in a command; null when the region is full.
///
/// # Errors
/// The block is none of the arena's.
///
/// # Panics
/// Outside commands.
pub fn resize(block: *mut u8, bytes: usize) -> Result<*mut u8> {
    route::with_command(|heap, writes| heap.resize(&mut Heard(writes), block as usize, bytes))
        .map_err(|why| Error::Damaged { what: format!("realloc of {block:p}: {why:?}") })
}

/// As free in a command.
///
/// # Errors
/// The block is none of the arena's, or free.
///
/// # Panics
/// Outside commands.
pub fn free(block: *mut u8) -> Result<()> {
    route::with_command(|heap, writes| heap.free(&mut Heard(writes), block as usize))
        .map_err(|why| Error::Damaged { what: format!("free of {block:p}: {why:?}") })
}

/// As mmap, munmap, mremap or madvise in a command: the kernel's number and arguments, and its answer; `None` when
/// the call is the process's own affair.
///
/// # Errors
/// The sentence with which it is refused.
///
/// # Panics
/// Outside commands.
pub fn system_call(number: i64, args: &[u64; 6]) -> Result<Option<i64>> {
    let decision = route::with_writes(|writes| mappings::serve(number, args, &mut Heard(writes)));
    match decision {
        Decision::Native => Ok(None),
        Decision::Return(answer) => Ok(Some(answer)),
        Decision::Refuse(what) => Err(Error::Broken { what: what.into() }),
    }
}
