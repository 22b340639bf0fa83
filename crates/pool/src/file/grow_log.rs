//! How the log grows with use, and becomes shorter again.
//!
//! Durable-order, in this order, with what recovery would do otherwise:
//! 1. the log file's new range, zeros, and its length, before the superblock says that the log has it: otherwise the
//!    superblock would record a log that is longer than its file;
//! 2. both copies of the superblock before anything is appended beyond the old end: otherwise recovery would look for
//!    those groups at other places, and lose them. Both, because a copy that is damaged later leaves the other.
//!
//! What the log holds keeps its place (`RingLayout::grown`), so either superblock describes it rightly, and a crash in
//! between leaves a pool that has grown or not. A log file that is longer than the superblock records is no damage.
//!
//! A log that has grown becomes shorter when the pool is closed and the region has less in use than the log has bytes:
//! it is empty then. The superblock says so in both copies, as it says "clean", before the file is cut off.
//!
//! Invariants:
//! 1. No lock that a writer needs is held while the new range is prepared. Writers that come to the old end while the
//!    superblock is written wait for that.
//! 2. A medium that is full, or a process that gets no more memory, is no error: the log stays as it is, and growth is
//!    tried again many logs later. Space that was prepared goes back to a full medium, since the data file or a spill
//!    file may need it.

use crate::file::log_growth::{closing_bytes, next_bytes};
use crate::file::medium::FileMedium;
use crate::format::superblock::Superblock;
use crate::limits::{LOG_BYTES_FREE, fits_memory};
use crate::pool_files::FileError;
use crate::storage::traits::here;
use crate::sync::Ordering;
use crate::{Lsn, MediumOps, Result};

/// Bytes prepared at a time; in between, a log that is nearly full gets a checkpoint.
const PIECE_BYTES: u64 = 32 << 20;
/// After a growth that failed, so many logs are written before the next is tried.
const RETRY_LOGS: u64 = 16;

impl FileMedium {
    /// Has log space made, by growth or a checkpoint, when more than half the log is in use.
    pub(super) fn note_log_use(&self, end: Lsn) {
        // A checkpoint may have passed `end` by now.
        if end.saturating_sub(self.log.tail()) > self.log.log_bytes() / 2 {
            if self.background {
                self.want_checkpoint();
            } else {
                // An error has poisoned the pool.
                let _ = self.grow_log_or_unwrap();
            }
        }
    }

    /// Waits for log space; false when no space will be freed any more.
    #[cold]
    pub(super) fn make_space(&self, ticket: u32) -> bool {
        // Relaxed: a counter.
        self.log_full_waits.fetch_add(1, Ordering::Relaxed);
        if self.background {
            // Release pairs with the Acquire in `make_log_space`.
            self.log_growth.is_awaited.store(true, Ordering::Release);
            self.want_checkpoint();
            if !self.log.commit.has_failed() {
                self.space.wait(ticket);
            }
            !self.log.commit.has_failed()
        } else {
            self.checkpoint_now().is_ok()
        }
    }

    /// Makes log space: lets the log grow, or applies it to the data file.
    ///
    /// # Errors
    /// Those of a checkpoint; they poison the pool.
    pub(super) fn make_log_space(&self) -> Result<()> {
        // Acquire pairs with the Release in `make_space`.
        let is_awaited = self.log_growth.is_awaited.swap(false, Ordering::Acquire);
        let mut has_grown = false;
        while self.grow_log_if_used()? {
            has_grown = true;
        }
        let is_long = self.log.used() > self.log.log_bytes() / 2;
        if is_long || (is_awaited && !has_grown) || !self.log.spills.lock().is_empty() {
            self.checkpoint_of_many()
        } else {
            // The log has grown since this was asked for.
            Ok(())
        }
    }

    /// Lets the log grow by one step if more than half of it is in use and it may; true if it has grown.
    ///
    /// # Errors
    /// An I/O error, which poisons the pool.
    pub(super) fn grow_log_if_used(&self) -> Result<bool> {
        match self.next_log_bytes() {
            Some(to) if self.log.used() > self.log.log_bytes() / 2 => self.grow_log_to(to),
            _ => Ok(false),
        }
    }

    /// As `grow_log_if_used`, without a thread that makes checkpoints: where the log cannot grow because what it holds
    /// wraps around, a checkpoint moves on to where it can.
    fn grow_log_or_unwrap(&self) -> Result<()> {
        if self.next_log_bytes().is_some() && !self.grow_log_if_used()? && !self.log.is_in_one_piece() {
            self.checkpoint_now()?;
        }
        Ok(())
    }

    /// What the log becomes next, if it may grow now.
    fn next_log_bytes(&self) -> Option<u64> {
        let bytes = self.log.log_bytes();
        let to = next_bytes(bytes, self.log_bytes_allowed(bytes));
        // Relaxed: a hint.
        let is_time = self.log.appended() >= self.log_growth.retry_at.load(Ordering::Relaxed);
        Some(to).filter(|to| *to > bytes && is_time)
    }

    /// Lets the log grow for an atomic group that needs one of `wanted` bytes; true if it has so many now.
    ///
    /// # Errors
    /// An I/O error, which poisons the pool.
    #[cold]
    pub(super) fn grow_log_for(&self, wanted: u64) -> Result<bool> {
        let mut to = self.log.log_bytes();
        while to < wanted {
            let next = next_bytes(to, self.log_bytes_allowed(to));
            if next <= to {
                return Ok(false);
            }
            to = next;
        }
        self.grow_log_to(to)
    }

