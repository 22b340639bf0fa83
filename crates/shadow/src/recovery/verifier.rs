//! Compares atomic groups with their checksums, and what they change with the working copy's length.

use crate::layout::{
    AT_LEN, COMMIT_BYTES, CommitRecord, GroupHead, KIND_REDO, KIND_SPILL, KIND_WORDS, REDO_BYTES,
    SPILL_BYTES, ShadowLayout, WORD_BYTES, WORDS_BYTES, WORDS_COMMIT_BYTES, WordsCommit, crcs_of_words,
    le_bytes, redo_total,
};
use crate::order::Generation;
use crate::replay::apply::{RingWords, read_unit, word};
use crate::{Error, Result};
use mangrove_pool::{Region, crc32c};
use std::sync::atomic::Ordering;

/// Words whose checksums are computed at once.
const WORDS_AT_ONCE: usize = 32;

/// The error that what stands at `offset` of the region cannot be.
pub(crate) fn corrupt<T>(offset: u64, what: &str) -> Result<T> {
    Err(Error::Corrupt { path: "the shadow's image".into(), offset, what: what.into() })
}

/// The error of an atomic group with a right checksum that lies, in part, outside the working copy. A length is durable
/// before anything is committed beyond it, so this one is damaged.
fn beyond_length<T>() -> Result<T> {
    corrupt(AT_LEN, "a length that leaves out what was committed")
}

/// A word of the region.
pub(crate) fn durable_word(region: &Region, at: u64) -> u64 {
    // Relaxed: no thread writes yet.
    region.word(at).load(Ordering::Relaxed)
}

/// Compares atomic groups with their checksums, and their ranges with the working copy's length.
pub(crate) struct GroupVerifier<'a> {
    pub(crate) region: &'a Region,
    pub(crate) layout: &'a ShadowLayout,
    /// Bytes of the working copy.
    pub(crate) len: u64,
    /// Bytes of the region that exist.
    pub(crate) usable: u64,
    /// That of the atomic groups.
    pub(crate) generation: Generation,
}

