//! Reads the log of a pool that was not closed: which groups are there, and is what ends them a
//! torn tail or damage?
//!
//! Rules:
//! 1. The first group stands at the superblock's tail, and either carries the nonce recorded there
//!    or is the first of a process. Each next one stands right behind, and carries the nonce of the
//!    one before or is the first of a process. So no group of an earlier lap, and none left over
//!    from a write that a crash tore, is ever taken for the next.
//! 2. The first place that is no such group ends the log. If any group elsewhere in the ring proves
//!    that this place had been durable when that group was written, the end is damage: acknowledged
//!    writes would be lost silently. (Groups of one torn write may survive without the ones before
//!    them; their `durable` does not reach the hole, so they prove nothing.)
//!    `scan` finds the end, `refuse_hole` looks for the proof.
//! 3. A unit whose groups are not all there is not there at all: the log ends where it begins. Sealing never
//!    cuts a unit, so nothing that was durable is lost with it, and no `durable` lies inside it.

use crate::aside::Reference;
use crate::log_format::{
    FLAG_ASIDE, FLAG_FIRST, FLAG_GOES_ON, GROUP_HEADER_BYTES, GroupHeader, Records, group_crc,
};
use crate::storage::{SECTOR_BYTES, StorageFile};
use crate::superblock::Superblock;
use crate::{Error, Lsn, Result};
use mangrove_sys::Mirror;
use std::path::Path;

/// Bytes read at a time.
const STEP_BYTES: u64 = 256 << 10;
/// So many times the bytes of the log are summed in search of a proof, at most: no crash leaves as much that looks
/// like groups, but what a user stores may look like anything.
const SUMMED_LOGS_MAX: u64 = 8;

/// What the log holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// Position after the last group.
    pub(crate) end: Lsn,
    /// Nonce of the last group, or the superblock's when there is none.
    pub(crate) last_nonce: u64,
    /// Nonce of the last group before the superblock's target.
    pub(crate) target_nonce: u64,
    pub(crate) groups: u64,
    /// Where the write of the last group began: what comes before was durable then, the rest may be
    /// in the operating system's cache only.
    pub(crate) last_write: Lsn,
    /// End of the last record's range: the image must be able to hold it.
    pub(crate) image_end: u64,
    /// Groups that name files of long units: where, and what.
    pub(crate) asides: Vec<(Lsn, Reference)>,
}

impl Scan {
    /// What the log of a pool that was closed holds.
    pub(crate) fn empty(sb: &Superblock) -> Self {
        Self { end: sb.tail, last_nonce: sb.nonce, target_nonce: sb.nonce, ..Self::default() }
    }
}

/// Reads one group at a time into the ring.
struct Reader<'a> {
    file: &'a dyn StorageFile,
    path: &'a Path,
    ring: &'a mut Mirror,
    loaded: Lsn,
    limit: Lsn,
}

impl Reader<'_> {
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
            let n = self
                .file
                .read_at(physical, bytes)
                .map_err(|e| Error::from_io(self.path.to_owned(), "read", &e))?;
            bytes[n..].fill(0);
            self.loaded += step;
        }
        Ok(true)
    }

    /// `len` loaded bytes at `at`.
    fn bytes(&self, at: Lsn, len: usize) -> &[u8] {
        let physical = (at % self.ring.len() as u64) as usize;
        assert!(len <= self.ring.len());
        // SAFETY: the ring is mapped twice in a row, and `&self` keeps writers away.
        unsafe { std::slice::from_raw_parts(self.ring.base().as_ptr().add(physical), len) }
    }
}

fn corrupt(path: &Path, offset: u64, what: String) -> Error {
    Error::Corrupt { path: path.to_owned(), offset, what }
}

