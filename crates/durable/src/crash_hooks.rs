//! What the crash simulator needs: a runtime over a working copy of its own, the state's own check, and calls of the
//! arena whose reports it can silence (`silence.rs`). Not for other users.

use crate::alloc::{mmap, split_allocation};
use crate::image::image::State;
use crate::silence::SilencedWrites;
use crate::{Error, ImageStat, Initialise, Options, Result, Runtime};
use mangrove_shadow::Shadow;
use mangrove_tracker::Decision;
use std::ffi::c_void;
use std::sync::Arc;

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
    let found = State::over(shadow, &options.state())?;
    // SAFETY: passed on.
    unsafe { Runtime::over_state(tracker, writes, found, options.gated(), initialise, prepare) }
}

/// Counts everything, and lists the faults of the state's own structures. No command runs.
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
    split_allocation::with_command(|heap, writes| heap.alloc_aligned(&mut SilencedWrites(writes), bytes, 16))
}

/// As calloc in a command.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn alloc_zeroed(bytes: usize) -> *mut u8 {
    split_allocation::with_command(|heap, writes| heap.alloc_zeroed(&mut SilencedWrites(writes), bytes, 16))
}

/// As realloc in a command; null when the region is full.
///
/// # Errors
/// The block is none of the arena's.
///
/// # Panics
/// Outside commands.
pub fn resize(block: *mut u8, bytes: usize) -> Result<*mut u8> {
    split_allocation::with_command(|heap, writes| {
        heap.resize(&mut SilencedWrites(writes), block as usize, bytes)
    })
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
    split_allocation::with_command(|heap, writes| heap.free(&mut SilencedWrites(writes), block as usize))
        .map_err(|why| Error::Damaged { what: format!("free of {block:p}: {why:?}") })
}

/// As mmap, munmap, mremap or madvise in a command: takes the kernel's number and arguments, and returns the result;
/// `None` when the call does not concern the state.
///
/// # Errors
/// The message with which it is refused.
///
/// # Panics
/// Outside commands.
pub fn system_call(number: i64, args: &[u64; 6]) -> Result<Option<i64>> {
    let decision =
        split_allocation::with_writes(|writes| mmap::serve(number, args, &mut SilencedWrites(writes)));
    match decision {
        Decision::Native => Ok(None),
        Decision::Return(answer) => Ok(Some(answer)),
        Decision::Refuse(what) => Err(Error::Broken { what: what.into() }),
    }
}
