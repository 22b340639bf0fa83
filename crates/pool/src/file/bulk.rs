//! Filling a new pool without a log (a bulk load): pages go from the working copy into the data file.
//!
//! A flush only marks its pages. Two background threads go over the marks each time so many pages have been marked, and
//! write the blocks whose marks are all from before their last turn: as a rule nothing more will be stored there. The
//! end of the load writes the others. Each thread has every second piece of the region, its *lane*: while one waits for
//! the medium, the other computes checksums.
//!
//! Invariants:
//! 1. The file `pool` says that the pool is being loaded from before the first byte of the data file until all of it
//!    and its page checksums are durable. Durable-order: otherwise half a load would open.
//! 2. A flush marks pages after what was stored there. So a page that a thread stores to while it is copied is marked
//!    by the time the load ends, and copied again. The data file gets the very copy whose checksum is noted: a store
//!    that no flush follows, to a block that nothing uses any more, cannot part the two.
//! 3. The medium gives a page's memory back only when the page is not marked and no thread stores to it: the data file
//!    has the same bytes.
//! 4. After the end, and after an error, nothing is written any more. A thread whose write failed poisons the load
//!    before it gives up its lane, and who gets a lane asks whether that has happened.
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
use crate::{ByteRange, Capabilities, Durability, Error, Lsn, MediumOps, Region, Result, Site};
use mangrove_sys::{EventCount, ProcessMark, Reservation, fan_out, without_signals};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Pages that are marked between two turns of the background threads: 4 MiB. What the last two turns leave is written
/// when the load ends, and nothing else happens meanwhile.
const TURN_PAGES: u64 = 1024;
/// Pages that are marked since a background thread began a turn, from which on the caller of `page_out` waits for it:
/// 16 MiB.
const LAG_PAGES: u64 = 4 * TURN_PAGES;
/// Memory is given back in whole pieces of so many pages: as many as a huge page has.
const PIECE_PAGES: u64 = 512;
const PIECE_BYTES: u64 = PIECE_PAGES * PAGE_BYTES as u64;
/// Pages that are written at a time at most, a block: 1 MiB.
const RUN_PAGES_MAX: u64 = 256;
const BLOCK_WORDS: u64 = RUN_PAGES_MAX / WORD_PAGES;
/// Turns that a block waits for all of its pages to rest; then those that do are written.
const WAITS_MAX: u8 = 8;
/// Pieces behind the last marked page that the threads have in memory before anything is stored there: the thread that
/// loads would wait while the kernel clears each page. 8 MiB: two turns.
const PIECES_AHEAD: u64 = 4;
/// A smaller region is written by the thread that ends the load alone.
const FAN_OUT_BYTES_MIN: u64 = 16 << 20;
/// Fewer pages than these go through the page cache: the medium takes as long for one page as for many.
const RUN_PAGES_MIN: u64 = 16;
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
    /// Two threads write pages in the background; otherwise a call of `page_out` does.
    background: bool,
    durability: Durability,
    /// Usable bytes; changed under `growing`.
    grown: AtomicU64,
    growing: Mutex<()>,
    marks: PageMarks,
    /// Pages that were marked, ever.
    marked: AtomicU64,
    sums: PageChecksums,
    lanes: [Mutex<Lane>; LANES],
    /// For each lane [`BulkMedium::marked`] when its last turn began.
    turns_at: [AtomicU64; LANES],
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

/// Lanes of pieces: piece n belongs to lane n % LANES.
const LANES: usize = 2;

/// What the one thread that writes a lane needs.
struct Lane {
    number: usize,
    /// For each 64 pages those that were marked before the last turn, and are not written since.
    aged: Vec<u64>,
    /// For each block its turns since something of it was marked.
    waits: Vec<u8>,
    /// For each piece of [`PIECE_PAGES`] pages: some were written since its memory was given back.
    in_memory: Vec<bool>,
    /// The piece behind the last one that was brought into memory ahead.
    ahead: u64,
    /// Pages that wait to be written.
    run: PageRun,
    /// The pages of `run` as they were when their checksums were computed.
    copies: Vec<PageCopy>,
}

/// A page's bytes, where a write past the page cache can take them from.
#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct PageCopy([u8; PAGE_BYTES]);

/// Consecutive pages that are written together, whose checksums are known.
#[derive(Clone, Copy, Default)]
struct PageRun {
    first: u64,
    count: u64,
}

