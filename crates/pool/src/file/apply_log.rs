//! Applies the log's records to the region in memory, when a file pool is opened.

use crate::format::log::{GROUP_HEADER_BYTES, GroupHeader, LogRecords, group_total};
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
    pub(super) applied: Vec<PendingSpill>,
}

impl LogParts<'_> {
    /// Applies the records of `from..to`; returns how many.
    pub(super) fn apply(&mut self, memory: &Reservation, mut from: Lsn, to: Lsn) -> Result<u64> {
        let mut count = 0;
        let part = from..to;
        for &(at, reference) in self.spills.iter().filter(|(at, _)| part.contains(at)) {
            count += apply(self.ring, self.layout, memory, from..at);
            let mut reader = SpillReader::open(self.storage, self.directory, reference, self.seed)?;
            let mut chunk = Vec::new();
            while reader.next(&mut chunk)? {
                let applied = apply_bytes(&chunk, memory, 0, 1);
                let what = "a group with a right checksum holds no records";
                count += applied.ok_or_else(|| reader.file().corrupt(0, what))?;
            }
            let file = (self.applied.len() < self.keep_open).then(|| reader.into_file());
            self.applied.push(PendingSpill { number: reference.number, file });
            from = at + group_total(REFERENCE_BYTES);
        }
        Ok(count + apply(self.ring, self.layout, memory, from..to))
    }
}

/// Applies the records of the groups in `from..to`; returns how many.
///
/// Several threads each read the whole log and apply the bytes in their own stripes of the region. Most of the time
/// goes into cache misses of the copies, and one thread writes all versions of a byte, in their order.
fn apply(ring: &Mirror, layout: RingLayout, memory: &Reservation, range: std::ops::Range<Lsn>) -> u64 {
    let len = (range.end - range.start) as usize;
    // SAFETY: the ring is mapped twice in a row, the groups are at most its length in total, and no thread writes it.
    let bytes = unsafe {
        std::slice::from_raw_parts(ring.base().as_ptr().add(layout.place(range.start) as usize), len)
    };
    let threads = if (len as u64) < PARALLEL_LOG_BYTES {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from).min(8)
    };
    let counts = fan_out(threads, |stripe| {
        apply_bytes(bytes, memory, stripe as u64, threads as u64).expect("the scan read these groups")
    });
    // Each thread has read all records.
    counts[0]
}

/// Applies the bytes of verified groups in every `stripes`-th stripe from `stripe` on; returns the count of records
/// read, or `None` when the groups hold none.
fn apply_bytes(bytes: &[u8], memory: &Reservation, stripe: u64, stripes: u64) -> Option<u64> {
    let mut at = 0;
    let mut count = 0;
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..])?;
        let payload =
            bytes.get(at + GROUP_HEADER_BYTES..at + GROUP_HEADER_BYTES + header.payload as usize)?;
        let mut records = LogRecords::new(payload, memory.len() as u64);
        for record in records.by_ref() {
            count += 1;
            let (mut offset, mut rest) = (record.offset, record.bytes);
            while !rest.is_empty() {
                let in_stripe = (STRIPE_BYTES - offset % STRIPE_BYTES).min(rest.len() as u64);
                let (piece, behind) = rest.split_at(in_stripe as usize);
                if offset / STRIPE_BYTES % stripes == stripe {
                    // SAFETY: `LogRecords` yields only ranges inside the reservation. No one else uses it yet, and
                    // only one thread writes each byte.
                    unsafe {
                        let place = memory.base().as_ptr().add(offset as usize);
                        std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len());
                    }
                }
                (offset, rest) = (offset + in_stripe, behind);
            }
        }
        if records.damaged() {
            return None;
        }
        at += header.total() as usize;
    }
    Some(count)
}
