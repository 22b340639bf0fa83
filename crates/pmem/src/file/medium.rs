//! The file medium: a DRAM working copy, a redo log with group commit, and a checkpointer behind it.
//!
//! Invariants:
//! 1. The superblock says "not clean" before the first group of a process is written.
//!    Durable-order: otherwise recovery would take the pool for closed and skip the log.
//! 2. The first error latches: from then on nothing is written any more (a failed sync is never
//!    retried), `flush` does nothing and `wait` fails. What was acknowledged before stays.
//! 3. A child of fork(2) shares the log's ring and its file with its parent: it appends nothing, writes nothing and
//!    takes no lock (a thread that is not in the child may hold it).
//! 4. Locks, outermost first: checkpointer, group commit, superblock. Nobody holds a lock of an
//!    engine while holding one of these.
//! 5. A thread that comes with a long unit waits until at most one such unit is waiting for a checkpoint: what lies
//!    beside the log is bounded, too.

use crate::aside::{self, Waiting};
use crate::checkpoint::{Checkpointer, ImageFiles};
use crate::commit::GroupWriter;
use crate::error::{is_no_descriptor, is_no_space};
use crate::finish::Unfinished;
use crate::log::{Log, Refused};
use crate::options::Durability;
use crate::stat::{MediumKind, PoolStat};
use crate::storage::{Storage, here};
use crate::sums::PAGE_BYTES;
use crate::superblock::SuperblockFile;
use crate::sync::Mutex;
use crate::{Error, Lsn, Medium, Range, Region, Result, Site};
use mangrove_sys::{Gate, ProcessMark, Reservation, without_signals};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// From this size on, the working copy asks for huge pages.
pub(crate) const HUGE_PAGES_FROM_BYTES: u64 = 16 << 20;
/// The image grows by an eighth of itself, within these bounds, so that `grow` is rarely a system call.
const GROW_BYTES_MIN: u64 = 256 << 10;
const GROW_BYTES_MAX: u64 = 64 << 20;

/// What opening a file pool yields.
pub(crate) struct FileParts {
    pub(crate) memory: Reservation,
    pub(crate) log: Log,
    pub(crate) superblock: SuperblockFile,
    pub(crate) superblock_path: PathBuf,
    pub(crate) files: Arc<ImageFiles>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) grown: u64,
    pub(crate) unverified: std::ops::Range<u64>,
}

/// The medium of an open file pool.
pub(crate) struct FileMedium {
    memory: Reservation,
    pub(crate) log: Log,
    superblock: Mutex<SuperblockFile>,
    superblock_path: PathBuf,
    files: Arc<ImageFiles>,
    storage: Arc<dyn Storage>,
    checkpointer: Mutex<Checkpointer>,
    durability: Durability,
    /// Who opened it.
    process: ProcessMark,
    /// Threads serve the log; otherwise whoever flushes does.
    background: bool,
    /// Bytes of the image to be compared with their sums behind.
    unverified: std::ops::Range<u64>,
    /// Usable bytes; changed under `growing`.
    grown: AtomicU64,
    growing: Mutex<()>,
    /// The superblock says "not clean"; changed under its lock.
    marked_dirty: AtomicBool,
    first_error: OnceLock<Error>,
    /// How opening ended; before, nothing is written (`finish.rs`).
    finished: OnceLock<Result<()>>,
    /// Opened when it has ended.
    finish: Gate,
    /// Opened when log space was freed, or never will be.
    space: Gate,
    /// Opened when the checkpointer thread has work, or shall end.
    work: Gate,
    wanted: AtomicBool,
    stop: AtomicBool,
    log_full_waits: AtomicU64,
    checkpoints: AtomicU64,
    image_written: AtomicU64,
    checkpoint_syncs: AtomicU64,
}

