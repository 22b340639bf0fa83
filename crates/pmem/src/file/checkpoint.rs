//! The checkpoint of the file medium: brings the image up to a position of the log, page by page,
//! from the log's records, never from the working copy (which holds stores that nobody flushed).
//!
//! Durable-order, in this order, and what recovery would do otherwise:
//! 1. the superblock says "checkpoint under way to `target`" before any sum changes: else a sum that
//!    is newer than its page would look like damage;
//! 2. new sums before the pages they belong to: so a page is sound when its sum fits it as it is, or
//!    as it will be after the log up to `target` is applied, torn or not. Otherwise a page torn in
//!    the middle could not be told from a damaged one;
//! 3. all pages before the superblock says that the log starts at `target`: else the records are
//!    gone and the pages old;
//! 4. that superblock before log space is freed: else new groups overwrite records still needed.
//!
//! A long unit, whose records lie in a file of their own, is a checkpoint of its own: what is before it in the log
//! is applied first, and has its tail. So each page changes once in a checkpoint, here too.
//!
//! A page read back for a change is verified first: bit rot is found, not sealed under a new sum. One of a checkpoint
//! that is done again may be old, new or torn: its sum fits it as it was read, or with the records applied.

use crate::aside::{Reader, Reference};
use crate::log::Log;
use crate::log_format::{FLAG_ASIDE, GROUP_HEADER_BYTES, GroupHeader, Records, get_varint};
use crate::storage::{Storage, StorageFile, here};
use crate::sums::{PAGE_BYTES, PAGES_PER_BLOCK, Sums, page_sum};
use crate::superblock::SuperblockFile;
use crate::sync::Mutex;
use crate::{Error, Lsn, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages changed between two syncs of the sums: bounds the memory that a checkpoint takes.
const BATCH_PAGES_MAX: usize = 4096;
/// Bits of a position relative to the tail in a work item; above them stands the page number.
const POSITION_BITS: u32 = 30;
const _: () = assert!(crate::options::LOG_BYTES_MAX <= 1 << POSITION_BITS);
const _: () = assert!(crate::options::CAPACITY_BYTES_MAX / PAGE_BYTES as u64 <= 1 << (64 - POSITION_BITS));

/// The image, and the sums of its pages.
pub(crate) struct ImageFiles {
    pub(crate) image: Box<dyn StorageFile>,
    pub(crate) image_path: PathBuf,
    pub(crate) sums: Box<dyn StorageFile>,
    pub(crate) sums_path: PathBuf,
}

impl ImageFiles {
    /// Gives the image from `from` to `to`, and its sums, space on the medium.
    pub(crate) fn allocate(&self, from: u64, to: u64) -> std::result::Result<(), (PathBuf, io::Error)> {
        self.image.allocate(from, to - from, here()).map_err(|e| (self.image_path.clone(), e))?;
        let (a, b) = (Sums::file_bytes(from / PAGE_BYTES as u64), Sums::file_bytes(to / PAGE_BYTES as u64));
        if b > a {
            self.sums.allocate(a, b - a, here()).map_err(|e| (self.sums_path.clone(), e))?;
        }
        Ok(())
    }
}

/// The files and tables that a checkpoint works on. One at a time: it lives in a mutex.
pub(crate) struct Checkpointer {
    pub(crate) files: Arc<ImageFiles>,
    /// Where files of long units lie.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) sums: Sums,
    /// A checkpoint that a crash interrupted: its position, and the nonce before it. It is finished
    /// to exactly this position before another begins, or two generations of sums would mix.
    pub(crate) interrupted: Option<(Lsn, u64)>,
    pub(crate) finished: u64,
    pub(crate) bytes_written: u64,
    pub(crate) syncs: u64,
}

/// One changed page: where in the work list its records stand.
struct Change {
    page: u64,
    first: usize,
    end: usize,
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |e| Error::from_io(path, doing, &e)
}

impl Checkpointer {
    /// Applies the log from its tail to `target` (a durable group boundary) to the image, and moves
    /// the tail there.
    pub(crate) fn run(
        &mut self,
        log: &Log,
        superblock: &Mutex<SuperblockFile>,
        superblock_path: &Path,
        target: Lsn,
        image_bytes: u64,
    ) -> Result<()> {
        if let Some((interrupted, nonce)) = self.interrupted {
            self.run_to(log, superblock, superblock_path, interrupted, nonce, image_bytes, true)?;
            self.interrupted = None;
            log.set_tail(interrupted);
        }
        while target > log.tail() {
            let tail = log.tail();
            // SAFETY: `tail..target` is durable and not yet freed: nobody writes it.
            let (bytes, nonce) = first_part(unsafe { log.bytes(tail, target - tail) })?;
            let end = tail + bytes;
            self.run_to(log, superblock, superblock_path, end, nonce, image_bytes, false)?;
            log.set_tail(end);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one private step of `run`, split for reading")]
    fn run_to(
        &mut self,
        log: &Log,
        superblock: &Mutex<SuperblockFile>,
        superblock_path: &Path,
        target: Lsn,
        nonce: u64,
        image_bytes: u64,
        again: bool,
    ) -> Result<()> {
        let tail = log.tail();
        // SAFETY: `tail..target` is durable and not yet freed: nobody writes it.
        let bytes = unsafe { log.bytes(tail, target - tail) };
        let aside = reference_of(bytes)?;
        if !again {
            let r = superblock.lock().update(here(), |sb| sb.target = target);
            r.map_err(io_error(superblock_path, "write"))?;
            self.syncs += 1;
        }
        let folder = superblock_path.parent().unwrap_or(superblock_path);
        match aside {
            None => self.apply_groups(bytes, again)?,
            Some(reference) => {
                let mut waiting = log.asides.lock();
                let kept = waiting.iter_mut().find(|w| w.number == reference.number);
                let kept = kept.and_then(|w| w.file.take());
                drop(waiting);
                let mut reader = match kept {
                    Some(file) => Reader::new(file, folder, reference, log.seed()),
                    None => Reader::open(&*self.storage, folder, reference, log.seed())?,
                };
                let mut chunk = Vec::new();
                while reader.next(&mut chunk)? {
                    self.apply_groups(&chunk, again)?;
                }
            }
        }
        self.files.image.sync(here()).map_err(io_error(&self.files.image_path, "sync"))?;
        let r = superblock.lock().update(here(), |sb| {
            sb.tail = target;
            sb.target = target;
            sb.nonce = nonce;
            sb.image_bytes = image_bytes;
        });
        r.map_err(io_error(superblock_path, "write"))?;
        self.syncs += 2;
        self.finished += 1;
        if let Some(reference) = aside {
            // Durable-order: see aside.rs. What is not removed now is removed at the next opening.
            let _ = self.storage.remove(&reference.path(folder), here());
            log.asides.lock().retain(|waiting| waiting.number != reference.number);
        }
        Ok(())
    }

    /// Applies whole groups; no page may have records in another call of the same checkpoint.
    fn apply_groups(&mut self, bytes: &[u8], again: bool) -> Result<()> {
        let work = gather(bytes)?;
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < work.len() {
            let (changes, end) = next_batch(&work, at);
            self.apply_batch(bytes, &work, &changes, &mut buffer, again)?;
            at = end;
        }
        Ok(())
    }

    fn apply_batch(
        &mut self,
        log: &[u8],
        work: &[u64],
        changes: &[Change],
        buffer: &mut Vec<u8>,
        again: bool,
    ) -> Result<()> {
        buffer.clear();
        buffer.resize(changes.len() * PAGE_BYTES, 0);
        let runs = runs_of(changes);
        for run in &runs {
            let pages = &mut buffer[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
            self.read_run(changes[run.start].page, pages, again)?;
        }
        let mut blocks: Vec<u64> = Vec::new();
        for (change, page) in changes.iter().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let found = again.then(|| page_sum(page));
            for item in &work[change.first..change.end] {
                apply_record(log, (item & ((1 << POSITION_BITS) - 1)) as usize, change.page, page);
            }
            let sum = page_sum(page);
            if found.is_some_and(|found| ![found, sum].contains(&self.sums.get(change.page))) {
                return Err(self.damaged_page(change.page));
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
            self.files
                .image
                .write_at(offset, pages, here())
                .map_err(io_error(&self.files.image_path, "write"))?;
            self.bytes_written += pages.len() as u64;
        }
        Ok(())
    }

    /// Reads consecutive pages from `first` on and verifies them, unless a checkpoint is done `again`: then the
    /// caller does.
    fn read_run(&self, first: u64, pages: &mut [u8], again: bool) -> Result<()> {
        let count = (pages.len() / PAGE_BYTES) as u64;
        // A page whose sum is 0 is zero; nothing to read.
        if !again && (first..first + count).all(|page| self.sums.get(page) == 0) {
            return Ok(());
        }
        let offset = first * PAGE_BYTES as u64;
        let n = self.files.image.read_at(offset, pages).map_err(io_error(&self.files.image_path, "read"))?;
        pages[n..].fill(0);
        if again {
            return Ok(());
        }
        for (page, bytes) in (first..).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
            let sum = self.sums.get(page);
            if sum == 0 {
                bytes.fill(0);
            } else if page_sum(bytes) != sum {
                return Err(self.damaged_page(page));
            }
        }
        Ok(())
    }

    fn damaged_page(&self, page: u64) -> Error {
        Error::Corrupt {
            path: self.files.image_path.clone(),
            offset: page * PAGE_BYTES as u64,
            what: "the page does not match its checksum".into(),
        }
    }

    fn write_sums(&mut self, blocks: &[u64]) -> Result<()> {
        let mut bytes = [0u8; PAGE_BYTES];
        for &block in blocks {
            self.sums.block(block, &mut bytes);
            let offset = block * PAGE_BYTES as u64;
            self.files
                .sums
                .write_at(offset, &bytes, here())
                .map_err(io_error(&self.files.sums_path, "write"))?;
            self.bytes_written += PAGE_BYTES as u64;
        }
        self.syncs += 1;
        self.files.sums.sync(here()).map_err(io_error(&self.files.sums_path, "sync"))
    }
}

fn damaged_memory() -> Error {
    Error::Poisoned { first: "the log in memory is damaged".into() }
}

/// Bytes of the groups before the first that names a file, or of that one, if it is the first; and the nonce of the
/// last of them, which may be that of an earlier process than wrote the group behind.
fn first_part(bytes: &[u8]) -> Result<(u64, u64)> {
    let (mut at, mut nonce) = (0, 0);
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..]).ok_or_else(damaged_memory)?;
        let aside = header.flags & FLAG_ASIDE != 0;
        if aside && at > 0 {
            break;
        }
        at += header.total() as usize;
        nonce = header.nonce;
        if aside {
            break;
        }
    }
    Ok((at as u64, nonce))
}

