//! Memory of states that were closed, or whose initialisation failed. Destructors of a program's globals run later and
//! read it: they find it as it was, and what they change and free has no effect. The next opening of a state unmaps it,
//! unless a system library still points into it: the buffer of a stream, or the environment.
//!
//! Invariants:
//! 1. Memory is put back while the list is locked, and only where nothing is mapped: a state that is opened at the same
//!    time, the same one above all, keeps its own.

use crate::Error;
use crate::alloc::split_allocation::Retired;
use crate::image::modules::system_library_that_points_into;
use mangrove_sys::{LeftMemory, Parked, ProcessMark};
use parking_lot::{Mutex, MutexGuard};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What is left, of all states of a process.
pub(super) type LeftStates = Vec<(Retired, LeftMemory)>;

/// The list of one process.
struct ProcessList {
    process: ProcessMark,
    states: Mutex<LeftStates>,
}

/// Made when a process first needs it, and never freed: a thread that a forked child does not have may hold the lock of
/// its parent's, for as long as it opens a state.
static LIST: AtomicPtr<ProcessList> = AtomicPtr::new(null_mut());

/// What is left in this process. While it is locked, no other state is opened, and none that ends is left.
pub(super) fn left_states() -> MutexGuard<'static, LeftStates> {
    // Acquire, with the Release in `make`.
    let present = LIST.load(Ordering::Acquire);
    // SAFETY: null, or never freed.
    match unsafe { present.as_ref() } {
        Some(list) if list.process.is_here() => list.states.lock(),
        parents => make(present, parents).states.lock(),
    }
}

/// The list of this process, where `present` is none or that of a parent, `parents`.
#[cold]
fn make(present: *mut ProcessList, parents: Option<&'static ProcessList>) -> &'static ProcessList {
    // The memory stays mapped here if a thread of the parent's has the list.
    let inherit = |list: &'static ProcessList| {
        let mut states = list.states.try_lock()?;
        Some(std::mem::take(&mut *states))
    };
    let states = Mutex::new(parents.and_then(inherit).unwrap_or_default());
    let made = Box::into_raw(Box::new(ProcessList { process: ProcessMark::here(), states }));
    match LIST.compare_exchange(present, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made, and from now on never freed.
        Ok(_) => unsafe { &*made },
        Err(other) => {
            // SAFETY: just made, and known only here.
            let made = unsafe { Box::from_raw(made) };
            // SAFETY: another thread of this process has made it, and it is never freed.
            let other = unsafe { &*other };
            other.states.lock().append(&mut made.states.into_inner());
            other
        }
    }
}

/// Unmaps what is left, but for what a system library points into.
pub(super) fn unmap(left: &mut LeftStates) {
    left.retain(|(memory, _)| system_library_that_points_into(&memory.span()).is_some());
}

/// Leaves the memory of a state that has ended where it was; with `is_kept` for the life of the process.
pub(super) fn leave(retired: Retired, parked: Parked, is_kept: bool) {
    let mut left = left_states();
    match parked.put_back() {
        // A state that was opened meanwhile lies there: what is freed there is its own.
        None => drop(retired),
        Some(memory) if is_kept => std::mem::forget((retired, memory)),
        Some(memory) => left.push((retired, memory)),
    }
}

/// The error that names the library which still points into memory of a closed state, if such memory lies at
/// `address`.
pub(super) fn in_the_way(left: &[(Retired, LeftMemory)], address: u64) -> Option<Error> {
    let (memory, _) = left.iter().find(|(memory, _)| memory.span().contains(&(address as usize)))?;
    let library = system_library_that_points_into(&memory.span())?;
    Some(Error::Invalid {
        what: format!(
            "a state that this process closed was at {address:#x}, and {library} still uses memory of it, as the \
             first use of a stream, of setenv or of localtime inside a command makes it; open it in a new process, \
             or use such things once before opening"
        ),
    })
}
