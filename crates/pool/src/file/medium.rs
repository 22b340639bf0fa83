//! The file medium: a DRAM working copy, a redo log with group commit, and a checkpointer in the background.
//!
//! Invariants:
//! 1. The superblock says "not clean" before the first group of a process is written. Durable-order: otherwise
//!    recovery would take the pool for closed and skip the log.
//! 2. The first error poisons the pool: from then on nothing is written any more (a failed sync is never retried),
//!    `flush` does nothing and `wait` fails. What was acknowledged before stays durable.
//! 3. A child of fork(2) shares the log's ring and its file with its parent. So it appends nothing, writes nothing
//!    and takes no lock (a thread that is not in the child may hold it).
//! 4. A thread takes these locks in this order: log growth, checkpointer, group commit, superblock, recent writes,
//!    open group. It takes no lock of an engine while it holds one of them.
//! 5. The superblock records the first write of a process before anything in it is acknowledged.
//! 6. A thread with an atomic group that needs a spill file waits until at most one such group waits for a
//!    checkpoint: so the spill files of a pool take a bounded space.

use crate::config::Durability;
use crate::file::checkpoint::Checkpointer;
use crate::file::exit_hook::FlushAtExit;
use crate::file::finish_recovery::DeferredRecovery;
use crate::file::flusher::Flusher;
use crate::file::huge_pages::{SparseBlocks, advise_huge};
use crate::file::log_growth::LogGrowth;
use crate::file::released::Released;
use crate::format::page_sums::PAGE_BYTES;
use crate::log::group_commit::GroupWriter;
use crate::log::ring::{AppendError, Log};
use crate::log::spill::{self, NotWritten, PendingSpill};
use crate::pool_files::{DataFiles, SuperblockFile};
use crate::stat::{MediumKind, PoolStat};
use crate::storage::traits::{Storage, here};
use crate::sync::{Mutex, nanoseconds};
use crate::{ByteRange, Capabilities, Error, Lsn, MediumOps, PoolOptions, Region, Result, Site};
use mangrove_sys::{EventCount, ProcessMark, Reservation, set_cancelable, without_signals};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A checkpoint leaves its memory to the next for so long.
const KEEP_MEMORY: Duration = Duration::from_secs(1);

/// The parts that a file pool is opened with.
pub(crate) struct FileParts {
    pub(crate) memory: Reservation,
    pub(crate) log: Log,
    pub(crate) superblock: SuperblockFile,
    pub(crate) directory: PathBuf,
    pub(crate) files: Arc<DataFiles>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) grown: u64,
    pub(crate) unverified: std::ops::Range<u64>,
    /// `grown` less what has got its huge pages.
    pub(crate) unadvised: std::ops::Range<u64>,
    pub(crate) sparse: SparseBlocks,
}

/// The medium of an open file pool.
pub(crate) struct FileMedium {
    memory: Reservation,
    pub(super) log: Log,
    pub(super) superblock: Mutex<SuperblockFile>,
    /// The pool's directory.
    pub(super) directory: PathBuf,
    pub(super) files: Arc<DataFiles>,
    /// What was given back and not provided again.
    pub(super) released: Arc<Released>,
    pub(super) sparse: SparseBlocks,
    pub(crate) storage: Arc<dyn Storage>,
    checkpointer: Mutex<Checkpointer>,
    durability: Durability,
    flusher: Flusher,
    /// The process that opened the pool.
    process: ProcessMark,
    /// Background threads run checkpoints; otherwise a thread that finds the log full does.
    pub(super) background: bool,
    /// Bytes of the data file that a background thread compares with their page checksums.
    unverified: std::ops::Range<u64>,
    /// Usable bytes; changed under `growing`.
    pub(super) grown: AtomicU64,
    pub(super) growing: Mutex<()>,
    /// Parts of the memory show the data file.
    pub(super) shows_file: AtomicBool,
    pub(super) log_growth: LogGrowth,
    /// The superblock says "not clean"; changed under its lock.
    marked_dirty: AtomicBool,
    first_error: OnceLock<Error>,
    /// The result of opening; until it is set, nothing is written (`file/finish_recovery.rs`).
    finished: OnceLock<Result<()>>,
    /// Notified when `finished` is set, or never will be.
    finish: EventCount,
    /// Notified when log space was freed, or never will be.
    pub(super) space: EventCount,
    /// Notified when the checkpointer thread has work, or shall end.
    work: EventCount,
    wanted: AtomicBool,
    pub(super) stop: AtomicBool,
    pub(super) log_full_waits: AtomicU64,
    checkpoints: AtomicU64,
    /// When the last one ended, or the pool was opened, in nanoseconds.
    checkpointed_ns: AtomicU64,
    image_written: AtomicU64,
    checkpoint_syncs: AtomicU64,
}

