//! What happens to a shadow on dax or emulated after a crash: the units in the logs are applied to the image, in
//! order, up to the first number that is missing; what lies behind it was never acknowledged, and is dropped.
//! A log ends where no whole unit stands. A whole unit anywhere behind that place says that it had been durable: then
//! it is damaged, and opening fails. (So damage is told from a tear, except in the last unit of a log.)
//!
//! Invariants:
//! 1. Nothing is stored before everything that will be applied has been verified.
//! 2. Durable-order: the image before the heads that drop the records, and before the incarnation that makes every older
//!    unit no unit. Otherwise a second crash would find the records gone and the image old. Which of heads and
//!    incarnation comes first does not matter: each alone says that nothing is to be applied.
//! 3. Durable-order: the incarnation before the first unit, which another thread may commit. Otherwise a crash would make
//!    no unit of it; and without an incarnation, a unit dropped now could be taken at the next recovery for the one
//!    of that number which is written next.
//! 4. Done again after a crash at any point, it does the same: `upto` of whatever lines survive names the last
//!    unit applied, the next number is missing, and dropped units are behind it.

use crate::layout::{
    ASIDE_BYTES, AT_DIRTY_END, AT_INCARNATION, AT_LEN, COMMIT_BYTES, Commit, IN_LOG_HEAD, IN_LOG_UPTO,
    KIND_ASIDE, KIND_REDO, Layout, REDO_BYTES, le_bytes, redo_total,
};
use crate::lines::Lines;
use crate::replay::{apply, flush, read_commit, store_head, word};
use crate::ring::Start;
use crate::{Error, Result};
use mangrove_pmem::{Region, crc32c};
use std::sync::atomic::Ordering;

/// So many times the bytes of a ring are summed in search of a whole unit, at most: no crash leaves as much that looks
/// like units, but what a user stores may look like anything.
const SUMMED_RINGS_MAX: u64 = 8;

/// One unit that was found.
struct Found {
    log: usize,
    position: u64,
    commit: Commit,
}

/// Greatest number of a unit, a position or an opening: counting on from it never ends in this life.
const NUMBER_MAX: u64 = 1 << 62;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    /// Published, but behind a number that was not: never acknowledged.
    pub(crate) dropped: u64,
}

/// Whether the logs may end in damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Where one ends, the rest of its ring is searched for units that say so.
    Prove,
    /// The pool was closed: its logs are empty, and whoever opened it has compared everything with its sums, or
    /// was asked not to.
    Trust,
}

fn corrupt<T>(offset: u64, what: &str) -> Result<T> {
    Err(Error::Corrupt { path: "the shadow's image".into(), offset, what: what.into() })
}

fn durable_word(region: &Region, at: u64) -> u64 {
    // Relaxed: nobody writes yet.
    region.word(at).load(Ordering::Relaxed)
}

/// Bytes of the working copy that may be used.
pub(crate) fn read_len(region: &Region, layout: &Layout) -> Result<u64> {
    let (len, dirty) = (durable_word(region, AT_LEN), durable_word(region, AT_DIRTY_END));
    if len > layout.capacity || !len.is_multiple_of(4096) {
        return corrupt(AT_LEN, "a length that cannot be");
    }
    if dirty > region.len() - layout.image_start() {
        return corrupt(AT_DIRTY_END, "an end of the records beside the image that cannot be");
    }
    Ok(len)
}

/// Applies what was published; where the logs stand then.
pub(crate) fn recover(region: &Region, layout: &Layout, ends: Ends) -> Result<(Start, Recovery)> {
    let len = read_len(region, layout)?;
    region.grow(layout.image_start() + len)?;
    let incarnation = durable_word(region, AT_INCARNATION);
    let Scan { found, upto, starts } = scan(region, layout, len, u64::MAX, ends)?;
    let mut recovery = Recovery::default();
    let mut seq = upto;
    let mut lines = Lines::new();
    let mut ends = starts;
    for unit in &found {
        if unit.commit.seq > upto {
            if unit.commit.seq != seq + 1 {
                recovery.dropped += 1;
                continue;
            }
            seq += 1;
            recovery.units += 1;
            recovery.bytes += apply(region, layout, unit.log, unit.position, &unit.commit, |offset, len| {
                lines.insert(layout.image_start() + offset, len);
                if lines.is_full() {
                    flush(&mut lines, region);
                }
            });
        }
        ends[unit.log] = unit.position + unit.commit.bytes;
    }
    flush(&mut lines, region);
    region.fence();
    for (log, &end) in ends.iter().enumerate() {
        store_head(region, layout.log(log), seq, end);
    }
    region.store(AT_INCARNATION, incarnation + 1, Ordering::Release);
    region.flush(AT_INCARNATION, 8);
    region.fence();
    region.drain()?;
    Ok((Start { positions: ends, seq, len, incarnation: incarnation + 1 }, recovery))
}

