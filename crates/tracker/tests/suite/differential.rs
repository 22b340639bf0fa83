//! One watched call: the tracker must report every byte of writable memory that it changed.

use super::library::Function;
use mangrove_tracker::{Error, Tracker, Verdict, Verifier, WriteSet};
use std::ffi::c_void;

/// Verifies calls of one tracker.
pub(crate) struct Watch {
    verifier: Verifier,
    writes: Box<WriteSet>,
}

impl Watch {
    /// A watch with blocks of `block_bytes`.
    pub(crate) fn new(block_bytes: usize) -> Self {
        let writes = Box::new(WriteSet::new(block_bytes).expect("a block size"));
        let skip = [(std::ptr::from_ref(&*writes).addr(), size_of::<WriteSet>())];
        Self { verifier: Verifier::new(&skip), writes }
    }

    /// Calls `f(arg)` and compares memory.
    pub(crate) fn call(
        &mut self,
        tracker: &dyn Tracker,
        f: Function,
        arg: usize,
    ) -> (Result<(), Error>, Verdict) {
        self.writes.clear();
        self.verifier.before();
        // SAFETY: a test program's function with the argument it expects.
        let result =
            unsafe { tracker.call(&mut self.writes, f, std::ptr::without_provenance_mut::<c_void>(arg)) };
        let verdict = self.verifier.after(&mut self.writes);
        (result, verdict)
    }
}

/// Runs `f` in a forked child; its wait status.
pub(crate) fn in_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the test process has one thread.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // The alarm ends a child that hangs, and its wait status shows it.
            libc::alarm(300);
            let code = f();
            libc::_exit(code);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        status
    }
}
