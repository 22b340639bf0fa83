//! Filling a new pool without a log (a bulk load): pages go from the working copy into the data file.
//!
//! A flush only marks its pages. A background thread goes over the marks each time so many pages have been marked, and
//! writes those that were marked before its last turn and not since: as a rule nothing more will be stored there. The
//! end of the load writes the others.
//!
//! Invariants:
//! 1. The file `pool` says that the pool is being loaded from before the first byte of the data file until all of it
//!    and its page checksums are durable. Durable-order: otherwise half a load would open.
//! 2. A flush marks pages after what was stored there. So a page that is written while a thread stores to it is marked
//!    by the time the load ends, and is written again.
//! 3. The medium gives a page's memory back only when the page is not marked and no thread stores to it: the data file
//!    has the same bytes.
//! 4. After the end, and after an error, nothing is written any more.
//! 5. A child of fork(2) writes nothing and takes no lock.

use crate::file::image::reserve_more;
use crate::file::page_marks::{PageMarks, WORD_PAGES};
use crate::file::recover::reserve_region;
use crate::format::page_sums::{PAGE_BYTES, PAGES_PER_BLOCK, PageChecksums, page_checksum};
use crate::log::ring::copy_words;
use crate::options::PoolOptions;
use crate::pool_files::{DataFiles, SuperblockFile};
use crate::stat::{MediumKind, PoolStat};
use crate::storage::traits::here;
use crate::sync::Mutex;
use crate::{Capabilities, Durability, Error, Lsn, MediumOps, Range, Region, Result, Site};
use mangrove_sys::{EventCount, ProcessMark, Reservation, without_signals};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Pages that are marked between two turns of the background thread: 16 MiB.
const TURN_PAGES: u64 = 4096;
/// Pages that are marked since the background thread began a turn, from which on the caller of `page_out` waits for it.
const LAG_PAGES: u64 = 2 * TURN_PAGES;
/// Memory is given back in whole pieces of so many pages: as many as a huge page has.
const PIECE_PAGES: u64 = 512;
const PIECE_BYTES: u64 = PIECE_PAGES * PAGE_BYTES as u64;
/// Blocks of page checksums that are written at a time.
const SUMS_BLOCKS: u64 = 64;

/// The medium of a pool that is being loaded.
pub(crate) struct BulkMedium {
    memory: Reservation,
    directory: PathBuf,
    /// The process that made the pool.
    process: ProcessMark,
    superblock: Mutex<SuperblockFile>,
    files: Arc<DataFiles>,
    memory_bytes_max: Option<u64>,
    /// A thread writes pages in the background; otherwise a call of `page_out` does.
    background: bool,
    durability: Durability,
    /// Usable bytes; changed under `growing`.
    grown: AtomicU64,
    growing: Mutex<()>,
    marks: PageMarks,
    /// Pages that were marked since the last turn.
    marked: AtomicU64,
    writing: Mutex<Writing>,
    /// Atomic groups that were taken.
    groups: AtomicU64,
    image_written: AtomicU64,
    /// The end has come: nothing is taken any more.
    finished: AtomicBool,
    failed: AtomicBool,
    first_error: OnceLock<Error>,
    /// Notified when the background thread has work, or shall end.
    work: EventCount,
    stop: AtomicBool,
}

/// What the one thread that writes needs.
struct Writing {
    files: Arc<DataFiles>,
    sums: PageChecksums,
    /// For each 64 pages those that were marked before the last turn, and are not written since.
    aged: Vec<u64>,
    /// For each piece of [`PIECE_PAGES`] pages: some were written since its memory was given back.
    in_memory: Vec<bool>,
    buffer: Vec<u8>,
    bytes_written: u64,
    /// Where the data file was written, from one byte to another, and not announced yet.
    written: Option<(u64, u64)>,
}

/// The medium of the pool in `directory`, all of which is made but its superblock.
///
/// # Errors
/// `AddressTaken`, `Unsupported`: not enough address space.
pub(crate) fn open_bulk(
    options: &PoolOptions,
    directory: &Path,
    superblock: SuperblockFile,
    files: DataFiles,
) -> Result<Arc<BulkMedium>> {
    let memory = reserve_region(options, superblock.current(), 0)?;
    let (capacity, files) = (memory.len() as u64, Arc::new(files));
    let writing = Writing {
        files: Arc::clone(&files),
        sums: PageChecksums::new(capacity)?,
        aged: Vec::new(),
        in_memory: Vec::new(),
        buffer: vec![0; WORD_PAGES as usize * PAGE_BYTES],
        bytes_written: 0,
        written: None,
    };
    Ok(Arc::new(BulkMedium {
        memory,
        directory: directory.to_owned(),
        process: ProcessMark::here(),
        superblock: Mutex::new(superblock),
        files,
        memory_bytes_max: options.config.memory_bytes_max,
        background: options.background,
        durability: options.config.durability,
        grown: AtomicU64::new(0),
        growing: Mutex::new(()),
        marks: PageMarks::new(capacity)?,
        marked: AtomicU64::new(0),
        writing: Mutex::new(writing),
        groups: AtomicU64::new(0),
        image_written: AtomicU64::new(0),
        finished: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        first_error: OnceLock::new(),
        work: EventCount::new(),
        stop: AtomicBool::new(false),
    }))
}

