//! Floor 0: which bytes did this call write?
//!
//! A [`Tracker`] runs a function and adds every byte that the function wrote to a [`WriteSet`]: sorted, merged
//! ranges of addresses, exact bytes for the ranges that asked for them, and changes of mappings. Nothing here knows
//! of persistence. Three trackers:
//!
//! - [`Recompiler`] (x86-64 Linux): translates the code that the call reaches, instruction by instruction, and runs
//!   the translation. It sees the program, libc and every library, and needs nothing rebuilt.
//! - [`Compiler`]: the program was built by clang with `-fsanitize-coverage=func,trace-stores`.
//! - [`Explicit`]: the program calls [`will_write`] before it writes.
//!
//! ```
//! use mangrove_tracker::{Explicit, Tracker, WriteSet, will_write};
//! use std::ffi::c_void;
//!
//! unsafe extern "C" fn set(arg: *mut c_void) {
//!     will_write(arg.cast(), 8);
//!     unsafe { arg.cast::<u64>().write(7) };
//! }
//!
//! let mut cell = Box::new(0u64);
//! let address = std::ptr::from_mut(&mut *cell);
//! let mut writes = WriteSet::new(32)?;
//! unsafe { Explicit.call(&mut writes, set, address.cast())? };
//! assert_eq!(*cell, 7);
//! assert!(writes.ranges().iter().any(|&(addr, len)| (addr..addr + len).contains(&address.addr())));
//! # Ok::<(), mangrove_tracker::Error>(())
//! ```

mod active;
mod compiler;
mod error;
mod explicit;
mod own_memory;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod panic_notice;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod recompiler;
mod tracker;
mod verify;
mod write_set;

#[doc(hidden)]
pub use active::forget_turn;
pub use active::{in_tracked_call, will_write};
pub use compiler::Compiler;
pub use error::{Error, Result};
pub use explicit::Explicit;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use own_memory::own_memory_spans;
pub use recompiler::Recompiler;
pub use tracker::{Decision, SyscallHook, Tracker};
pub use verify::{Verdict, Verifier};
pub use write_set::write_set::{BLOCK_BYTES_DEFAULT, Event, WriteSet};
