//! Reads the log of a pool that was not closed: finds its groups, and decides whether a torn write or damage ends
//! them.
//!
//! Rules:
//! 1. The first group stands at the superblock's tail, and either carries the nonce recorded there or is the first
//!    of a process. Each next one stands right after its predecessor, and carries its nonce or is the first of a
//!    process. So no group of an earlier lap, and none left over from a write that a crash tore, is ever taken for
//!    the next.
//! 2. The first place without such a group ends the log. If any group elsewhere in the ring proves that this place
//!    had been durable when that group was written, the end is damage: acknowledged writes would be lost silently.
//!    (Groups of one torn write may survive without the ones before them; their `durable` does not reach the hole,
//!    so they prove nothing.) `scan` finds the end, `refuse_hole` looks for the proof.
//! 3. An atomic group whose log groups are not all there is dropped whole: the log ends where it begins. Sealing
//!    never cuts an atomic group, so this drops nothing that was durable, and no `durable` lies inside one.
//! 4. The log contains the group that the superblock records. Otherwise it is blank, another pool's, or a copy that is
//!    older than the record (`refuse_foreign`). A recorded group before the tail may have been overwritten by groups
//!    that follow the tail; the ring keeps its bytes until one of those is durable (`log/ring.rs`, invariant 2).

use crate::format::log::{
    FLAG_CONTINUES, FLAG_FIRST, FLAG_SPILLED, GROUP_HEADER_BYTES, GroupHeader, LogRecords, group_crc,
};
use crate::format::superblock::{RecordedGroup, Superblock};
use crate::log::spill::SpillReference;
use crate::pool_files::PoolFile;
use crate::storage::traits::SECTOR_BYTES;
use crate::{Lsn, Result};
use mangrove_sys::Mirror;

/// Bytes read at a time.
const STEP_BYTES: u64 = 256 << 10;
/// The search for a proof computes checksums of at most so many times the bytes of the log. No crash leaves more
/// bytes that look like groups, but the bytes that a user stores may look like anything.
const SUMMED_LOGS_MAX: u64 = 8;

/// The content of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogScan {
    /// Position after the last group.
    pub(crate) end: Lsn,
    /// Nonce of the last group, or the superblock's when there is none.
    pub(crate) last_nonce: u64,
    /// Nonce of the last group before the superblock's target.
    pub(crate) target_nonce: u64,
    pub(crate) groups: u64,
    /// Where the write of the last group began: everything before was durable then, the rest may be in the
    /// operating system's cache only.
    pub(crate) last_write: Lsn,
    /// End of the last record's range: the data file must be able to hold it.
    pub(crate) image_end: u64,
    /// Groups that name spill files: the position of each, and the reference in it.
    pub(crate) spills: Vec<(Lsn, SpillReference)>,
}

impl LogScan {
    /// The log of a pool that was closed.
    pub(crate) fn empty(sb: &Superblock) -> Self {
        Self { end: sb.tail, last_nonce: sb.nonce, target_nonce: sb.nonce, ..Self::default() }
    }
}

/// Reads one group at a time into the ring.
struct LogReader<'a> {
    file: &'a PoolFile,
    ring: &'a mut Mirror,
    loaded: Lsn,
    limit: Lsn,
}

impl LogReader<'_> {
    /// Makes `at..at + len` available; false when that is beyond the ring's end.
    fn load(&mut self, at: Lsn, len: u64) -> Result<bool> {
        if at + len > self.limit {
            return Ok(false);
        }
        while self.loaded < at + len {
            let log_bytes = self.ring.len() as u64;
            let physical = self.loaded % log_bytes;
            let step = STEP_BYTES.min(log_bytes - physical).min(self.limit - self.loaded);
            // SAFETY: inside the first view of the ring, which is ours alone.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(
                    self.ring.base().as_ptr().add(physical as usize),
                    step as usize,
                )
            };
            self.file.read_padded(physical, bytes)?;
            self.loaded += step;
        }
        Ok(true)
    }

    /// `len` loaded bytes at `at`.
    fn bytes(&self, at: Lsn, len: usize) -> &[u8] {
        let physical = (at % self.ring.len() as u64) as usize;
        assert!(len <= self.ring.len());
        // SAFETY: the ring is mapped twice in a row, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.ring.base().as_ptr().add(physical), len) }
    }
}

