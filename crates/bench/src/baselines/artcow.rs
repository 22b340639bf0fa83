//! ART+CoW: the adaptive radix tree made durable by copying.
//!
//! Source: Lee et al., "WORT" (FAST'17), section 4.1: an ordinary ART keeps the entries of NODE4
//! and NODE16 sorted and its compressed path in several words, so a change of either is made in a
//! copy that one 8-byte store puts in the node's place. NODE48 and NODE256 are changed in place,
//! link first, then the index byte.
//!
//! Deviations: 1, 2, 4, 5 and 6 of `woart.rs`; deletion copies NODE4 and NODE16 likewise.

use super::persistent_radix::{Flavour, PersistentRadix};
use super::radix::CopyOnWrite;

/// What distinguishes ART+CoW.
pub(crate) struct ArtCowFlavour;

impl Flavour for ArtCowFlavour {
    type Discipline = CopyOnWrite;
    const VALUE_IN_LEAF: bool = false;
}

/// See the file head.
pub(crate) type ArtCow = PersistentRadix<ArtCowFlavour>;
