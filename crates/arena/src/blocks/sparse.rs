//! Sparse slabs, and blocks in fuller ones of their class: for an owner that moves its blocks together, so that slabs
//! become free.
//!
//! What is known of slabs lies in the process's own memory, and is never more than a hint: between two calls blocks are
//! allocated and freed. No word of the arena says that a slab is sparse.
//!
//! Invariants:
//! 1. What decides whether a block is taken from a slab is the slab's own entry, read at that moment.
//! 2. Space is provided for a slab before a block of it is taken: see `pages/free_pages.rs`.

use crate::bytes::class::CLASSES;
use crate::bytes::layout::{CLASS_COUNT, PageBitmap, Span, class_of_span, kind, kind_of};
use crate::heap::ArenaHeap;
use crate::space::{Writes, certain};
use std::sync::atomic::Ordering;

/// A class stays as it is if less than this share of its slabs would become free: an owner looks at all of its blocks
/// to find those that are to move.
const GAIN_SHARE: u64 = 32;

/// Free blocks of a slab and its first page. Of two slabs the lesser one is to be filled, and the greater one to be
/// emptied.
type Fill = (u32, u64);

/// The slabs of one class.
#[derive(Default)]
struct ClassSurvey {
    blocks: u64,
    full: u64,
    others: Vec<Fill>,
}

/// What a walk over the arena has found so far.
pub struct SlabSurvey {
    next: u64,
    classes: [ClassSurvey; CLASS_COUNT],
}

/// The slabs of one class that stay.
#[derive(Default)]
struct ClassPlan {
    /// The emptiest of them; slabs beyond it are sparse.
    limit: Option<Fill>,
    /// Those with free blocks; the fullest is the last.
    receivers: Vec<u64>,
}

/// For each class, which slabs are to be emptied, and which ones take the blocks.
pub struct MovePlan {
    classes: [ClassPlan; CLASS_COUNT],
    blocks: u64,
}

fn free_blocks(span: &Span) -> u32 {
    // Relaxed: no other thread writes.
    span.free.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
}

/// Whether so little of a slab is in use that moving it is worth the copies: less than three quarters.
fn is_worth_moving(free: u32, slots: u32) -> bool {
    (slots - free.min(slots)) * 4 < slots * 3
}

impl Default for SlabSurvey {
    fn default() -> Self {
        Self { next: 0, classes: std::array::from_fn(|_| ClassSurvey::default()) }
    }
}

impl SlabSurvey {
    /// Keeps, of each class, as many slabs as its blocks fit in, the fullest ones.
    #[must_use]
    pub fn plan(self) -> MovePlan {
        let mut plan = MovePlan { classes: std::array::from_fn(|_| ClassPlan::default()), blocks: 0 };
        for (shape, (class, found)) in CLASSES.iter().zip(plan.classes.iter_mut().zip(self.classes)) {
            let ClassSurvey { blocks, full, mut others } = found;
            let needed = blocks.div_ceil(u64::from(shape.slots));
            let kept = (needed.saturating_sub(full) as usize).min(others.len());
            others.sort_unstable();
            let sparse: u64 = others[kept..]
                .iter()
                .filter(|(free, _)| is_worth_moving(*free, shape.slots))
                .map(|(free, _)| u64::from(shape.slots - free))
                .sum();
            let gain = (others.len() - kept) as u64;
            if sparse == 0 || gain * GAIN_SHARE < full + others.len() as u64 {
                continue;
            }
            plan.blocks += sparse;
            class.limit = kept.checked_sub(1).map(|last| others[last]);
            class.receivers = others[..kept].iter().rev().map(|(_, page)| *page).collect();
        }
        plan
    }
}

impl MovePlan {
    /// Blocks that lay in sparse slabs when the survey was made.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

impl ArenaHeap {
    /// Continues a survey by at most `spans` spans. Returns whether any are left. Only for an arena with one handle.
    pub fn survey_slabs(&self, survey: &mut SlabSurvey, spans: usize) -> bool {
        let view = self.view;
        for _ in 0..spans {
            if survey.next >= view.pages() {
                return false;
            }
            // Spans may have merged since the last call.
            let page = view.start_of(survey.next);
            let span = view.span(page);
            // Relaxed: no other thread writes.
            let (what, pages) = (span.what().load(Ordering::Relaxed), span.pages().load(Ordering::Relaxed));
            survey.next = (page + pages).max(survey.next + 1);
            let class = class_of_span(what);
            if kind_of(what) != kind::SLAB {
                continue;
            }
            let Some(shape) = view.shape(page, class, pages, view.pages()) else { continue };
            let found = &mut survey.classes[usize::from(class)];
            let free = free_blocks(span);
            found.blocks += u64::from(shape.slots - free.min(shape.slots));
            if free == 0 {
                found.full += 1;
            } else {
                found.others.push((free, page));
            }
        }
        survey.next < view.pages()
    }

    /// The slab that holds the block at `address` and its class, if the plan is to empty it.
    fn sparse_slab(&self, plan: &MovePlan, address: usize) -> Option<usize> {
        let view = self.view;
        let page = view.start_of(view.page_of(address)?);
        let span = view.span(page);
        // Relaxed: no other thread writes.
        let (what, pages) = (span.what().load(Ordering::Relaxed), span.pages().load(Ordering::Relaxed));
        if kind_of(what) != kind::SLAB {
            return None;
        }
        let class = class_of_span(what);
        let shape = view.shape(page, class, pages, view.pages())?;
        let class = usize::from(class);
        let free = free_blocks(span);
        let is_beyond = plan.classes[class].limit.is_some_and(|limit| (free, page) > limit);
        (is_beyond && is_worth_moving(free, shape.slots)).then_some(class)
    }

    /// Whether the block at `address` lies in a slab that the plan is to empty, and there is a slab to move it to.
    #[must_use]
    pub fn is_sparse(&self, plan: &MovePlan, address: usize) -> bool {
        self.sparse_slab(plan, address).is_some_and(|class| !plan.classes[class].receivers.is_empty())
    }

    /// A block like the one at `address`, in a fuller slab of its class, if the plan is to empty the slab of that one;
    /// else null. Content and the old block are the caller's to move and to free. Only for an arena with one handle.
    pub fn alloc_denser<W: Writes>(&mut self, w: &mut W, plan: &mut MovePlan, address: usize) -> *mut u8 {
        let Some(class) = self.sparse_slab(plan, address) else { return std::ptr::null_mut() };
        let view = self.view;
        let ClassPlan { limit, receivers } = &mut plan.classes[class];
        while let Some(&page) = receivers.last() {
            let span = view.span(page);
            // Relaxed: no other thread writes.
            let what = span.what().load(Ordering::Relaxed);
            let free = free_blocks(span);
            let is_still_one = view.bit(PageBitmap::Starts, page)
                && kind_of(what) == kind::SLAB
                && usize::from(class_of_span(what)) == class
                && free > 0
                && limit.is_some_and(|limit| (free, page) <= limit);
            if !is_still_one {
                receivers.pop();
                continue;
            }
            if !self.provide(page, u64::from(CLASSES[class].pages)) {
                // The medium has no space: nothing moves any more.
                receivers.clear();
                break;
            }
            return certain(self.slab_take(w, class, span, page, view.address(page)));
        }
        std::ptr::null_mut()
    }
}
