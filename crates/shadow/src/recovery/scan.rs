//! Reads the logs after a crash: finds the atomic groups and verifies them, on all processors, and changes nothing.
//!
//! A log ends where no whole atomic group stands. A whole atomic group anywhere after that place proves that the
//! place had been durable: then it is damaged, and the scan fails. (So damage is distinguished from a tear, except
//! in the last atomic group of a log.) One with the mark that it follows deferred ones proves nothing. A whole atomic
//! group at that place itself, which the working copy's length leaves out, proves that the length is damaged.
//!
//! The heads of a log are followed first, by one thread, since each tells where the next one stands; then all
//! processors compute checksums. What stands behind the end may look like heads, too: of the last lap, whose numbers
//! are smaller, or of an opening before, whose checksums fail.

use crate::layout::{AT_GENERATION, AT_LEN, AT_MARKER, IN_LOG_HEAD, IN_LOG_UPTO, ShadowLayout};
use crate::order::{Generation, Order};
use crate::recovery::search::{LogEnd, any_behind};
use crate::recovery::threads::Threads;
use crate::recovery::verifier::{GroupVerifier, corrupt, durable_word};
use crate::{Error, Result};
use mangrove_pool::{ByteRange, Region};
use mangrove_sys::fan_out;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of atomic groups that one thread verifies at a time.
const BATCH_BYTES: u64 = 256 << 10;
/// The first atomic group of a log is verified before the heads behind it are followed, unless it is longer.
const FIRST_BYTES_MAX: u64 = 64 << 10;

/// Greatest number of an atomic group, a position or an opening that is accepted: counting on from it never
/// overflows.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// What the ends of the logs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnds {
    /// Where a log ends, the rest of its ring is searched for atomic groups that prove damage.
    Prove,
    /// The pool was closed: its logs are empty, and their rings are not read.
    Empty,
}

/// An atomic group that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundGroup {
    /// Its number.
    pub(crate) seq: u64,
    /// Where it stands.
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    pub(crate) log: usize,
}

/// The content of the logs.
pub(crate) struct RingScan {
    /// Every atomic group, verified, by number, then by log and place.
    pub(crate) found: Vec<FoundGroup>,
    /// Up to this number, all are in the durable copy.
    pub(crate) upto: u64,
    /// The marker.
    pub(crate) marker: u64,
    /// Where each log begins.
    pub(crate) starts: Vec<u64>,
    /// That of the atomic groups.
    pub(crate) generation: Generation,
}

/// Reads the logs of a shadow whose working copy has `len` bytes, in a region of which `usable` bytes exist.
///
/// # Errors
/// `Corrupt` at the first damaged place.
pub(crate) fn scan(
    region: &Region,
    layout: &ShadowLayout,
    (len, usable): (u64, u64),
    ends: LogEnds,
    threads: &Threads,
) -> Result<RingScan> {
    let logs = 0..layout.log_count as usize;
    let uptos: Vec<_> = logs.clone().map(|log| durable_word(region, layout.log(log) + IN_LOG_UPTO)).collect();
    let upto = uptos.iter().copied().max().unwrap_or(0);
    let marker = durable_word(region, AT_MARKER);
    let generation = Generation::read(durable_word(region, AT_GENERATION));
    let Some(generation) = generation.filter(|_| upto <= NUMBER_MAX && marker <= NUMBER_MAX) else {
        return corrupt(AT_GENERATION, "a number of units or openings that cannot be");
    };
    let mut scan = RingScan { found: Vec::new(), upto, marker, starts: Vec::new(), generation };
    for log in logs.clone() {
        let at = layout.log(log);
        let head = durable_word(region, at + IN_LOG_HEAD);
        if !head.is_multiple_of(layout.unit_align()) || head > NUMBER_MAX {
            return corrupt(at, "the beginning of a log that cannot be");
        }
        scan.starts.push(head);
    }
    if ends == LogEnds::Empty {
        return Ok(scan);
    }
    let verifier = GroupVerifier { region, layout, len, usable, generation };
    // Spilled atomic groups that are not applied. There is at most one: the next is begun when the last has been
    // applied.
    let mut spilled = 0;
    // Before any ring is read: what is read of a hole may count as data.
    let rings = ByteRange { offset: layout.ring(0, 0), len: layout.image_start() - layout.ring(0, 0) };
    let data = region.data_ranges(rings);
    for (log, &upto_of_log) in logs.zip(&uptos) {
        let (head, limit) = (scan.starts[log], scan.starts[log] + layout.ring_bytes);
        let walked = walk(&verifier, log, head, limit);
        let Verified { count, spills } = verify(&verifier, &walked, limit, threads);
        let (mut kept, mut damage) = (&walked[..count], None);
        for (number, record) in spills {
            let group = walked[number];
            // Later the next spilled atomic group may have overwritten the records of one that was applied.
            if group.seq <= upto {
                continue;
            }
            spilled += 1;
            let right = match spilled {
                1 => verifier.spill(record),
                _ => corrupt(layout.ring(log, group.position), "two units at a time lie beside the image"),
            };
            match right {
                Ok(()) => {}
                Err(e @ Error::Corrupt { offset: AT_LEN, .. }) => return Err(e),
                Err(e) => {
                    (kept, damage) = (&walked[..number], Some(e));
                    break;
                }
            }
        }
        let falls = |pair: &[FoundGroup]| pair[0].seq > pair[1].seq;
        if kept.windows(2).any(falls) {
            return corrupt(layout.log(0), "two units of a log stand in the wrong order");
        }
        if let Some(last) = kept.last().filter(|last| last.seq > NUMBER_MAX) {
            return corrupt(layout.ring(log, last.position), "a unit with a number that cannot be");
        }
        scan.found.extend_from_slice(kept);
        let last = kept.last();
        let position = last.map_or(head, |last| last.position + last.bytes);
        verifier.refuse_beyond_length(log, position, limit)?;
        // Whatever stands before the head has been applied; numbers grow, but time stamps may be equal.
        let seq_min = last.map_or(0, |last| last.seq).max(upto_of_log + 1);
        let end = LogEnd { log, position, limit, seq_min, data: &data };
        if spilled > 1 || any_behind(&verifier, &end, threads) {
            // Otherwise it is an atomic group that was not finished, or nothing.
            let damage = damage.map_or_else(|| verifier.in_ring(log, position, limit, &mut 0).map(drop), Err);
            damage?;
        }
    }
    // A stable sort: it keeps the order of each log, and merges what is sorted already.
    scan.found.sort_by_key(|group| (group.seq, group.log));
    let same = |pair: &[FoundGroup]| pair[0].seq == pair[1].seq;
    if generation.order() == Order::Dense && scan.found.windows(2).any(same) {
        return corrupt(layout.log(0), "two units carry the same number");
    }
    Ok(scan)
}

