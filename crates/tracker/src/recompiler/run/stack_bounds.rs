//! Where the calling thread's stack and its thread-local storage lie.

use super::raw_syscall::{failed, syscall};
use crate::recompiler::code_cache::proc_maps::{Maps, Origin};

/// A thread's own stack, [lo, hi). Empty if its bounds cannot be determined: then every store is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) lo: usize,
    pub(crate) hi: usize,
}

/// Finds the stack that `rsp` points into, without libc (whose function for it allocates).
///
/// The main thread's stack is the mapping that the kernel grows. Another thread's ends at its control block
/// (`fs_base`), which glibc puts on top of the stack, and begins after a guard page. Any other memory, such as a
/// coroutine's stack in the heap, is not the thread's own stack.
pub(crate) fn find_stack(maps: &mut Maps, rsp: usize, fs_base: usize) -> Stack {
    // If this fails, the old list either has the stack or its bounds cannot be determined.
    let _ = maps.refresh();
    let Some(mapping) = maps.find(rsp) else { return Stack::default() };
    if mapping.is_main_stack {
        let below = maps.all().iter().rev().find(|other| other.hi <= mapping.lo).map_or(0, |other| other.hi);
        let lo = mapping.hi.saturating_sub(stack_limit()).max(below);
        return Stack { lo: lo.min(mapping.lo), hi: mapping.hi };
    }
    let guarded = maps.all().iter().any(|other| other.hi == mapping.lo && !other.read && !other.write);
    if mapping.origin == Origin::Made && guarded && mapping.lo < rsp && rsp < fs_base && fs_base < mapping.hi
    {
        return Stack { lo: mapping.lo, hi: (fs_base + 1).next_multiple_of(4096).min(mapping.hi) };
    }
    Stack::default()
}

/// How far the main stack may grow.
fn stack_limit() -> usize {
    let mut limit = [0u64; 2];
    let to = std::ptr::from_mut(&mut limit).expose_provenance() as u64;
    // SAFETY: writes the two words of the limit.
    let result = unsafe { syscall(libc::SYS_prlimit64, [0, u64::from(libc::RLIMIT_STACK), 0, to, 0, 0]) };
    const UNLIMITED_BYTES: u64 = 64 << 30;
    if failed(result) { 8 << 20 } else { limit[0].min(UNLIMITED_BYTES) as usize }
}

/// Base address of the thread's fs segment: the System V ABI keeps it in its first word.
pub(crate) fn fs_base() -> usize {
    crate::active::thread_identity()
}
