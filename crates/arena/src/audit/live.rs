//! What is in use: every block and every mapped range. A leak check compares them with what a program can reach.

use crate::bytes::class::SlabShape;
use crate::bytes::layout::{PAGE_BYTES, class_of_span, kind, kind_of};
use crate::heap::ArenaHeap;
use crate::view::ArenaView;
use std::sync::atomic::Ordering;

/// Address and bytes of each block in use and of each mapped range, in the order of addresses; a block has the bytes
/// that may be used of it. Ends after a message, at the first span that cannot be one.
pub struct Live<'a> {
    heap: &'a ArenaHeap,
    /// The span to look at next.
    page: u64,
    slab: Option<Slab>,
}

/// A slab, and which of its blocks were not returned yet.
struct Slab {
    first_block: usize,
    shape: &'static SlabShape,
    used: [u64; 4],
}

impl Slab {
    fn next(&mut self) -> Option<(usize, usize)> {
        let at = self.used.iter().position(|&bits| bits != 0)?;
        let slot = at * 64 + self.used[at].trailing_zeros() as usize;
        self.used[at] &= self.used[at] - 1;
        Some((self.first_block + slot * self.shape.bytes as usize, self.shape.bytes as usize))
    }
}

impl ArenaHeap {
    /// All that is in use. O(spans and blocks), nothing of it kept in memory. No other thread changes the arena
    /// meanwhile. After a crash, every block that recovery brought back is in use.
    #[must_use]
    pub fn live(&self) -> Live<'_> {
        Live { heap: self, page: 0, slab: None }
    }
}

impl Iterator for Live<'_> {
    type Item = Result<(usize, usize), String>;

    fn next(&mut self) -> Option<Self::Item> {
        let view = &self.heap.view;
        let all = view.pages();
        loop {
            if let Some(block) = self.slab.as_mut().and_then(Slab::next) {
                return Some(Ok(block));
            }
            self.slab = None;
            let page = self.page;
            if page >= all {
                return None;
            }
            let span = view.span(page);
            // Relaxed, here and below: no other thread writes.
            let (what, pages) = (span.what().load(Ordering::Relaxed), span.pages().load(Ordering::Relaxed));
            if !ArenaView::has_room(page, pages, all) {
                self.page = all;
                return Some(Err(format!("the span at page {page} says it has {pages} pages")));
            }
            self.page = page + pages;
            let first_block = view.address(page) as usize;
            match kind_of(what) {
                kind::LARGE | kind::MAPPED => return Some(Ok((first_block, pages as usize * PAGE_BYTES))),
                kind::SLAB => {
                    let Some(shape) = view.shape(page, class_of_span(what), pages, all) else {
                        self.page = all;
                        return Some(Err(format!("the slab at page {page} is of no class")));
                    };
                    let used =
                        [0, 1, 2, 3].map(|at| shape.all_free[at] & !span.free[at].load(Ordering::Relaxed));
                    self.slab = Some(Slab { first_block, shape, used });
                }
                _ => {}
            }
        }
    }
}
