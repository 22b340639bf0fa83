//! Parts of the working copy that its owner does not use: their memory and their space are given back, and space is
//! reserved again before they are used.
//!
//! Invariants:
//! 1. Every page that may have no space is in the set `without_space`: what is released before that is asked for, and
//!    at opening what the medium does not know to have space. (A page that was never stored to may have space or not.)
//!    It leaves the set when it has space.

use crate::Result;
use crate::copy::page_set::FreeSpace;
use crate::log_backing::LogBacking;
use crate::shadow::{Shadow, ShadowBacking};
use std::ops::Range;

/// Parts that one call gives back, at most: the pool remembers each until it is used again. The longest count.
const PARTS_MAX: usize = 1 << 16;

impl LogBacking {
    #[inline]
    fn provide(&self, part: Range<u64>) -> Result<()> {
        if self.free_space.without_space.meets(part.clone()) { self.provide_now(part) } else { Ok(()) }
    }

    #[cold]
    fn provide_now(&self, part: Range<u64>) -> Result<()> {
        if !self.process.is_here() {
            // The medium refuses.
            return self.region.provide(in_pool(&part));
        }
        let FreeSpace { without_space, released } = &self.free_space;
        let released = released.lock();
        for run in without_space.runs(part, true) {
            self.region.provide(in_pool(&run))?;
            released.remove(run.clone());
            without_space.remove(run);
        }
        Ok(())
    }

    /// # Safety
    /// As [`Shadow::release`].
    unsafe fn release(&self, parts: &[Range<u64>], quick: bool) -> Result<u64> {
        if !self.process.is_here() {
            return self.region.medium().poisoned().map_or(Ok(0), Err);
        }
        let FreeSpace { without_space, released } = &self.free_space;
        let released = released.lock();
        let done = if quick { without_space } else { &*released };
        let mut runs: Vec<Range<u64>> =
            parts.iter().flat_map(|part| done.runs(part.clone(), false)).collect();
        if runs.len() > PARTS_MAX {
            runs.select_nth_unstable_by_key(PARTS_MAX, |run| std::cmp::Reverse(run.end - run.start));
            runs.truncate(PARTS_MAX);
        }
        let mut bytes = 0;
        for run in runs {
            // Invariant 1.
            without_space.add(run.clone());
            released.add(run.clone());
            // SAFETY: the caller's promise; the part is provided before it is used.
            if unsafe { self.region.release(in_pool(&run)) }? {
                bytes += run.end - run.start;
            }
        }
        Ok(bytes)
    }
}

impl Shadow {
    /// Reserves space for a part of the working copy that is to be used, if it may have none: it was released, in this
    /// process or before. Costs a look at a word for 64 pages where it has.
    ///
    /// # Errors
    /// `NoSpace` when the medium is full: nothing is poisoned.
    #[inline]
    pub fn provide(&self, part: Range<u64>) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) => log.provide(part),
            ShadowBacking::Rings(_) | ShadowBacking::ReadOnly(_) => Ok(()),
        }
    }

    /// As [`Shadow::provide`], for all that lies between `unused`, which are parts in ascending order: for an owner
    /// that opens it after a crash, which may have taken space that was reserved and never written.
    ///
    /// # Errors
    /// As there.
    pub fn provide_all_but(&self, unused: &[Range<u64>]) -> Result<()> {
        let mut from = 0;
        for part in unused.iter().chain([&(self.len()..self.len())]) {
            if part.start > from {
                self.provide(from..part.start)?;
            }
            from = part.end;
        }
        Ok(())
    }

    /// Makes usable what the medium has reserved beyond what was asked for, so that it can be released.
    pub fn grow_to_reserved(&self) {
        if let ShadowBacking::Log(log) = &self.backing {
            log.grow_to_reserved();
        }
    }

    /// Gives memory and space of `parts`, which are whole pages, back; with `quick` not what may have been given back
    /// before this opening already. Until they are stored to again they may read as
    /// anything. Durable in the order of the commits: an atomic group that was committed before does not lose what it
    /// needs there. Returns how many bytes that were; 0 where the medium gives nothing back. The space comes back with
    /// the next checkpoint.
    ///
    /// # Errors
    /// `Poisoned`, or the first error, after the medium failed.
    ///
    /// # Safety
    /// No thread stores to the parts, or commits something there, before it has provided them ([`Shadow::provide`]).
    /// All that freed them is committed.
    pub unsafe fn release(&self, parts: &[Range<u64>], quick: bool) -> Result<u64> {
        match &self.backing {
            // SAFETY: the caller's promise.
            ShadowBacking::Log(log) if !self.is_loading() => unsafe { log.release(parts, quick) },
            _ => Ok(0),
        }
    }
}

fn in_pool(part: &Range<u64>) -> mangrove_pool::ByteRange {
    mangrove_pool::ByteRange { offset: part.start, len: part.end - part.start }
}
