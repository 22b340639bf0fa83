//! Which atomic groups a crash may keep: the order of an opening, as its generation records it.
//!
//! Durable-order: order and generation are one word, durable before the first commit of the opening. Otherwise recovery
//! could read atomic groups by another rule than the one they were written by, and drop what was acknowledged.

use crate::{Error, Result};
use std::fmt;

/// Which atomic groups survive a crash, and so when a commit may be acknowledged. Each opening chooses; recovery
/// follows the choice of the opening that wrote the atomic groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Those before the first that is missing. A commit is durable when its bytes are, and those of all smaller
    /// numbers. Right in every persistence domain.
    #[default]
    Dense,
    /// Every whole one, whatever is missing before it. A commit is durable, without flush, fence or wait, when it has
    /// been sealed. Right only where the caches are persistent (eADR), and where every commit is sealed before another
    /// thread can see what it wrote: then nothing that depends on a missing one can be there.
    Gaps,
    /// Those whose number the durable marker covers ([`Shadow::mark`](crate::Shadow::mark)). A commit is durable when
    /// the marker is, beyond its number. Numbers are the caller's ([`Options::stamped`](crate::Options::stamped)), so
    /// recovery cannot know whether one is missing: the caller moves the marker when all up to it are durable. Right in
    /// every persistence domain.
    Marker,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dense => "dense",
            Self::Gaps => "gaps",
            Self::Marker => "marker",
        })
    }
}

/// The bit of the generation's word that says `Marker`. Earlier readers refuse it, too.
const MARKER: u64 = 1 << 63;
/// The bit of the generation's word that says `Gaps`. Earlier readers know no generation so great, and refuse it.
const GAPS: u64 = 1 << 62;

/// The generation's word: counts the openings, and names the order of the last one. Seeds the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u64);

impl Generation {
    /// What a word of the header says; none if it cannot be.
    pub(crate) fn read(word: u64) -> Option<Self> {
        let has_one_order = word & GAPS == 0 || word & MARKER == 0;
        (has_one_order && (word & !(GAPS | MARKER) != 0 || word == 0)).then_some(Self(word))
    }

    /// The order of its atomic groups.
    pub(crate) fn order(self) -> Order {
        match self.0 & (GAPS | MARKER) {
            0 => Order::Dense,
            GAPS => Order::Gaps,
            _ => Order::Marker,
        }
    }

    /// The number of the opening, counted from 1; 0 before the first.
    pub(crate) fn number(self) -> u64 {
        self.0 & !(GAPS | MARKER)
    }

    /// That of the next opening.
    pub(crate) fn next(self, order: Order) -> Self {
        let number = (self.0 & !(GAPS | MARKER)) + 1;
        Self(match order {
            Order::Dense => number,
            Order::Gaps => number | GAPS,
            Order::Marker => number | MARKER,
        })
    }
}

impl Order {
    /// # Errors
    /// `Unsupported` where this order would lose acknowledged commits, or the medium orders them by itself.
    /// `caches_are_persistent`: none on the file medium.
    pub(crate) fn validate(self, caches_are_persistent: Option<bool>) -> Result<()> {
        let what = match (self, caches_are_persistent) {
            (Self::Gaps, None | Some(false)) => {
                "Order::Gaps is right only on persistent memory with persistent caches (eADR); use Order::Dense"
            }
            (Self::Marker, None) => {
                "Order::Marker is for persistent memory (dax, emulated); use Order::Dense on the file medium"
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported { what: what.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_count_on_and_know_their_order() {
        let first = Generation::read(0).unwrap();
        let gaps = first.next(Order::Gaps);
        assert_eq!((first.order(), gaps.order()), (Order::Dense, Order::Gaps));
        assert_eq!(gaps.next(Order::Dense), Generation(2));
        assert_eq!(gaps.next(Order::Gaps).next(Order::Dense), Generation(3));
        assert!(gaps.0 > 1 << 62, "an earlier reader refuses it");
        let marker = gaps.next(Order::Marker);
        assert_eq!((marker.order(), marker.next(Order::Dense)), (Order::Marker, Generation(3)));
        assert!(marker.0 > 1 << 63, "a reader that knows gaps refuses it");
        assert_eq!(Generation::read(marker.0), Some(marker));
        for word in [1 << 62, 1 << 63, 3 << 62, u64::MAX, u64::MAX - 7] {
            assert_eq!(Generation::read(word), None, "{word:#x}");
        }
    }
}
