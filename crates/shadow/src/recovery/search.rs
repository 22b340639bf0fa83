//! The search for a whole atomic group behind the place where a log ends. There is one only if that place is damaged:
//! it was begun when all before it was durable. (One with the mark that it follows deferred ones proves nothing.)
//!
//! Most of a ring holds nothing, or atomic groups of its last lap. The former are holes of the file, or have no head;
//! the numbers of the latter are too small. Both are passed over without a checksum, on all processors.

use crate::layout::{COMMIT_BYTES, HEAD_KINDS, ShadowLayout};
use crate::recovery::threads::Threads;
use crate::recovery::verifier::GroupVerifier;
use mangrove_pool::ByteRange;
use mangrove_sys::fan_out;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checksums of at most so many times the bytes of a ring are computed. No crash leaves more bytes that look like
/// atomic groups, but the bytes that a user stores may look like anything.
const SUMMED_RINGS_MAX: u64 = 8;
/// Bytes of a ring that one thread searches at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Where a log ends.
pub(crate) struct LogEnd<'a> {
    pub(crate) log: usize,
    /// No whole atomic group stands here.
    pub(crate) position: u64,
    /// Where the lap ends.
    pub(crate) limit: u64,
    /// Atomic groups that follow have numbers from here on.
    pub(crate) seq_min: u64,
    /// The parts of the region, in order, outside of which the ring is zero.
    pub(crate) data: &'a [ByteRange],
}

/// Whether a whole atomic group stands after the end of the log. (Atomic groups of earlier laps have smaller numbers,
/// and name other positions, or are summed with them; those of earlier openings, and bytes that only look like one,
/// fail the checksum. In a ring full of such bytes, nothing is proved.)
pub(crate) fn any_behind(verifier: &GroupVerifier<'_>, end: &LogEnd<'_>, threads: &Threads) -> bool {
    let chunks = chunks(verifier.layout, end);
    let bytes = chunks.iter().map(|chunk| chunk.end - chunk.start).sum();
    let next = AtomicUsize::new(0);
    let work = |_| {
        let mut found = Vec::new();
        // Relaxed: only gives each chunk to one thread.
        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let first = candidates(verifier, end, chunk.clone()).next();
            found.extend(first.map(|first| (first, chunk.end)));
        }
        found
    };
    let mut found: Vec<_> = fan_out(threads.for_bytes(bytes), work).into_iter().flatten().collect();
    found.sort_unstable();
    let mut summed = 0;
    found.into_iter().flat_map(|(from, to)| candidates(verifier, end, from..to)).any(|at| {
        summed < SUMMED_RINGS_MAX * verifier.layout.ring_bytes
            && verifier.in_ring(end.log, at, end.limit, &mut summed).is_ok()
    })
}

/// The positions after the end of the log where the ring may not be zero, cut into chunks of whole lines.
fn chunks(layout: &ShadowLayout, end: &LogEnd<'_>) -> Vec<std::ops::Range<u64>> {
    let align = layout.unit_align();
    let (first, last) = (end.position + align, (end.limit + 1).saturating_sub(COMMIT_BYTES));
    let wrap = (end.position / layout.ring_bytes + 1) * layout.ring_bytes;
    let mut chunks = Vec::new();
    for part in
        [first..last.min(wrap), first.max(wrap)..last].into_iter().filter(|part| part.start < part.end)
    {
        let (start, len) = (layout.ring(end.log, part.start), part.end - part.start);
        for data in end.data {
            let begin = data.offset.saturating_sub(start) / align * align;
            let until = (data.offset + data.len).saturating_sub(start).min(len);
            for at in (begin..until).step_by(CHUNK_BYTES as usize) {
                chunks.push(part.start + at..part.start + until.min(at + CHUNK_BYTES));
            }
        }
    }
    chunks
}

/// The positions of a chunk where the head of an atomic group may stand.
fn candidates(
    verifier: &GroupVerifier<'_>,
    end: &LogEnd<'_>,
    chunk: std::ops::Range<u64>,
) -> impl Iterator<Item = u64> {
    let GroupVerifier { region, layout, .. } = *verifier;
    let start = layout.ring(end.log, chunk.start);
    let positions = chunk.clone().step_by(layout.unit_align() as usize);
    positions.filter(move |&at| {
        // Relaxed: no thread writes yet.
        let kind = region.word(start + (at - chunk.start)).load(Ordering::Relaxed) & 0xff;
        HEAD_KINDS.contains(&kind)
            && verifier
                .head(end.log, at, end.limit)
                .is_some_and(|unit| unit.seq() >= end.seq_min && !unit.follows_deferred())
    })
}
