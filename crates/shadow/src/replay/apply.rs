//! Reads published atomic groups from the rings, and applies them to the durable copy.

use crate::layout::{
    COMMIT_BYTES, GroupHead, KIND_REDO, KIND_SPILL, KIND_WORDS, ShadowLayout, WORD_BYTES, WORDS_BYTES,
    WORDS_COMMIT_BYTES, redo_total,
};
use crate::replay::stripes::Stripes;
use mangrove_pool::Region;
use mangrove_sys::{prefetch_read, prefetch_write};
use std::sync::atomic::Ordering;

/// Words that are fetched at a time.
const STAGED: usize = 64;
/// A ring is fetched so far ahead. (Long atomic groups were written past the caches.)
const AHEAD_BYTES: u64 = 1024;

/// The word at a position of a log.
#[inline]
pub(crate) fn word(region: &Region, layout: &ShadowLayout, log: usize, position: u64) -> u64 {
    // Relaxed: published, or not in use yet.
    region.word(layout.ring(log, position)).load(Ordering::Relaxed)
}

/// The head of the atomic group at a position, if there is one.
pub(crate) fn read_unit(
    region: &Region,
    layout: &ShadowLayout,
    log: usize,
    position: u64,
) -> Option<GroupHead> {
    region.reading(layout.ring(log, position), 8);
    // Version 1: the head may wrap around the ring's end.
    let words = [0, 8, 16, 24].map(|at| word(region, layout, log, position + at));
    GroupHead::decode(words, position, layout.unit_align())
}

/// Reads the words of a ring in turn, without a division for each.
pub(crate) struct RingWords {
    at: u64,
    start: u64,
    end: u64,
}

impl RingWords {
    pub(crate) fn new(layout: &ShadowLayout, log: usize, position: u64) -> Self {
        let start = layout.ring(log, 0);
        Self { at: layout.ring(log, position), start, end: start + layout.ring_bytes }
    }

    #[inline]
    pub(crate) fn next(&mut self, region: &Region) -> u64 {
        // Relaxed: published, or not in use yet.
        let word = region.word(self.at).load(Ordering::Relaxed);
        self.at += 8;
        if self.at.is_multiple_of(64) {
            prefetch_read(region.base().wrapping_add((self.at + AHEAD_BYTES) as usize));
        }
        if self.at == self.end {
            self.at = self.start;
        }
        word
    }
}

/// Words on their way into the durable copy. Their lines are fetched before the first of them is stored: those that are
/// in no cache are waited for together.
pub(crate) struct Stage<S> {
    words: [[u64; 2]; STAGED],
    count: usize,
    /// What lies elsewhere is not copied.
    stripes: S,
}

impl<S: Stripes> Stage<S> {
    pub(crate) fn new(stripes: S) -> Self {
        Self { words: [[0; 2]; STAGED], count: 0, stripes }
    }

    /// Copies the atomic group's ranges into the durable copy, as far as they lie in the stripes, and passes what it
    /// copies to `touched`; returns the bytes of all ranges. Words may be copied later, by the next call or by `store`.
    /// The atomic group is one that was published, or that recovery has verified.
    pub(crate) fn apply(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        log: usize,
        position: u64,
        unit: &GroupHead,
        mut touched: impl FnMut(u64, u64),
    ) -> u64 {
        prefetch_read(region.base().wrapping_add((layout.ring(log, position) + AHEAD_BYTES) as usize));
        let commit = match unit {
            GroupHead::Records(commit) => commit,
            GroupHead::Words(commit) => {
                let first = position + WORDS_COMMIT_BYTES;
                return self.apply_words(region, layout, log, first, commit.count, &mut touched);
            }
        };
        // What was staged is older.
        self.store(region, layout, &mut touched);
        let (mut at, mut bytes) = (position + COMMIT_BYTES, 0);
        for _ in 0..commit.records {
            let (first, offset) = (word(region, layout, log, at), word(region, layout, log, at + 8));
            match first & 0xff {
                KIND_REDO => {
                    let len = first >> 8;
                    self.stripes.each_part(offset, len, |part, count| {
                        let from = at + 16 + (part - offset);
                        copy_from_ring(region, layout, log, from, layout.image_start() + part, count);
                        touched(part, count);
                    });
                    bytes += len;
                    at += redo_total(len);
                }
                KIND_WORDS => {
                    let count = first >> 8;
                    bytes += self.apply_words(region, layout, log, at + WORDS_BYTES, count, &mut touched);
                    at += WORDS_BYTES + count * WORD_BYTES;
                }
                KIND_SPILL => {
                    let total = word(region, layout, log, at + 16);
                    bytes += self.apply_spilled(region, layout, offset, total, &mut touched);
                }
                kind => panic!("a published unit holds a record of kind {kind:#x}"),
            }
        }
        bytes
    }

