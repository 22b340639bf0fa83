//! Whether the place where a reader found the end of a live log is damaged.
//!
//! The writer continues while the reader reads. So a group that proves the place to have been durable may have been
//! written after the reader was there, and the missing group before it: then the log continues by now, and it had
//! ended when the reader was there.
//!
//! The whole log is not searched (`log/scan.rs` does that when no process has the pool), since it would be read
//! from the disk at each look. A group is at most [`GROUP_PAYLOAD_BYTES_MAX`] long, so one that follows a damaged
//! one begins within that distance; the search continues from each group of this lap that it finds, and ends where
//! there is none.

use crate::damage_check::DamageCheck;
use crate::format::log::{GROUP_HEADER_BYTES, GROUP_PAYLOAD_BYTES_MAX, GroupHeader, group_total};
use crate::format::superblock::Superblock;
use crate::log::scan::{LogScan, following, group_at};
use crate::pool_files::PoolFile;
use crate::storage::traits::SECTOR_BYTES;
use crate::{Lsn, Result};

/// Bytes read at a time.
const STEP_BYTES: u64 = 256 << 10;
/// No group of this lap in so many bytes: the log has ended before them. Room for two damaged groups.
const SILENCE_BYTES: u64 = 2 * (GROUP_HEADER_BYTES + GROUP_PAYLOAD_BYTES_MAX + SECTOR_BYTES) as u64;

/// Looks for a group that proves the scan's end to be damage, beside a writer.
///
/// # Errors
/// `Corrupt` when there is one and the log does not continue; `Io`.
pub(crate) fn refuse_hole_beside(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<()> {
    let Some(witness) = witness(file, sb, scan)? else { return Ok(()) };
    if DamageCheck::LookAgain.is_on() && following(file, sb, scan)?.is_some() {
        return Ok(());
    }
    if !DamageCheck::LogHole.is_on() {
        return Ok(());
    }
    let what = format!(
        "the group at position {} is gone or damaged, but had been durable: the one at position {witness} says so",
        scan.end
    );
    Err(file.corrupt(sb.ring().place(scan.end), what))
}

/// Position of a right group behind the scan's end which says that the end had been durable.
fn witness(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<Option<Lsn>> {
    let mut buffer = vec![0; STEP_BYTES as usize];
    let lap_end = sb.tail + sb.log_bytes;
    let (mut at, mut until) = (scan.end, lap_end.min(scan.end + SILENCE_BYTES));
    while at < until {
        let bytes = &mut buffer[..STEP_BYTES.min(until - at) as usize];
        file.read_ring(at, sb.ring(), bytes)?;
        for sector in (0..bytes.len()).step_by(SECTOR_BYTES) {
            let here = at + sector as u64;
            let Some(header) = GroupHeader::decode(&bytes[sector..]).filter(|h| h.lsn == here) else {
                continue;
            };
            let len = group_total(header.payload as usize);
            until = until.max(lap_end.min(here + len + SILENCE_BYTES));
            if header.durable > scan.end && group_at(file, sb, here)?.is_some() {
                return Ok(Some(here));
            }
        }
        at += bytes.len() as u64;
    }
    Ok(None)
}
