//! Recovery of a shadow on dax or emulated. It applies the atomic groups in the logs to the durable copy, in the
//! order of their numbers, up to the first number that is missing; later ones were never acknowledged, and are
//! dropped. (With the other orders of `order.rs`: every one, or up to the marker. Equal numbers: by their logs.)
//!
//! A log ends where no whole atomic group stands. A whole atomic group anywhere after that place proves that the
//! place had been durable: then it is damaged, and opening fails. (So damage is distinguished from a tear, except
//! in the last atomic group of a log.)
//!
//! With `Order::Gaps` every whole atomic group is applied, whatever is missing before it: one that others depend on
//! was whole, in persistent caches, before they began. An atomic group is whole there before the first byte of the next
//! one in its log is stored, so the proof of damage holds too.
//!
//! Invariants:
//! 1. Nothing is stored before everything that will be applied has been verified.
//! 2. Durable-order: the durable copy before the heads that drop the records, and before the generation that
//!    invalidates every older atomic group. Otherwise a second crash would find the records gone and the durable
//!    copy old. The order of heads and generation does not matter: either alone leaves nothing to apply.
//! 3. Durable-order: the new generation number must be durable before the first commit that uses it. Otherwise
//!    recovery would reject that commit. Without generations, a commit that this recovery discards could later be
//!    mistaken for a new one with the same sequence number.
//! 4. Repeated after a crash at any point, recovery does the same: whichever lines survive, the greatest `upto`
//!    names the last atomic group applied, the next number is missing, and dropped atomic groups have greater
//!    numbers. (With `Order::Gaps` none has a greater number.)

use crate::apply::{RingWords, Stage, read_unit, word};
use crate::layout::{
    AT_DIRTY_END, AT_GENERATION, AT_LEN, AT_MARKER, COMMIT_BYTES, CommitRecord, IN_LOG_HEAD, IN_LOG_UPTO,
    KIND_REDO, KIND_SPILL, KIND_WORDS, REDO_BYTES, SPILL_BYTES, ShadowLayout, UNIT_ALIGN, Unit, VERSION,
    WORD_BYTES, WORDS_BYTES, WORDS_COMMIT_BYTES, WordsCommit, crcs_of_words, le_bytes, redo_total,
};
use crate::lines::LineSet;
use crate::order::{Generation, Order};
use crate::replay::store_head;
use crate::stat::LastOpening;
use crate::{Error, Result};
use mangrove_pool::{Region, crc32c};
use std::sync::atomic::Ordering;

/// The search for a whole atomic group computes checksums of at most so many times the bytes of a ring. No crash
/// leaves more bytes that look like atomic groups, but the bytes that a user stores may look like anything.
const SUMMED_RINGS_MAX: u64 = 8;

/// Words whose checksums are computed at once.
const WORDS_AT_ONCE: usize = 32;

/// An atomic group that was found.
struct FoundGroup {
    log: usize,
    position: u64,
    unit: Unit,
}

/// Greatest number of an atomic group, a position or an opening that is accepted: counting on from it never
/// overflows.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// The logs after a recovery or creation: where each ends, and the number of the last atomic group.
pub(crate) struct RecoveredLogs {
    pub(crate) positions: Vec<u64>,
    pub(crate) seq: u64,
    pub(crate) len: u64,
    /// Of the atomic groups that will be written.
    pub(crate) generation: Generation,
}

/// What recovery did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    /// Atomic groups that were published, but after a number that was not, or beyond the marker: never acknowledged.
    pub(crate) dropped: u64,
}

/// Whether the end of a log may be damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnds {
    /// Where a log ends, the rest of its ring is searched for atomic groups that prove damage.
    Prove,
    /// The pool was closed: its logs are empty, and opening has compared every page with its checksum, or was asked
    /// not to.
    Trust,
}

fn corrupt<T>(offset: u64, what: &str) -> Result<T> {
    Err(Error::Corrupt { path: "the shadow's image".into(), offset, what: what.into() })
}

fn durable_word(region: &Region, at: u64) -> u64 {
    // Relaxed: no thread writes yet.
    region.word(at).load(Ordering::Relaxed)
}

/// Bytes of the working copy that may be used.
pub(crate) fn read_len(region: &Region, layout: &ShadowLayout) -> Result<u64> {
    let (len, dirty) = (durable_word(region, AT_LEN), durable_word(region, AT_DIRTY_END));
    if len > layout.capacity || !len.is_multiple_of(4096) {
        return corrupt(AT_LEN, "a length that cannot be");
    }
    if dirty > region.len() - layout.image_start() {
        return corrupt(AT_DIRTY_END, "an end of the records beside the image that cannot be");
    }
    Ok(len)
}

/// What the region says about the last opening for writing; none before the first.
pub(crate) fn last_opening(region: &Region) -> Option<LastOpening> {
    let last = Generation::read(durable_word(region, AT_GENERATION))?;
    (last.number() > 0).then(|| LastOpening { order: last.order(), generation: last.number() })
}

