//! Where the nodes of a radix tree live: a durable region, or DRAM.
//!
//! One radix tree serves WOART, ART+CoW and P-ART (nodes in the region), HART-paper (nodes in DRAM, leaves in the
//! region) and the volatile bound (all in DRAM). It calls nodes by their *place*: an offset in the region, or an
//! address.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for nodes, and the keys of leaves.
pub(crate) trait NodeSpace {
    /// Address of the byte at `place`.
    fn at(&self, place: u64) -> *mut u8;
    /// Stores a word, failure-atomically where the space is durable.
    fn store(&self, place: u64, value: u64);
    /// Stores one byte.
    fn store_byte(&self, place: u64, value: u8);
    /// Fills memory that nothing refers to yet.
    fn write(&self, place: u64, bytes: &[u8]);
    /// Requests the write-back of the bytes. Does nothing in DRAM.
    fn flush(&self, place: u64, len: usize);
    /// Orders earlier flushes before later stores. Does nothing in DRAM.
    fn fence(&self);
    /// Announces that the bytes are about to be loaded (the read latency model). Does nothing in DRAM.
    fn reading(&self, place: u64, len: usize);
    /// Memory of `bytes` bytes, a multiple of 8.
    fn alloc(&self, bytes: usize) -> u64;
    /// Frees what `alloc` returned.
    fn free(&self, place: u64, bytes: usize);
    /// The key of a leaf.
    fn leaf_key(&self, leaf: u64) -> &[u8];

    /// persistent() of the papers: write back, then order.
    #[inline]
    fn persist(&self, place: u64, len: usize) {
        self.flush(place, len);
        self.fence();
    }

    /// The word at `place`.
    #[inline]
    fn load(&self, place: u64) -> u64 {
        // SAFETY: places come from `alloc` or from the tree's root, are 8-byte aligned and alive.
        // Acquire pairs with the Release stores of links.
        unsafe { AtomicU64::from_ptr(self.at(place).cast()) }.load(Ordering::Acquire)
    }

    /// The byte at `place`.
    #[inline]
    fn load_byte(&self, place: u64) -> u8 {
        // SAFETY: as for `load`; writers are excluded by the owner of the tree.
        unsafe { self.at(place).read() }
    }
}

/// Allocation of nodes in DRAM, for spaces whose places are addresses.
pub(crate) mod dram {
    use super::{AtomicU64, Layout, Ordering, alloc, dealloc, handle_alloc_error};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 16).expect("nodes are small")
    }

    /// Fresh memory, uninitialised.
    pub(crate) fn allocate(bytes: usize) -> u64 {
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc(layout(bytes)) };
        if ptr.is_null() {
            handle_alloc_error(layout(bytes));
        }
        ptr as u64
    }

    /// Frees what `allocate` gave for the same size.
    pub(crate) fn release(place: u64, bytes: usize) {
        // SAFETY: the tree frees each node once, with the size it was allocated with.
        unsafe { dealloc(place as *mut u8, layout(bytes)) };
    }

    /// Release store of a word at an address.
    #[inline]
    pub(crate) fn store(place: u64, value: u64) {
        // SAFETY: the address lies in a live node; Release pairs with the Acquire of `NodeSpace::load`.
        unsafe { AtomicU64::from_ptr(place as *mut u64) }.store(value, Ordering::Release);
    }

    /// Copies bytes to an address.
    #[inline]
    pub(crate) fn write(place: u64, bytes: &[u8]) {
        // SAFETY: the range lies in a live node that nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len()) };
    }
}