/// The file that the group at the start names, if it is one that does.
fn reference_of(bytes: &[u8]) -> Result<Option<Reference>> {
    let header = GroupHeader::decode(bytes).ok_or_else(damaged_memory)?;
    if header.flags & FLAG_ASIDE == 0 {
        return Ok(None);
    }
    let payload = bytes.get(GROUP_HEADER_BYTES..GROUP_HEADER_BYTES + header.payload as usize);
    payload.and_then(Reference::decode).ok_or_else(damaged_memory).map(Some)
}

/// The work list: for each record and each page it touches, the page number above the record's
/// position; sorted, so that pages are together and a page's records in log order.
fn gather(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut work = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..]).ok_or_else(damaged_memory)?;
        let start = at + GROUP_HEADER_BYTES;
        let payload = bytes.get(start..start + header.payload as usize).ok_or_else(damaged_memory)?;
        let mut records = Records::new(payload, u64::MAX >> 1);
        let mut position = start;
        while let Some(record) = records.next() {
            let first = record.offset / PAGE_BYTES as u64;
            let last = (record.offset + record.bytes.len() as u64 - 1) / PAGE_BYTES as u64;
            work.extend((first..=last).map(|page| page << POSITION_BITS | position as u64));
            position = start + payload.len() - records.left();
        }
        if records.damaged() {
            return Err(damaged_memory());
        }
        at += header.total() as usize;
    }
    work.sort_unstable();
    Ok(work)
}

