//! Entering, leaving and unwinding translated code.

#[macro_use]
pub(super) mod context;
pub(super) mod dispatch;
pub(super) mod exact_bytes;
pub(super) mod raw_syscall;
pub(super) mod signals;
pub(super) mod stack_bounds;
pub(super) mod store_filter;
pub(super) mod stubs;
mod trampolines;
pub(super) mod unwind;
