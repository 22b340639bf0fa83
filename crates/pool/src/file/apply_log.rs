//! Applies the log's records to the region in memory, when a file pool is opened.

use crate::file::released::Released;
use crate::format::log::{GROUP_HEADER_BYTES, GroupHeader, LogRecord, LogRecords, group_total};
use crate::format::page_sums::PAGE_BYTES;
use crate::format::ring_layout::RingLayout;
use crate::log::spill::{PendingSpill, REFERENCE_BYTES, SpillReader, SpillReference};
use crate::storage::traits::Storage;
use crate::{Lsn, Result};
use mangrove_sys::{Mirror, Reservation, fan_out};
use std::path::Path;

/// Logs shorter than this are applied by one thread.
const PARALLEL_LOG_BYTES: u64 = 2 << 20;
/// Bytes of a stripe of the region; each stripe belongs to one of the threads that apply the log.
const STRIPE_BYTES: u64 = 64 << 10;

/// The log, and its spill files.
pub(super) struct LogParts<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) directory: &'a Path,
    pub(super) seed: u32,
    pub(super) ring: &'a Mirror,
    pub(super) layout: RingLayout,
    pub(super) spills: &'a [(Lsn, SpillReference)],
    /// How many spill files stay open.
    pub(super) keep_open: usize,
    /// Parts of the memory show the data file.
    pub(super) shows_file: bool,
    pub(super) applied: Vec<PendingSpill>,
}

/// A part of the log that is read as one.
enum LogPiece<'a> {
    /// Groups in the ring.
    Groups(&'a [u8]),
    /// A spill file, its number, and the position of the group that names it.
    Spill(SpillReader, u64, Lsn),
}

impl LogParts<'_> {
    /// Applies the records of `from..to`; returns how many.
    pub(super) fn apply(&mut self, memory: &Reservation, from: Lsn, to: Lsn) -> Result<u64> {
        let (mut count, mut applied) = (0, std::mem::take(&mut self.applied));
        self.walk(from..to, &mut |piece| {
            match piece {
                LogPiece::Groups(groups) => count += apply(groups, memory, self.shows_file),
                LogPiece::Spill(mut reader, number, _) => {
                    let mut chunk = Vec::new();
                    while reader.next(&mut chunk)? {
                        let records = apply_bytes(&chunk, memory, (0, 1), self.shows_file);
                        let what = "a group with a right checksum holds no records";
                        count += records.ok_or_else(|| reader.file().corrupt(0, what))?;
                    }
                    let file = (applied.len() < self.keep_open).then(|| reader.into_file());
                    applied.push(PendingSpill { number, file });
                }
            }
            Ok(())
        })?;
        self.applied = applied;
        Ok(count)
    }

    /// Passes the records of `part` to `visit`, in order, and the position of each one's group.
    fn visit(&self, part: std::ops::Range<Lsn>, visit: &mut dyn FnMut(LogRecord<'_>, Lsn)) -> Result<()> {
        self.walk(part, &mut |piece| {
            match piece {
                LogPiece::Groups(groups) => visit_bytes(groups, None, visit),
                LogPiece::Spill(mut reader, _, at) => {
                    let mut chunk = Vec::new();
                    while reader.next(&mut chunk)? {
                        visit_bytes(&chunk, Some(at), visit);
                    }
                }
            }
            Ok(())
        })
    }

    /// Passes what `part` consists of to `each`, in order.
    fn walk(
        &self,
        part: std::ops::Range<Lsn>,
        each: &mut dyn FnMut(LogPiece<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut from = part.start;
        for &(at, reference) in self.spills.iter().filter(|(at, _)| part.contains(at)) {
            each(LogPiece::Groups(log_bytes(self.ring, self.layout, from..at)))?;
            let reader = SpillReader::open(self.storage, self.directory, reference, self.seed)?;
            each(LogPiece::Spill(reader, reference.number, at))?;
            from = at + group_total(REFERENCE_BYTES);
        }
        each(LogPiece::Groups(log_bytes(self.ring, self.layout, from..part.end)))
    }

    /// The pages at `from` and behind in which records of `part` have bytes, in order.
    pub(super) fn pages_beyond(&self, from: u64, part: std::ops::Range<Lsn>) -> Result<Vec<u64>> {
        let (first, mut pages) = (from / PAGE_BYTES as u64, Vec::new());
        self.visit(part, &mut |record: LogRecord<'_>, _| {
            if record.zeros > 0 {
                return;
            }
            let begin = first.max(record.offset / PAGE_BYTES as u64);
            // Most records lie behind the one before, in its page.
            let begin = begin + u64::from(pages.last() == Some(&begin));
            pages.extend(begin..record.range().end.div_ceil(PAGE_BYTES as u64));
        })?;
        pages.sort_unstable();
        pages.dedup();
        Ok(pages)
    }

    /// Puts the ranges into `released` that `part` gives back and that have no later record.
    pub(super) fn given_back(&self, released: &Released, part: std::ops::Range<Lsn>) -> Result<()> {
        self.visit(part, &mut |record: LogRecord<'_>, group| {
            if record.zeros > 0 {
                let (start, end) = (record.offset, record.range().end);
                let page = PAGE_BYTES as u64;
                let whole = start.next_multiple_of(page)..end / page * page;
                if !whole.is_empty() {
                    released.add(whole, group);
                }
            } else {
                released.forget(record.range());
            }
        })
    }
}