/// Reads the groups from the superblock's tail on into `ring`. Their end is the log's end only if [`refuse_hole`]
/// finds no proof against it.
///
/// # Errors
/// `Corrupt` when the log ends before or not at the superblock's target, when it lacks the group that the superblock
/// records, or when groups with right checksums hold no records or name one file twice; `Io`.
pub(crate) fn scan(file: &PoolFile, sb: &Superblock, ring: &mut Mirror) -> Result<LogScan> {
    let log_bytes = ring.len() as u64;
    // The process wrote its log past the page cache, so it must be read from the disk: start with all of it now,
    // for `refuse_hole` too.
    let physical = sb.tail % log_bytes;
    file.will_read(physical, log_bytes - physical);
    file.will_read(0, physical);
    let mut reader = LogReader { file, ring, loaded: sb.tail, limit: sb.tail + log_bytes };
    let mut scan = LogScan::empty(sb);
    let mut at_target = sb.target == sb.tail;
    let mut has_recorded = false;
    let mut spills = Vec::new();
    // The log up to the last complete atomic group, without its `spills`, and their number.
    let mut whole = (scan.clone(), 0);
    while let Some(header) = next_group(&mut reader, &scan, sb)? {
        let body = reader.bytes(scan.end + GROUP_HEADER_BYTES as u64, header.payload as usize);
        let spilled = header.flags & FLAG_SPILLED != 0;
        let reference =
            if spilled { SpillReference::decode(body).filter(|r| r.image_end <= sb.capacity) } else { None };
        let mut records = LogRecords::new(if spilled { &[] } else { body }, sb.capacity);
        for record in records.by_ref() {
            scan.image_end = scan.image_end.max(record.offset + record.bytes.len() as u64);
        }
        if let Some(reference) = reference {
            scan.image_end = scan.image_end.max(reference.image_end);
            spills.push((scan.end, reference));
        }
        if records.damaged() || spilled != reference.is_some() {
            return Err(file.corrupt(scan.end % log_bytes, "a group with a right checksum holds no records"));
        }
        has_recorded |= sb.group == Some(RecordedGroup { lsn: scan.end, nonce: header.nonce });
        scan.end += header.total();
        scan.groups += 1;
        scan.last_nonce = header.nonce;
        scan.last_write = header.durable.max(sb.tail);
        if scan.end <= sb.target {
            scan.target_nonce = header.nonce;
        }
        if header.flags & FLAG_CONTINUES == 0 {
            at_target |= scan.end == sb.target;
            whole = (scan.clone(), spills.len());
        }
    }
    let (mut scan, count) = whole;
    spills.truncate(count);
    let mut named: Vec<(u64, Lsn)> = spills.iter().map(|(at, reference)| (reference.number, *at)).collect();
    named.sort_unstable();
    if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let what = "two groups name the same file of a long unit";
        return Err(file.corrupt(pair[1].1 % log_bytes, what));
    }
    scan.spills = spills;
    if scan.end >= sb.target && !at_target {
        let what = format!("no group ends at position {}, where a checkpoint was to end", sb.target);
        return Err(file.corrupt(sb.target % log_bytes, what));
    }
    if scan.end < sb.target {
        let what = format!("the log ends at position {}, but was durable up to {}", scan.end, sb.target);
        return Err(file.corrupt(scan.end % log_bytes, what));
    }
    if !has_recorded {
        refuse_foreign(file, sb, &scan)?;
    }
    Ok(scan)
}

