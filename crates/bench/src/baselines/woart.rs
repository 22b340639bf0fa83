//! WOART: the write-optimal adaptive radix tree.
//!
//! Source: Lee, Lim, Song, Nam, Noh, "WORT: Write Optimal Radix Tree for Persistent Memory Storage
//! Systems" (FAST'17), section 4: NODE4 with an 8-byte slot array, NODE16 with a bitmap, NODE48
//! with index bytes, NODE256 with bare links, a path-compression header of one word with the depth
//! in it. Each insertion persists the link first and then the word or byte that validates it.
//!
//! Deviations:
//! 1. Values lie behind a pointer in the leaf and are replaced out of place, as the HART paper
//!    builds all three of its radix trees (section IV-B, Update).
//! 2. The type of a child lies in the low bits of the link, which saves a read of each child.
//! 3. Deletion, which the published code lacks, is the mirror image of insertion; nodes shrink.
//! 4. Ordered scans walk the tree in order (the HART paper searches each key of the range): faster.
//! 5. Allocation as in `palloc.rs`: no persist for an object, so cheaper than any real allocator.
//! 6. One thread, as published.

use super::persistent_radix::{Flavour, PersistentRadix};
use super::radix::InPlace;

/// What distinguishes WOART.
pub(crate) struct WoartFlavour;

impl Flavour for WoartFlavour {
    type Discipline = InPlace;
    const VALUE_IN_LEAF: bool = false;
}

/// See the file head.
pub(crate) type Woart = PersistentRadix<WoartFlavour>;