impl FileMedium {
    pub(crate) fn new(parts: FileParts, durability: Durability, background: bool) -> Self {
        let clean = parts.superblock.current().clean;
        let medium = Self {
            memory: parts.memory,
            log: parts.log,
            superblock: Mutex::new(parts.superblock),
            superblock_path: parts.superblock_path,
            files: parts.files,
            storage: parts.storage,
            checkpointer: Mutex::new(parts.checkpointer),
            durability,
            process: ProcessMark::here(),
            background,
            unverified: parts.unverified,
            grown: AtomicU64::new(parts.grown),
            growing: Mutex::new(()),
            marked_dirty: AtomicBool::new(!clean),
            first_error: OnceLock::new(),
            finished: OnceLock::new(),
            finish: Gate::new(),
            space: Gate::new(),
            work: Gate::new(),
            wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            log_full_waits: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            image_written: AtomicU64::new(0),
            checkpoint_syncs: AtomicU64::new(0),
        };
        medium.advise(0, parts.grown);
        medium
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the reservation.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn Medium>) }
    }

    /// Finishes opening on a thread of its own; `wait_finished` says how it ended.
    pub(crate) fn finish_later(
        self: &Arc<Self>,
        left: Unfinished,
        threads: &mut Vec<std::thread::JoinHandle<()>>,
    ) -> Result<()> {
        threads.push(self.spawn("mangrove-open", move |medium| {
            // Who waits for it is told.
            let _ = medium.finish(&left);
        })?);
        Ok(())
    }

    pub(crate) fn set_finished(&self, result: Result<()>) {
        self.finished.get_or_init(|| result.clone());
        // After the answer: who asks gets the error itself, and not that there was an earlier one.
        match result {
            Ok(()) => self.finish.open(),
            Err(error) => self.latch(error),
        }
    }

    /// Waits until opening has ended.
    ///
    /// # Errors
    /// Those of opening.
    pub(crate) fn wait_finished(&self) -> Result<()> {
        loop {
            let ticket = self.finish.ticket();
            if let Some(result) = self.finished.get() {
                return result.clone();
            }
            if self.log.commit.has_failed() {
                // Pairs with the Release in `fail`: an opening that failed had said why before it latched.
                fence(Ordering::Acquire);
                return self.finished.get().cloned().unwrap_or_else(|| Err(self.failure()));
            }
            self.finish.wait(ticket);
        }
    }

    #[track_caller]
    pub(crate) fn rewrite_superblock(&self) -> Result<()> {
        let rewritten = self.superblock.lock().rewrite(here());
        rewritten.map_err(|e| Error::from_io(self.superblock_path.clone(), "write", &e))
    }

    #[track_caller]
    pub(crate) fn remove(&self, path: &std::path::Path) -> Result<()> {
        self.storage.remove(path, here()).map_err(|e| Error::from_io(path.to_owned(), "remove", &e))
    }

    /// Starts the threads that `background` asks for; they end after `shut_down`.
    pub(crate) fn start(self: &Arc<Self>, threads: &mut Vec<std::thread::JoinHandle<()>>) -> Result<()> {
        if !self.background {
            return Ok(());
        }
        threads.push(self.spawn("mangrove-ckpt", Self::checkpoint_loop)?);
        if !self.unverified.is_empty() {
            threads.push(
                self.spawn("mangrove-verify", |medium| medium.verify_later(medium.unverified.clone()))?,
            );
        }
        if let Durability::Interval(ms) = self.durability {
            threads.push(self.spawn("mangrove-sync", move |medium| medium.sync_loop(ms))?);
        }
        Ok(())
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<std::thread::JoinHandle<()>> {
        let medium = Arc::clone(self);
        // A bug that ends the thread must not leave others waiting for it.
        let guarded = move || {
            let run = std::panic::AssertUnwindSafe(|| body(&medium));
            if std::panic::catch_unwind(run).is_err() {
                medium.latch(Error::Poisoned { first: "a thread of the pool panicked".into() });
            }
        };
        without_signals(|| std::thread::Builder::new().name(name.into()).spawn(guarded))
            .map_err(|e| Error::Unsupported { what: format!("cannot start the thread {name}: {e}") })
    }

    fn checkpoint_loop(&self) {
        loop {
            let ticket = self.work.ticket();
            // Acquire pairs with the Release in `shut_down`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // Acquire pairs with the Release in `want_checkpoint`.
            if self.wanted.swap(false, Ordering::Acquire) {
                // An error has latched, and everybody who waits has been told.
                let _ = self.checkpoint_now();
            } else {
                self.work.wait(ticket);
            }
        }
    }

    fn sync_loop(&self, ms: u32) {
        let interval = Duration::from_millis(u64::from(ms.max(1)));
        loop {
            let ticket = self.work.ticket();
            // Acquire pairs with the Release in `shut_down`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // An opening that means the checkpointer only makes this sync come earlier.
            self.work.wait_for(ticket, interval);
            // An error has latched.
            let _ = self.wait_durable(self.log.appended());
        }
    }

    fn want_checkpoint(&self) {
        // Release pairs with the Acquire in `checkpoint_loop`.
        if self.background && !self.wanted.swap(true, Ordering::Release) {
            self.work.open();
        }
    }

    /// Ends the background threads; the caller joins them.
    pub(crate) fn stop_threads(&self) {
        // Release pairs with the Acquire in the loops.
        self.stop.store(true, Ordering::Release);
        self.work.open();
    }

    /// From now on nothing is written; returns when nothing is under way.
    pub(crate) fn shut_down(&self) {
        self.latch(Error::Closed { path: self.folder().to_owned() });
        while !self.log.commit.is_quiet() {
            std::thread::yield_now();
        }
        drop(self.checkpointer.lock());
        drop(self.growing.lock());
    }

    /// Marks a pool clean that has been shut down with an empty log. Both copies of the superblock
    /// say so, so that damage to either is harmless.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        assert_eq!(self.log.tail(), self.log.commit.durable(), "a clean pool has an empty log");
        // The checkpointer's lock comes before the superblock's.
        let checkpointer = self.checkpointer.lock();
        let mut superblock = self.superblock.lock();
        if superblock.current().clean {
            return Ok(());
        }
        let pages = self.grown.load(Ordering::Acquire) / PAGE_BYTES as u64;
        let digest = checkpointer.sums.digest(pages, superblock.current().seed());
        for _ in 0..2 {
            // Durable-order: everything else has been synced before. Otherwise the log would be
            // skipped at the next opening although it holds what the image lacks.
            // `image_bytes` stays what the last checkpoint synced: what was grown since may be lost.
            superblock
                .update(here(), |sb| (sb.clean, sb.sums_digest) = (true, digest))
                .map_err(|e| Error::from_io(self.superblock_path.clone(), "write", &e))?;
        }
        Ok(())
    }

    /// Gives up the pool's lock, also while clones of the region live on.
    pub(crate) fn release(&self) {
        self.superblock.lock().release();
    }

    /// True when everything appended is in the image.
    pub(crate) fn is_settled(&self) -> bool {
        self.log.appended() == self.log.tail()
    }

    pub(crate) fn latched(&self) -> Option<Error> {
        self.first_error.get().cloned()
    }

    /// Nobody may go on: the pool is being given up, or has failed.
    pub(crate) fn ended(&self) -> bool {
        // Acquire pairs with the Release in `stop_threads`.
        self.stop.load(Ordering::Acquire) || self.log.commit.has_failed()
    }

    pub(crate) fn checkpointer(&self) -> crate::sync::MutexGuard<'_, Checkpointer> {
        self.checkpointer.lock()
    }

    /// Whether the calling process opened it, or was forked from the one that did.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_here()
    }

    /// Refuses a child of fork, before it takes a lock.
    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(self.failure()) }
    }

    /// The pool's folder.
    fn folder(&self) -> &Path {
        self.superblock_path.parent().unwrap_or(&self.superblock_path)
    }

    pub(crate) fn latch(&self, error: Error) {
        self.first_error.get_or_init(|| error);
        self.log.commit.fail();
        self.space.open();
        self.finish.open();
    }

    fn failure(&self) -> Error {
        if !self.is_ours() {
            let path = self.folder().display();
            return Error::Unsupported {
                what: format!(
                    "{path} was opened before this process was forked; use it in the parent, or close it there and open it in a process \
                     that was started anew"
                ),
            };
        }
        match self.first_error.get() {
            Some(e @ (Error::Poisoned { .. } | Error::Closed { .. })) => e.clone(),
            Some(first) => Error::Poisoned { first: first.to_string() },
            None => Error::Poisoned { first: "the log failed".into() },
        }
    }

    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.refuse_child()?;
        self.log.wait(lsn, self).map_err(|_| self.failure())
    }

    /// Makes everything flushed so far durable and applies it to the image.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.refuse_child()?;
        self.wait_finished()?;
        let mut checkpointer = self.checkpointer.lock();
        self.wait_durable(self.log.appended())?;
        let target = self.log.commit.durable();
        // Acquire pairs with the Release in `grow`: records up to `target` lie below it.
        let image_bytes = self.grown.load(Ordering::Acquire);
        let result =
            checkpointer.run(&self.log, &self.superblock, &self.superblock_path, target, image_bytes);
        // Relaxed: counters.
        self.checkpoints.store(checkpointer.finished, Ordering::Relaxed);
        self.image_written.store(checkpointer.bytes_written, Ordering::Relaxed);
        self.checkpoint_syncs.store(checkpointer.syncs, Ordering::Relaxed);
        drop(checkpointer);
        match result {
            Ok(()) => {
                self.space.open();
                Ok(())
            }
            Err(e) => {
                self.latch(e.clone());
                Err(e)
            }
        }
    }

    /// Waits for log space; false when there will be none.
    #[cold]
    fn make_space(&self, ticket: u32) -> bool {
        // Relaxed: a counter.
        self.log_full_waits.fetch_add(1, Ordering::Relaxed);
        if self.background {
            self.want_checkpoint();
            if !self.log.commit.has_failed() {
                self.space.wait(ticket);
            }
            !self.log.commit.has_failed()
        } else {
            self.checkpoint_now().is_ok()
        }
    }

    /// # Safety
    /// As [`Medium::flush`].
    unsafe fn append(&self, offset: u64, ptr: *const u8, len: usize) {
        loop {
            let ticket = self.space.ticket();
            // SAFETY: the caller vouches for the range.
            match unsafe { self.log.append(offset, ptr, len) } {
                Ok(end) => {
                    // A checkpoint may have passed `end` by now.
                    if end.saturating_sub(self.log.tail()) > self.log.log_bytes() / 2 {
                        self.want_checkpoint();
                    }
                    return;
                }
                Err(Refused::Full | Refused::TooLong) => {
                    if !self.make_space(ticket) {
                        return;
                    }
                }
            }
        }
    }

    /// The superblock says "not clean" when this returns: invariant 1. False when it could not be made to.
    fn mark_dirty(&self) -> bool {
        // Acquire pairs with the Release below.
        if self.marked_dirty.load(Ordering::Acquire) {
            return true;
        }
        let mut superblock = self.superblock.lock();
        if self.marked_dirty.load(Ordering::Relaxed) {
            return true;
        }
        // Another leader may have failed to, and a failed sync is not tried again.
        if self.log.commit.has_failed() {
            return false;
        }
        match Self::write_dirty(&mut superblock) {
            Ok(()) => {
                // Release pairs with the Acquire above: the leader of another write goes on only now.
                self.marked_dirty.store(true, Ordering::Release);
                true
            }
            Err(e) => {
                self.first_error.get_or_init(|| Error::from_io(self.superblock_path.clone(), "write", &e));
                self.log.commit.refuse();
                false
            }
        }
    }

    fn write_dirty(superblock: &mut SuperblockFile) -> std::io::Result<()> {
        if !superblock.current().clean {
            return Ok(());
        }
        // Durable-order: the copy that was read is durable before the other is overwritten. The process
        // that wrote it may have died before its sync, and a power cut could then tear both.
        superblock.rewrite(here())?;
        // Both copies: if the newer one were damaged later, the older must not say clean.
        superblock.update(here(), |sb| sb.clean = false)?;
        superblock.update(here(), |sb| sb.clean = false)
    }

    /// Logs a unit that is longer than half the log, through a file of its own.
    ///
    /// # Safety
    /// As [`Medium::flush_unit`].
    #[cold]
    unsafe fn flush_aside(&self, base: *const u8, ranges: &[Range]) -> Result<Lsn> {
        self.wait_for_asides()?;
        let folder = self.folder();
        // SAFETY: the caller vouches for the ranges.
        let written = unsafe { aside::write(&*self.storage, folder, self.log.seed(), base, ranges) };
        let (reference, file) = written.map_err(|(path, e)| {
            if is_no_space(&e) {
                return Error::no_space(path, ranges.iter().map(|r| r.len).sum(), &e);
            }
            let error = Error::from_io(path, "write", &e);
            // No write and no sync has failed: this unit is refused, as on a full medium.
            if !is_no_descriptor(&e) {
                self.latch(error.clone());
            }
            error
        })?;
        // Before the log names it: the checkpointer may come at once.
        self.log.asides.lock().push(Waiting { number: reference.number, file: Some(file) });
        loop {
            if self.log.commit.has_failed() {
                return Err(self.failure());
            }
            let ticket = self.space.ticket();
            if let Ok(end) = self.log.append_reference(&reference) {
                // The file takes space until it has been applied.
                self.want_checkpoint();
                return Ok(end);
            }
            self.make_space(ticket);
        }
    }

    /// Waits until at most one long unit waits for a checkpoint: one more may be written meanwhile.
    fn wait_for_asides(&self) -> Result<()> {
        loop {
            let ticket = self.space.ticket();
            if self.log.asides.lock().len() <= 1 {
                return Ok(());
            }
            if !self.make_space(ticket) {
                return Err(self.failure());
            }
        }
    }

    fn advise(&self, from: u64, to: u64) {
        if to >= HUGE_PAGES_FROM_BYTES {
            let from = if from < HUGE_PAGES_FROM_BYTES { 0 } else { from };
            let end = to.next_multiple_of(2 << 20).min(self.memory.len() as u64);
            let from = from & !((2 << 20) - 1);
            self.memory.advise_huge(from as usize, (end - from) as usize);
        }
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let (appended, tail) = (self.log.appended(), self.log.tail());
        let log = &self.log.counters;
        let (flushes, flushed_bytes) = self.log.flushed();
        // Relaxed: counters.
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        PoolStat {
            medium: MediumKind::File,
            domain: None,
            durability: self.durability,
            read_only: false,
            capacity: self.memory.len() as u64,
            reserved: self.memory.len() as u64,
            grown: self.grown.load(Ordering::Relaxed),
            log_bytes: self.log.log_bytes(),
            log_used: appended.saturating_sub(tail),
            log_direct: self.log.file().is_direct(),
            appended,
            durable: self.log.commit.durable(),
            tail,
            flushes,
            flushed_bytes,
            groups: count(&log.groups),
            log_written: count(&log.written),
            image_written: count(&self.image_written),
            syncs: count(&log.syncs) + count(&self.checkpoint_syncs),
            checkpoints: count(&self.checkpoints),
            log_full_waits: count(&self.log_full_waits),
            poisoned: self.latched().map(|e| e.to_string()),
        }
    }
}

