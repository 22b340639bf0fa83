//! Pages of the state that hold nothing in use: their memory and their space are given back.
//!
//! Durable-order: the log has the atomic groups that freed what lay in a page before it says that the page is zero. A
//! crash that undoes such a group so undoes that, too, and the page is as the group before left it. Therefore pages
//! are released between batches, when everything that commands freed is committed, and never after a commit that
//! failed.
//!
//! No byte of the state changes. What recovery finds in these pages, old bytes or zeros, lies in no block; and the
//! arena takes no page for zero that was ever handed out.

use crate::Result;
use mangrove_arena::ArenaHeap;
use mangrove_shadow::Shadow;
use std::ops::Range;

/// Closing gives back nothing while less than this share of the state is free: it is likely to be used again.
const CLOSING_SHARE: u64 = 8;

/// The arena's pages that hold nothing in use, in ascending order.
fn free_parts(heap: &mut ArenaHeap) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    heap.free_pages(|run| parts.push(run));
    parts
}

/// Reserves space once more for what is in use: a crash may have taken space that was reserved and never written, which
/// a checkpoint needs.
///
/// # Errors
/// `NoSpace`.
pub(super) fn provide_again(shadow: &Shadow, heap: &mut ArenaHeap) -> Result<()> {
    if shadow.report().was_clean {
        return Ok(());
    }
    Ok(shadow.provide_all_but(&free_parts(heap))?)
}

/// Gives back all that is free; returns how many bytes that were.
///
/// # Errors
/// The medium's failure.
///
/// # Safety
/// No command runs, and every batch is committed.
pub(super) unsafe fn release(shadow: &Shadow, heap: &mut ArenaHeap) -> Result<u64> {
    // Also what growing reserved, and nothing has used yet: up to an eighth of what the state once was. Such pages are
    // zero in memory and in the data file, and stay so.
    shadow.grow_to_reserved();
    let mut parts = Vec::new();
    heap.unused_pages(|run| parts.push(run));
    // SAFETY: nothing is stored to a free page, by the caller's promise. A command that allocates in one provides it
    // first (`ArenaSpace::provide`).
    Ok(unsafe { shadow.release(&parts, false) }?)
}

/// As `release`, if much is free.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub(super) unsafe fn release_at_closing(shadow: &Shadow, heap: &mut ArenaHeap) -> Result<()> {
    let parts = free_parts(heap);
    let free: u64 = parts.iter().map(|part| part.end - part.start).sum();
    if free < shadow.len() / CLOSING_SHARE {
        return Ok(());
    }
    // SAFETY: as in `release`.
    unsafe { shadow.release(&parts, true) }?;
    Ok(())
}