/// Verifies header words and logs of a region of which `usable` bytes are there, without changing anything; the
/// units found.
pub(crate) fn verify_all(region: &Region, layout: &Layout, usable: u64) -> Result<u64> {
    if layout.image_start() > usable {
        return corrupt(usable, "the image ends before its logs do");
    }
    let len = read_len(region, layout)?;
    if len > usable - layout.image_start() {
        return corrupt(usable, "the image ends before its length");
    }
    Ok(scan(region, layout, len, usable, Ends::Prove)?.found.len() as u64)
}

/// What the logs hold.
struct Scan {
    /// Every unit, verified, by number.
    found: Vec<Found>,
    /// Up to this number all are in the image.
    upto: u64,
    /// Where each log begins.
    starts: Vec<u64>,
}

fn scan(region: &Region, layout: &Layout, len: u64, usable: u64, ends: Ends) -> Result<Scan> {
    let mut scan = Scan { found: Vec::new(), upto: 0, starts: Vec::new() };
    let logs = 0..layout.log_count as usize;
    let words = logs.map(|log| layout.log(log));
    scan.upto = words.map(|at| durable_word(region, at + IN_LOG_UPTO)).max().unwrap_or(0);
    let incarnation = durable_word(region, AT_INCARNATION);
    if scan.upto > NUMBER_MAX || incarnation > NUMBER_MAX {
        return corrupt(AT_INCARNATION, "a number of units or openings that cannot be");
    }
    let mut verifier = Verifier { region, layout, len, usable, incarnation, upto: scan.upto, beside: 0 };
    for log in 0..layout.log_count as usize {
        let at = layout.log(log);
        let head = durable_word(region, at + IN_LOG_HEAD);
        if !head.is_multiple_of(8) || head > NUMBER_MAX {
            return corrupt(at, "the beginning of a log that cannot be");
        }
        scan.starts.push(head);
        let (mut position, limit) = (head, head + layout.ring_bytes);
        loop {
            match verifier.unit(log, position, limit) {
                Ok(commit) => {
                    scan.found.push(Found { log, position, commit });
                    position += commit.bytes;
                }
                Err(damage)
                    if verifier.beside > 1
                        || (ends == Ends::Prove && verifier.any_behind(log, position, limit)) =>
                {
                    return Err(damage);
                }
                // A unit that was not finished, or nothing.
                Err(_) => break,
            }
        }
    }
    scan.found.sort_unstable_by_key(|unit| unit.commit.seq);
    if scan.found.windows(2).any(|pair| pair[0].commit.seq == pair[1].commit.seq) {
        return corrupt(layout.log(0), "two units carry the same number");
    }
    Ok(scan)
}

/// Compares units with their checksums, and their ranges with the working copy's length.
struct Verifier<'a> {
    region: &'a Region,
    layout: &'a Layout,
    len: u64,
    usable: u64,
    incarnation: u64,
    upto: u64,
    /// Units that are not applied and lie beside the image: the next is begun when the last has been applied.
    beside: u32,
}

