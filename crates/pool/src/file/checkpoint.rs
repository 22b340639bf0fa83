//! The checkpoint of the file medium: it brings the data file up to a position of the log, page by page. It takes
//! the bytes from the log's records and never from the working copy, which holds stores that have not been flushed.
//!
//! Durable-order, in this order, with what recovery would do otherwise:
//! 1. the superblock says "checkpoint under way to `target`" before any page checksum changes: otherwise a checksum
//!    that is newer than its page would look like damage;
//! 2. new checksums before the pages they belong to: so a page is sound when its checksum matches it as it is, or
//!    as it will be after the log up to `target` is applied, torn or not. Otherwise a page torn in the middle could
//!    not be distinguished from a damaged one;
//! 3. all pages before the superblock says that the log starts at `target`: otherwise the records are gone and the
//!    pages old;
//! 4. that superblock before log space is freed: otherwise new groups overwrite records still needed. It records the
//!    last group that is durable by then, too: see `log/scan.rs`.
//!
//! An atomic group in a spill file is a checkpoint of its own: the log before it is applied first, and the tail
//! moves to it. So a checkpoint changes each page once, here too.
//!
//! A checkpoint verifies each page that it reads back for a change: otherwise it would give a damaged page a new,
//! right checksum. In a checkpoint that is repeated after a crash, the page may be old, new or torn: its checksum
//! matches it as it was read, or with the records applied.

use crate::file::released::Released;
use crate::format::log::{FLAG_SPILLED, GROUP_HEADER_BYTES, GroupHeader, LogRecord, LogRecords};
use crate::format::page_sums::{PAGE_BYTES, PAGES_PER_BLOCK, PageChecksums, page_checksum};
use crate::limits::cannot_map;
use crate::log::ring::Log;
use crate::log::spill::{SpillReader, SpillReference};
use crate::look::gate::CheckpointGate;
use crate::pool_files::{DataFiles, SuperblockFile};
use crate::storage::traits::{Storage, here};
use crate::sync::Mutex;
use crate::{ByteRange, Error, Lsn, Result};
use mangrove_sys::{CACHE_LINE_BYTES, Reservation, prefetch_lines, sort_by_upper_bits};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages changed between two syncs of the page checksums: bounds the memory that a checkpoint takes.
const BATCH_PAGES_MAX: usize = 4096;
/// A work list with space for more items, of 8 bytes each, is freed at once.
const KEPT_ITEMS_MAX: usize = 4 << 20;
/// So many records before it is applied, a record is asked to come near.
const RECORDS_AHEAD: usize = 8;
/// Bits of a position relative to the tail in a work item; the page number is in the bits above.
const POSITION_BITS: u32 = 30;
const _: () = assert!(crate::limits::LOG_BYTES_MAX <= 1 << POSITION_BITS);
const _: () = assert!(crate::limits::CAPACITY_BYTES_MAX / PAGE_BYTES as u64 <= 1 << (64 - POSITION_BITS));

/// The files and tables that a checkpoint works on. A mutex holds it, so that one runs at a time.
pub(crate) struct Checkpointer {
    pub(crate) files: Arc<DataFiles>,
    /// Where spill files lie.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) directory: PathBuf,
    pub(crate) sums: PageChecksums,
    /// What was given back and not provided again.
    pub(crate) released: Arc<Released>,
    /// What [`page_buffer`] returned when the pool was opened.
    pub(crate) buffer: Arc<Reservation>,
    /// The work list of the last checkpoint, and memory to sort the next with: see [`Checkpointer::rest`].
    pub(crate) work: Vec<u64>,
    pub(crate) spare: Vec<u64>,
    /// A checkpoint that a crash interrupted: its position, and the nonce before it. It is finished to exactly this
    /// position before another begins, or two generations of checksums would mix.
    pub(crate) interrupted: Option<(Lsn, u64)>,
    /// What readers in other processes know of checkpoints by.
    pub(crate) gate: CheckpointGate,
    pub(crate) finished: u64,
    pub(crate) bytes_written: u64,
    pub(crate) syncs: u64,
}

/// A changed page, and where its records stand in the work list.
struct ChangedPage {
    page: u64,
    first: usize,
    end: usize,
    /// The last of them gave the whole page back.
    is_zero: bool,
    /// In the data file it is zeros, perhaps a hole.
    was_zero: bool,
}

