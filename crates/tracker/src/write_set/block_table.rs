//! The table of written blocks of the Mangosteen paper, section 4.3 and Fig. 3, lines 6-12.
//!
//! It maps block addresses by open addressing with linear probing and is never resized. Two deviations. The slot
//! comes from a multiplicative hash: with the paper's block number modulo length, two arrays at an unlucky distance
//! make long runs. And a full table is emptied and started over instead of being bypassed, so that it keeps merging
//! repeated writes.

use crate::write_set::own_vec::OwnVec;

/// Slots of the table: 128 KiB, a fraction of any second-level cache.
pub(crate) const SLOT_COUNT: usize = 1 << 14;
/// Blocks that fill 60 % of the table.
pub(crate) const LOAD_MAX: usize = SLOT_COUNT * 6 / 10;

/// Home slot of a block address. The recompiler's assembly computes the same.
#[inline]
pub(crate) const fn home_slot(block: u64) -> usize {
    (block.wrapping_mul(HASH_FACTOR) >> HASH_SHIFT) as usize & (SLOT_COUNT - 1)
}

/// An odd number that fits a 32-bit immediate.
pub(crate) const HASH_FACTOR: u64 = 0x1e37_79b1;
/// The bits above this one of the product choose the slot.
pub(crate) const HASH_SHIFT: u32 = 30;

/// A set of block addresses of at most `LOAD_MAX` members.
pub(crate) struct BlockTable {
    slots: OwnVec<u64>,
    /// What the table holds, oldest first.
    members: OwnVec<u64>,
}

impl BlockTable {
    pub(crate) const fn new() -> Self {
        Self { slots: OwnVec::new(), members: OwnVec::new() }
    }

    /// Adds a block (not 0). True if it was not there since the table was last emptied.
    #[inline]
    pub(crate) fn insert(&mut self, block: u64) -> bool {
        if self.slots.is_empty() {
            self.reset();
        }
        let mut idx = home_slot(block);
        loop {
            let slot = &mut self.slots[idx];
            if *slot == block {
                return false;
            }
            if *slot == 0 {
                if self.members.len() == LOAD_MAX {
                    self.reset();
                    return self.insert(block);
                }
                *slot = block;
                self.members.push(block);
                return true;
            }
            idx = (idx + 1) & (SLOT_COUNT - 1);
        }
    }

    /// Forgets everything, in time proportional to the content while that is small.
    pub(crate) fn clear(&mut self) {
        if self.members.len() > SLOT_COUNT / 16 {
            self.slots.fill(0);
        } else {
            // Youngest first: a probe for a block passes only over older ones.
            for &block in self.members.iter().rev() {
                let mut idx = home_slot(block);
                while self.slots[idx] != block {
                    idx = (idx + 1) & (SLOT_COUNT - 1);
                }
                self.slots[idx] = 0;
            }
        }
        self.members.clear();
    }

    #[cold]
    fn reset(&mut self) {
        self.slots.resize(SLOT_COUNT, 0);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockTable, LOAD_MAX};
    use std::collections::HashSet;

    #[test]
    fn agrees_with_a_set_across_clears() {
        let (mut table, mut model) = (BlockTable::new(), HashSet::new());
        let mut seed = 1u64;
        for round in 0..40 {
            for _ in 0..round * 50 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let block = (0x7f00_0000_0000 + (seed >> 52) * 4096 + (seed >> 20 & 3) * 32).max(32);
                assert_eq!(table.insert(block), model.insert(block));
            }
            table.clear();
            model.clear();
        }
    }

    #[test]
    fn a_full_table_starts_over() {
        let mut table = BlockTable::new();
        for idx in 1..=2 * LOAD_MAX as u64 {
            assert!(table.insert(idx * 32));
        }
        assert!(!table.insert(2 * LOAD_MAX as u64 * 32));
    }
}
