//! What one of the replayer's threads does to the durable copy: it applies atomic groups within its stripes, and
//! flushes the lines that it changed.

use crate::layout::{GroupHead, ShadowLayout};
use crate::replay::apply::Stage;
use crate::replay::shares::ShareLines;
use crate::replay::stripes::Stripes;
use mangrove_pool::Region;

/// Which shares are freed at the end of a step: the lines that they changed are flushed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Frees {
    #[default]
    None,
    Oldest,
    All,
}

/// What follows the atomic groups of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepEnd {
    /// The open share ends.
    pub(crate) closes: bool,
    pub(crate) frees: Frees,
}

/// Bytes of ranges that were applied, those in the stripes of other threads included, and bytes of lines flushed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) applied: u64,
    pub(crate) flushed: u64,
}

/// The state of one thread.
pub(crate) struct ReplayPart<S> {
    stage: Stage<S>,
    lines: ShareLines,
    applied: u64,
    /// What the last step did.
    pub(crate) done: Done,
}

impl<S: Stripes> ReplayPart<S> {
    pub(crate) fn new(stripes: S) -> Self {
        Self { stage: Stage::new(stripes), lines: ShareLines::default(), applied: 0, done: Done::default() }
    }

    /// Applies the atomic group; some of its words at the end of the step only.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        (log, position): (usize, u64),
        unit: &GroupHead,
    ) {
        let lines = &mut self.lines;
        let touched = |offset, len| lines.insert(offset, len);
        self.applied += self.stage.apply(region, layout, log, position, unit, touched);
    }

    /// Ends a step. Durable-order: the lines of shares that are freed, before the caller stores the heads. The fence is
    /// this thread's: another's would not order its flushes.
    pub(crate) fn end(&mut self, region: &Region, layout: &ShadowLayout, end: StepEnd) {
        let lines = &mut self.lines;
        self.stage.store(region, layout, |offset, len| lines.insert(offset, len));
        if end.closes {
            lines.close();
        }
        let mut flushed = 0;
        let flush = |offset, len| {
            region.flush(layout.image_start() + offset, len as usize);
            flushed += len;
        };
        match end.frees {
            Frees::None => {}
            Frees::Oldest => lines.take_oldest(flush),
            Frees::All => lines.take_all(flush),
        }
        if end.frees != Frees::None {
            region.fence();
        }
        self.done = Done { applied: std::mem::take(&mut self.applied), flushed };
    }
}
