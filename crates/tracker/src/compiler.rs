//! The compiler tracker: the program reports its own stores, by calls that clang inserts.
//!
//! A program built with `-fsanitize-coverage=func,trace-stores`, and with the header `mangrove_tracker.h` in one
//! translation unit (with LTO the callbacks are inlined), calls back before a store of 1, 2, 4, 8 or 16 bytes and
//! before a mem* function. This tracker sees only code that was rebuilt, and of that neither copies of structs which
//! clang expands in line, nor atomic read-modify-write and compare-and-swap, nor stores of other sizes: the program
//! reports those itself. Outside of tracked calls a callback costs one test.

use crate::active::{Turn, will_write};
use crate::error::Result;
use crate::tracker::{SyscallHook, Tracker};
use crate::write_set::write_set::WriteSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Identity of the thread in a call of the compiler tracker, 0 if there is none. The header compares it with its
/// own thread before it calls.
#[unsafe(no_mangle)]
static mangrove_tracker_thread: AtomicUsize = AtomicUsize::new(0);

/// The calling thread is about to write `len` bytes at `addr`. The header calls it.
///
/// # Safety
/// None needed: the address is not dereferenced. Declared unsafe because C is its caller.
#[unsafe(no_mangle)]
unsafe extern "C" fn mangrove_tracker_store(addr: *const u8, len: usize) {
    will_write(addr, len);
}

/// Runs calls as they are; the callbacks that clang inserted report their stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compiler;

impl Compiler {
    /// What the header refers to by name: the address of the thread variable, and the store function. For code that
    /// is loaded at run time and cannot link to them.
    #[must_use]
    pub fn hooks() -> (*const usize, unsafe extern "C" fn(*const u8, usize)) {
        (mangrove_tracker_thread.as_ptr().cast_const(), mangrove_tracker_store)
    }
}

impl Tracker for Compiler {
    fn name(&self) -> &'static str {
        "compiler"
    }

    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        f: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> Result<()> {
        let turn = Turn::take(writes)?;
        mangrove_tracker_thread.store(crate::active::thread_identity(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { f(arg) };
        mangrove_tracker_thread.store(0, Relaxed);
        drop(turn);
        Ok(())
    }

    fn add_leaf(&self, _address: usize) {}

    fn set_syscall_hook(&self, _hook: &'static dyn SyscallHook) {}
}