/// Reads the groups behind the superblock's tail into `ring`. Their end is the log's end only if [`refuse_hole`]
/// has nothing against it.
///
/// # Errors
/// `Corrupt` when the log ends before or not at the superblock's target, right groups hold nonsense or name one file
/// twice; `Io`.
pub(crate) fn scan(file: &dyn StorageFile, path: &Path, sb: &Superblock, ring: &mut Mirror) -> Result<Scan> {
    let log_bytes = ring.len() as u64;
    // What a process wrote past the page cache comes from the disk: all of it now, for `refuse_hole` too.
    let physical = sb.tail % log_bytes;
    file.will_read(physical, log_bytes - physical);
    file.will_read(0, physical);
    let mut reader = Reader { file, path, ring, loaded: sb.tail, limit: sb.tail + log_bytes };
    let mut scan = Scan::empty(sb);
    let mut at_target = sb.target == sb.tail;
    let mut asides = Vec::new();
    // The log up to the last end of a unit, without its `asides`, and how many those are.
    let mut whole = (scan.clone(), 0);
    while let Some(header) = next_group(&mut reader, &scan, sb)? {
        let body = reader.bytes(scan.end + GROUP_HEADER_BYTES as u64, header.payload as usize);
        let aside = header.flags & FLAG_ASIDE != 0;
        let reference =
            if aside { Reference::decode(body).filter(|r| r.image_end <= sb.capacity) } else { None };
        let mut records = Records::new(if aside { &[] } else { body }, sb.capacity);
        for record in records.by_ref() {
            scan.image_end = scan.image_end.max(record.offset + record.bytes.len() as u64);
        }
        if let Some(reference) = reference {
            scan.image_end = scan.image_end.max(reference.image_end);
            asides.push((scan.end, reference));
        }
        if records.damaged() || aside != reference.is_some() {
            return Err(corrupt(
                path,
                scan.end % log_bytes,
                "a group with a right checksum holds no records".into(),
            ));
        }
        scan.end += header.total();
        scan.groups += 1;
        scan.last_nonce = header.nonce;
        scan.last_write = header.durable.max(sb.tail);
        if scan.end <= sb.target {
            scan.target_nonce = header.nonce;
        }
        if header.flags & FLAG_GOES_ON == 0 {
            at_target |= scan.end == sb.target;
            whole = (scan.clone(), asides.len());
        }
    }
    let (mut scan, count) = whole;
    asides.truncate(count);
    let mut named: Vec<(u64, Lsn)> = asides.iter().map(|(at, reference)| (reference.number, *at)).collect();
    named.sort_unstable();
    if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let what = "two groups name the same file of a long unit";
        return Err(corrupt(path, pair[1].1 % log_bytes, what.into()));
    }
    scan.asides = asides;
    if scan.end >= sb.target && !at_target {
        let what = format!("no group ends at position {}, where a checkpoint was to end", sb.target);
        return Err(corrupt(path, sb.target % log_bytes, what));
    }
    if scan.end < sb.target {
        return Err(corrupt(
            path,
            scan.end % log_bytes,
            format!("the log ends at position {}, but was durable up to {}", scan.end, sb.target),
        ));
    }
    Ok(scan)
}

/// The whole, right group at the scan's end, if there is one.
fn next_group(reader: &mut Reader<'_>, scan: &Scan, sb: &Superblock) -> Result<Option<GroupHeader>> {
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
pub(crate) fn refuse_hole(file: &dyn StorageFile, path: &Path, sb: &Superblock, scan: &Scan) -> Result<()> {
    let mut buffer = vec![0u8; STEP_BYTES.min(sb.log_bytes) as usize];
    let mut budget = SUMMED_LOGS_MAX * sb.log_bytes;
    let mut at = 0;
    while at < sb.log_bytes {
        let len = (buffer.len() as u64).min(sb.log_bytes - at);
        // What the scan read are groups before its end: they prove nothing about it.
        let scanned = is_scanned(sb.tail..scan.end, at, len, sb.log_bytes);
        let found = match scanned {
            true => None,
            false => witness(file, path, sb, at, &mut buffer[..len as usize], scan.end, &mut budget)?,
        };
        if let Some(witness) = found {
            return Err(corrupt(
                path,
                scan.end % sb.log_bytes,
                format!(
                    "the group at position {} is gone or damaged, but had been durable: the one at position {witness} says so",
                    scan.end
                ),
            ));
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

/// Position of a right group which begins in the `buffer.len()` bytes of the log file at `physical` and proves
/// that `end` had been durable. No more than `budget` bytes are summed.
fn witness(
    file: &dyn StorageFile,
    path: &Path,
    sb: &Superblock,
    physical: u64,
    buffer: &mut [u8],
    end: Lsn,
    budget: &mut u64,
) -> Result<Option<Lsn>> {
    let log_bytes = sb.log_bytes;
    let read = |offset: u64, bytes: &mut [u8]| {
        file.read_at(offset, bytes).map_err(|e| Error::from_io(path.to_owned(), "read", &e))
    };
    let n = read(physical, buffer)?;
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
        read(here, &mut group[..first])?;
        if first < len {
            read(0, &mut group[first..])?;
        }
        if group_crc(sb.seed(), &group) == header.crc {
            return Ok(Some(header.lsn));
        }
    }
    Ok(None)
}