impl GroupVerifier<'_> {
    /// What stands at `position` and may be the head of an atomic group that ends before `limit`.
    #[inline]
    pub(crate) fn head(&self, log: usize, position: u64, limit: u64) -> Option<GroupHead> {
        let unit = read_unit(self.region, self.layout, log, position);
        unit.filter(|unit| position < limit && unit.bytes() <= limit - position)
    }

    /// Nothing, unless a whole atomic group stands at the end of a log, and ends it because the length leaves it out.
    ///
    /// # Errors
    /// `Corrupt`, at the length.
    pub(crate) fn refuse_beyond_length(&self, log: usize, position: u64, limit: u64) -> Result<()> {
        match self.in_ring(log, position, limit, &mut 0) {
            Err(e @ Error::Corrupt { offset: AT_LEN, .. }) => Err(e),
            _ => Ok(()),
        }
    }

    /// The part of the atomic group at `position` that the ring holds, and its SPILL record. Adds the bytes read to
    /// `summed`.
    ///
    /// # Errors
    /// `Corrupt`; at the length only where the checksum is right.
    pub(crate) fn in_ring(
        &self,
        log: usize,
        position: u64,
        limit: u64,
        summed: &mut u64,
    ) -> Result<(GroupHead, Option<[u64; 4]>)> {
        let Some(unit) = self.head(log, position, limit) else {
            return corrupt(self.layout.ring(log, position), "no unit stands where the log goes on");
        };
        *summed += COMMIT_BYTES;
        let spill = match &unit {
            GroupHead::Records(commit) => self.records(log, position, commit, summed)?,
            GroupHead::Words(commit) => {
                self.words_unit(log, position, commit, summed)?;
                None
            }
        };
        Ok((unit, spill))
    }

    /// Verifies the records behind `commit`, which stands at `position`; returns the SPILL record.
    fn records(
        &self,
        log: usize,
        position: u64,
        commit: &CommitRecord,
        summed: &mut u64,
    ) -> Result<Option<[u64; 4]>> {
        let Self { region, layout, len, .. } = *self;
        let (place, end) = (layout.ring(log, position), position + commit.bytes);
        let mut crc = commit.crc_of_head(layout.seed(log, self.generation));
        let (mut at, mut spill, mut are_inside) = (position + COMMIT_BYTES, None, true);
        for _ in 0..commit.records {
            if end - at < REDO_BYTES {
                return corrupt(place, "a record is cut short");
            }
            let words = [0, 8].map(|n| word(region, layout, log, at + n));
            let count = words[0] >> 8;
            match words[0] & 0xff {
                KIND_REDO => {
                    if count > end - at || redo_total(count) > end - at {
                        return corrupt(place, "a record is cut short");
                    }
                    are_inside &= inside(words[1], count, len);
                    *summed += redo_total(count);
                    crc = crc32c(crc, &le_bytes::<2, 16>(words));
                    crc = crc_of_ring(region, layout, log, at + REDO_BYTES, count, crc);
                    at += redo_total(count);
                }
                KIND_WORDS if layout.version > 1 => {
                    if count > (end - at - WORDS_BYTES) / WORD_BYTES {
                        return corrupt(place, "a record is cut short");
                    }
                    are_inside &= self.words_inside(log, at + WORDS_BYTES, count);
                    let bytes = WORDS_BYTES + count * WORD_BYTES;
                    *summed += bytes;
                    crc = crc_of_ring(region, layout, log, at, bytes, crc);
                    at += bytes;
                }
                KIND_SPILL if end - at >= SPILL_BYTES && commit.records == 1 => {
                    let more = [16, 24].map(|n| word(region, layout, log, at + n));
                    crc = crc32c(crc, &le_bytes::<4, 32>([words[0], words[1], more[0], more[1]]));
                    spill = Some([words[0], words[1], more[0], more[1]]);
                    at += SPILL_BYTES;
                }
                _ => return corrupt(place, "a record of an unknown kind"),
            }
        }
        if crc != commit.crc || end - at >= layout.unit_align() {
            return corrupt(place, "a unit does not match its checksum");
        }
        if are_inside { Ok(spill) } else { beyond_length() }
    }

    /// Verifies the words behind `commit`, which stands at `position`.
    fn words_unit(&self, log: usize, position: u64, commit: &WordsCommit, summed: &mut u64) -> Result<()> {
        let Self { region, layout, .. } = *self;
        let (place, first) = (layout.ring(log, position), position + WORDS_COMMIT_BYTES);
        *summed += commit.count * WORD_BYTES;
        let mut crcs = commit.seeds(layout.seed(log, self.generation), position);
        let (mut words, mut are_inside) = (RingWords::new(layout, log, first), true);
        let mut left = commit.count as usize;
        while left > 0 {
            let mut some = [[0; 2]; WORDS_AT_ONCE];
            let some = &mut some[..left.min(WORDS_AT_ONCE)];
            for pair in &mut *some {
                *pair = [words.next(region), words.next(region)];
                are_inside &= pair[0].is_multiple_of(8) && inside(pair[0], 8, self.len);
            }
            crcs = crcs_of_words(crcs, some);
            left -= some.len();
        }
        if crcs != commit.crcs {
            return corrupt(place, "a unit does not match its checksum");
        }
        if are_inside { Ok(()) } else { beyond_length() }
    }

    /// Whether `count` words from the position `at` on are aligned and inside the working copy.
    fn words_inside(&self, log: usize, at: u64, count: u64) -> bool {
        let Self { region, layout, len, .. } = *self;
        let mut places = (at..at + count * WORD_BYTES).step_by(WORD_BYTES as usize);
        places.all(|at| {
            let offset = word(region, layout, log, at);
            offset.is_multiple_of(8) && inside(offset, 8, len)
        })
    }

    /// Verifies the spilled records of an atomic group. They lie where the region had been grown before they were
    /// written; behind a file's end there is nothing to read.
    pub(crate) fn spill(&self, record: [u64; 4]) -> Result<()> {
        let Self { region, layout, .. } = *self;
        let [first, start, total, records] = record;
        let end = start.checked_add(total).filter(|&end| {
            start >= layout.image_start() + self.len
                && end <= region.len().min(self.usable)
                && start.is_multiple_of(8)
                && total.is_multiple_of(8)
        });
        let Some(end) = end else { return corrupt(start, "records beside the image that cannot be") };
        let (mut at, mut crc, mut count, mut are_inside) = (start, 0, 0u64, true);
        while at < end {
            let head = bytes(region, at, REDO_BYTES.min(end - at));
            if (head.len() as u64) < REDO_BYTES {
                return corrupt(at, "a record beside the image is cut short");
            }
            let words = [0, 8].map(|n| durable_word(region, at + n));
            let data = words[0] >> 8;
            let fits = data <= end - at && redo_total(data) <= end - at;
            if words[0] & 0xff != KIND_REDO || !fits {
                return corrupt(at, "a record beside the image that cannot be");
            }
            are_inside &= inside(words[1], data, self.len);
            crc = crc32c(crc32c(crc, head), bytes(region, at + REDO_BYTES, data));
            at += redo_total(data);
            count += 1;
        }
        if u64::from(crc) != first >> 32 || count != records {
            return corrupt(start, "the records beside the image do not match their checksum");
        }
        if are_inside { Ok(()) } else { beyond_length() }
    }
}

fn inside(offset: u64, count: u64, len: u64) -> bool {
    offset <= len && count <= len - offset
}

fn crc_of_ring(region: &Region, layout: &ShadowLayout, log: usize, position: u64, len: u64, crc: u32) -> u32 {
    let left = len.min(layout.ring_bytes - position % layout.ring_bytes);
    let crc = crc32c(crc, bytes(region, layout.ring(log, position), left));
    if len > left { crc32c(crc, bytes(region, layout.ring(log, position + left), len - left)) } else { crc }
}

fn bytes(region: &Region, at: u64, len: u64) -> &[u8] {
    assert!(at <= region.len() && len <= region.len() - at);
    // SAFETY: inside the region (asserted); no thread uses it yet.
    unsafe { std::slice::from_raw_parts(region.at(at), len as usize) }
}