impl FileMedium {
    pub(crate) fn new(parts: FileParts, options: &PoolOptions) -> Self {
        let (config, background) = (&options.config, options.background);
        let sb = parts.superblock.current().clone();
        let is_marked = !sb.clean && !sb.alone;
        let medium = Self {
            memory: parts.memory,
            log: parts.log,
            superblock: Mutex::new(parts.superblock),
            directory: parts.directory,
            files: parts.files,
            released: Arc::clone(&parts.checkpointer.released),
            sparse: parts.sparse,
            storage: parts.storage,
            checkpointer: Mutex::new(parts.checkpointer),
            durability: config.durability,
            flusher: Flusher::new(config, background),
            process: ProcessMark::here(),
            background,
            shows_file: AtomicBool::new(!parts.unverified.is_empty()),
            unverified: parts.unverified,
            grown: AtomicU64::new(parts.grown),
            growing: Mutex::new(()),
            log_growth: LogGrowth::new(config, options.start, &sb),
            marked_dirty: AtomicBool::new(is_marked),
            first_error: OnceLock::new(),
            finished: OnceLock::new(),
            finish: EventCount::new(),
            space: EventCount::new(),
            work: EventCount::new(),
            wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            log_full_waits: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpointed_ns: AtomicU64::new(nanoseconds()),
            image_written: AtomicU64::new(0),
            checkpoint_syncs: AtomicU64::new(0),
        };
        advise_huge(&medium.memory, parts.unadvised.start, parts.unadvised.end);
        medium
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the reservation.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn MediumOps>) }
    }

    /// Finishes opening; the log's writers wait for it.
    ///
    /// # Errors
    /// Those of [`DeferredRecovery::finish`], for every waiting writer too.
    pub(crate) fn finish(&self, left: &DeferredRecovery) -> Result<()> {
        let result = left.finish(&self.log, &self.superblock, &*self.storage);
        self.set_finished(result.clone());
        result
    }

    /// Finishes opening on a background thread; `wait_finished` returns the result.
    pub(crate) fn finish_later(
        self: &Arc<Self>,
        left: DeferredRecovery,
        threads: &mut Vec<std::thread::JoinHandle<()>>,
    ) -> Result<()> {
        threads.push(self.spawn("mangrove-open", move |medium| {
            // `wait_finished` returns the result to each waiting thread.
            let _ = medium.finish(&left);
        })?);
        Ok(())
    }

    fn set_finished(&self, result: Result<()>) {
        self.finished.get_or_init(|| result.clone());
        // After the result is set: a waiting thread gets the error itself, not that an earlier one poisoned the
        // pool.
        match result {
            Ok(()) => self.finish.notify_all(),
            Err(error) => self.poison(error),
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
                // Pairs with the Release in `fail`: an opening that failed set its result before it poisoned the
                // pool.
                fence(Ordering::Acquire);
                return self.finished.get().cloned().unwrap_or_else(|| Err(self.failure()));
            }
            self.finish.wait(ticket);
        }
    }

    /// Starts the threads that `background` asks for; they end after `stop_threads`.
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
        threads.push(self.spawn("mangrove-sync", Self::flush_loop)?);
        Ok(())
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<std::thread::JoinHandle<()>> {
        let medium = Arc::clone(self);
        // A bug that ends the thread must not leave other threads waiting for it.
        let guarded = move || {
            let run = std::panic::AssertUnwindSafe(|| body(&medium));
            if std::panic::catch_unwind(run).is_err() {
                medium.poison(Error::Poisoned { first: "a thread of the pool panicked".into() });
            }
        };
        without_signals(|| std::thread::Builder::new().name(name.into()).spawn(guarded))
            .map_err(|e| Error::Unsupported { what: format!("cannot start the thread {name}: {e}") })
    }

    fn checkpoint_loop(&self) {
        let mut keeps_memory = false;
        loop {
            let ticket = self.work.ticket();
            // Acquire pairs with the Release in `stop_threads`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // Acquire pairs with the Release in `want_checkpoint`.
            if self.wanted.swap(false, Ordering::Acquire) {
                // An error has poisoned the pool, and every waiting thread gets it.
                let _ = self.make_log_space();
                keeps_memory = true;
            } else if !keeps_memory {
                self.work.wait(ticket);
            } else if !self.work.wait_for(ticket, KEEP_MEMORY) {
                self.checkpointer.lock().rest();
                keeps_memory = false;
            }
        }
    }

    fn flush_loop(&self) {
        // Acquire pairs with the Release in `stop_threads`.
        let has_ended = || self.stop.load(Ordering::Acquire);
        self.flusher.run(&self.log, has_ended, |lsn| {
            // An error has poisoned the pool.
            let _ = self.wait_durable(lsn);
        });
    }

    pub(super) fn want_checkpoint(&self) {
        // Release pairs with the Acquire in `checkpoint_loop`.
        if self.background && !self.wanted.swap(true, Ordering::Release) {
            self.work.notify_all();
        }
    }

    /// Ends the background threads; the caller joins them.
    pub(crate) fn stop_threads(&self) {
        // Release pairs with the Acquire in the loops.
        self.stop.store(true, Ordering::Release);
        self.work.notify_all();
        self.flusher.stop();
    }

    /// From now on nothing is written. Returns when no write is under way.
    pub(crate) fn shut_down(&self) {
        self.poison(Error::Closed { path: self.directory.clone() });
        while !self.log.commit.is_quiet() {
            std::thread::yield_now();
        }
        drop(self.log_growth.prepared.lock());
        drop(self.checkpointer.lock());
        drop(self.growing.lock());
    }

    /// Marks a pool clean that has been shut down with an empty log. It writes both copies of the superblock, so
    /// that damage to either is harmless.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        assert_eq!(self.log.tail(), self.log.commit.durable(), "a clean pool has an empty log");
        // The checkpointer's lock comes before the superblock's.
        let checkpointer = self.checkpointer.lock();
        let mut superblock = self.superblock.lock();
        if superblock.current().clean {
            // Nothing has been written. Durable-order: the process that said "clean" may have died before its sync, or
            // because of it; a power cut after this close could then bring back "not clean".
            return superblock.rewrite(here());
        }
        let pages = self.grown.load(Ordering::Acquire) / PAGE_BYTES as u64;
        let digest = checkpointer.sums.digest(pages, superblock.current().seed());
        let log_bytes = self.closing_log_bytes(checkpointer.sums.bytes_in_use(pages));
        for _ in 0..2 {
            // Durable-order: everything else has been synced before. Otherwise the next opening would skip the log
            // although it holds what the data file lacks. `image_bytes` stays what the last checkpoint synced: the
            // length that the file has grown to since may be lost.
            superblock.update(here(), |sb| {
                (sb.clean, sb.sums_digest) = (true, digest);
                self.shorten_log(sb, log_bytes);
            })?;
        }
        // Durable-order: both copies before the file is cut off, or the older one would say that the log has what the
        // file lacks. A file that stays longer is no damage.
        self.log.file().cut_off(log_bytes, here())?;
        Ok(())
    }

    /// Copies what was appended so far to where it survives this process, if the pool keeps recent writes.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, which poison the pool.
    #[inline]
    fn copy_recent(&self) -> Result<()> {
        match self.log.copy_recent() {
            Ok(true) => Ok(()),
            Ok(false) => self.sync_instead(),
            Err(e) => {
                self.poison(e.clone());
                Err(e)
            }
        }
    }

    /// Makes durable what was appended so far, where recent writes have no room for it, and makes more room.
    #[cold]
    fn sync_instead(&self) -> Result<()> {
        self.wait_durable(self.log.appended())?;
        self.log.make_recent_longer().inspect_err(|e| self.poison(e.clone()))
    }

    /// Releases the pool's lock, also while clones of the region live on. A pool that is clean, because it was closed
    /// or nothing was written, needs no file of recent writes.
    pub(crate) fn release(&self) {
        let mut superblock = self.superblock.lock();
        let is_unneeded = superblock.current().clean && self.is_settled();
        if let Some(recent) = self.log.recent.as_ref().filter(|_| is_unneeded) {
            recent.remove(&*self.storage);
        }
        superblock.release();
    }

    /// True when everything appended is in the data file.
    pub(crate) fn is_settled(&self) -> bool {
        self.log.appended() == self.log.tail()
    }

    pub(crate) fn first_error(&self) -> Option<Error> {
        self.first_error.get().cloned()
    }

    /// True when background threads must end: the pool is being closed or dropped, or has failed.
    pub(crate) fn ended(&self) -> bool {
        // Acquire pairs with the Release in `stop_threads`.
        self.stop.load(Ordering::Acquire) || self.log.commit.has_failed()
    }

    pub(crate) fn checkpointer(&self) -> crate::sync::MutexGuard<'_, Checkpointer> {
        self.checkpointer.lock()
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// False in a child that was forked from the process that opened the pool.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_here()
    }

    /// Returns an error in a child of fork, before it takes a lock.
    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(self.failure()) }
    }

    pub(crate) fn poison(&self, error: Error) {
        self.first_error.get_or_init(|| error);
        self.log.commit.fail();
        self.space.notify_all();
        self.finish.notify_all();
    }

    pub(super) fn failure(&self) -> Error {
        if !self.is_ours() {
            return Error::forked(&self.directory);
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

    /// Makes everything flushed so far durable and applies it to the data file.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint_of_many()?;
        self.checkpointer.lock().rest();
        Ok(())
    }

    /// As `checkpoint_now`; more are to follow, or the caller lets the checkpointer rest.
    pub(super) fn checkpoint_of_many(&self) -> Result<()> {
        self.refuse_child()?;
        self.wait_finished()?;
        let mut checkpointer = self.checkpointer.lock();
        self.wait_durable(self.log.appended())?;
        let target = self.log.commit.durable();
        // Acquire pairs with the Release in `grow_with`: records up to `target` lie below it.
        let image_bytes = self.grown.load(Ordering::Acquire);
        let result = checkpointer.run(&self.log, &self.superblock, target, image_bytes);
        // Relaxed: counters.
        self.checkpoints.store(checkpointer.finished, Ordering::Relaxed);
        self.checkpointed_ns.store(nanoseconds(), Ordering::Relaxed);
        self.image_written.store(checkpointer.bytes_written, Ordering::Relaxed);
        self.checkpoint_syncs.store(checkpointer.syncs, Ordering::Relaxed);
        // Before another thread gets the lock: the page checksums in memory are new, and the pages may be old. It would
        // take them for damaged, or a hole that was not made for one.
        let result = result.inspect_err(|e| self.poison(e.clone()));
        drop(checkpointer);
        if result.is_ok() {
            self.space.notify_all();
        }
        result
    }

    /// # Safety
    /// As [`MediumOps::flush`].
    unsafe fn append(&self, offset: u64, ptr: *const u8, len: usize) {
        loop {
            let ticket = self.space.ticket();
            // SAFETY: the caller guarantees the range.
            match unsafe { self.log.append(offset, ptr, len) } {
                Ok(end) => {
                    self.note_append(end);
                    return;
                }
                Err(AppendError::Full | AppendError::TooLong(_)) => {
                    if !self.make_space(ticket) {
                        return;
                    }
                }
            }
        }
    }

    /// After a record was appended.
    #[inline]
    pub(super) fn note_append(&self, end: Lsn) {
        if self.flusher.notes_all {
            self.flusher.note();
        }
        self.note_log_use(end);
    }

    /// Makes the superblock say "not clean" (invariant 1). False when that failed.
    pub(super) fn mark_dirty(&self) -> bool {
        // Acquire pairs with the Release below.
        if self.marked_dirty.load(Ordering::Acquire) {
            return true;
        }
        let mut superblock = self.superblock.lock();
        if self.marked_dirty.load(Ordering::Relaxed) {
            return true;
        }
        // The leader of another write may have failed at this, and a failed sync is not tried again.
        if self.log.commit.has_failed() {
            return false;
        }
        match superblock.set_dirty() {
            Ok(()) => {
                // Release pairs with the Acquire above: the leader of another write continues only now.
                self.marked_dirty.store(true, Ordering::Release);
                true
            }
            Err(e) => {
                self.first_error.get_or_init(|| e);
                self.log.commit.refuse();
                false
            }
        }
    }

    /// Writes the groups `from..to`, and has the superblock record the first write of this process.
    fn write_groups(&self, from: u64, to: u64, durable: u64) -> Result<()> {
        self.log.write(from, to, durable)?;
        if !self.log.is_first(from) {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        if self.log.commit.has_failed() {
            return Err(self.failure());
        }
        superblock.record(self.log.last_group(from, to))
    }

    /// See [`Pool::set_made`](crate::Pool::set_made).
    pub(crate) fn set_made(&self) -> Result<()> {
        self.refuse_child()?;
        self.wait_finished()?;
        let mut superblock = self.superblock.lock();
        if self.log.commit.has_failed() {
            return Err(self.failure());
        }
        let result = superblock.set_made();
        drop(superblock);
        result.inspect_err(|e| self.poison(e.clone()))
    }

    /// Logs an atomic group that is longer than half the log through a spill file.
    ///
    /// # Safety
    /// As [`MediumOps::flush_unit`].
    #[cold]
    unsafe fn flush_spilled(&self, base: *const u8, ranges: &[ByteRange]) -> Result<Lsn> {
        self.wait_for_spills()?;
        // SAFETY: the caller guarantees the ranges.
        let written = unsafe { spill::write(&*self.storage, &self.directory, self.log.seed(), base, ranges) };
        let (reference, file) = written.map_err(|NotWritten { error, poisons }| {
            let error = error.doing_with_space("write", ranges.iter().map(|r| r.len).sum());
            if poisons {
                self.poison(error.clone());
            }
            error
        })?;
        // Before the log names the file: the checkpointer may reach that group at once.
        self.log.spills.lock().push(PendingSpill { number: reference.number, file: Some(file) });
        loop {
            if self.log.commit.has_failed() {
                return Err(self.failure());
            }
            let ticket = self.space.ticket();
            if let Ok(end) = self.log.append_reference(&reference) {
                self.note_unit()?;
                // The spill file takes space until it has been applied.
                self.want_checkpoint();
                return Ok(end);
            }
            self.make_space(ticket);
        }
    }

    /// After an atomic group: its caller may wait or not, since it gets a position.
    fn note_unit(&self) -> Result<()> {
        self.flusher.note();
        if self.flusher.notes_all { self.copy_recent() } else { Ok(()) }
    }

    /// Waits until at most one spill file waits for a checkpoint. This thread may write one more meanwhile.
    fn wait_for_spills(&self) -> Result<()> {
        loop {
            let ticket = self.space.ticket();
            if self.log.spills.lock().len() <= 1 {
                return Ok(());
            }
            if !self.make_space(ticket) {
                return Err(self.failure());
            }
        }
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let (appended, tail) = (self.log.appended(), self.log.tail());
        let log = &self.log.counters;
        // Invariant 3.
        let (flushes, flushed_bytes) = if self.is_ours() { self.log.flushed() } else { (0, 0) };
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
            checkpoint_age: Duration::from_nanos(nanoseconds().saturating_sub(count(&self.checkpointed_ns))),
            checkpoints: count(&self.checkpoints),
            log_full_waits: count(&self.log_full_waits),
            poisoned: self.first_error().map(|e| e.to_string()),
        }
    }
}

