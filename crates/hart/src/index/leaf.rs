//! What the index knows of a leaf: its address, and how to read its key.

use std::num::NonZeroU64;

/// The absolute address of a durable leaf slot; a multiple of 16, so its low four bits are zero. Three of them hint at
/// what a reader of the leaf will need ([`LeafHint`]); nothing depends on that but speed.
///
/// The index never reads through it: [`KeySource`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf(NonZeroU64);

/// What a reader of a leaf will need, for prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafHint {
    /// So many cache lines, the leaf's first one included, and nothing else: 1 to 7, where 7 is that many or more.
    Lines(usize),
    /// What the leaf's word refers to.
    Reference,
}

const HINT_SHIFT: u32 = 1;
const HINT_MASK: u64 = 0b111 << HINT_SHIFT;
const HINT_REFERENCE: u64 = 7;
const ADDRESS_MASK: u64 = !15;

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
        self.0.get() & ADDRESS_MASK
    }

    /// The same leaf with this hint.
    #[inline]
    pub(crate) fn with_hint(self, hint: LeafHint) -> Self {
        let code = match hint {
            LeafHint::Lines(lines) => lines.clamp(1, HINT_REFERENCE as usize) as u64 - 1,
            LeafHint::Reference => HINT_REFERENCE,
        };
        NonZeroU64::new(self.address()).map_or(self, |address| Self(address | code << HINT_SHIFT))
    }

    /// The hint; one line of a leaf without one.
    #[inline]
    pub(crate) fn hint(self) -> LeafHint {
        match (self.0.get() & HINT_MASK) >> HINT_SHIFT {
            HINT_REFERENCE => LeafHint::Reference,
            code => LeafHint::Lines(code as usize + 1),
        }
    }

    /// Prefetches the first line of the leaf, and the others that the hint names.
    #[inline]
    pub(crate) fn prefetch(self) {
        mangrove_sys::prefetch_read(self.address() as *const u8);
        self.prefetch_further();
    }

    /// Prefetches the lines of the leaf that the hint names beyond the first.
    #[inline]
    pub(crate) fn prefetch_further(self) {
        if let LeafHint::Lines(lines) = self.hint() {
            for line in 1..lines {
                mangrove_sys::prefetch_read((self.address() as *const u8).wrapping_add(64 * line));
            }
        }
    }

    /// The word of the index; [`Leaf::from_bits`] undoes it.
    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0.get()
    }

    #[inline]
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
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