    /// As `apply`, for `count` words from the position `at` on.
    fn apply_words(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        log: usize,
        at: u64,
        count: u64,
        touched: &mut impl FnMut(u64, u64),
    ) -> u64 {
        region.reading(layout.ring(log, at), 8);
        let image = layout.image_start();
        let mut words = RingWords::new(layout, log, at);
        for _ in 0..count {
            let pair = [words.next(region), words.next(region)];
            // Without a branch, which could not be predicted.
            let is_own = self.stripes.has_word(pair[0]);
            let own = if is_own { region.at(image + pair[0]) } else { self.words.as_mut_ptr().cast() };
            prefetch_write(own);
            self.words[self.count] = pair;
            self.count += usize::from(is_own);
            if self.count == STAGED {
                self.store(region, layout, &mut *touched);
            }
        }
        count * 8
    }

    /// Copies the words that wait into the durable copy, in their order, and passes each to `touched`.
    pub(crate) fn store(
        &mut self,
        region: &Region,
        layout: &ShadowLayout,
        mut touched: impl FnMut(u64, u64),
    ) {
        let image = layout.image_start();
        for &[offset, value] in &self.words[..std::mem::take(&mut self.count)] {
            region.store(image + offset, value, Ordering::Relaxed);
            touched(offset, 8);
        }
    }

    /// As `apply`, for the spilled records of an atomic group, which lie in one piece at `start` of the region: ranges,
    /// and words as ranges of 8 bytes.
    fn apply_spilled(
        &self,
        region: &Region,
        layout: &ShadowLayout,
        start: u64,
        total: u64,
        touched: &mut impl FnMut(u64, u64),
    ) -> u64 {
        let (mut at, mut bytes) = (start, 0);
        while at < start + total {
            // Relaxed: published, or not in use yet.
            let (first, offset) =
                (region.word(at).load(Ordering::Relaxed), region.word(at + 8).load(Ordering::Relaxed));
            assert_eq!(first & 0xff, KIND_REDO, "a unit aside holds REDO records only");
            let len = first >> 8;
            self.stripes.each_part(offset, len, |part, count| {
                copy(region, at + 16 + (part - offset), layout.image_start() + part, count);
                touched(part, count);
            });
            bytes += len;
            at += redo_total(len);
        }
        bytes
    }
}

fn copy_from_ring(region: &Region, layout: &ShadowLayout, log: usize, position: u64, to: u64, len: u64) {
    let left = layout.ring_bytes - position % layout.ring_bytes;
    copy(region, layout.ring(log, position), to, len.min(left));
    if len > left {
        copy(region, layout.ring(log, position + left), to + left, len - left);
    }
}

fn copy(region: &Region, from: u64, to: u64, len: u64) {
    region.reading(from, len as usize);
    assert!(from + len <= region.len() && (to + len <= from || from + len <= to));
    // SAFETY: inside the region (asserted), and not written meanwhile: it is published, or no thread uses the
    // region yet. `write` copies into another part of it.
    let bytes = unsafe { std::slice::from_raw_parts(region.at(from), len as usize) };
    region.write(to, bytes);
}
