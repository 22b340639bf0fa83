//! Deferred commits: atomic groups whose fence comes later, one for many (`handover.rs`, "deferred").
//!
//! A deferred atomic group is sealed, and its lines are on their way to the medium. It becomes durable by a fence
//! of the thread that flushed them, or by a flush and a fence of any other thread: on x86 a fence orders only the
//! write-backs that its own CPU was asked for, and a flush of a line that was written back already costs little. So
//! a thread that waits, and the replayer, continue although the thread that deferred sleeps or has ended.
//!
//! Durable-order: the atomic groups before it in its log, before the first byte of an atomic group that has no mark
//! (`WordsCommit::follows_deferred`). Otherwise a crash could keep it alone, and recovery would take the hole before it
//! for damage. With the mark it proves nothing. Words alone can have the mark; for others the log is closed first.

use crate::Result;
use crate::log::log_writer::{Deferred, LogWriter, thread_number};
use crate::ring::Rings;
use std::ops::Range;

/// Bytes of a log that are deferred at most before its writer closes it.
const DEFERRED_BYTES_MAX: u64 = 64 << 10;
/// Atomic groups from this size on may be written past the caches, by stores that only their own thread can wait for.
const DEFERRED_UNIT_BYTES_MAX: u64 = 512;

impl Rings {
    /// In place of `flush` and `publish`: a later call, of any thread, makes the sealed atomic group durable. (With
    /// `Order::Gaps` it is durable; one that is long is made so at once.)
    #[inline]
    pub(crate) fn defer(&self, writer: &mut LogWriter) -> Result<()> {
        let is_short = writer.bytes < DEFERRED_UNIT_BYTES_MAX && writer.has_only_words();
        if self.gaps || !is_short || writer.spilled.is_some() {
            let flushed = self.flush(writer);
            self.publish(writer);
            return flushed;
        }
        let thread = thread_number();
        let start = match writer.deferred.seen_by(thread) {
            seen @ (Deferred::ByOwner { start, .. } | Deferred::ByOther(start)) => {
                writer.deferred = seen;
                start
            }
            Deferred::None => {
                writer.deferred = Deferred::ByOwner { start: writer.position, thread };
                writer.position
            }
        };
        self.fetch_ahead(writer);
        // With something deferred it defers.
        self.publish(writer);
        let limit = DEFERRED_BYTES_MAX.min(self.layout.ring_bytes / 4);
        if writer.position - start >= limit { self.close_log(writer).map(drop) } else { Ok(()) }
    }

    /// Closes the writer's log, if it is open; true if that took a fence of this thread.
    ///
    /// # Errors
    /// When the medium has failed: the log stays open.
    pub(crate) fn close_log(&self, writer: &mut LogWriter) -> Result<bool> {
        if writer.deferred == Deferred::None { Ok(false) } else { self.close_open_log(writer) }
    }

    #[cold]
    fn close_open_log(&self, writer: &mut LogWriter) -> Result<bool> {
        self.poisoned().map_or(Ok(()), Err)?;
        let (log, mut has_fenced) = (writer.log, false);
        self.handover.close(log, |positions| {
            if let Deferred::ByOther(_) = writer.deferred.seen_by(thread_number()) {
                self.flush_positions(log, positions);
            }
            self.region.fence();
            has_fenced = true;
            self.region.drain()
        })?;
        writer.deferred = Deferred::None;
        Ok(has_fenced)
    }

    /// Makes every atomic group up to `number` durable that was deferred. Waits for no log writer.
    ///
    /// # Errors
    /// When the medium has failed.
    pub(crate) fn complete_deferred(&self, number: u64) -> Result<()> {
        self.poisoned().map_or(Ok(()), Err)?;
        self.handover.complete_deferred(number, |log, positions| {
            self.flush_positions(log, positions);
            self.region.fence();
            self.region.drain()
        })
    }

    /// Asks for the lines at these positions to be written back, in two parts where the ring ends.
    pub(crate) fn flush_positions(&self, log: usize, positions: Range<u64>) {
        let (start, bytes) = (positions.start, positions.end - positions.start);
        let left = (self.layout.ring_bytes - start % self.layout.ring_bytes).min(bytes);
        self.region.flush(self.layout.ring(log, start), left as usize);
        if bytes > left {
            self.region.flush(self.layout.ring(log, start + left), (bytes - left) as usize);
        }
    }
}
