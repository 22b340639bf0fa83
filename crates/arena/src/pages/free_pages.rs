//! Which pages hold nothing that is in use, and space for them when they are used again.
//!
//! What lies in no block need not survive (`audit/free_bytes.rs`), and what the arena knows of free pages lies in the
//! descriptions of groups. So the space's owner may take away memory and content of these pages, at any time when no
//! block is being allocated or freed, and no word of the arena changes: a page counts as zero only before it was first
//! handed out. Of pages that never were, only the space may go.
//!
//! Invariants:
//! 1. [`ArenaSpace::provide`](crate::ArenaSpace::provide) is asked for every page before something in it is handed out:
//!    of runs when they leave their bin or are cut from a reserve, of a slab when the class begins to allocate from it
//!    (in transactions with each block); and for the description of new groups that finds no run.

use crate::bytes::class::SlabShape;
use crate::bytes::layout::{CLASS_COUNT, PAGE_BYTES, PageBitmap, Span, class_of_span, kind, kind_of};
use crate::heap::{ArenaHeap, Current};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl ArenaHeap {
    /// Calls `visit` with each longest run of pages, as offsets of the space, that were handed out at some time and
    /// hold no byte of anything in use; in order. The caller may take their content away, if it provides space for them
    /// when the arena asks ([`ArenaSpace::provide`](crate::ArenaSpace::provide)). O(spans and free pages). No other
    /// thread changes the arena meanwhile. Only for an arena with one handle, or one that transactions change.
    pub fn free_pages(&mut self, visit: impl FnMut(Range<u64>)) {
        let view = self.view;
        self.runs_of(|page| view.bit(PageBitmap::Touched, page), 0, visit);
    }

    /// As [`ArenaHeap::free_pages`], with the usable pages that were never handed out, those among them that are not
    /// under management yet. The caller may take the space of those away, too, but they read as zero, and must go on
    /// to.
    pub fn unused_pages(&mut self, visit: impl FnMut(Range<u64>)) {
        self.runs_of(|_| true, self.space_len() / PAGE_BYTES as u64, visit);
    }

    /// Visits the pages of slabs that hold nothing, of free runs those that `counts` chooses, and then what is left
    /// before page `last`.
    fn runs_of(&mut self, counts: impl Fn(u64) -> bool, last: u64, mut visit: impl FnMut(Range<u64>)) {
        // A slab that a class allocates from may lose pages: the next allocation asks for them.
        self.current = [Current::NONE; CLASS_COUNT];
        let view = self.view;
        let end = view.pages().min(self.space_len() / PAGE_BYTES as u64);
        let (mut page, mut run) = (0, 0..0);
        let mut note = |page: u64| {
            if run.end == page {
                run.end += 1;
            } else {
                let whole = std::mem::replace(&mut run, page..page + 1);
                if !whole.is_empty() {
                    visit(whole.start * PAGE_BYTES as u64..whole.end * PAGE_BYTES as u64);
                }
            }
        };
        while page < end {
            let span = view.span(page);
            // Relaxed, here and below: no other thread writes.
            let (what, pages) = (span.what().load(Ordering::Relaxed), span.pages().load(Ordering::Relaxed));
            let shape = match kind_of(what) {
                kind::SLAB => view.shape(page, class_of_span(what), pages, view.pages()),
                _ => None,
            };
            let until = end.min(page.saturating_add(pages.max(1)));
            match kind_of(what) {
                kind::FREE | kind::RESERVE => {
                    (page..until).filter(|&page| counts(page)).for_each(&mut note);
                }
                kind::SLAB => {
                    let is_free = |at: &u64| shape.is_some_and(|shape| holds_nothing(span, shape, at - page));
                    (page..until).filter(is_free).for_each(&mut note);
                }
                _ => {}
            }
            page = until;
        }
        (page..last).for_each(&mut note);
        // No run is empty, and none begins there.
        note(u64::MAX - 1);
    }
}

/// Whether all blocks are free that have bytes in page `number` of a slab.
fn holds_nothing(span: &Span, shape: &SlabShape, number: u64) -> bool {
    let from = number as usize * PAGE_BYTES;
    let last = shape.slot_of(from + PAGE_BYTES - 1).min(shape.slots as usize - 1);
    (shape.slot_of(from)..=last)
        .all(|slot| span.free[slot / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1)
}