impl BulkMedium {
    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the reservation.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn MediumOps>) }
    }

    /// Starts the thread that writes pages in the background; it ends after `stop_thread`.
    pub(crate) fn start(self: &Arc<Self>) -> Result<JoinHandle<()>> {
        let medium = Arc::clone(self);
        // A bug that ends the thread must not let the load end well.
        let guarded = move || {
            let run = std::panic::AssertUnwindSafe(|| medium.write_loop());
            if std::panic::catch_unwind(run).is_err() {
                medium.poison(Error::Poisoned { first: "a thread of the pool panicked".into() });
            }
        };
        without_signals(|| std::thread::Builder::new().name("mangrove-load".into()).spawn(guarded))
            .map_err(|e| Error::Unsupported { what: format!("cannot start the thread mangrove-load: {e}") })
    }

    fn write_loop(&self) {
        loop {
            let ticket = self.work.ticket();
            // Acquire pairs with the Release in `stop_thread`.
            if self.stop.load(Ordering::Acquire) || self.refuses() {
                return;
            }
            if self.marked.load(Ordering::Relaxed) < TURN_PAGES {
                self.work.wait(ticket);
                continue;
            }
            // Relaxed: a page that is marked between these two waits for the next turn.
            self.marked.store(0, Ordering::Relaxed);
            let mut writing = self.writing.lock();
            if let Err(e) = self.write_marked(&mut writing, false) {
                self.poison(e);
            }
        }
    }

    pub(crate) fn stop_thread(&self) {
        // Release pairs with the Acquire in the loop.
        self.stop.store(true, Ordering::Release);
        self.work.notify_all();
    }

    /// From now on nothing is written. Returns when no write is under way.
    pub(crate) fn shut_down(&self) {
        self.poison(Error::Closed { path: self.directory.clone() });
        drop(self.writing.lock());
        drop(self.growing.lock());
    }

    /// Releases the pool's lock, also while clones of the region live on.
    pub(crate) fn release(&self) {
        self.superblock.lock().release();
    }

    /// True when the load has ended well.
    pub(crate) fn is_finished(&self) -> bool {
        // Acquire pairs with the Release in `finish`.
        self.finished.load(Ordering::Acquire)
    }

    /// False in a child that was forked from the process that made the pool.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_here()
    }

    fn poison(&self, error: Error) {
        self.first_error.get_or_init(|| error);
        // Release pairs with the Acquire in `refuses`.
        self.failed.store(true, Ordering::Release);
    }

    fn failure(&self) -> Error {
        let path = self.directory.display();
        match self.first_error.get() {
            _ if !self.is_ours() => Error::Unsupported {
                what: format!("{path} was made before this process was forked; load it in the parent"),
            },
            _ if self.is_finished() => Error::Closed { path: self.directory.clone() },
            Some(e @ (Error::Poisoned { .. } | Error::Closed { .. })) => e.clone(),
            Some(first) => Error::Poisoned { first: first.to_string() },
            None => Error::Closed { path: self.directory.clone() },
        }
    }

    #[inline]
    fn mark(&self, range: Range) {
        let new = self.marks.mark(range.offset, range.len);
        if new == 0 {
            return;
        }
        // Relaxed: decides only when the thread's next turn begins.
        let before = self.marked.fetch_add(new, Ordering::Relaxed);
        if before < TURN_PAGES && before + new >= TURN_PAGES {
            self.work.notify_all();
        }
    }

    /// Writes the marked pages that will probably not change any more, or all marked ones.
    fn write_marked(&self, writing: &mut Writing, all: bool) -> Result<()> {
        let words = self.grown().div_ceil(PAGE_BYTES as u64 * WORD_PAGES);
        writing.aged.resize(words as usize, 0);
        writing.in_memory.resize((words * WORD_PAGES).div_ceil(PIECE_PAGES) as usize, false);
        for word in 0..words {
            let (fresh, aged) = (self.marks.take(word), writing.aged[word as usize]);
            let due = if all { fresh | aged } else { aged & !fresh };
            writing.aged[word as usize] = if all { 0 } else { fresh };
            if due != 0 {
                writing.write_pages(&self.memory, word * WORD_PAGES, due)?;
            }
        }
        if let Some((from, to)) = writing.written.take() {
            self.files.image.will_sync(from, to - from);
        }
        // Relaxed: a counter.
        self.image_written.store(writing.bytes_written, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the load: everything flushed so far becomes durable, and the pool exists and is closed. No other thread may
    /// flush meanwhile.
    ///
    /// # Errors
    /// `Io`, `NoSpace`: there is no pool. As before, after an error.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.is_ours() {
            return Err(self.failure());
        }
        let mut writing = self.writing.lock();
        if self.is_finished() {
            return Ok(());
        }
        if self.refuses() {
            return Err(self.failure());
        }
        match self.write_rest(&mut writing) {
            Ok(()) => {
                // Release pairs with the Acquire in `is_finished`.
                self.finished.store(true, Ordering::Release);
                Ok(())
            }
            Err(e) => {
                self.poison(e.clone());
                Err(e)
            }
        }
    }

    fn write_rest(&self, writing: &mut Writing) -> Result<()> {
        self.write_marked(writing, true)?;
        let grown = self.grown();
        let pages = grown / PAGE_BYTES as u64;
        writing.write_sums(pages)?;
        self.files.image.sync(here())?;
        self.files.sums.sync(here())?;
        let mut superblock = self.superblock.lock();
        let digest = writing.sums.digest(pages, superblock.current().seed());
        for _ in 0..2 {
            // Durable-order: data file and page checksums before the first of these two, which makes the pool;
            // otherwise a crash would leave one with pages that were never written. It leaves the copy alone that says
            // that the pool is being loaded: torn, it is no superblock, and that copy counts.
            superblock
                .update(here(), |sb| (sb.clean, sb.image_bytes, sb.sums_digest) = (true, grown, digest))?;
        }
        Ok(())
    }

    /// See [`Pool::set_made`](crate::Pool::set_made). The end of the load records it.
    pub(crate) fn set_made(&self) -> Result<()> {
        if self.refuses() {
            return Err(self.failure());
        }
        self.superblock.lock().set_made()
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let mut stat = PoolStat::new(MediumKind::File, self.durability);
        stat.reserved = self.memory.len() as u64;
        stat.grown = self.grown();
        // Relaxed: counters.
        stat.groups = self.groups.load(Ordering::Relaxed);
        stat.image_written = self.image_written.load(Ordering::Relaxed);
        stat.poisoned = self.first_error.get().map(ToString::to_string);
        stat
    }
}