/// What may be the atomic groups of a log from `head` on, by their first words alone. The last one may have a number
/// smaller than those before: then it is no atomic group, or two stand in the wrong order.
fn walk(verifier: &GroupVerifier<'_>, log: usize, head: u64, limit: u64) -> Vec<FoundGroup> {
    let mut walked: Vec<FoundGroup> = Vec::new();
    let mut position = head;
    while let Some(unit) = verifier.head(log, position, limit) {
        let bytes = unit.bytes();
        if position == head
            && bytes <= FIRST_BYTES_MAX
            && verifier.in_ring(log, position, limit, &mut 0).is_err()
        {
            break;
        }
        let falls = walked.last().is_some_and(|last| last.seq > unit.seq());
        walked.push(FoundGroup { seq: unit.seq(), position, bytes, log });
        if falls {
            break;
        }
        position += bytes;
    }
    walked
}

/// The result of computing checksums.
struct Verified {
    /// So many of the first atomic groups are right, and the one after them, if any, is not.
    count: usize,
    /// The SPILL records among these, each with the index of its atomic group.
    spills: Vec<(usize, [u64; 4])>,
}

/// Compares the atomic groups of a log with their checksums.
fn verify(verifier: &GroupVerifier<'_>, walked: &[FoundGroup], limit: u64, threads: &Threads) -> Verified {
    let Some((first, last)) = walked.first().zip(walked.last()) else {
        return Verified { count: 0, spills: Vec::new() };
    };
    let bytes = last.position + last.bytes - first.position;
    // The index of the first that is known to be wrong.
    let wrong = AtomicUsize::new(walked.len());
    let batch = (BATCH_BYTES * walked.len() as u64).div_ceil(bytes) as usize;
    let next = AtomicUsize::new(0);
    let work = |_| {
        let mut spills = Vec::new();
        loop {
            // Relaxed: only gives each batch to one thread.
            let from = next.fetch_add(batch, Ordering::Relaxed);
            let Some(rest) = walked.get(from..).filter(|rest| !rest.is_empty()) else { return spills };
            for (index, group) in (from..).zip(&rest[..batch.min(rest.len())]) {
                // Relaxed: what lies behind a wrong one does not count, whether it is verified or not.
                if index >= wrong.load(Ordering::Relaxed) {
                    return spills;
                }
                match verifier.in_ring(group.log, group.position, limit, &mut 0) {
                    Ok((_, spill)) => spills.extend(spill.map(|record| (index, record))),
                    Err(_) => {
                        // Relaxed: the threads are joined before it is read for good.
                        wrong.fetch_min(index, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let mut spills: Vec<_> = fan_out(threads.for_bytes(bytes), work).into_iter().flatten().collect();
    let count = wrong.into_inner();
    spills.retain(|&(index, _)| index < count);
    spills.sort_unstable_by_key(|&(index, _)| index);
    Verified { count, spills }
}