/// The medium of the pool in `directory`, all of which is made but its superblock.
///
/// # Errors
/// `AddressTaken`; `MemoryLimit`: not enough address space; `Unsupported`.
pub(crate) fn open_bulk(
    options: &PoolOptions,
    directory: &Path,
    superblock: SuperblockFile,
    files: DataFiles,
) -> Result<Arc<BulkMedium>> {
    let memory = reserve_region(directory, options, superblock.current(), 0)?;
    let (capacity, files) = (memory.len() as u64, Arc::new(files));
    let lane = |number| {
        let (aged, waits, in_memory) = (Vec::new(), Vec::new(), Vec::new());
        let copies = vec![PageCopy([0; PAGE_BYTES]); RUN_PAGES_MAX as usize];
        Mutex::new(Lane { number, aged, waits, in_memory, ahead: 0, run: PageRun::default(), copies })
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
        marks: PageMarks::new(directory, capacity)?,
        marked: AtomicU64::new(0),
        sums: PageChecksums::new(directory, capacity)?,
        lanes: [lane(0), lane(1)],
        turns_at: [const { AtomicU64::new(0) }; LANES],
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

    /// Starts the threads that write pages in the background; they end after `stop_threads`.
    pub(crate) fn start(self: &Arc<Self>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
        for lane in 0..LANES {
            threads.push(self.start_lane(lane)?);
        }
        Ok(())
    }

    fn start_lane(self: &Arc<Self>, lane: usize) -> Result<JoinHandle<()>> {
        let medium = Arc::clone(self);
        // A bug that ends the thread must not let the load end well.
        let guarded = move || {
            let run = std::panic::AssertUnwindSafe(|| medium.write_loop(lane));
            if std::panic::catch_unwind(run).is_err() {
                medium.poison(Error::Poisoned { first: "a thread of the pool panicked".into() });
            }
        };
        without_signals(|| std::thread::Builder::new().name("mangrove-load".into()).spawn(guarded))
            .map_err(|e| Error::Unsupported { what: format!("cannot start the thread mangrove-load: {e}") })
    }

    fn write_loop(&self, lane: usize) {
        loop {
            let ticket = self.work.ticket();
            // Acquire pairs with the Release in `stop_threads`.
            if self.stop.load(Ordering::Acquire) || self.refuses() {
                return;
            }
            if self.lag(lane) < TURN_PAGES {
                self.work.wait(ticket);
                continue;
            }
            // Relaxed: a page that is marked meanwhile waits for this turn or the next.
            self.turns_at[lane].store(self.marked.load(Ordering::Relaxed), Ordering::Relaxed);
            let mut lane = self.lanes[lane].lock();
            self.bring_in_ahead(&mut lane);
            if let Err(e) = self.write_marked(&mut lane, false) {
                self.poison(e);
            }
        }
    }

    /// Brings the lane's pieces behind the last marked page into memory. Nothing depends on it.
    fn bring_in_ahead(&self, lane: &mut Lane) {
        let grown = self.grown();
        let first = lane.ahead * PIECE_PAGES / WORD_PAGES;
        let words = first..grown / (PAGE_BYTES as u64 * WORD_PAGES);
        // What is behind has been looked at, and been stored to or brought in.
        let last = words.rev().find(|word| self.marks.get(*word) != 0);
        let Some(behind) = last.map(|word| word * WORD_PAGES / PIECE_PAGES + 1) else { return };
        let end = (behind + PIECES_AHEAD).min(grown / PIECE_BYTES);
        for piece in (behind.max(lane.ahead)..end).filter(|piece| *piece as usize % LANES == lane.number) {
            let _ = self.memory.populate((piece * PIECE_BYTES) as usize, PIECE_BYTES as usize);
        }
        lane.ahead = lane.ahead.max(end);
    }

    /// Pages that were marked since the lane's last turn began.
    fn lag(&self, lane: usize) -> u64 {
        // Relaxed: decides only when a turn begins, and who waits for it.
        self.marked.load(Ordering::Relaxed) - self.turns_at[lane].load(Ordering::Relaxed)
    }

    pub(crate) fn stop_threads(&self) {
        // Release pairs with the Acquire in the loop.
        self.stop.store(true, Ordering::Release);
        self.work.notify_all();
    }

    /// From now on nothing is written. Returns when no write is under way.
    pub(crate) fn shut_down(&self) {
        self.poison(Error::Closed { path: self.directory.clone() });
        self.lanes.iter().for_each(|lane| drop(lane.lock()));
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
    fn mark(&self, range: ByteRange) {
        let new = self.marks.mark(range.offset, range.len);
        if new == 0 {
            return;
        }
        // Relaxed: as in `lag`.
        let before = self.marked.fetch_add(new, Ordering::Relaxed);
        if before / TURN_PAGES != (before + new) / TURN_PAGES {
            self.work.notify_all();
        }
    }

    /// Writes the marked pages of a lane that will probably not change any more, or all marked ones.
    fn write_marked(&self, lane: &mut Lane, all: bool) -> Result<()> {
        let words = self.grown().div_ceil(PAGE_BYTES as u64 * WORD_PAGES);
        let pieces = (words * WORD_PAGES).div_ceil(PIECE_PAGES);
        lane.aged.resize((pieces * PIECE_PAGES / WORD_PAGES) as usize, 0);
        lane.waits.resize((pieces * PIECE_PAGES / RUN_PAGES_MAX) as usize, 0);
        lane.in_memory.resize(pieces as usize, false);
        for piece in (lane.number as u64..pieces).step_by(LANES) {
            for first in words_of(piece).step_by(BLOCK_WORDS as usize).take_while(|first| *first < words) {
                self.write_block(lane, first, all)?;
            }
        }
        self.write_run(lane)
    }

    /// As [`BulkMedium::write_marked`], of the block whose first word of marks is `first`.
    fn write_block(&self, lane: &mut Lane, first: u64, all: bool) -> Result<()> {
        let fresh: [u64; BLOCK_WORDS as usize] = std::array::from_fn(|at| self.marks.take(first + at as u64));
        let waits = &mut lane.waits[(first / BLOCK_WORDS) as usize];
        let rests = fresh == [0; BLOCK_WORDS as usize];
        // One page that changes all the time must not keep the others in memory.
        let is_late = *waits >= WAITS_MAX;
        *waits = if rests || is_late { 0 } else { *waits + 1 };
        for (word, fresh) in (first..).zip(fresh) {
            let aged = lane.aged[word as usize];
            let due = match () {
                () if all => aged | fresh,
                () if rests || is_late => aged & !fresh,
                () => 0,
            };
            lane.aged[word as usize] = (aged | fresh) & !due;
            if due != 0 {
                self.write_pages(lane, word * WORD_PAGES, due)?;
            }
        }
        Ok(())
    }

    /// Ends the load: everything flushed so far becomes durable, and the pool exists and is closed. No other thread may
    /// flush meanwhile.
    ///
    /// # Errors
    /// `Io`, `NoSpace`: there is no pool. After an earlier error: that one.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.is_ours() {
            return Err(self.failure());
        }
        if self.is_finished() {
            return Ok(());
        }
        if self.refuses() {
            return Err(self.failure());
        }
        match self.write_rest() {
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

    fn write_rest(&self) -> Result<()> {
        let write_lane = |lane: usize| {
            let mut lane = self.lanes[lane].lock();
            // Before another thread gets the lane, which may end the load, too (invariant 4).
            self.write_marked(&mut lane, true).inspect_err(|e| self.poison(e.clone()))
        };
        if self.background && self.grown() >= FAN_OUT_BYTES_MIN {
            fan_out(LANES, write_lane).into_iter().collect::<Result<()>>()?;
        } else {
            (0..LANES).try_for_each(write_lane)?;
        }
        // A thread that had a lane until now may have failed. The pages that it was writing are not marked any more.
        // Acquire pairs with the Release in `poison`.
        if self.failed.load(Ordering::Acquire) {
            return Err(self.failure());
        }
        let grown = self.grown();
        let pages = grown / PAGE_BYTES as u64;
        self.write_sums(pages)?;
        self.files.image.sync(here())?;
        self.files.sums.sync(here())?;
        let mut superblock = self.superblock.lock();
        let digest = self.sums.digest(pages, superblock.current().seed());
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

    /// Writes those of 64 pages from `first` on whose bit is set, and notes their checksums.
    fn write_pages(&self, lane: &mut Lane, first: u64, due: u64) -> Result<()> {
        let mut left = due;
        while left != 0 {
            let start = left.trailing_zeros();
            let count = (left >> start).trailing_ones();
            left &= !(u64::MAX >> (u64::BITS - count) << start);
            self.add_to_run(lane, first + u64::from(start), u64::from(count))?;
        }
        Ok(())
    }

    /// Notes the checksums of consecutive pages of a piece, and has them written, at `write_run` at the latest.
    fn add_to_run(&self, lane: &mut Lane, first: u64, count: u64) -> Result<()> {
        lane.in_memory[(first / PIECE_PAGES) as usize] = true;
        if first != lane.run.first + lane.run.count || lane.run.count + count > RUN_PAGES_MAX {
            self.write_run(lane)?;
            lane.run.first = first;
        }
        let mut is_hole = true;
        for (page, at) in (first..first + count).zip(lane.run.count as usize..) {
            let copy = &mut lane.copies[at].0;
            // SAFETY: inside the reservation: pages are marked below what was grown. Another thread may store to the
            // page meanwhile, so it is not borrowed; then it is copied again (invariant 2).
            unsafe { copy_words(self.place(page), copy.as_mut_ptr(), PAGE_BYTES) };
            let sum = page_checksum(&copy[..]);
            // What was never written is a hole, which reads as zeros.
            is_hole &= sum == 0 && self.sums.get(page) == 0;
            self.sums.set(page, sum);
        }
        if !is_hole {
            lane.run.count += count;
        }
        Ok(())
    }

    /// Writes the pages of the lane that wait.
    fn write_run(&self, lane: &mut Lane) -> Result<()> {
        let PageRun { first, count } = std::mem::take(&mut lane.run);
        if count == 0 {
            return Ok(());
        }
        let (offset, len) = (first * PAGE_BYTES as u64, count as usize * PAGE_BYTES);
        // SAFETY: the lane's copies lie one after another, and a run has no more pages than there are copies.
        let bytes = unsafe { std::slice::from_raw_parts(lane.copies.as_ptr().cast::<u8>(), len) };
        if count < RUN_PAGES_MIN {
            self.files.image.write_at(offset, bytes, here())?;
        } else {
            // No thread reads the file during the load, and the pool may be opened much later.
            self.files.image.write_past_cache(offset, bytes, here())?;
        }
        // Relaxed: a counter.
        self.image_written.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    fn place(&self, page: u64) -> *mut u8 {
        self.memory.base().as_ptr().wrapping_add(page as usize * PAGE_BYTES)
    }

    /// Writes the checksums of the first `pages` pages.
    fn write_sums(&self, pages: u64) -> Result<()> {
        let (blocks, mut buffer) =
            (pages.div_ceil(PAGES_PER_BLOCK), vec![0; SUMS_BLOCKS as usize * PAGE_BYTES]);
        let mut block = 0;
        while block < blocks {
            let part = SUMS_BLOCKS.min(blocks - block);
            let bytes = &mut buffer[..part as usize * PAGE_BYTES];
            for (number, to) in (block..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                self.sums.block(number, to);
            }
            self.files.sums.write_at(block * PAGE_BYTES as u64, bytes, here())?;
            // Relaxed: a counter.
            self.image_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            block += part;
        }
        Ok(())
    }

    /// Gives back the memory of the lane's pieces of a range that the data file has whole.
    fn give_back(&self, lane: &mut Lane, range: ByteRange) -> Result<()> {
        let Some(fd) = self.files.image.fd() else { return Ok(()) };
        let first = range.offset.div_ceil(PIECE_BYTES);
        let end = (range.offset + range.len) / PIECE_BYTES;
        let end = end.min(lane.aged.len() as u64 * WORD_PAGES / PIECE_PAGES);
        for piece in (first..end).filter(|piece| *piece as usize % LANES == lane.number) {
            let is_settled = lane.in_memory[piece as usize]
                && words_of(piece).all(|word| lane.aged[word as usize] | self.marks.get(word) == 0);
            if is_settled {
                let offset = piece * PIECE_BYTES;
                let mapped =
                    self.memory.replace_by_private(offset as usize, PIECE_BYTES as usize, fd, offset);
                mapped.map_err(|e| self.files.image.error("map", &e))?;
                lane.in_memory[piece as usize] = false;
            }
        }
        Ok(())
    }

    /// Gives memory of a range back that is a lane's. False when the lane is being written, and does not lag.
    fn page_out_lane(&self, number: usize, range: ByteRange) -> Result<bool> {
        let mut lane = match self.lanes[number].try_lock() {
            Some(lane) => lane,
            // While the background thread writes, there will soon be more to give back.
            None if self.lag(number) < LAG_PAGES => return Ok(false),
            // Pages come faster than they can be written: without this wait they would pile up in memory.
            None => self.lanes[number].lock(),
        };
        // As in `write_rest`.
        if self.refuses() {
            return Err(self.failure());
        }
        if !self.background {
            // Poisoned before another thread gets the lane.
            self.write_marked(&mut lane, false).inspect_err(|e| self.poison(e.clone()))?;
        }
        self.give_back(&mut lane, range)?;
        Ok(true)
    }
}

/// The words with a piece's marks.
fn words_of(piece: u64) -> std::ops::Range<u64> {
    piece * PIECE_PAGES / WORD_PAGES..(piece + 1) * PIECE_PAGES / WORD_PAGES
}

impl MediumOps for BulkMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities { has_units: true, read_only: false, has_log: false, may_refuse: true }
    }

    #[inline]
    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, _site: Site) {
        if !self.refuses() {
            self.mark(ByteRange { offset, len: len as u64 });
        } else if self.is_finished() {
            // The caller hears of it when it waits.
            self.poison(Error::Closed { path: self.directory.clone() });
        }
    }

    unsafe fn flush_unit(&self, _base: *const u8, ranges: &[ByteRange], _site: Site) -> Result<Lsn> {
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

    unsafe fn page_out(&self, range: ByteRange) -> Result<bool> {
        if self.refuses() {
            return Err(self.failure());
        }
        (0..LANES)
            .try_fold(true, |all, lane| self.page_out_lane(lane, range).map(|given| all & given))
            .inspect_err(|e| self.poison(e.clone()))
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
