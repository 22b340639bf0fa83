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
//! 4. Where the log ends, the recent writes of the process that wrote its last groups may continue it, by rules 1 and 3
//!    (`log/recent.rs`); the log ends where they do. Their file may be longer than the log, and still have what the log
//!    has overwritten. So a group, there or here, beyond what the superblock gives the log proves that the
//!    superblock is an older copy.
//! 5. The log contains the group that the superblock records. Otherwise it is blank, another pool's, or a copy that is
//!    older than the record (`refuse_foreign`). A recorded group before the tail may have been overwritten by groups
//!    that follow the tail; the ring keeps its bytes until one of those is durable (`log/ring.rs`, invariant 2).
//! 6. The log of a pool that was closed is empty: no group follows the tail. Otherwise the superblock is a copy from
//!    before the group (`closed_log`).

use crate::damage_check::DamageCheck;
use crate::format::log::{
    FLAG_CONTINUES, FLAG_FIRST, FLAG_SPILLED, GROUP_HEADER_BYTES, GroupHeader, LogRecords, group_crc,
};
use crate::format::ring_layout::RingLayout;
use crate::format::superblock::{RecordedGroup, Superblock};
use crate::log::recent::{LeftRecent, NOT_KNOWN};
use crate::log::spill::SpillReference;
use crate::pool_files::PoolFile;
use crate::storage::traits::{SECTOR_BYTES, aligned};
use crate::{Error, Lsn, Result};
use mangrove_sys::Mirror;
use std::path::PathBuf;

/// Bytes read at a time, from multiples of it on.
const STEP_BYTES: u64 = 512 << 10;
/// Logs up to this length are requested as a whole before they are read. A longer one would take as much memory of the
/// page cache, for bytes that are read once: it is read past the cache, as it was written.
const REQUESTED_BYTES_MAX: u64 = 256 << 20;
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
    /// The last group.
    pub(crate) last: Option<RecordedGroup>,
    /// Bytes of records in it, or `NOT_KNOWN`.
    pub(crate) last_payload: u64,
    /// Nonce of the process that made it; that of the group itself if it was in the log.
    pub(crate) source_nonce: u64,
    /// If groups at the end are in a file of recent writes only: where they begin, and `last_payload` there.
    pub(crate) recent: Option<(Lsn, u64)>,
    /// Where the write of the last group began: everything before was durable then, the rest may be in the
    /// operating system's cache only.
    pub(crate) last_write: Lsn,
    /// End of the last record's range: the data file must be able to hold it.
    pub(crate) image_end: u64,
    /// A record tells of a range that was given back.
    pub(crate) gives_back: bool,
    /// Recent writes go on beyond what the superblock gives the log.
    pub(crate) exceeds: bool,
    /// Groups that name spill files: the position of each, and the reference in it.
    pub(crate) spills: Vec<(Lsn, SpillReference)>,
}

impl LogScan {
    /// A log without groups after the tail.
    pub(crate) fn empty(sb: &Superblock) -> Self {
        let (tail, nonce) = (sb.tail, sb.nonce);
        Self {
            end: tail,
            last_write: tail,
            last_nonce: nonce,
            target_nonce: nonce,
            source_nonce: nonce,
            last_payload: NOT_KNOWN,
            ..Self::default()
        }
    }
}

/// Whether a log of `log_bytes` bytes is to be requested as a whole before it is read, so that the disk reads while the
/// groups are looked at. One that is read at once need not be.
pub(crate) fn is_requested(log_bytes: u64) -> bool {
    log_bytes > STEP_BYTES && log_bytes <= REQUESTED_BYTES_MAX
}

/// Reads at `offset` of the file of a log with `log_bytes` bytes; see [`is_requested`].
fn read(file: &PoolFile, log_bytes: u64, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    if is_requested(log_bytes) { file.read_at(offset, bytes) } else { file.read_past_cache(offset, bytes) }
}

