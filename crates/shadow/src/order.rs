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
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dense => "dense",
            Self::Gaps => "gaps",
        })
    }
}

/// The bit of the generation's word that says `Gaps`. Earlier readers know no generation so great, and refuse it.
const GAPS: u64 = 1 << 62;

/// The generation's word: counts the openings, and names the order of the last one. Seeds the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u64);

impl Generation {
    /// What a word of the header says; none if it cannot be.
    pub(crate) fn read(word: u64) -> Option<Self> {
        (word < 2 * GAPS && word != GAPS).then_some(Self(word))
    }

    /// The order of its atomic groups.
    pub(crate) fn order(self) -> Order {
        if self.0 & GAPS == 0 { Order::Dense } else { Order::Gaps }
    }

    /// The number of the opening, counted from 1; 0 before the first.
    pub(crate) fn number(self) -> u64 {
        self.0 & !GAPS
    }

    /// That of the next opening.
    pub(crate) fn next(self, order: Order) -> Self {
        let number = (self.0 & !GAPS) + 1;
        Self(if order == Order::Gaps { number | GAPS } else { number })
    }
}

impl Order {
    /// # Errors
    /// `Unsupported` where this order would lose acknowledged commits.
    pub(crate) fn validate(self, caches_are_persistent: bool) -> Result<()> {
        if self == Self::Gaps && !caches_are_persistent {
            return Err(Error::Unsupported {
                what: "Order::Gaps is right only on persistent memory with persistent caches (eADR); use Order::Dense"
                    .into(),
            });
        }
        Ok(())
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
        for word in [1 << 62, 1 << 63, u64::MAX, u64::MAX - 7] {
            assert_eq!(Generation::read(word), None, "{word:#x}");
        }
    }
}