impl Writing {
    /// Writes those of 64 pages from `first` on whose bit is set, and notes their checksums.
    fn write_pages(&mut self, memory: &Reservation, first: u64, due: u64) -> Result<()> {
        let mut left = due;
        while left != 0 {
            let start = left.trailing_zeros();
            let count = (left >> start).trailing_ones();
            left &= !(u64::MAX >> (u64::BITS - count) << start);
            self.write_run(memory, first + u64::from(start), count as usize)?;
        }
        Ok(())
    }

    /// Writes consecutive pages.
    fn write_run(&mut self, memory: &Reservation, first: u64, count: usize) -> Result<()> {
        let bytes = &mut self.buffer[..count * PAGE_BYTES];
        let offset = first * PAGE_BYTES as u64;
        // SAFETY: inside the reservation: pages are marked below what was grown. Another thread may store to them
        // meanwhile; such a page is written again (invariant 2).
        unsafe {
            let from = memory.base().as_ptr().add(offset as usize);
            copy_words(from, bytes.as_mut_ptr(), bytes.len());
        }
        let mut is_hole = true;
        for (page, content) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            let sum = page_checksum(content);
            // What was never written is a hole, which reads as zeros.
            is_hole &= sum == 0 && self.sums.get(page) == 0;
            self.sums.set(page, sum);
        }
        if !is_hole {
            self.files.image.write_at(offset, bytes, here())?;
            self.bytes_written += bytes.len() as u64;
            let end = offset + bytes.len() as u64;
            self.written = match self.written.take() {
                Some((from, to)) => Some((from.min(offset), to.max(end))),
                None => Some((offset, end)),
            };
        }
        for piece in first / PIECE_PAGES..=(first + count as u64 - 1) / PIECE_PAGES {
            self.in_memory[piece as usize] = true;
        }
        Ok(())
    }

    /// Writes the checksums of the first `pages` pages.
    fn write_sums(&mut self, pages: u64) -> Result<()> {
        let blocks = pages.div_ceil(PAGES_PER_BLOCK);
        let mut block = 0;
        while block < blocks {
            let part = SUMS_BLOCKS.min(blocks - block);
            let bytes = &mut self.buffer[..part as usize * PAGE_BYTES];
            for (number, to) in (block..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                self.sums.block(number, to);
            }
            self.files.sums.write_at(block * PAGE_BYTES as u64, bytes, here())?;
            self.bytes_written += bytes.len() as u64;
            block += part;
        }
        Ok(())
    }

    /// Gives back the memory of the pieces of a range that the data file has whole.
    fn give_back(&mut self, medium: &BulkMedium, range: Range) -> Result<()> {
        let Some(fd) = self.files.image.fd() else { return Ok(()) };
        let first = range.offset.div_ceil(PIECE_BYTES);
        let end = (range.offset + range.len) / PIECE_BYTES;
        let end = end.min(self.aged.len() as u64 * WORD_PAGES / PIECE_PAGES);
        let mut piece = first;
        while piece < end {
            let is_settled = |piece: &u64| {
                let mut words = piece * PIECE_PAGES / WORD_PAGES..(piece + 1) * PIECE_PAGES / WORD_PAGES;
                self.in_memory[*piece as usize]
                    && words.all(|word| self.aged[word as usize] | medium.marks.get(word) == 0)
            };
            let count = (piece..end).take_while(is_settled).count() as u64;
            if count > 0 {
                let (offset, len) = (piece * PIECE_BYTES, count * PIECE_BYTES);
                let mapped = medium.memory.replace_by_private(offset as usize, len as usize, fd, offset);
                mapped.map_err(|e| self.files.image.error("map", &e))?;
                self.in_memory[piece as usize..(piece + count) as usize].fill(false);
            }
            piece += count + 1;
        }
        Ok(())
    }
}