/// Reads one group at a time into the ring.
struct LogReader<'a> {
    file: &'a PoolFile,
    ring: &'a mut Mirror,
    layout: RingLayout,
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
            let physical = self.layout.place(self.loaded);
            let step = STEP_BYTES - physical % STEP_BYTES;
            let step = step.min(self.layout.bytes - physical).min(self.limit - self.loaded);
            // SAFETY: inside the first view of the ring, which is ours alone.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(
                    self.ring.base().as_ptr().add(physical as usize),
                    step as usize,
                )
            };
            let read = read(self.file, self.layout.bytes, physical, bytes)?;
            bytes[read..].fill(0);
            self.loaded += step;
        }
        Ok(true)
    }

    /// Puts `bytes` at `at`, in place of what the log has there. Nothing may be loaded afterwards.
    fn put(&mut self, at: Lsn, bytes: &[u8]) {
        let physical = self.layout.place(at) as usize;
        assert!(bytes.len() <= self.ring.len());
        // SAFETY: as in `bytes`; the ring is ours alone.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.ring.base().as_ptr().add(physical),
                bytes.len(),
            );
        }
    }

    /// `len` loaded bytes at `at`.
    fn bytes(&self, at: Lsn, len: usize) -> &[u8] {
        let physical = self.layout.place(at) as usize;
        assert!(len <= self.ring.len());
        // SAFETY: the ring is mapped twice in a row, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.ring.base().as_ptr().add(physical), len) }
    }
}

/// Reads the groups from the superblock's tail on into `ring`, from the log unless the pool was closed, and then from
/// `recent`; these get the nonce `nonce`. Their end is the log's end only if [`refuse_hole`] finds no proof against it.
///
/// # Errors
/// `Corrupt` when the log ends before or not at the superblock's target, when it lacks the group that the superblock
/// records, or when groups with right checksums hold no records or name one file twice; `Io`.
pub(crate) fn scan(
    file: &PoolFile,
    recent: &[LeftRecent],
    nonce: u64,
    sb: &Superblock,
    ring: &mut Mirror,
) -> Result<LogScan> {
    let layout = sb.ring();
    let log_bytes = layout.bytes;
    let mut reader = LogReader { file, ring, layout, loaded: sb.tail, limit: sb.tail + log_bytes };
    let mut scan = LogScan::empty(sb);
    let mut at_target = sb.target == sb.tail;
    let mut has_recorded = false;
    let mut spills = Vec::new();
    // The log up to the last complete atomic group, without its `spills`, and their number.
    let mut whole = (scan.clone(), 0);
    let mut has_ended = sb.clean;
    let mut left = None;
    let exceeds = loop {
        let in_log = if has_ended { None } else { next_group(&mut reader, &scan, sb)? };
        has_ended = in_log.is_none();
        let header = match in_log {
            Some(header) => {
                scan.source_nonce = header.nonce;
                header
            }
            None => {
                if scan.recent.is_none() {
                    left = furthest(recent, &scan, reader.limit, sb)?;
                    if left.is_none() && scan.end > whole.0.end {
                        // The rest of an atomic group was torn: the next process began where that does.
                        scan = whole.0.clone();
                        spills.truncate(whole.1);
                        left = furthest(recent, &scan, reader.limit, sb)?;
                    }
                }
                match next_recent(&mut reader, left, nonce, &mut scan, sb)? {
                    Some(header) => header,
                    None => break exceeds(recent, &scan, &reader, sb)?,
                }
            }
        };
        let body = reader.bytes(scan.end + GROUP_HEADER_BYTES as u64, header.payload as usize);
        let spilled = header.flags & FLAG_SPILLED != 0;
        let reference =
            if spilled { SpillReference::decode(body).filter(|r| r.image_end <= sb.capacity) } else { None };
        let mut records = LogRecords::new(if spilled { &[] } else { body }, sb.capacity);
        for record in records.by_ref() {
            scan.image_end = scan.image_end.max(record.range().end);
            scan.gives_back |= record.zeros > 0;
        }
        if let Some(reference) = reference {
            scan.image_end = scan.image_end.max(reference.image_end);
            spills.push((scan.end, reference));
        }
        if records.damaged() || spilled != reference.is_some() {
            return Err(
                file.corrupt(layout.place(scan.end), "a group with a right checksum holds no records")
            );
        }
        scan.last = Some(RecordedGroup { lsn: scan.end, nonce: header.nonce });
        has_recorded |= sb.group == scan.last;
        scan.last_payload = u64::from(header.payload);
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
    };
    let (mut scan, count) = whole;
    scan.exceeds = exceeds;
    spills.truncate(count);
    let mut named: Vec<(u64, Lsn)> = spills.iter().map(|(at, reference)| (reference.number, *at)).collect();
    named.sort_unstable();
    if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let what = "two groups name the same spill file";
        return Err(file.corrupt(layout.place(pair[1].1), what));
    }
    scan.spills = spills;
    if scan.end >= sb.target && !at_target {
        let what = format!("no group ends at position {}, where a checkpoint was to end", sb.target);
        return Err(file.corrupt(layout.place(sb.target), what));
    }
    if scan.end < sb.target {
        let what = format!("the log ends at position {}, but was durable up to {}", scan.end, sb.target);
        return Err(file.corrupt(layout.place(scan.end), what));
    }
    if !sb.clean && !has_recorded {
        refuse_foreign(file, sb, &scan)?;
    }
    Ok(scan)
}