/// Applies what was published; returns the state of the logs, and counters. A shadow of an earlier version becomes
/// one of [`VERSION`].
pub(crate) fn recover(
    region: &Region,
    layout: &mut ShadowLayout,
    ends: LogEnds,
    order: Order,
) -> Result<(RecoveredLogs, Recovery)> {
    let len = read_len(region, layout)?;
    region.grow(layout.image_start() + len)?;
    let RingScan { found, upto, marker, starts, generation } = scan(region, layout, len, u64::MAX, ends)?;
    let mut recovery = Recovery::default();
    let mut seq = upto;
    let (mut stage, mut lines) = (Stage::default(), LineSet::default());
    let mut ends = starts;
    for group in &found {
        if group.unit.seq() > upto {
            let is_kept = match generation.order() {
                Order::Dense => group.unit.seq() == seq + 1,
                Order::Gaps => true,
                Order::Marker => group.unit.seq() <= marker,
            };
            if !is_kept {
                recovery.dropped += 1;
                continue;
            }
            seq = group.unit.seq();
            recovery.units += 1;
            let touched = |offset, len| lines.insert(offset, len);
            recovery.bytes += stage.apply(region, layout, group.log, group.position, &group.unit, touched);
        }
        ends[group.log] = group.position + group.unit.bytes();
    }
    stage.store(region, layout, |offset, len| lines.insert(offset, len));
    lines.drain(|offset, len| region.flush(layout.image_start() + offset, len as usize));
    region.fence();
    // In every order: the next numbers are beyond the marker, which covers none of them until it is stored again.
    seq = seq.max(marker);
    ends.iter_mut().for_each(|end| *end = end.next_multiple_of(UNIT_ALIGN));
    for (log, &end) in ends.iter().enumerate() {
        store_head(region, layout.log(log), seq, end);
    }
    let generation = generation.next(order);
    region.store(AT_GENERATION, generation.0, Ordering::Release);
    region.flush(AT_GENERATION, 8);
    region.fence();
    if layout.version < VERSION {
        // Durable-order: the heads before the version. Otherwise a crash would leave heads that no log of the new
        // version has.
        layout.upgrade(region);
        region.fence();
    }
    region.drain()?;
    Ok((RecoveredLogs { positions: ends, seq, len, generation }, recovery))
}

/// Verifies header words and logs of a region of which `usable` bytes exist, without changing anything; returns the
/// count of atomic groups found.
pub(crate) fn verify_all(region: &Region, layout: &ShadowLayout, usable: u64) -> Result<u64> {
    if layout.image_start() > usable {
        return corrupt(usable, "the image ends before its logs do");
    }
    let len = read_len(region, layout)?;
    if len > usable - layout.image_start() {
        return corrupt(usable, "the image ends before its length");
    }
    Ok(scan(region, layout, len, usable, LogEnds::Prove)?.found.len() as u64)
}

/// The content of the logs.
struct RingScan {
    /// Every atomic group, verified, by number, then by log and place.
    found: Vec<FoundGroup>,
    /// Up to this number, all are in the durable copy.
    upto: u64,
    /// The marker.
    marker: u64,
    /// Where each log begins.
    starts: Vec<u64>,
    /// That of the atomic groups.
    generation: Generation,
}

fn scan(region: &Region, layout: &ShadowLayout, len: u64, usable: u64, ends: LogEnds) -> Result<RingScan> {
    let logs = 0..layout.log_count as usize;
    let words = logs.map(|log| layout.log(log));
    let upto = words.map(|at| durable_word(region, at + IN_LOG_UPTO)).max().unwrap_or(0);
    let marker = durable_word(region, AT_MARKER);
    let generation = Generation::read(durable_word(region, AT_GENERATION));
    let Some(generation) = generation.filter(|_| upto <= NUMBER_MAX && marker <= NUMBER_MAX) else {
        return corrupt(AT_GENERATION, "a number of units or openings that cannot be");
    };
    let mut scan = RingScan { found: Vec::new(), upto, marker, starts: Vec::new(), generation };
    let mut verifier = Verifier { region, layout, len, usable, generation, upto: scan.upto, spilled: 0 };
    for log in 0..layout.log_count as usize {
        let at = layout.log(log);
        let head = durable_word(region, at + IN_LOG_HEAD);
        if !head.is_multiple_of(layout.unit_align()) || head > NUMBER_MAX {
            return corrupt(at, "the beginning of a log that cannot be");
        }
        scan.starts.push(head);
        let (mut position, limit) = (head, head + layout.ring_bytes);
        loop {
            match verifier.group(log, position, limit) {
                Ok(unit) => {
                    scan.found.push(FoundGroup { log, position, unit });
                    position += unit.bytes();
                }
                Err(damage)
                    if verifier.spilled > 1
                        || (ends == LogEnds::Prove && verifier.any_behind(log, position, limit)) =>
                {
                    return Err(damage);
                }
                // An atomic group that was not finished, or nothing.
                Err(_) => break,
            }
        }
    }
    let falls = |pair: &[FoundGroup]| pair[0].log == pair[1].log && pair[0].unit.seq() > pair[1].unit.seq();
    if scan.found.windows(2).any(falls) {
        return corrupt(layout.log(0), "two units of a log stand in the wrong order");
    }
    // A stable sort: it keeps the order of each log, and merges what is sorted already.
    scan.found.sort_by_key(|group| (group.unit.seq(), group.log));
    let same = |pair: &[FoundGroup]| pair[0].unit.seq() == pair[1].unit.seq();
    if generation.order() == Order::Dense && scan.found.windows(2).any(same) {
        return corrupt(layout.log(0), "two units carry the same number");
    }
    Ok(scan)
}