/// Reserves memory for the pages of a batch. A checkpoint that asked for it later, where the process may have no
/// more (ulimit -v), could only abort.
///
/// # Errors
/// `MemoryLimit`: the process may not have so much.
pub(crate) fn page_buffer(pool: &Path) -> Result<Arc<Reservation>> {
    let bytes = BATCH_PAGES_MAX * PAGE_BYTES;
    match Reservation::anonymous(bytes) {
        Ok(buffer) => Ok(Arc::new(buffer)),
        Err(e) => Err(cannot_map(pool, bytes as u64, &e)),
    }
}

fn no_memory(what: &dyn std::fmt::Display) -> Error {
    Error::Unsupported {
        what: format!("a checkpoint finds no memory ({what}); raise the limit of the process (ulimit -v)"),
    }
}

impl Checkpointer {
    /// Applies the log from its tail to `target` (a durable group boundary) to the data file, and moves the tail
    /// there.
    pub(crate) fn run(
        &mut self,
        log: &Log,
        superblock: &Mutex<SuperblockFile>,
        target: Lsn,
        image_bytes: u64,
    ) -> Result<()> {
        if self.interrupted.is_none() && target <= log.tail() {
            return Ok(());
        }
        let files = Arc::clone(&self.files);
        // Durable-order: before the first change of a page, also of one that no superblock announces (`again`).
        let _running = self.gate.begin(&files.image, image_bytes);
        if let Some((interrupted, nonce)) = self.interrupted {
            self.run_to(log, superblock, interrupted, nonce, image_bytes, true)?;
            self.interrupted = None;
        }
        while target > log.tail() {
            let tail = log.tail();
            // SAFETY: `tail..target` is durable and not yet freed: no thread writes it.
            let (bytes, nonce) = first_part(unsafe { log.bytes(tail, target - tail) })?;
            let end = tail + bytes;
            self.run_to(log, superblock, end, nonce, image_bytes, false)?;
        }
        Ok(())
    }

    fn run_to(
        &mut self,
        log: &Log,
        superblock: &Mutex<SuperblockFile>,
        target: Lsn,
        nonce: u64,
        image_bytes: u64,
        again: bool,
    ) -> Result<()> {
        let tail = log.tail();
        // SAFETY: `tail..target` is durable and not yet freed: no thread writes it.
        let bytes = unsafe { log.bytes(tail, target - tail) };
        let spill = reference_of(bytes)?;
        if !again {
            superblock.lock().update(here(), |sb| sb.target = target)?;
            self.syncs += 1;
        }
        match spill {
            None => self.apply_groups(bytes, target, again)?,
            Some(reference) => {
                let mut spills = log.spills.lock();
                let kept = spills.iter_mut().find(|w| w.number == reference.number);
                let kept = kept.and_then(|w| w.file.take());
                drop(spills);
                let mut reader = match kept {
                    Some(file) => SpillReader::new(file, reference, log.seed()),
                    None => SpillReader::open(&*self.storage, &self.directory, reference, log.seed())?,
                };
                let mut chunk = Vec::new();
                while reader.next(&mut chunk)? {
                    self.apply_groups(&chunk, target, again)?;
                }
            }
        }
        self.files.image.sync(here())?;
        let last = log.last_group(tail, log.commit.durable());
        let mut superblock = superblock.lock();
        superblock.update(here(), |sb| {
            sb.tail = target;
            sb.target = target;
            sb.nonce = nonce;
            sb.image_bytes = image_bytes;
            // The thread that wrote a younger group may have recorded it by now.
            sb.group = [sb.group, last].into_iter().flatten().max_by_key(|group| group.lsn);
        })?;
        // Durable-order 4.
        log.free_by(superblock.current());
        drop(superblock);
        self.syncs += 2;
        self.finished += 1;
        if let Some(reference) = spill {
            // Durable-order: see log/spill.rs. If this fails, the next opening removes the file.
            let _ = self.storage.remove(&reference.path(&self.directory), here());
            log.spills.lock().retain(|spill| spill.number != reference.number);
        }
        Ok(())
    }

    /// Applies whole groups of a checkpoint to `target`. No page may have records in another call of the same one.
    fn apply_groups(&mut self, bytes: &[u8], target: Lsn, again: bool) -> Result<()> {
        let mut work = std::mem::take(&mut self.work);
        let gives_back = gather(bytes, &mut work, &mut self.spare)?;
        let buffer = Arc::clone(&self.buffer);
        // SAFETY: the memory is that of `buffer`; only this function uses it, in one call at a time (`&mut self`).
        let pages = unsafe { std::slice::from_raw_parts_mut(buffer.base().as_ptr(), buffer.len()) };
        let mut at = 0;
        while at < work.len() {
            let (mut changes, end) = next_batch(bytes, &work, at, gives_back);
            self.apply_batch(bytes, &work, &mut changes, pages, target, again)?;
            at = end;
        }
        if work.capacity() <= KEPT_ITEMS_MAX {
            self.work = work;
        }
        Ok(())
    }

