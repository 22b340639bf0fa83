//! System calls of tracked code: what each of them writes.

pub(super) mod syscall_table;
pub(super) mod syscalls;
