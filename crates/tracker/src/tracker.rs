//! The one trait of all trackers.

use crate::error::Result;
use crate::write_set::write_set::WriteSet;
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;

/// What the caller of a tracker decides about a system call of tracked code, before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make it; the tracker records what it writes and maps.
    Native,
    /// Do not make it; the program sees this result (or `-errno`). The hook has recorded what it changed.
    Return(i64),
    /// Abandon the call with [`Error::Refused`](crate::Error::Refused) and this message.
    Refuse(&'static str),
}

/// Sees system calls of tracked code before they are made.
///
/// Runs in the middle of the program (perhaps of its `malloc`): it must not allocate from the process heap.
pub trait SyscallHook: Send + Sync {
    /// Called for mmap, munmap, mremap, mprotect, madvise and brk with the kernel's number and arguments.
    fn before(&self, number: i64, args: &[u64; 6], writes: &mut WriteSet) -> Decision;
}

/// Learns every byte that a call writes. One tracked call runs at a time.
pub trait Tracker: Send + Sync {
    /// A word for people: `recompiler`, `compiler`, `explicit`.
    fn name(&self) -> &'static str;

    /// Calls `f(arg)` and adds what it writes to `writes`, which may hold earlier calls of the same batch.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) changes nothing. Errors that [are fatal](crate::Error::is_fatal)
    /// may leave half of the call's work in memory.
    ///
    /// # Safety
    /// `f(arg)` must be sound to call here and now.
    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        f: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> Result<()>;

    /// From now on the function at `address` runs untracked when tracked code calls it (a *native leaf*), and
    /// reports what it writes through [`will_write`](crate::will_write) or [`WriteSet::record`]. It must return to
    /// its caller and neither throw nor jump out. Trackers that see only marks ignore this.
    fn add_leaf(&self, address: usize);

    /// As [`Tracker::add_leaf`], for a function whose writes no caller wants: while it runs, the word at `mark` is
    /// one greater, so that an allocator can tell. False where the tracker cannot do that.
    fn add_marked_leaf(&self, _address: usize, _mark: &'static AtomicUsize) -> bool {
        false
    }

    /// From now on a call that reaches `address` is refused with the message `why`. Trackers that see only marks
    /// ignore this.
    fn refuse(&self, _address: usize, _why: &'static str) {}

    /// Installs the one system call hook of this tracker. Trackers that do not see system calls ignore it.
    fn set_syscall_hook(&self, hook: &'static dyn SyscallHook);

    /// Forgets what was learnt about the program's code. The caller needs it after code was changed or unloaded
    /// outside of tracked calls. Trackers that see only marks ignore this.
    fn forget_code(&self) {}
}