    /// Gives back the memory that one checkpoint leaves for the next. Getting each page of it anew is half of what a
    /// checkpoint of many pages takes, so it is given back only when no other is expected soon.
    pub(crate) fn rest(&mut self) {
        self.buffer.discard();
        (self.work, self.spare) = (Vec::new(), Vec::new());
    }

    fn apply_batch(
        &mut self,
        log: &[u8],
        work: &[u64],
        changes: &mut [ChangedPage],
        buffer: &mut [u8],
        target: Lsn,
        again: bool,
    ) -> Result<()> {
        let runs = runs_of(changes);
        for run in &runs {
            let pages = &mut buffer[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
            if changes[run.start].is_zero && !again {
                continue;
            }
            self.read_run(changes[run.start].page, pages, again)?;
        }
        let mut blocks: Vec<u64> = Vec::new();
        let mut parts = Vec::new();
        for (change, page) in changes.iter_mut().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let found = again.then(|| page_checksum(page));
            change.was_zero = found.unwrap_or_else(|| self.sums.get(change.page)) == 0;
            let records = if change.is_zero { change.end..change.end } else { change.first..change.end };
            parts.clear();
            for at in records {
                if let Some(&ahead) = work.get(at + RECORDS_AHEAD) {
                    // The records of a page are all over the log.
                    prefetch_lines(log[position_of(ahead)..].as_ptr(), 2 * CACHE_LINE_BYTES);
                }
                parts.push(part_of(log, position_of(work[at]), change.page));
            }
            leave_out_covered(&mut parts);
            parts.iter().for_each(|part| part.apply(page));
            let sum = if change.is_zero { 0 } else { page_checksum(page) };
            if found.is_some_and(|found| ![found, sum].contains(&self.sums.get(change.page))) {
                return Err(self.files.damaged_page(change.page));
            }
            self.sums.set(change.page, sum);
            let block = change.page / PAGES_PER_BLOCK;
            if blocks.last() != Some(&block) {
                blocks.push(block);
            }
        }
        self.write_sums(&blocks)?;
        for run in &runs {
            let pages = &buffer[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
            let offset = changes[run.start].page * PAGE_BYTES as u64;
            if changes[run.start].is_zero {
                self.write_nothing(&changes[run.clone()], target, again)?;
                continue;
            }
            self.files.image.write_at(offset, pages, here())?;
            self.bytes_written += pages.len() as u64;
        }
        Ok(())
    }

    /// Reads consecutive pages from `first` on. Verifies them unless the checkpoint is repeated (`again`): then the
    /// caller does.
    fn read_run(&self, first: u64, pages: &mut [u8], again: bool) -> Result<()> {
        let count = (pages.len() / PAGE_BYTES) as u64;
        // Pages whose checksum is 0 are zero: there is nothing to read.
        if !again && (first..first + count).all(|page| self.sums.get(page) == 0) {
            pages.fill(0);
            return Ok(());
        }
        let offset = first * PAGE_BYTES as u64;
        self.files.image.read_padded(offset, pages)?;
        if again {
            return Ok(());
        }
        for (page, bytes) in (first..).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
            let sum = self.sums.get(page);
            if sum == 0 {
                bytes.fill(0);
            } else if page_checksum(bytes) != sum {
                return Err(self.files.damaged_page(page));
            }
        }
        Ok(())
    }

