//! Which memory is durable: every allocation goes to the arena or to the process's own heap.

pub(super) mod global_alloc;
mod mapped_file;
pub(super) mod mmap;
pub(super) mod reports;
pub mod split_allocation;
pub(super) mod stderr_line;
pub(super) mod symbols;
pub mod thread_keys;
pub(super) mod write_fence;
