//! Split allocation for Rust programs: a global allocator over the program's own.

use crate::alloc::split_allocation::{
    is_inside, is_persistent, mangrove_arena_adopt, mangrove_arena_alloc, mangrove_arena_alloc_zeroed,
    mangrove_arena_free, mangrove_arena_resize, mangrove_arena_usable,
};
use std::alloc::{GlobalAlloc, Layout, System};

/// A global allocator that gives persistent memory inside write commands, and memory of `A` elsewhere.
///
/// ```
/// use mangrove_durable::Allocator;
///
/// #[global_allocator]
/// static ALLOCATOR: Allocator = Allocator::new();
///
/// assert_eq!(vec![1, 2, 3].len(), 3); // outside commands: the process's own heap
/// ```
///
/// A persistent block that is dropped outside a command is freed by the next command. A block of the
/// process's heap that a command makes longer moves into the persistent arena.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator<A = System>(A);

impl Allocator<System> {
    /// Over the system's allocator.
    #[must_use]
    pub const fn new() -> Self {
        Self(System)
    }
}

impl<A: GlobalAlloc> Allocator<A> {
    /// Over another allocator.
    #[must_use]
    pub const fn over(other: A) -> Self {
        Self(other)
    }
}

const ALIGN_MIN: usize = 16;

// SAFETY: each block comes from one of two allocators that keep the contract, and goes back to the one it
// came from, which its address tells.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_inside() {
            // SAFETY: inside.
            return unsafe { mangrove_arena_alloc(layout.size(), layout.align()) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_inside() {
            // SAFETY: inside.
            return unsafe { mangrove_arena_alloc_zeroed(layout.size(), layout.align()) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_persistent(block as usize) {
            // SAFETY: persistent, in use, and the caller's to free.
            return unsafe { mangrove_arena_free(block) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: a block stays with the allocator that its address and the calling thread determine; the caller
        // keeps the contracts of all calls.
        unsafe {
            match (is_inside(), is_persistent(block as usize)) {
                (false, false) => self.0.realloc(block, layout, bytes),
                (true, true) if layout.align() <= ALIGN_MIN => mangrove_arena_resize(block, bytes),
                (true, _) => {
                    let new = mangrove_arena_adopt(block, layout.size().min(bytes), bytes, layout.align());
                    if !new.is_null() {
                        self.dealloc(block, layout);
                    }
                    new
                }
                (false, true) if bytes <= mangrove_arena_usable(block) => block,
                (false, true) => {
                    let wanted = Layout::from_size_align_unchecked(bytes, layout.align());
                    let new = self.0.alloc(wanted);
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(block, new, layout.size());
                        mangrove_arena_free(block);
                    }
                    new
                }
            }
        }
    }
}
