//! A growable array in the trackers' own memory.
//!
//! Trackers work in the middle of a program's `malloc`, with its locks held: nothing here may use the global
//! allocator.

use crate::own_memory;
use std::ops::{Deref, DerefMut};

const PAGE_BYTES: usize = 4096;

/// Only the address space bounds its growth. Its elements are plain old data.
pub(crate) struct OwnVec<T: Copy> {
    base: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: plain owned memory, as a Vec's.
unsafe impl<T: Copy + Send> Send for OwnVec<T> {}
// SAFETY: as a Vec's.
unsafe impl<T: Copy + Sync> Sync for OwnVec<T> {}

impl<T: Copy> OwnVec<T> {
    /// An empty array without memory.
    pub(crate) const fn new() -> Self {
        Self { base: std::ptr::without_provenance_mut(PAGE_BYTES), len: 0, capacity: 0 }
    }

    /// Appends, growing if needed. Amortised O(1); aborts the process when there is no memory left, as
    /// every allocation of the standard library does.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.len == self.capacity {
            self.grow(self.len + 1);
        }
        // SAFETY: len < capacity elements are mapped.
        unsafe { self.base.add(self.len).write(value) };
        self.len += 1;
    }

    /// Appends all of `values`.
    pub(crate) fn extend(&mut self, values: &[T]) {
        let wanted = self.len + values.len();
        if wanted > self.capacity {
            self.grow(wanted);
        }
        // SAFETY: `wanted` elements are mapped, and `values` cannot lie in memory that is exclusively this array's.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.base.add(self.len), values.len()) };
        self.len = wanted;
    }

    /// Forgets all elements, keeps the memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Keeps the first `len` elements.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the array `len` elements long, filling with `value`.
    pub(crate) fn resize(&mut self, len: usize, value: T) {
        if len > self.capacity {
            self.grow(len);
        }
        for idx in self.len..len {
            // SAFETY: below the capacity.
            unsafe { self.base.add(idx).write(value) };
        }
        self.len = len;
    }

    #[cold]
    fn grow(&mut self, wanted: usize) {
        let size = std::mem::size_of::<T>();
        let bytes = own_memory::size_of_piece((wanted * size).max(2 * self.capacity * size));
        let Some(ptr) = own_memory::map(bytes) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; PAGE_BYTES]>());
        };
        let base: *mut T = std::ptr::with_exposed_provenance_mut(ptr);
        // SAFETY: `len` elements are initialised in the old memory and fit the new, which does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.base, base, self.len) };
        self.free();
        self.base = base;
        self.capacity = bytes / size;
    }

    fn free(&mut self) {
        if self.capacity > 0 {
            own_memory::unmap(self.base.expose_provenance(), self.capacity * std::mem::size_of::<T>());
        }
    }
}

impl<T: Copy> Deref for OwnVec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are initialised; the base is aligned even when there is no memory.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl<T: Copy> DerefMut for OwnVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl<T: Copy> Drop for OwnVec<T> {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::OwnVec;

    #[test]
    fn grows_like_a_vector() {
        let (mut ours, mut model) = (OwnVec::new(), Vec::new());
        for value in 0..10_000u64 {
            ours.push((value, value * 3));
            model.push((value, value * 3));
        }
        ours.extend(&model[5..500]);
        model.extend_from_within(5..500);
        assert_eq!(&ours[..], &model[..]);
        ours.truncate(7);
        assert_eq!(&ours[..], &model[..7]);
        ours.resize(9, (1, 1));
        assert_eq!(ours[8], (1, 1));
        ours.clear();
        assert!(ours.is_empty());
    }
}
