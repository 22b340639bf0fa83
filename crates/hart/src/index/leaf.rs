//! What the index knows of a leaf: its address, and how to read its key.

use std::num::NonZeroU64;

/// The absolute address of a durable leaf slot; a multiple of 16, so its low four bits are zero.
///
/// The index never reads through it: [`KeySource`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf(NonZeroU64);

impl Leaf {
    /// The leaf at `address`, or none for the null address.
    #[inline]
    pub(crate) fn new(address: u64) -> Option<Self> {
        debug_assert!(address.is_multiple_of(16), "a leaf slot is 16-byte aligned");
        NonZeroU64::new(address).map(Self)
    }

    /// The address given to [`Leaf::new`].
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0.get()
    }
}

/// Reads the keys of leaves.
///
/// The index reads optimistically: a slot may be freed, reused and overwritten during any of these calls, and the
/// index then discards the result. So an implementation
///
/// 1. reads through atomics (a torn or stale result is allowed, a data race is not),
/// 2. never leaves the memory of the region, whatever length it finds in the slot,
/// 3. reads the same bytes for as long as the leaf is in the index and unlocked.
pub(crate) trait KeySource: Send + Sync {
    /// Bytes of the key.
    fn key_len(&self, leaf: Leaf) -> usize;

    /// Key bytes `8 * index ..`, the first in the lowest byte; bytes after the end of the key are arbitrary.
    ///
    /// The index calls it only for `8 * index < key_len`.
    fn key_word(&self, leaf: Leaf, index: usize) -> u64;

    /// Hints that the leaf is about to be read.
    #[inline]
    fn prefetch(&self, leaf: Leaf) {
        mangrove_sys::prefetch_read(leaf.address() as *const u8);
    }
}