fn next_batch(work: &[u64], mut at: usize) -> (Vec<Change>, usize) {
    let mut changes = Vec::new();
    while at < work.len() && changes.len() < BATCH_PAGES_MAX {
        let page = work[at] >> POSITION_BITS;
        let len = work[at..].iter().take_while(|&&item| item >> POSITION_BITS == page).count();
        changes.push(Change { page, first: at, end: at + len });
        at += len;
    }
    (changes, at)
}

/// Ranges of `changes` whose pages are consecutive.
fn runs_of(changes: &[Change]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, change) in changes.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if changes[run.end - 1].page + 1 == change.page => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

/// Copies what the record at `position` of `log` has for `page`. The record was parsed by `gather`.
fn apply_record(log: &[u8], position: usize, page: u64, to: &mut [u8]) {
    let rest = &log[position..];
    let (offset, a) = get_varint(rest).expect("gather read this record");
    let (len, b) = get_varint(&rest[a..]).expect("gather read this record");
    let bytes = &rest[a + b..a + b + len as usize];
    let page_start = page * PAGE_BYTES as u64;
    let from = offset.max(page_start);
    let end = (offset + len).min(page_start + PAGE_BYTES as u64);
    let source = &bytes[(from - offset) as usize..(end - offset) as usize];
    to[(from - page_start) as usize..(end - page_start) as usize].copy_from_slice(source);
}