    /// Makes holes of consecutive pages that a record before `target` gave back. Writes zeros to those that the owner
    /// may have asked for again, and where no hole can be made; but not to pages that are zeros: such a page may be a
    /// hole for which the owner has not asked for space.
    fn write_nothing(&mut self, run: &[ChangedPage], target: Lsn, again: bool) -> Result<()> {
        let (image, written) = (&self.files.image, &mut self.bytes_written);
        let page_bytes = PAGE_BYTES as u64;
        let first = run[0].page;
        let range = first * page_bytes..(first + run.len() as u64) * page_bytes;
        self.released.pieces(range, target, |piece, is_released| {
            if is_released && image.punch(piece.start, piece.end - piece.start, here())? {
                return Ok(());
            }
            let pages = &run[(piece.start / page_bytes - first) as usize..]
                [..(piece.end - piece.start) as usize / PAGE_BYTES];
            // Repeated, also to those: the zeros may be in the operating system's cache only, after a sync that failed.
            let all = pages.chunk_by(|one, next| one.was_zero == next.was_zero);
            for part in all.filter(|part| again || !part[0].was_zero) {
                let (start, len) = (part[0].page * page_bytes, part.len() as u64 * page_bytes);
                // A hole that was refused may have been made in part, and a page of zeros may be one. Nowhere else is
                // the file system asked: a page that it takes for a hole by mistake would keep its bytes.
                let whole = vec![ByteRange { offset: start, len }];
                let may_be_hole = is_released || part[0].was_zero;
                let with_bytes = if may_be_hole { image.data_ranges(start, start + len)? } else { whole };
                for data in with_bytes {
                    *written += data.len;
                    image.write_zeros(data.offset, data.len, here())?;
                }
            }
            Ok(())
        })
    }

    fn write_sums(&mut self, blocks: &[u64]) -> Result<()> {
        let mut bytes = [0u8; PAGE_BYTES];
        for &block in blocks {
            self.sums.block(block, &mut bytes);
            let offset = block * PAGE_BYTES as u64;
            self.files.sums.write_at(offset, &bytes, here())?;
            self.bytes_written += PAGE_BYTES as u64;
        }
        self.syncs += 1;
        self.files.sums.sync(here())
    }
}

fn damaged_memory() -> Error {
    Error::Poisoned { first: "the log in memory is damaged".into() }
}

/// How many bytes of `bytes` one checkpoint applies: the groups before the first that names a spill file, or that
/// one alone if it is the first. Returns the nonce of the last of them, too; the next group may be of a later
/// process and have another one.
fn first_part(bytes: &[u8]) -> Result<(u64, u64)> {
    let (mut at, mut nonce) = (0, 0);
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..]).ok_or_else(damaged_memory)?;
        let spill = header.flags & FLAG_SPILLED != 0;
        if spill && at > 0 {
            break;
        }
        at += header.total() as usize;
        nonce = header.nonce;
        if spill {
            break;
        }
    }
    Ok((at as u64, nonce))
}

/// The spill file that the first group names, if it names one.
fn reference_of(bytes: &[u8]) -> Result<Option<SpillReference>> {
    let header = GroupHeader::decode(bytes).ok_or_else(damaged_memory)?;
    if header.flags & FLAG_SPILLED == 0 {
        return Ok(None);
    }
    let payload = bytes.get(GROUP_HEADER_BYTES..GROUP_HEADER_BYTES + header.payload as usize);
    payload.and_then(SpillReference::decode).ok_or_else(damaged_memory).map(Some)
}

/// The work list: for each record and each page it touches, the page number above the record's position; sorted, so
/// that pages are together and a page's records in log order. True when a record gave something back.
fn gather(bytes: &[u8], work: &mut Vec<u64>, spare: &mut Vec<u64>) -> Result<bool> {
    work.clear();
    let mut any_zeros = false;
    let mut at = 0;
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..]).ok_or_else(damaged_memory)?;
        let start = at + GROUP_HEADER_BYTES;
        let payload = bytes.get(start..start + header.payload as usize).ok_or_else(damaged_memory)?;
        let mut records = LogRecords::new(payload, u64::MAX >> 1);
        let mut position = start;
        while let Some(record) = records.next() {
            let first = record.offset / PAGE_BYTES as u64;
            let last = (record.range().end - 1) / PAGE_BYTES as u64;
            work.try_reserve((last - first + 1) as usize).map_err(|e| no_memory(&e))?;
            any_zeros |= record.zeros > 0;
            work.extend((first..=last).map(|page| page << POSITION_BITS | position as u64));
            position = start + payload.len() - records.left();
        }
        if records.damaged() {
            return Err(damaged_memory());
        }
        at += header.total() as usize;
    }
    sort_by_upper_bits(work, spare, POSITION_BITS);
    Ok(any_zeros)
}

/// Where the record of a work item stands.
fn position_of(item: u64) -> usize {
    (item & ((1 << POSITION_BITS) - 1)) as usize
}

