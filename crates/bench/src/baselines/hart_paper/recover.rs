//! Algorithm 7, after the two micro-logs: leaves are inserted one by one, as the paper has it.

use super::epalloc::{UPDATE_LOGS, UPDATE_LOGS_MAX};
use super::tree::{HartPaper, SharedTrees};
use mangrove_pool::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl HartPaper {
    /// Opens a region after a crash or a clean end.
    pub(crate) fn recover(region: Region) -> Self {
        region.grow(region.len()).expect("emulated memory grows within its reservation");
        let shared = SharedTrees::over(region);
        for number in 0..UPDATE_LOGS_MAX {
            replay_update_log(&shared, UPDATE_LOGS + 64 * number);
        }
        // Live values, to free those that a crash left with a bit but without a leaf.
        let mut live: Vec<u64> = Vec::new();
        shared.leaves.recover(|leaf| {
            shared.link_recovered(leaf);
            let number = shared.values.number(shared.p_value(leaf)) as usize;
            if live.len() <= number / 64 {
                live.resize(number / 64 * 2 + 1, 0);
            }
            live[number / 64] |= 1 << (number % 64);
            true
        });
        shared.values.recover(|value| {
            let number = shared.values.number(value) as usize;
            live.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
        });
        Self::over(Arc::new(shared))
    }
}

/// Section III-B, Update: all three pointers valid means the crash came after line 6; the update
/// is resumed from line 7. Otherwise the old value stands.
fn replay_update_log(shared: &SharedTrees, log: u64) {
    let word = |at| shared.region.word(at).load(Ordering::Acquire);
    let (leaf, old, new) = (word(log), word(log + 8), word(log + 16));
    if leaf == 0 && old == 0 && new == 0 {
        return;
    }
    if leaf != 0 && old != 0 && new != 0 {
        shared.values.set_bit(new);
        shared.set_p_value(leaf, new);
        shared.values.reset_bit(old);
    }
    shared.reclaim(log);
}
