//! A list that grows by one entry at a time, on the hot path of every access.
//!
//! It keeps the place of its next entry and the end of its space, as a vector keeps length and capacity: adding an
//! entry is a comparison, the stores of the entry and one of the place, without multiplying.

/// Entries for which a list keeps its memory from one transaction to the next.
const KEPT_ENTRIES_MAX: usize = 1 << 16;

/// Entries that a new list has space for.
const FIRST_ENTRIES: usize = 64;

/// A list whose owner makes sure of space before it adds: it may drop superseded entries first, so that the list
/// stays in proportion to what a transaction touches, not to how often.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    /// Where the next entry goes, in the vector's memory.
    next: *mut T,
    /// The end of that memory.
    end: *mut T,
    /// Owns the memory; its length counts only while an owner compacts or shortens the list.
    list: Vec<T>,
}

// SAFETY: the pointers point into the vector, which moves with them.
unsafe impl<T: Send> Send for Entries<T> {}
// SAFETY: a shared list is only read.
unsafe impl<T: Sync> Sync for Entries<T> {}

impl<T: Copy> Entries<T> {
    pub(crate) fn new() -> Self {
        const { assert!(size_of::<T>() > 0, "an entry has bytes") };
        let mut entries = Self {
            next: std::ptr::null_mut(),
            end: std::ptr::null_mut(),
            list: Vec::with_capacity(FIRST_ENTRIES),
        };
        entries.point();
        entries
    }

    /// Points behind the vector's last entry, and to the end of its memory.
    fn point(&mut self) {
        let (len, capacity) = (self.list.len(), self.list.capacity());
        let first = self.list.as_mut_ptr();
        // SAFETY: length and capacity are inside the vector's memory, or at its end.
        (self.next, self.end) = unsafe { (first.add(len), first.add(capacity)) };
    }

    /// The entries as a vector, to be changed; `point` must follow.
    fn as_vector(&mut self) -> &mut Vec<T> {
        let len = self.len();
        // SAFETY: the entries before `next` were written, in order.
        unsafe { self.list.set_len(len) };
        &mut self.list
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.next == self.end
    }

    /// Adds an entry; the list must not be full.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) {
        debug_assert!(!self.is_full());
        // SAFETY: the caller looked for room, so that the entry at `next` belongs to the vector's memory.
        unsafe {
            self.next.write(entry);
            self.next = self.next.add(1);
        }
    }

    /// Makes space: `compact` drops entries that others supersede; if half the list or more stays, it grows to
    /// twice its size. So `compact` costs each entry constant time, over all.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, compact: impl FnOnce(&mut Vec<T>)) {
        let list = self.as_vector();
        compact(list);
        if list.len() * 2 >= list.capacity() {
            list.reserve(list.capacity().max(1));
        }
        self.point();
    }

    /// Drops the entries behind the first `len`, of which there are at least as many.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        // SAFETY: as long as the list has been, which lies in the vector's memory.
        self.next = unsafe { self.list.as_mut_ptr().add(len) };
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.next = self.list.as_mut_ptr();
        if self.list.capacity() > KEPT_ENTRIES_MAX {
            self.shrink();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        self.list.clear();
        self.list.shrink_to(KEPT_ENTRIES_MAX);
        self.point();
    }
}

impl<T> std::ops::Deref for Entries<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        let first = self.list.as_ptr();
        // SAFETY: `next` never lies before the first entry, and the entries before it were written.
        unsafe { std::slice::from_raw_parts(first, self.next.cast_const().offset_from_unsigned(first)) }
    }
}
