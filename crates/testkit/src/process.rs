//! A child of fork(2), threads that sleep, and open files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Seconds after which a child that hangs is ended.
const CHILD_SECONDS_MAX: u32 = 60;

/// How a child ends that does `work`, as waitpid(2) says: 0 if the work returned, SIGALRM if it hung.
///
/// # Panics
/// When the process cannot fork.
pub fn in_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child has this thread alone, does the work, and ends below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: asks for a signal.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: ends the child without running anything else of the parent's.
        unsafe { libc::_exit(i32::from(panicked)) };
    }
    let mut status = -1;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// The calling thread's directory in /proc, for [`is_asleep`].
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn own_thread() -> PathBuf {
    Path::new("/proc").join(std::fs::read_link("/proc/thread-self").expect("/proc is there"))
}

/// Whether the thread with this directory in /proc sleeps in the system.
#[must_use]
pub fn is_asleep(thread: &Path) -> bool {
    let told = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    told.rsplit(") ").next().is_some_and(|state| state.starts_with('S'))
}

/// Descriptors that this process has of the directory or file at `path`, which is absolute and has no links in it.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn descriptors_of(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc is there");
    all.flatten().filter(|one| std::fs::read_link(one.path()).is_ok_and(|to| to == path)).count()
}