/// Compares atomic groups with their checksums, and their ranges with the working copy's length.
struct Verifier<'a> {
    region: &'a Region,
    layout: &'a ShadowLayout,
    len: u64,
    usable: u64,
    generation: Generation,
    upto: u64,
    /// Spilled atomic groups that are not applied. There is at most one: the next is begun when the last has been
    /// applied.
    spilled: u32,
}

impl Verifier<'_> {
    /// The atomic group at `position`, which ends before `limit`. Its spilled records are verified only if it has
    /// not been applied: later the next spilled atomic group may have overwritten them.
    fn group(&mut self, log: usize, position: u64, limit: u64) -> Result<Unit> {
        let (unit, spill) = self.in_ring(log, position, limit, &mut 0)?;
        let Some(record) = spill.filter(|_| unit.seq() > self.upto) else { return Ok(unit) };
        self.spilled += 1;
        if self.spilled > 1 {
            return corrupt(self.layout.ring(log, position), "two units at a time lie beside the image");
        }
        self.spill(record).map(|()| unit)
    }

    /// The part of the atomic group at `position` that the ring holds, and its SPILL record. Adds the bytes read to
    /// `summed`.
    fn in_ring(
        &self,
        log: usize,
        position: u64,
        limit: u64,
        summed: &mut u64,
    ) -> Result<(Unit, Option<[u64; 4]>)> {
        let place = self.layout.ring(log, position);
        let unit = read_unit(self.region, self.layout, log, position);
        let Some(unit) = unit.filter(|u| position < limit && u.bytes() <= limit - position) else {
            return corrupt(place, "no unit stands where the log goes on");
        };
        *summed += COMMIT_BYTES;
        let spill = match &unit {
            Unit::Records(commit) => self.records(log, position, commit, summed)?,
            Unit::Words(commit) => {
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
        let (mut at, mut spill) = (position + COMMIT_BYTES, None);
        for _ in 0..commit.records {
            if end - at < REDO_BYTES {
                return corrupt(place, "a record is cut short");
            }
            let words = [0, 8].map(|n| word(region, layout, log, at + n));
            let count = words[0] >> 8;
            match words[0] & 0xff {
                KIND_REDO => {
                    if count > end - at || redo_total(count) > end - at || !inside(words[1], count, len) {
                        return corrupt(place, "a range lies outside the image");
                    }
                    *summed += redo_total(count);
                    crc = crc32c(crc, &le_bytes::<2, 16>(words));
                    crc = crc_of_ring(region, layout, log, at + REDO_BYTES, count, crc);
                    at += redo_total(count);
                }
                KIND_WORDS if layout.version > 1 => {
                    let fits = count <= (end - at - WORDS_BYTES) / WORD_BYTES;
                    if !fits || !self.words_inside(log, at + WORDS_BYTES, count) {
                        return corrupt(place, "a word lies outside the image");
                    }
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
        Ok(spill)
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
        if !are_inside {
            return corrupt(place, "a word lies outside the image");
        }
        Ok(())
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

    /// Whether a whole atomic group stands after `position`: it was begun when all before it was durable. (Atomic
    /// groups of earlier laps name other positions, or are summed with them; those of earlier openings, and bytes
    /// that only look like one, fail the checksum. In a ring full of such bytes, nothing is proved.)
    fn any_behind(&self, log: usize, position: u64, limit: u64) -> bool {
        let Self { region, layout, .. } = *self;
        let align = layout.unit_align();
        let mut summed = 0;
        (position + align..=limit - COMMIT_BYTES).step_by(align as usize).any(|at| {
            read_unit(region, layout, log, at).is_some_and(|unit| unit.bytes() <= limit - at)
                && summed < SUMMED_RINGS_MAX * layout.ring_bytes
                && self.in_ring(log, at, limit, &mut summed).is_ok()
        })
    }

    /// Verifies the spilled records of an atomic group.
    fn spill(&self, record: [u64; 4]) -> Result<()> {
        let Self { region, layout, .. } = *self;
        let [first, start, total, records] = record;
        let end = start.checked_add(total).filter(|&end| {
            start >= layout.image_start() + self.len
                && end <= region.len().min(self.usable)
                && start.is_multiple_of(8)
                && total.is_multiple_of(8)
        });
        let Some(end) = end else { return corrupt(start, "records beside the image that cannot be") };
        if !region.medium().capabilities().read_only {
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
