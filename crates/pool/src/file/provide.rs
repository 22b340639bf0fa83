//! Space for the region in the data file: it grows by what its user asks for, and shrinks by what the user gives back.
//!
//! A range that is given back is a record in the log, like a flush: its bytes are zero from there on. So the order of
//! `file/checkpoint.rs` holds for it, and so does what recovery proves: a page without bytes whose checksum is not that
//! of zeros is damage, unless a checkpoint that gives it back is under way. Where the checkpoint would write zeros, it
//! makes a hole, if the owner has not asked for the range again (`file/released.rs`).
//!
//! Invariants:
//! 1. Space is reserved before the region's user writes there: a checkpoint finds space for every page that it writes.

use crate::file::huge_pages::HUGE_PAGES_FROM_BYTES;
use crate::file::image::{reserve_more, reserve_part};
use crate::file::medium::FileMedium;
use crate::format::log::GIVEN_BACK_BYTES_MAX;
use crate::format::page_sums::PAGE_BYTES;
use crate::sync::Ordering;
use crate::{ByteRange, MediumOps, Result};

const PAGE: u64 = PAGE_BYTES as u64;

impl FileMedium {
    /// See [`MediumOps::grow`].
    #[cold]
    pub(super) fn grow_to(&self, bytes: u64) -> Result<()> {
        self.grow_with(|grown| {
            if bytes <= grown {
                return Ok(grown);
            }
            reserve_more(&self.files, self.memory(), grown, bytes, |e| self.poison(e))
        })
    }

    /// See [`MediumOps::provide`].
    pub(super) fn provide_range(&self, range: ByteRange) -> Result<()> {
        let part = range.offset / PAGE * PAGE..(range.offset + range.len).next_multiple_of(PAGE);
        self.grow_with(|grown| {
            // Invariant 1 of `file/released.rs`.
            let to = self.released.remove_if(part.clone(), || {
                reserve_part(&self.files, self.memory(), grown, part.clone(), |e| self.poison(e))
            })?;
            self.sparse.note_use(self.memory(), part);
            Ok(to)
        })
    }

    /// Has `reserve` reserve space; it gets up to where the region may be used, and returns up to where it may be used
    /// then.
    fn grow_with(&self, reserve: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
        self.refuse_child()?;
        let _growing = self.growing.lock();
        if self.log.commit.has_failed() {
            return Err(self.failure());
        }
        let grown = self.grown();
        let to = reserve(grown)?;
        if to > grown {
            if grown < HUGE_PAGES_FROM_BYTES && to >= HUGE_PAGES_FROM_BYTES {
                // What was used before the advice lies in small pages.
                self.memory().collapse(0, HUGE_PAGES_FROM_BYTES as usize);
            }
            // Release pairs with the Acquire in `grown` and in `checkpoint_now`.
            self.grown.store(to, Ordering::Release);
        }
        Ok(())
    }

    /// See [`MediumOps::without_space`]. Zeros in the data file may be a hole; and what is released becomes one. In a
    /// child of fork, which takes no lock, all of it.
    pub(super) fn parts_without_space(&self) -> Vec<ByteRange> {
        if !self.is_ours() {
            return vec![ByteRange { offset: 0, len: self.grown() }];
        }
        let released = self.released.parts().into_iter();
        let mut parts: Vec<ByteRange> =
            released.map(|part| ByteRange { offset: part.start, len: part.end - part.start }).collect();
        let checkpointer = self.checkpointer();
        let mut last: Option<std::ops::Range<u64>> = None;
        for page in (0..self.grown() / PAGE).filter(|&page| checkpointer.sums.get(page) == 0) {
            match &mut last {
                Some(run) if run.end == page => run.end += 1,
                _ => parts.extend(last.replace(page..page + 1).map(pages)),
            }
        }
        parts.extend(last.map(pages));
        parts
    }

    /// See [`MediumOps::give_back`] and [`MediumOps::release`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn give_back_range(&self, range: ByteRange) -> Result<bool> {
        self.refuse_child()?;
        let (from, to) = (range.offset.next_multiple_of(PAGE), (range.offset + range.len) / PAGE * PAGE);
        if from >= to {
            return Ok(false);
        }
        // Before the record: a checkpoint may apply it at once.
        self.released.add(from..to, self.log.appended());
        let mut at = from;
        while at < to {
            if self.refuses() {
                return Err(self.failure());
            }
            let (ticket, piece) = (self.space.ticket(), (to - at).min(GIVEN_BACK_BYTES_MAX));
            if let Ok(end) = self.log.append_zeros(at, piece) {
                self.note_append(end);
                at += piece;
            } else {
                self.make_space(ticket);
            }
        }
        // SAFETY: the caller needs nothing that is there, and no thread stores to it.
        unsafe { self.memory().discard_part(from as usize, (to - from) as usize) };
        Ok(true)
    }
}

/// The bytes of pages.
fn pages(numbers: std::ops::Range<u64>) -> ByteRange {
    ByteRange { offset: numbers.start * PAGE, len: (numbers.end - numbers.start) * PAGE }
}