fn next_batch(log: &[u8], work: &[u64], mut at: usize, any_zeros: bool) -> (Vec<ChangedPage>, usize) {
    let mut changes = Vec::new();
    while at < work.len() && changes.len() < BATCH_PAGES_MAX {
        let page = work[at] >> POSITION_BITS;
        let len = work[at..].iter().take_while(|&&item| item >> POSITION_BITS == page).count();
        let last = position_of(work[at + len - 1]);
        let is_zero = any_zeros && gives_back(log, last, page);
        changes.push(ChangedPage { page, first: at, end: at + len, is_zero, was_zero: false });
        at += len;
    }
    (changes, at)
}

/// Ranges of `changes` whose pages are consecutive, and are all given back or all not.
fn runs_of(changes: &[ChangedPage]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, change) in changes.iter().enumerate() {
        match runs.last_mut() {
            Some(run)
                if changes[run.end - 1].page + 1 == change.page
                    && changes[run.start].is_zero == change.is_zero =>
            {
                run.end = i + 1;
            }
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

/// The record at `position` of `log`, which `gather` has parsed.
fn record_at(log: &[u8], position: usize) -> LogRecord<'_> {
    LogRecords::new(&log[position..], u64::MAX >> 1).next().expect("gather read this record")
}

/// True when the record at `position` gave all of `page` back.
fn gives_back(log: &[u8], position: usize, page: u64) -> bool {
    let record = record_at(log, position);
    let start = page * PAGE_BYTES as u64;
    record.zeros > 0 && record.offset <= start && start + PAGE_BYTES as u64 <= record.range().end
}

/// What a record has for a page.
struct PagePart<'a> {
    from: usize,
    end: usize,
    /// Empty: zeros.
    bytes: &'a [u8],
}

/// What the record at `position` of `log` has for `page`.
fn part_of(log: &[u8], position: usize, page: u64) -> PagePart<'_> {
    let record = record_at(log, position);
    let page_start = page * PAGE_BYTES as u64;
    let from = record.offset.max(page_start);
    let end = record.range().end.min(page_start + PAGE_BYTES as u64);
    let bytes = match record.zeros {
        0 => &record.bytes[(from - record.offset) as usize..(end - record.offset) as usize],
        _ => &[],
    };
    PagePart { from: (from - page_start) as usize, end: (end - page_start) as usize, bytes }
}

impl PagePart<'_> {
    fn apply(&self, page: &mut [u8]) {
        let to = &mut page[self.from..self.end];
        if self.bytes.is_empty() { to.fill(0) } else { to.copy_from_slice(self.bytes) }
    }
}

/// Takes out parts, in log order, that later ones cover: of a block that grows at its head each record has all the
/// bytes of the one before.
fn leave_out_covered(parts: &mut [PagePart<'_>]) {
    let (mut from, mut end) = (0, 0);
    for at in (0..parts.len()).rev() {
        let part = &mut parts[at];
        if from <= part.from && part.end <= end {
            // Nothing is left of it.
            part.end = part.from;
            part.bytes = &[];
        } else if from == end || part.from <= end && from <= part.end {
            (from, end) =
                if from == end { (part.from, part.end) } else { (from.min(part.from), end.max(part.end)) };
        } else if part.end - part.from > end - from {
            (from, end) = (part.from, part.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PagePart, leave_out_covered};

    /// What is left out changes nothing, whatever the parts are.
    #[test]
    fn a_page_is_the_same_without_what_later_records_cover() {
        let mut dice = 0x2545_f491_4f6c_dd1d_u64;
        let mut roll = |sides: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 33) as usize % sides
        };
        let bytes: Vec<Vec<u8>> = (1..=9).map(|value| vec![value; 64]).collect();
        let mut left_out = 0;
        for _ in 0..20_000 {
            let mut parts: Vec<PagePart<'_>> = (0..1 + roll(9))
                .map(|at| {
                    let from = roll(60);
                    let end = from + 1 + roll(64 - from);
                    let bytes = if roll(5) == 0 { &[][..] } else { &bytes[at][..end - from] };
                    PagePart { from, end, bytes }
                })
                .collect();
            let (mut expected, mut found) = ([100u8; 64], [100u8; 64]);
            parts.iter().for_each(|part| part.apply(&mut expected));
            leave_out_covered(&mut parts);
            parts.iter().for_each(|part| part.apply(&mut found));
            assert_eq!(found, expected);
            left_out += parts.iter().filter(|part| part.from == part.end).count();
        }
        assert!(left_out > 10_000, "it leaves out {left_out} parts only");
    }
}