/// For a log in which the scan has not met the group that the superblock records.
///
/// # Errors
/// `Corrupt` when the log is not the one that was written; `Io`.
fn refuse_foreign(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<()> {
    let Some(group) = sb.group.filter(|_| DamageCheck::RecordedGroup.is_on()) else { return Ok(()) };
    // A right group after the tail is younger than a recorded one before it.
    if group.lsn < sb.tail && (scan.groups > 0 || holds(file, sb, group)?) {
        return Ok(());
    }
    let at = sb.ring().place(scan.end.max(group.lsn.min(sb.tail)));
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
    let found = group_at(file, sb, group.lsn)?;
    Ok(found.is_some_and(|found| found.nonce == group.nonce && found.lsn + found.total() == sb.tail))
}

/// The header of the group that follows the scan's end, when it is there by now.
///
/// # Errors
/// `Io`.
pub(crate) fn following(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<Option<GroupHeader>> {
    let follows = |group: &GroupHeader| group.nonce == scan.last_nonce || group.flags & FLAG_FIRST != 0;
    Ok(group_at(file, sb, scan.end)?.filter(follows))
}

/// The header of the group at `lsn`, when a whole group with a right checksum stands there.
pub(crate) fn group_at(file: &PoolFile, sb: &Superblock, lsn: Lsn) -> Result<Option<GroupHeader>> {
    let mut bytes = vec![0; SECTOR_BYTES];
    file.read_ring(lsn, sb.ring(), &mut bytes)?;
    let Some(header) = GroupHeader::decode(&bytes) else { return Ok(None) };
    let len = GROUP_HEADER_BYTES + header.payload as usize;
    if header.lsn != lsn || len as u64 > sb.log_bytes {
        return Ok(None);
    }
    bytes.resize(len, 0);
    file.read_ring(lsn, sb.ring(), &mut bytes)?;
    Ok((group_crc(sb.seed(), &bytes) == header.crc).then_some(header))
}

/// The log of a pool that was closed: empty. "Not clean" is durable before the first group is written, so an atomic
/// group that follows the tail shows that the superblock is an older copy. A part of one does not: a process that died
/// while it wrote that left it, and the one that closed the pool wrote nothing.
///
/// # Errors
/// `Corrupt`, naming `superblock`, when there is one; `Io`.
pub(crate) fn closed_log(file: &PoolFile, sb: &Superblock, superblock: PathBuf) -> Result<LogScan> {
    let (mut at, mut nonce) = (sb.tail, sb.nonce);
    while at < sb.tail + sb.log_bytes && DamageCheck::ClosedLog.is_on() {
        let follows = |group: &GroupHeader| group.nonce == nonce || group.flags & FLAG_FIRST != 0;
        let Some(group) = group_at(file, sb, at)?.filter(follows) else { break };
        if group.flags & FLAG_CONTINUES == 0 {
            return Err(Error::Corrupt {
                path: superblock,
                offset: 0,
                what: format!(
                    "it records that the pool was closed, but the log has a younger group at position {at}: this is \
                     an older copy; restore the files of a pool together"
                ),
            });
        }
        (at, nonce) = (at + group.total(), group.nonce);
    }
    Ok(LogScan::empty(sb))
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

/// True when the group with this header, before which its process knew a group with `before` bytes of records,
/// continues the log behind a group with `last` bytes, or `NOT_KNOWN`, of the process with the nonce `source`.
fn continues(header: &GroupHeader, before: u64, last: u64, source: u64, limit: Lsn) -> bool {
    let follows = header.nonce == source || header.flags & FLAG_FIRST != 0;
    // What is before the tail was whole.
    let is_gapless = last == NOT_KNOWN || before == last;
    follows && is_gapless && header.lsn + header.total() <= limit
}

/// The file of recent writes that continues the log furthest. A process that died while it took the groups of another
/// has left a part of them in its own.
fn furthest<'a>(
    recent: &'a [LeftRecent],
    scan: &LogScan,
    limit: Lsn,
    sb: &Superblock,
) -> Result<Option<&'a LeftRecent>> {
    let mut best = (scan.end, None);
    for left in recent {
        let (mut end, mut source, mut last) = (scan.end, scan.source_nonce, scan.last_payload);
        let takes = |end, source, last| {
            let takes = |header: &GroupHeader, before| continues(header, before, last, source, limit);
            left.group_at(end, sb.ring(), sb.seed(), |_| {}, takes)
        };
        while let Some(header) = takes(end, source, last)?.as_deref().and_then(GroupHeader::decode) {
            end += header.total();
            (source, last) = (left.nonce(), u64::from(header.payload));
        }
        if end > best.0 {
            best = (end, Some(left));
        }
    }
    Ok(best.1)
}

/// Whether a file of recent writes goes on where the scan has ended, beyond the log's limit.
fn exceeds(recent: &[LeftRecent], scan: &LogScan, reader: &LogReader<'_>, sb: &Superblock) -> Result<bool> {
    let takes = |header: &GroupHeader, before| {
        continues(header, before, scan.last_payload, scan.source_nonce, Lsn::MAX)
            && header.lsn + header.total() > reader.limit
    };
    for left in recent {
        if left.group_at(scan.end, sb.ring(), sb.seed(), |_| {}, takes)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The group at the scan's end in the file of recent writes, if there is one. It is put into the ring as the log shall
/// have it.
fn next_recent(
    reader: &mut LogReader<'_>,
    left: Option<&LeftRecent>,
    nonce: u64,
    scan: &mut LogScan,
    sb: &Superblock,
) -> Result<Option<GroupHeader>> {
    let Some(left) = left else { return Ok(None) };
    let (limit, last_write, is_first) = (reader.limit, scan.last_write, scan.recent.is_none());
    let takes =
        |header: &GroupHeader, before| continues(header, before, scan.last_payload, scan.source_nonce, limit);
    let change = |header: &mut GroupHeader| {
        header.nonce = nonce;
        header.durable = last_write;
        header.flags = header.flags & !FLAG_FIRST | if is_first { FLAG_FIRST } else { 0 };
    };
    let Some(group) = left.group_at(scan.end, sb.ring(), sb.seed(), change, takes)? else {
        return Ok(None);
    };
    reader.put(scan.end, &group);
    scan.recent.get_or_insert((scan.end, scan.last_payload));
    scan.source_nonce = left.nonce();
    Ok(GroupHeader::decode(&group))
}

/// Looks for a group that proves the scan's end to be damage.
///
/// # Errors
/// `Corrupt` when there is one; `Io`.
pub(crate) fn refuse_hole(file: &PoolFile, sb: &Superblock, scan: &LogScan) -> Result<()> {
    if scan.exceeds && DamageCheck::LogHole.is_on() {
        let what = format!(
            "recent writes go on at position {}, beyond the log: the superblock is older than they are",
            scan.end
        );
        return Err(file.corrupt(sb.ring().place(scan.end), what));
    }
    let mut space = Vec::new();
    let buffer = aligned(&mut space, STEP_BYTES.min(sb.log_bytes) as usize);
    let mut budget = SUMMED_LOGS_MAX * sb.log_bytes;
    // What comes from a file of recent writes was not read in the log, where other groups may lie.
    let read_to = scan.recent.map_or(scan.end, |(from, _)| from);
    let mut at = 0;
    while at < sb.log_bytes {
        let len = (buffer.len() as u64).min(sb.log_bytes - at);
        // Groups that the scan read here lie before its end: they prove nothing about it.
        let scanned = is_scanned(sb.tail..read_to, at, len, sb.ring());
        let found = match scanned {
            true => None,
            false => {
                let proves = |header: &GroupHeader, at| {
                    (header.durable > scan.end || header.lsn + header.total() > sb.tail + sb.log_bytes)
                        && sb.ring().place(header.lsn) == at
                        && header.payload as u64 + GROUP_HEADER_BYTES as u64 <= sb.log_bytes / 4
                };
                witness(file, sb, at, &mut buffer[..len as usize], proves, &mut budget)?
            }
        };
        if let Some(witness) = found.filter(|_| DamageCheck::LogHole.is_on()) {
            let what = format!(
                "the group at position {} is gone or damaged, but had been durable: the one at position {witness} says so",
                scan.end
            );
            return Err(file.corrupt(sb.ring().place(scan.end), what));
        }
        at += len;
    }
    Ok(())
}

/// For a log file that is longer than the superblock records: a growth that a crash ended before the superblock knew of
/// it leaves zeros there, and a closing that a crash ended before it cut the log off leaves groups before the tail. Any
/// other group there shows that the superblock is an older copy, from before the log has grown.
///
/// # Errors
/// `Corrupt`, naming `superblock`, when there is one; `Io`.
pub(crate) fn refuse_grown(file: &PoolFile, sb: &Superblock, superblock: PathBuf) -> Result<()> {
    let size = file.size()?;
    let mut budget = SUMMED_LOGS_MAX * size;
    let mut space = Vec::new();
    let buffer = aligned(&mut space, STEP_BYTES.min(size.saturating_sub(sb.log_bytes)) as usize);
    let mut at = sb.log_bytes;
    let is_later = |header: &GroupHeader, _| header.lsn >= sb.tail;
    while at < size && DamageCheck::GrownLog.is_on() {
        let len = (buffer.len() as u64).min(size - at);
        let found = witness(file, sb, at, &mut buffer[..len as usize], is_later, &mut budget)?;
        if let Some(lsn) = found {
            return Err(Error::Corrupt {
                path: superblock,
                offset: 0,
                what: format!(
                    "it records a log of {} bytes, but the log has grown and has a group at position {lsn}: this is an \
                     older copy; restore the files of a pool together",
                    sb.log_bytes
                ),
            });
        }
        at += len;
    }
    Ok(())
}

/// True when all of `at..at + len` of the log file holds positions in `range`.
fn is_scanned(range: std::ops::Range<Lsn>, at: u64, len: u64, ring: RingLayout) -> bool {
    // The first position in the range or behind it that has this place.
    let first = range.start + (at + ring.bytes - ring.place(range.start)) % ring.bytes;
    first + len <= range.end
}

/// Position of a right group which begins in the `buffer.len()` bytes of the log file at `physical` and of which, with
/// its place, `proves` is true. Computes checksums of no more than `budget` bytes.
fn witness(
    file: &PoolFile,
    sb: &Superblock,
    physical: u64,
    buffer: &mut [u8],
    proves: impl Fn(&GroupHeader, u64) -> bool,
    budget: &mut u64,
) -> Result<Option<Lsn>> {
    let n = read(file, sb.log_bytes, physical, buffer)?;
    let mut group = Vec::new();
    for sector in (0..n - n % SECTOR_BYTES).step_by(SECTOR_BYTES) {
        let Some(header) = GroupHeader::decode(&buffer[sector..]) else { continue };
        let here = physical + sector as u64;
        let len = GROUP_HEADER_BYTES + header.payload as usize;
        if !proves(&header, here) || len as u64 > *budget {
            continue;
        }
        *budget -= len as u64;
        group.clear();
        group.resize(len, 0);
        // Beyond the end of an older superblock's log no group wraps around.
        let first = len
            .min(sb.log_bytes.checked_sub(here).filter(|left| *left > 0).map_or(len, |left| left as usize));
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