/// For a log in which the scan has not met the group that the superblock records.
///
/// # Errors
/// `Corrupt` when the log is not the one that was written; `Io`.
fn refuse_foreign(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<()> {
    let Some(group) = sb.group else { return Ok(()) };
    // A right group after the tail is younger than a recorded one before it.
    if group.lsn < sb.tail && (scan.groups > 0 || holds(file, sb, group)?) {
        return Ok(());
    }
    let at = scan.end.max(group.lsn.min(sb.tail)) % sb.log_bytes;
    let what = format!(
        "the log lacks the group at position {}, which had been durable: it is blank, of another pool, or an older \
         copy; restore the files of a pool together",
        group.lsn
    );
    Err(file.corrupt(at, what))
}

/// True when the group lies whole at its place in the log, and ends at the tail: a checkpoint records the last group
/// that was durable when it ended.
fn holds(file: &PoolFile, sb: &Superblock, group: RecordedGroup) -> Result<bool> {
    let physical = group.lsn % sb.log_bytes;
    let read = |bytes: &mut [u8]| -> Result<()> {
        let first = bytes.len().min((sb.log_bytes - physical) as usize);
        let (first, rest) = bytes.split_at_mut(first);
        file.read_padded(physical, first)?;
        file.read_padded(0, rest)
    };
    let mut bytes = vec![0; SECTOR_BYTES];
    read(&mut bytes)?;
    let Some(header) = GroupHeader::decode(&bytes) else { return Ok(false) };
    let len = GROUP_HEADER_BYTES + header.payload as usize;
    let is_it = (header.lsn, header.nonce) == (group.lsn, group.nonce);
    if !is_it || header.lsn + header.total() != sb.tail || len as u64 > sb.log_bytes {
        return Ok(false);
    }
    bytes.resize(len, 0);
    read(&mut bytes)?;
    Ok(group_crc(sb.seed(), &bytes) == header.crc)
}

/// The whole group with a right checksum at the scan's end, if there is one.
fn next_group(reader: &mut LogReader<'_>, scan: &LogScan, sb: &Superblock) -> Result<Option<GroupHeader>> {
    if !reader.load(scan.end, SECTOR_BYTES as u64)? {
        return Ok(None);
    }
    let Some(header) = GroupHeader::decode(reader.bytes(scan.end, SECTOR_BYTES)) else { return Ok(None) };
    let follows = header.nonce == scan.last_nonce || header.flags & FLAG_FIRST != 0;
    if header.lsn != scan.end || !follows || !reader.load(scan.end, header.total())? {
        return Ok(None);
    }
    let bytes = reader.bytes(scan.end, GROUP_HEADER_BYTES + header.payload as usize);
    Ok((group_crc(sb.seed(), bytes) == header.crc).then_some(header))
}

/// Looks for a group that proves the scan's end to be damage.
///
/// # Errors
/// `Corrupt` when there is one; `Io`.
pub(crate) fn refuse_hole(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<()> {
    let mut buffer = vec![0u8; STEP_BYTES.min(sb.log_bytes) as usize];
    let mut budget = SUMMED_LOGS_MAX * sb.log_bytes;
    let mut at = 0;
    while at < sb.log_bytes {
        let len = (buffer.len() as u64).min(sb.log_bytes - at);
        // Groups that the scan read lie before its end: they prove nothing about it.
        let scanned = is_scanned(sb.tail..scan.end, at, len, sb.log_bytes);
        let found = match scanned {
            true => None,
            false => witness(file, sb, at, &mut buffer[..len as usize], scan.end, &mut budget)?,
        };
        if let Some(witness) = found {
            let what = format!(
                "the group at position {} is gone or damaged, but had been durable: the one at position {witness} says so",
                scan.end
            );
            return Err(file.corrupt(scan.end % sb.log_bytes, what));
        }
        at += len;
    }
    Ok(())
}

/// True when all of `at..at + len` of the log file holds positions in `range`.
fn is_scanned(range: std::ops::Range<Lsn>, at: u64, len: u64, log_bytes: u64) -> bool {
    let first = range.start - range.start % log_bytes + at;
    let fits = |first: Lsn| range.start <= first && first + len <= range.end;
    fits(first) || fits(first + log_bytes)
}

/// Position of a right group which begins in the `buffer.len()` bytes of the log file at `physical` and proves that
/// `end` had been durable. Computes checksums of no more than `budget` bytes.
fn witness(
    file: &PoolFile,
    sb: &Superblock,
    physical: u64,
    buffer: &mut [u8],
    end: Lsn,
    budget: &mut u64,
) -> Result<Option<Lsn>> {
    let log_bytes = sb.log_bytes;
    let n = file.read_at(physical, buffer)?;
    let mut group = Vec::new();
    for sector in (0..n - n % SECTOR_BYTES).step_by(SECTOR_BYTES) {
        let Some(header) = GroupHeader::decode(&buffer[sector..]) else { continue };
        let here = physical + sector as u64;
        if header.durable <= end || header.lsn % log_bytes != here {
            continue;
        }
        let len = GROUP_HEADER_BYTES + header.payload as usize;
        if len as u64 > (log_bytes / 4).min(*budget) {
            continue;
        }
        *budget -= len as u64;
        group.clear();
        group.resize(len, 0);
        let first = len.min((log_bytes - here) as usize);
        file.read_at(here, &mut group[..first])?;
        if first < len {
            file.read_at(0, &mut group[first..])?;
        }
        if group_crc(sb.seed(), &group) == header.crc {
            return Ok(Some(header.lsn));
        }
    }
    Ok(None)
}
