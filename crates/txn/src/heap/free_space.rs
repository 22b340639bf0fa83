//! Pages of the heap that hold nothing in use: their memory and their space are given back.
//!
//! Blocks stay where they are, since the program has their addresses in places that nothing here knows. So a page comes
//! back only when it is free as a whole.
//!
//! Durable-order: the log has the transactions that freed what lay in a page before it says that the page is zero. A
//! crash that undoes such a transaction so undoes that, too, and the page is as the transaction before left it.
//! Therefore pages are released while no transaction runs, when everything that was committed is in the log.
//!
//! No byte of the heap changes. What recovery finds in these pages, old bytes or zeros, lies in no block; and a
//! transaction fills with zeros what must be zero. Space is asked for again before a block in such a page is handed out
//! (`arena/pages/free_pages.rs`).

use super::space::ShadowSpace;
use mangrove_arena::ArenaHeap;
use mangrove_shadow::MediumKind;

/// Gives back all that is free; returns how many bytes that were.
///
/// # Safety
/// No transaction runs, and everything that was committed is in the log.
pub(super) unsafe fn release(space: &ShadowSpace, arena: &mut ArenaHeap) -> mangrove_shadow::Result<u64> {
    // Also what growing reserved, and nothing has used yet: up to an eighth of what the heap once was.
    space.shadow().grow_to_reserved();
    space.note_len();
    let mut parts = Vec::new();
    arena.unused_pages(|run| parts.push(run));
    // SAFETY: nothing is stored to a free page, by the caller's promise. A transaction that allocates in one provides
    // it first (`ShadowSpace::provide`).
    unsafe { space.shadow().release(&parts, false) }
}

/// Reserves space once more for what is in use: a crash may have taken space that was reserved and never written, which
/// a checkpoint needs.
///
/// # Errors
/// `NoSpace`.
pub(super) fn provide_again(space: &ShadowSpace, arena: &mut ArenaHeap) -> mangrove_shadow::Result<()> {
    let shadow = space.shadow();
    let report = shadow.report();
    if shadow.medium() != MediumKind::File || shadow.is_read_only() || report.was_clean || report.created {
        return Ok(());
    }
    let mut parts = Vec::new();
    arena.unused_pages(|run| parts.push(run));
    shadow.provide_all_but(&parts)
}
