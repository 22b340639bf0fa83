//! A list that grows by one entry at a time, on the hot path of every access.

/// Entries for which a list keeps its memory from one transaction to the next.
const KEPT_ENTRIES_MAX: usize = 1 << 16;

/// A list whose owner looks after room before it adds: it may drop superseded entries first, so that the list stays
/// in proportion to what a transaction touches, not to how often.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    list: Vec<T>,
}

impl<T: Copy> Entries<T> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::with_capacity(64) }
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() == self.list.capacity()
    }

    /// Adds an entry; the list must not be full.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) {
        debug_assert!(!self.is_full());
        let len = self.list.len();
        // SAFETY: the caller looked for room, so that the entry behind the last one belongs to the list.
        unsafe {
            self.list.as_mut_ptr().add(len).write(entry);
            self.list.set_len(len + 1);
        }
    }

    /// Makes room: `compact` drops entries that others supersede; if half the list or more stays, it grows to twice
    /// its size. So `compact` costs each entry constant time, over all.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, compact: impl FnOnce(&mut Vec<T>)) {
        compact(&mut self.list);
        if self.list.len() * 2 >= self.list.capacity() {
            self.list.reserve(self.list.capacity().max(1));
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        if self.list.capacity() > KEPT_ENTRIES_MAX {
            self.list.shrink_to(KEPT_ENTRIES_MAX);
        }
    }
}

impl<T> std::ops::Deref for Entries<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.list
    }
}