/// The groups in `range`.
fn log_bytes(ring: &Mirror, layout: RingLayout, range: std::ops::Range<Lsn>) -> &[u8] {
    let len = (range.end - range.start) as usize;
    // SAFETY: the ring is mapped twice in a row, the groups are at most its length in total, and no thread writes it.
    unsafe { std::slice::from_raw_parts(ring.base().as_ptr().add(layout.place(range.start) as usize), len) }
}

/// Passes the records of groups that have been applied to `visit`, and the position of each one's group; `spill` is
/// that of groups in a spill file.
fn visit_bytes(bytes: &[u8], spill: Option<Lsn>, visit: &mut dyn FnMut(LogRecord<'_>, Lsn)) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(GroupHeader::decode) {
        let start = at + GROUP_HEADER_BYTES;
        let payload = bytes.get(start..start + header.payload as usize).unwrap_or_default();
        let position = spill.unwrap_or(header.lsn);
        LogRecords::new(payload, u64::MAX >> 1).for_each(|record| visit(record, position));
        at += header.total() as usize;
    }
}

/// Applies the records of the groups in `bytes`; returns how many.
///
/// Several threads each read the whole log and apply the bytes in their own stripes of the region. Most of the time
/// goes into cache misses of the copies, and one thread writes all versions of a byte, in their order.
fn apply(bytes: &[u8], memory: &Reservation, shows_file: bool) -> u64 {
    let threads = if (bytes.len() as u64) < PARALLEL_LOG_BYTES {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from).min(8)
    };
    let counts = fan_out(threads, |stripe| {
        apply_bytes(bytes, memory, (stripe as u64, threads as u64), shows_file)
            .expect("the scan read these groups")
    });
    // Each thread has read all records.
    counts[0]
}

/// Makes a part of the region zero; its pages take no memory then, unless they show the data file.
///
/// # Safety
/// The part lies inside the reservation, and no other thread uses it.
unsafe fn zero(memory: &Reservation, offset: u64, len: u64, shows_file: bool) {
    let page = PAGE_BYTES as u64;
    if !shows_file && offset.is_multiple_of(page) && len.is_multiple_of(page) {
        // SAFETY: the caller's promise.
        unsafe { memory.discard_part(offset as usize, len as usize) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(memory.base().as_ptr().add(offset as usize), 0, len as usize) };
    }
}

/// Applies the bytes of verified groups in every `stripes`-th stripe from `stripe` on; returns the count of records
/// read, or `None` when the groups hold none.
fn apply_bytes(
    bytes: &[u8],
    memory: &Reservation,
    (stripe, stripes): (u64, u64),
    shows_file: bool,
) -> Option<u64> {
    let mut at = 0;
    let mut count = 0;
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..])?;
        let payload =
            bytes.get(at + GROUP_HEADER_BYTES..at + GROUP_HEADER_BYTES + header.payload as usize)?;
        let mut records = LogRecords::new(payload, memory.len() as u64);
        for record in records.by_ref() {
            count += 1;
            let (mut offset, end) = (record.offset, record.range().end);
            while offset < end {
                let in_stripe = (STRIPE_BYTES - offset % STRIPE_BYTES).min(end - offset);
                if offset / STRIPE_BYTES % stripes == stripe {
                    // SAFETY: `LogRecords` yields only ranges inside the reservation. No one else uses it yet, and
                    // only one thread writes each byte.
                    unsafe {
                        let place = memory.base().as_ptr().add(offset as usize);
                        if record.zeros > 0 {
                            zero(memory, offset, in_stripe, shows_file);
                        } else {
                            let from = record.bytes.as_ptr().add((offset - record.offset) as usize);
                            std::ptr::copy_nonoverlapping(from, place, in_stripe as usize);
                        }
                    }
                }
                offset += in_stripe;
            }
        }
        if records.damaged() {
            return None;
        }
        at += header.total() as usize;
    }
    Some(count)
}
