//! The explicit tracker: the program announces what it will write.

use crate::active::Turn;
use crate::error::Result;
use crate::tracker::{SyscallHook, Tracker};
use crate::write_set::write_set::WriteSet;
use std::ffi::c_void;

/// Runs calls as they are; [`will_write`](crate::will_write) is all it sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explicit;

impl Tracker for Explicit {
    fn name(&self) -> &'static str {
        "explicit"
    }

    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        f: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> Result<()> {
        let turn = Turn::take(writes)?;
        // SAFETY: the caller's promise.
        unsafe { f(arg) };
        drop(turn);
        Ok(())
    }

    fn add_leaf(&self, _address: usize) {}

    fn set_syscall_hook(&self, _hook: &'static dyn SyscallHook) {}
}