impl FlushAtExit for FileMedium {
    fn ask_to_flush(&self) {
        if self.is_ours() && self.log.commit.durable() < self.log.appended() {
            self.flusher.ask();
        }
    }

    fn wait_flushed(&self, end: Instant) {
        let lsn = self.log.appended();
        // Other threads may have appended since.
        self.ask_to_flush();
        self.flusher.wait_until(end, || !self.is_ours() || self.ended() || self.log.commit.durable() >= lsn);
    }
}

impl GroupWriter for FileMedium {
    fn seal(&self) -> u64 {
        self.log.seal()
    }

    fn write(&self, from: u64, to: u64, durable: u64) -> bool {
        // No unwinding may leave it, and a get that waits may lead: pthread_cancel waits, too.
        let was_cancelable = set_cancelable(false);
        let written = self.wait_finished().is_ok()
            && self.mark_dirty()
            && match self.write_groups(from, to, durable) {
                Ok(()) => true,
                Err(e) => {
                    self.first_error.get_or_init(|| e);
                    false
                }
            };
        if !written {
            self.log.commit.fail();
            self.space.notify_all();
        }
        set_cancelable(was_cancelable);
        written
    }
}

impl MediumOps for FileMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            has_units: true,
            read_only: false,
            has_log: self.durability == Durability::Sync,
            may_refuse: true,
        }
    }

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
            // SAFETY: a part of the range that the caller guarantees.
            unsafe { self.append(offset + done as u64, ptr.add(done), piece) };
            done += piece;
        }
    }

    unsafe fn page_out(&self, range: ByteRange) -> Result<bool> {
        self.page_out_range(range)
    }

    fn fence(&self, _site: Site) {
        // The log keeps the order anyway.
    }

    unsafe fn flush_unit(&self, base: *const u8, ranges: &[ByteRange], _site: Site) -> Result<Lsn> {
        loop {
            if self.refuses() {
                return Err(self.failure());
            }
            let ticket = self.space.ticket();
            // SAFETY: the caller guarantees the ranges.
            match unsafe { self.log.append_atomic_group(base, ranges) } {
                Ok(end) => {
                    self.note_unit()?;
                    self.note_log_use(end);
                    return Ok(end);
                }
                Err(AppendError::Full) => {
                    self.make_space(ticket);
                }
                Err(AppendError::TooLong(bytes)) => {
                    if !self.grow_log_for(bytes)? {
                        // SAFETY: as above.
                        return unsafe { self.flush_spilled(base, ranges) };
                    }
                }
            }
        }
    }

    fn leave_unawaited(&self) {
        if self.is_ours() {
            self.flusher.note();
            // An error has poisoned the pool.
            let _ = self.copy_recent();
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
            self.copy_recent()
        }
    }

    fn sync(&self, lsn: Lsn, _site: Site) -> Result<()> {
        self.wait_durable(lsn)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.grown() { Ok(()) } else { self.grow_to(bytes) }
    }

    fn provide(&self, range: ByteRange) -> Result<()> {
        self.provide_range(range)
    }

    unsafe fn give_back(&self, range: ByteRange, _site: Site) -> Result<bool> {
        // Memory that shows the data file would show old bytes again.
        if self.shows_file.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe { self.give_back_range(range) }
    }

    unsafe fn release(&self, range: ByteRange, _site: Site) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.give_back_range(range) }
    }

    fn without_space(&self) -> Vec<ByteRange> {
        self.parts_without_space()
    }

    fn grown(&self) -> u64 {
        // Acquire pairs with the Release in `grow_with`.
        self.grown.load(Ordering::Acquire)
    }

    fn checkpoint(&self) -> Result<()> {
        self.checkpoint_now()
    }

    fn poisoned(&self) -> Option<Error> {
        self.refuse_child().err().or_else(|| self.first_error())
    }

    #[inline]
    fn refuses(&self) -> bool {
        self.log.commit.has_failed() || !self.is_ours()
    }
}
