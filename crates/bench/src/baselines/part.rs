//! P-ART: RECIPE's conversion of the concurrent adaptive radix tree.
//!
//! Source: Lee, Mohan, Kashyap, Kim, Chidambaram, "RECIPE: Converting Concurrent DRAM Indexes to
//! Persistent-Memory Indexes" (SOSP'19), section 6.4: non-split changes commit with one atomic
//! store after which a flush and a fence are added; a path-compression split is two ordered atomic
//! steps (install the new parent, then shorten the old node's prefix), and a writer that finds the
//! second one missing repairs it.
//!
//! Deviations:
//! 1. One writer without ROWEX's per-node locks: cheaper than the original on one thread, and not
//!    offered to the multi-threaded sections.
//! 2. The value lies in the leaf and is updated by an 8-byte store: one persist.
//! 3. The original loses keys that are prefixes of others and has no recovery; here keys end with
//!    a zero byte and the tree is usable at once after a crash.
//! 4. NODE4 keeps a slot array where the original counts up a compact array; the same two persists.
//! 5. Deviations 2, 4 and 5 of `woart.rs`.

use super::persistent_radix::{Flavour, PersistentRadix};
use super::radix::InPlace;

/// What distinguishes P-ART.
pub(crate) struct PArtFlavour;

impl Flavour for PArtFlavour {
    type Discipline = InPlace;
    const VALUE_IN_LEAF: bool = true;
}

/// See the file head.
pub(crate) type PArt = PersistentRadix<PArtFlavour>;