    /// What a log of `bytes` may become.
    fn log_bytes_allowed(&self, bytes: u64) -> u64 {
        let is_free = bytes < LOG_BYTES_FREE || bytes < self.grown();
        let step_max = if bytes < LOG_BYTES_FREE { LOG_BYTES_FREE } else { u64::MAX };
        if is_free { self.log_growth.grows_to.min(step_max) } else { bytes }
    }

    /// Lets the log grow to `to` bytes; true if it has so many now.
    fn grow_log_to(&self, to: u64) -> Result<bool> {
        // Relaxed: a hint.
        if self.log.appended() < self.log_growth.retry_at.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.refuse_child()?;
        self.wait_finished()?;
        let mut prepared = self.log_growth.prepared.lock();
        if self.log.log_bytes() >= to {
            return Ok(true);
        }
        if !self.log.is_in_one_piece() {
            return Ok(false);
        }
        let more = to - self.log.log_bytes();
        let fits = fits_memory(&self.directory, self.log_growth.memory_bytes_max, more, 2 * to).is_ok();
        let Some(ring) = fits.then(|| self.log.longer_ring(to)).flatten() else {
            self.retry_later();
            return Ok(false);
        };
        if !self.prepare_log_file(&mut prepared, to)? {
            return Ok(false);
        }
        // Before the superblock changes: see `SuperblockFile::set_dirty`.
        if !self.mark_dirty() {
            // Writers sleep until there is space, and must wake.
            let e = self.failure();
            self.poison(e.clone());
            return Err(e);
        }
        let Some(layout) = self.log.stop_to_grow(to) else { return Ok(false) };
        let mut superblock = self.superblock.lock();
        for _ in 0..2 {
            if self.log.commit.has_failed() {
                return Err(self.failure());
            }
            // Durable-order 2.
            let result = superblock.update(here(), |sb| {
                (sb.log_bytes, sb.shift, sb.log_bytes_max) =
                    (layout.bytes, layout.shift, self.log_growth.bytes_max);
            });
            if let Err(e) = result {
                drop(superblock);
                self.poison(e.clone());
                return Err(e);
            }
        }
        drop(superblock);
        self.log.grow(ring, layout);
        // Relaxed: a thread that waits now is woken, and asks again if it finds no space.
        self.log_growth.is_awaited.store(false, Ordering::Relaxed);
        self.space.notify_all();
        Ok(true)
    }

    /// Prepares the log file up to `to`; false when it cannot be or the pool is being closed.
    fn prepare_log_file(&self, prepared: &mut u64, to: u64) -> Result<bool> {
        while *prepared < to {
            // Acquire pairs with the Release in `stop_threads`.
            if self.ended() {
                return Ok(false);
            }
            let len = PIECE_BYTES.min(to - *prepared);
            if let Err(e) = self.log.file().prepare_range(*prepared, len, here()) {
                return self.not_grown(e, prepared, to).map(|()| false);
            }
            // Durable-order 1.
            if let Err(e) = self.log.file().sync(here()) {
                self.poison(e.clone());
                return Err(e);
            }
            *prepared += len;
            let bytes = self.log.log_bytes();
            if *prepared < to && self.background && self.log.used() > bytes / 4 * 3 {
                self.checkpoint_now()?;
            }
        }
        Ok(true)
    }

    /// After `e`, which made growth to `to` bytes impossible: on a full medium the log stays as it is, and gives the
    /// space of what was prepared back.
    fn not_grown(&self, e: FileError, prepared: &mut u64, to: u64) -> Result<()> {
        if e.is_no_space() {
            self.retry_later();
            let bytes = self.log.log_bytes();
            // If that fails, the file stays longer, which is no damage.
            if self.log.file().cut_off(bytes, here()).is_ok() {
                *prepared = bytes;
            }
            return Ok(());
        }
        let error = e.doing_with_space("allocate space in", to);
        self.poison(error.clone());
        Err(error)
    }

    /// What the log, which is empty, becomes when the pool is closed, where the region has `used` bytes that are not
    /// zero.
    pub(super) fn closing_log_bytes(&self, used: u64) -> u64 {
        let growth = &self.log_growth;
        let bytes = self.log.log_bytes().min(growth.grows_to.max(growth.bytes_min));
        closing_bytes(bytes, growth.bytes_min, used)
    }

    /// Has the superblock of a pool that is being closed say that the log, which is empty, has `bytes`. Nothing in it
    /// is needed any more, wherever it stands.
    pub(super) fn shorten_log(&self, sb: &mut Superblock, bytes: u64) {
        if bytes < sb.log_bytes {
            // What a crash has left of writes that were torn may lie behind the tail, anywhere in the ring. From here
            // on it lies before it: otherwise it would look like groups of a log that has grown.
            sb.tail += sb.log_bytes;
            sb.target = sb.tail;
            (sb.log_bytes, sb.shift, sb.log_bytes_max) = (bytes, 0, self.log_growth.bytes_max);
            sb.group = None;
        }
    }

    fn retry_later(&self) {
        let at: Lsn = self.log.appended() + RETRY_LOGS * self.log.log_bytes();
        // Relaxed: a hint.
        self.log_growth.retry_at.store(at, Ordering::Relaxed);
    }
}
