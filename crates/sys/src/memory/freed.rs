//! Memory that was freed and that the allocator of the process keeps.

/// Has the C library's allocator give freed memory back to the system, wherever in its heaps it lies. Takes time that
/// grows with the heaps: milliseconds for a gigabyte. Does nothing where the C library has no such call.
pub fn give_back_freed_memory() {
    // SAFETY: it frees nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