impl MediumOps for BulkMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities { has_units: true, read_only: false, has_log: false, may_refuse: true }
    }

    #[inline]
    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, _site: Site) {
        if !self.refuses() {
            self.mark(Range { offset, len: len as u64 });
        } else if self.is_finished() {
            // The caller hears of it when it waits.
            self.poison(Error::Closed { path: self.directory.clone() });
        }
    }

    unsafe fn flush_unit(&self, _base: *const u8, ranges: &[Range], _site: Site) -> Result<Lsn> {
        if self.refuses() {
            return Err(self.failure());
        }
        ranges.iter().for_each(|range| self.mark(*range));
        // Relaxed: the caller orders its atomic groups.
        Ok(self.groups.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn fence(&self, _site: Site) {
        // All of the load is durable at once.
    }

    fn appended(&self) -> Lsn {
        // Relaxed: `wait` returns at once, whatever the position; only the end of the load makes anything durable.
        self.groups.load(Ordering::Relaxed)
    }

    fn durable(&self) -> Lsn {
        self.appended()
    }

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        // Acquire pairs with the Release in `poison`.
        if self.failed.load(Ordering::Acquire) || !self.is_ours() { Err(self.failure()) } else { Ok(()) }
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.grown() {
            return Ok(());
        }
        if self.refuses() {
            return Err(self.failure());
        }
        let _growing = self.growing.lock();
        let grown = self.grown();
        if bytes <= grown {
            return Ok(());
        }
        let limit = self.memory_bytes_max.filter(|limit| bytes > *limit && bytes <= self.memory.len() as u64);
        if let Some(limit) = limit {
            // A load gives memory back, but an opening of the pool will need that much.
            return Err(Error::MemoryLimit { path: self.directory.clone(), wanted: bytes, limit });
        }
        let to = reserve_more(&self.files, &self.memory, grown, bytes, |e| self.poison(e))?;
        // Release pairs with the Acquire in `grown`.
        self.grown.store(to, Ordering::Release);
        Ok(())
    }

    fn grown(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.grown.load(Ordering::Acquire)
    }

    fn checkpoint(&self) -> Result<()> {
        self.finish()
    }

    unsafe fn page_out(&self, range: Range) -> Result<bool> {
        if self.refuses() {
            return Err(self.failure());
        }
        let mut writing = match self.writing.try_lock() {
            Some(writing) => writing,
            // While the background thread writes, there will soon be more to give back.
            // Relaxed: as where pages are marked.
            None if self.marked.load(Ordering::Relaxed) < LAG_PAGES => return Ok(false),
            // Pages come faster than they can be written: without this wait they would pile up in memory.
            None => self.writing.lock(),
        };
        let taken = if self.background { Ok(()) } else { self.write_marked(&mut writing, false) };
        let given = taken.and_then(|()| writing.give_back(self, range));
        given.map(|()| true).inspect_err(|e| self.poison(e.clone()))
    }

    fn poisoned(&self) -> Option<Error> {
        self.refuses().then(|| self.failure())
    }

    #[inline]
    fn refuses(&self) -> bool {
        // Acquire pairs with the Release in `poison`.
        self.failed.load(Ordering::Acquire) || self.is_finished() || !self.is_ours()
    }
}