impl GroupWriter for FileMedium {
    fn seal(&self) -> u64 {
        self.log.seal()
    }

    fn write(&self, from: u64, to: u64, durable: u64) -> bool {
        let written = self.wait_finished().is_ok()
            && self.mark_dirty()
            && match self.log.write(from, to, durable) {
                Ok(()) => true,
                Err(e) => {
                    let path = self.superblock_path.with_file_name("log");
                    self.first_error.get_or_init(|| Error::from_io(path, "write", &e));
                    false
                }
            };
        if !written {
            self.log.commit.fail();
            self.space.open();
        }
        written
    }
}

impl Medium for FileMedium {
    #[inline]
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, _site: Site) {
        if self.refuses() {
            return;
        }
        debug_assert!(
            offset + len as u64 <= self.grown.load(Ordering::Acquire),
            "flush beyond what was grown"
        );
        let piece_max = self.log.record_bytes_max();
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(piece_max);
            // SAFETY: a part of the range that the caller vouches for.
            unsafe { self.append(offset + done as u64, ptr.add(done), piece) };
            done += piece;
        }
    }

    fn fence(&self, _site: Site) {
        // The log is ordered already.
    }

    fn has_units(&self) -> bool {
        true
    }

    unsafe fn flush_unit(&self, base: *const u8, ranges: &[Range], _site: Site) -> Result<Lsn> {
        loop {
            if self.refuses() {
                return Err(self.failure());
            }
            let ticket = self.space.ticket();
            // SAFETY: the caller vouches for the ranges.
            match unsafe { self.log.append_unit(base, ranges) } {
                Ok(end) => {
                    if end.saturating_sub(self.log.tail()) > self.log.log_bytes() / 2 {
                        self.want_checkpoint();
                    }
                    return Ok(end);
                }
                Err(Refused::Full) => {
                    self.make_space(ticket);
                }
                // SAFETY: as above.
                Err(Refused::TooLong) => return unsafe { self.flush_aside(base, ranges) },
            }
        }
    }

    #[inline]
    fn appended(&self) -> Lsn {
        self.log.appended()
    }

    #[inline]
    fn durable(&self) -> Lsn {
        self.log.commit.durable()
    }

    fn wait(&self, lsn: Lsn, _site: Site) -> Result<()> {
        if self.durability == Durability::Sync {
            self.wait_durable(lsn)
        } else if self.refuses() {
            Err(self.failure())
        } else {
            Ok(())
        }
    }

    fn sync(&self, lsn: Lsn, _site: Site) -> Result<()> {
        self.wait_durable(lsn)
    }

    fn has_log(&self) -> bool {
        self.durability == Durability::Sync
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        // Acquire pairs with the Release below.
        if bytes <= self.grown.load(Ordering::Acquire) {
            return Ok(());
        }
        self.refuse_child()?;
        let _growing = self.growing.lock();
        let grown = self.grown.load(Ordering::Acquire);
        if bytes <= grown {
            return Ok(());
        }
        if self.log.commit.has_failed() {
            return Err(self.failure());
        }
        let capacity = self.memory.len() as u64;
        let image = || self.superblock_path.with_file_name("image");
        if bytes > capacity {
            return Err(Error::NoSpace { path: image(), wanted: bytes - capacity });
        }
        let exact = bytes.next_multiple_of(PAGE_BYTES as u64);
        let spare = (grown / 8).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX).next_multiple_of(PAGE_BYTES as u64);
        let generous = (grown + spare).clamp(exact, capacity);
        let (mut to, mut result) = (generous, self.files.allocate(grown, generous));
        if generous > exact && result.as_ref().is_err_and(|(_, e)| is_no_space(e)) {
            (to, result) = (exact, self.files.allocate(grown, exact));
        }
        match result {
            Ok(()) => {
                self.advise(grown, to);
                // Release pairs with the Acquire above and in `checkpoint_now`.
                self.grown.store(to, Ordering::Release);
                Ok(())
            }
            Err((path, e)) if is_no_space(&e) => Err(Error::no_space(path, exact - grown, &e)),
            Err((path, e)) => {
                let error = Error::from_io(path, "allocate space in", &e);
                self.latch(error.clone());
                Err(error)
            }
        }
    }

    fn grown(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.grown.load(Ordering::Acquire)
    }

    fn checkpoint(&self) -> Result<()> {
        self.checkpoint_now()
    }

    fn poisoned(&self) -> Option<Error> {
        self.refuse_child().err().or_else(|| self.latched())
    }

    fn may_refuse(&self) -> bool {
        true
    }

    #[inline]
    fn refuses(&self) -> bool {
        self.log.commit.has_failed() || !self.is_ours()
    }
}