impl Verifier<'_> {
    /// The unit at `position`, which ends before `limit`. What a unit has beside the image is looked at only
    /// when it has not been applied: later it may have been overwritten by the next.
    fn unit(&mut self, log: usize, position: u64, limit: u64) -> Result<Commit> {
        let (commit, aside) = self.in_ring(log, position, limit, &mut 0)?;
        let Some(record) = aside.filter(|_| commit.seq > self.upto) else { return Ok(commit) };
        self.beside += 1;
        if self.beside > 1 {
            return corrupt(self.layout.ring(log, position), "two units at a time lie beside the image");
        }
        self.aside(record).map(|()| commit)
    }

    /// The unit at `position` as far as the ring has it, and its ASIDE record. To `summed` is added what was read.
    fn in_ring(
        &self,
        log: usize,
        position: u64,
        limit: u64,
        summed: &mut u64,
    ) -> Result<(Commit, Option<[u64; 4]>)> {
        let Self { region, layout, len, .. } = *self;
        let place = layout.ring(log, position);
        let commit = read_commit(region, layout, log, position);
        let Some(commit) = commit.filter(|c| position < limit && c.bytes <= limit - position) else {
            return corrupt(place, "no unit stands where the log goes on");
        };
        *summed += COMMIT_BYTES;
        let end = position + commit.bytes;
        let mut crc = commit.crc_of_head(layout.seed(log, self.incarnation));
        let (mut at, mut records, mut aside) = (position + COMMIT_BYTES, 0u64, None);
        while at < end {
            if end - at < REDO_BYTES {
                return corrupt(place, "a record is cut short");
            }
            let words = [0, 8].map(|n| word(region, layout, log, at + n));
            crc = crc32c(crc, &le_bytes::<2, 16>(words));
            records += 1;
            match words[0] & 0xff {
                KIND_REDO => {
                    let count = words[0] >> 8;
                    if count > end - at || redo_total(count) > end - at || !inside(words[1], count, len) {
                        return corrupt(place, "a range lies outside the image");
                    }
                    *summed += redo_total(count);
                    crc = crc_of_ring(region, layout, log, at + REDO_BYTES, count, crc);
                    at += redo_total(count);
                }
                KIND_ASIDE if end - at == ASIDE_BYTES => {
                    let more = [16, 24].map(|n| word(region, layout, log, at + n));
                    crc = crc32c(crc, &le_bytes::<2, 16>(more));
                    aside = Some([words[0], words[1], more[0], more[1]]);
                    at = end;
                }
                _ => return corrupt(place, "a record of an unknown kind"),
            }
        }
        if crc != commit.crc || records != u64::from(commit.records) {
            return corrupt(place, "a unit does not match its checksum");
        }
        Ok((commit, aside))
    }

    /// Whether a whole unit stands behind `position`: it was begun when all before it was durable. (Units of earlier
    /// laps name other positions; those of earlier openings, and bytes that only look like one, fail the checksum. In
    /// a ring that is full of such, nothing is proved.)
    fn any_behind(&self, log: usize, position: u64, limit: u64) -> bool {
        let Self { region, layout, .. } = *self;
        let mut summed = 0;
        (position + 8..=limit - COMMIT_BYTES).step_by(8).any(|at| {
            word(region, layout, log, at + 16) == at
                && summed < SUMMED_RINGS_MAX * layout.ring_bytes
                && self.in_ring(log, at, limit, &mut summed).is_ok()
        })
    }

    /// The records of a unit beside the image.
    fn aside(&self, record: [u64; 4]) -> Result<()> {
        let Self { region, layout, .. } = *self;
        let [first, start, total, records] = record;
        let end = start.checked_add(total).filter(|&end| {
            start >= layout.image_start() + self.len
                && end <= region.len().min(self.usable)
                && start.is_multiple_of(8)
                && total.is_multiple_of(8)
        });
        let Some(end) = end else { return corrupt(start, "records beside the image that cannot be") };
        if !region.medium().read_only() {
            region.grow(end)?;
        }
        let (mut at, mut crc, mut count) = (start, 0, 0u64);
        while at < end {
            let head = bytes(region, at, REDO_BYTES.min(end - at));
            if (head.len() as u64) < REDO_BYTES {
                return corrupt(at, "a record beside the image is cut short");
            }
            let words = [0, 8].map(|n| durable_word(region, at + n));
            let data = words[0] >> 8;
            let fits = data <= end - at && redo_total(data) <= end - at && inside(words[1], data, self.len);
            if words[0] & 0xff != KIND_REDO || !fits {
                return corrupt(at, "a record beside the image that cannot be");
            }
            crc = crc32c(crc32c(crc, head), bytes(region, at + REDO_BYTES, data));
            at += redo_total(data);
            count += 1;
        }
        if u64::from(crc) != first >> 32 || count != records {
            return corrupt(start, "the records beside the image do not match their checksum");
        }
        Ok(())
    }
}

fn inside(offset: u64, count: u64, len: u64) -> bool {
    offset <= len && count <= len - offset
}

fn crc_of_ring(region: &Region, layout: &Layout, log: usize, position: u64, len: u64, crc: u32) -> u32 {
    let left = len.min(layout.ring_bytes - position % layout.ring_bytes);
    let crc = crc32c(crc, bytes(region, layout.ring(log, position), left));
    if len > left { crc32c(crc, bytes(region, layout.ring(log, position + left), len - left)) } else { crc }
}

fn bytes(region: &Region, at: u64, len: u64) -> &[u8] {
    assert!(at <= region.len() && len <= region.len() - at);
    // SAFETY: inside the region (asserted); nobody uses it yet.
    unsafe { std::slice::from_raw_parts(region.at(at), len as usize) }
}
