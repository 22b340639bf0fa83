//! The rings, and their log writers, of a shadow on a medium that has no log (dax, emulated).
//!
//! Source: Fig. 3 of the Mangosteen paper. One batch is one atomic group: its REDO records, then the tail. The
//! paper has two fences: one makes the records durable, one the tail, which is what commits. Here an atomic group
//! has a checksum that shows whether it is complete, and a whole one proves that those before it in its log had
//! been durable. So there is one fence, and no tail to be stored (docs/decisions/shadow.md). Further deviations:
//! records carry ranges of any length instead of one block each (the tracker of stores has deduplicated the blocks
//! before); the COMMIT record stands first, since length and number are known when it is written; there are several
//! logs, in the order of one counter (`handover.rs`).
//!
//! Invariants:
//! 1. Durable-order: an atomic group is durable before the first byte of the next one in its log is stored. Otherwise
//!    a crash could keep the next one alone, and recovery would take the hole before it for damage.
//! 2. Durable-order: space is written again only when the head that frees it is durable. Otherwise recovery would
//!    read new records as old ones.
//! 3. A thread takes locks in this order: `spill_area`, a log writer, the replayer.

use crate::handover::Handover;
use crate::layout::{
    AT_DIRTY_END, AT_LEN, COMMIT_BYTES, CommitRecord, KIND_SPILL, PAGE_BYTES, REDO_BYTES, SPILL_BYTES,
    ShadowLayout, le_bytes, redo_total, redo_words,
};
use crate::recover::RecoveredLogs;
use crate::replay::Replayer;
use crate::working::WorkingCopy;
use crate::{Error, Result, Stat};
use mangrove_pool::{Range, Region, crc32c};
use mangrove_sys::{CACHE_LINE_BYTES, prefetch_write};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Atomic groups up to this size are assembled first and copied at once: each of their lines is flushed once.
const SMALL_BYTES: usize = 8192;
/// Lines fetched ahead of the next commit.
const PREFETCH_LINES: u64 = 6;
/// How long the replayer waits for more atomic groups: bytes that several of them change are then written once.
#[cfg(not(test))]
const GATHER: Duration = Duration::from_millis(10);
/// In a test of this crate that waits for it, the wait is endless.
#[cfg(test)]
const GATHER: Duration = Duration::from_secs(3600);
/// How long a log writer waits for space before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Spins before a wait for another log writer yields the processor.
const SPINS: u32 = 200;

/// The writer of one log.
struct LogWriter {
    /// Where the next atomic group goes.
    position: u64,
    seed: u32,
    units: u64,
    bytes: u64,
    buffer: Box<[u8; SMALL_BYTES]>,
}

/// The space for the records of an atomic group that is too long for a ring: after the durable copy.
#[derive(Default)]
pub(crate) struct SpillArea {
    /// Number of the atomic group there, 0 for none yet.
    seq: u64,
    /// Its end in the region.
    end: u64,
}

/// Puts `data` at `at` through a copy, and returns the checksum of the copy. Another thread may be storing next to
/// the bytes that a command wrote (into a block that it got from a command, or has freed), and the checksum must be
/// that of the bytes that were put.
fn put_checksummed(
    copy: &mut [u8; SMALL_BYTES],
    mut data: &[u8],
    mut at: u64,
    mut crc: u32,
    put: impl Fn(u64, &[u8]),
) -> u32 {
    while !data.is_empty() {
        // To the end of a line: none is flushed twice.
        let (piece, rest) = data.split_at(data.len().min(SMALL_BYTES - at as usize % CACHE_LINE_BYTES));
        let copy = &mut copy[..piece.len()];
        copy.copy_from_slice(piece);
        crc = crc32c(crc, copy);
        put(at, copy);
        at += piece.len() as u64;
        data = rest;
    }
    crc
}

/// Rings, working copy, replayer.
pub(crate) struct Rings {
    pub(crate) region: Region,
    pub(crate) layout: ShadowLayout,
    pub(crate) working: WorkingCopy,
    pub(crate) handover: Handover,
    writers: Box<[Mutex<LogWriter>]>,
    spill_area: Mutex<SpillArea>,
    pub(crate) replayer: Mutex<Replayer>,
    /// A background thread replays; otherwise a thread that finds a ring full does.
    background: bool,
    stop: AtomicBool,
    panicked: AtomicBool,
    len: AtomicU64,
    pub(crate) full_waits: AtomicU64,
}

impl Rings {
    pub(crate) fn new(
        region: Region,
        layout: ShadowLayout,
        working: WorkingCopy,
        start: &RecoveredLogs,
        options: &crate::Options,
    ) -> Self {
        let writer = |(log, &position): (usize, &u64)| {
            Mutex::new(LogWriter {
                position,
                seed: layout.seed(log, start.generation),
                units: 0,
                bytes: 0,
                buffer: Box::new([0; SMALL_BYTES]),
            })
        };
        Self {
            handover: Handover::new(start.seq + 1, &start.positions),
            writers: start.positions.iter().enumerate().map(writer).collect(),
            replayer: Mutex::new(Replayer::new(start.positions.clone(), start.seq)),
            spill_area: Mutex::default(),
            region,
            layout,
            working,
            background: options.background,
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            len: AtomicU64::new(start.len),
            full_waits: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.len.load(Ordering::Acquire)
    }

    /// Commits `ranges` of the working copy as one atomic group of `log`; returns its number. It is durable on
    /// return, but atomic groups with smaller numbers may not be.
    pub(crate) fn commit(&self, log: usize, ranges: impl Iterator<Item = Range> + Clone) -> Result<u64> {
        let (bytes, records) =
            ranges.clone().fold((COMMIT_BYTES, 0), |(bytes, n), r| (bytes + redo_total(r.len), n + 1));
        if bytes > self.layout.ring_bytes / 2 {
            return self.commit_spilled(log, ranges, bytes, records);
        }
        let mut writer = self.writers[log].lock();
        self.make_space(log, writer.position + bytes)?;
        let seq = self.handover.begin(log);
        let mut commit =
            CommitRecord { bytes, seq, position: writer.position, records: records as u32, crc: 0 };
        if bytes as usize <= SMALL_BYTES {
            self.put_small(log, &mut writer, &mut commit, ranges);
        } else {
            let mut at = writer.position + COMMIT_BYTES;
            commit.crc = commit.crc_of_head(writer.seed);
            for range in ranges {
                let head: [u8; 16] = le_bytes(redo_words(range.offset, range.len));
                self.put(log, at, &head);
                let crc = crc32c(commit.crc, &head);
                let put = |at, bytes: &[u8]| self.put(log, at, bytes);
                commit.crc =
                    put_checksummed(&mut writer.buffer, self.working.bytes(range), at + REDO_BYTES, crc, put);
                at += redo_total(range.len);
            }
            self.put(log, writer.position, &le_bytes::<4, 32>(commit.words()));
        }
        writer.units += 1;
        writer.bytes += bytes;
        self.publish(log, &mut writer, bytes)?;
        Ok(seq)
    }

    /// Makes the writer's atomic group durable, whose `bytes` bytes have been put and flushed.
    #[inline]
    fn publish(&self, log: usize, writer: &mut LogWriter, bytes: u64) -> Result<()> {
        writer.position += bytes;
        self.region.fence();
        // Fetches the lines of the next atomic group, most likely a short one, while the caller continues.
        for line in 0..PREFETCH_LINES {
            prefetch_write(self.region.at(self.layout.ring(log, writer.position + line * 64)));
        }
        let drained = self.region.drain();
        // Published in any case, or other threads would wait for it forever; a failure poisons the medium.
        self.handover.publish(log, writer.position);
        if self.background {
            self.handover.wake_if_idle();
            if writer.position - self.handover.head(log) > self.layout.ring_bytes / 4 {
                self.handover.request_space();
            }
        }
        drained
    }

    /// Copies a whole atomic group into the ring at once.
    #[inline]
    fn put_small(
        &self,
        log: usize,
        writer: &mut LogWriter,
        commit: &mut CommitRecord,
        ranges: impl Iterator<Item = Range>,
    ) {
        let buffer = &mut writer.buffer;
        let mut at = COMMIT_BYTES as usize;
        commit.crc = commit.crc_of_head(writer.seed);
        for range in ranges {
            let data = self.working.bytes(range);
            buffer[at..at + 16].copy_from_slice(&le_bytes::<2, 16>(redo_words(range.offset, range.len)));
            buffer[at + 16..at + 16 + data.len()].copy_from_slice(data);
            commit.crc = crc32c(commit.crc, &buffer[at..at + 16 + data.len()]);
            let end = at + redo_total(range.len) as usize;
            buffer[at + 16 + data.len()..end].fill(0);
            at = end;
        }
        buffer[..COMMIT_BYTES as usize].copy_from_slice(&le_bytes::<4, 32>(commit.words()));
        self.put(log, writer.position, &writer.buffer[..at]);
    }

    /// Copies bytes to a position of a log, in two parts where the ring ends, and flushes them.
    #[inline]
    fn put(&self, log: usize, position: u64, bytes: &[u8]) {
        let left = (self.layout.ring_bytes - position % self.layout.ring_bytes) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(left));
        self.region.write_through(self.layout.ring(log, position), first);
        if !second.is_empty() {
            self.region.write_through(self.layout.ring(log, position + left as u64), second);
        }
    }

    /// Waits until the ring of `log` has space for bytes up to `end`.
    #[inline]
    fn make_space(&self, log: usize, end: u64) -> Result<()> {
        if end - self.handover.head(log) <= self.layout.ring_bytes {
            return Ok(());
        }
        self.wait_for_space(log, end)
    }

    #[cold]
    fn wait_for_space(&self, log: usize, end: u64) -> Result<()> {
        // Relaxed: a counter.
        self.full_waits.fetch_add(1, Ordering::Relaxed);
        loop {
            let ticket = self.handover.space.ticket();
            if end - self.handover.head(log) <= self.layout.ring_bytes {
                return Ok(());
            }
            self.alive()?;
            if self.background {
                self.handover.request_space();
                // Asks again if nothing happens. The replayer may have begun its round, found the atomic group that
                // all wait for not yet published, and missed the wake-up when it was.
                self.handover.space.wait_for(ticket, ASK_AGAIN);
            } else if !self.replay_once() {
                // The ring is full of atomic groups of this log that wait for one that another log writer has under
                // way.
                std::thread::yield_now();
            }
        }
    }

    /// Commits an atomic group that is too long for a ring. Its records are put after the durable copy, and the log
    /// gets a record that names them. One such atomic group at a time: the space is free when the last one has been
    /// applied.
    ///
    /// Durable-order: `dirty_end`, which says how far the region is no longer zero, before the records. Otherwise
    /// `grow` would not know, after a crash, what to zero. The records need no fence before the COMMIT record: one
    /// fence makes both durable, and an atomic group whose records do not match their checksum was not finished.
    fn commit_spilled(
        &self,
        log: usize,
        ranges: impl Iterator<Item = Range>,
        bytes: u64,
        count: u64,
    ) -> Result<u64> {
        let mut spill_area = self.spill_area.lock();
        self.wait_applied(spill_area.seq)?;
        let start = self.layout.image_start() + self.len();
        let records = bytes - COMMIT_BYTES;
        let no_space = |wanted| Error::NoSpace { path: "a unit longer than its log".into(), wanted };
        if start + records > self.region.len() {
            return Err(no_space(start + records - self.region.len()));
        }
        self.region.grow(start + records)?;
        let dirty_end = self.len() + records;
        // Relaxed: a thread that grows or spills holds the lock.
        if dirty_end > self.region.word(AT_DIRTY_END).load(Ordering::Relaxed) {
            self.region.store(AT_DIRTY_END, dirty_end, Ordering::Relaxed);
            self.region.flush(AT_DIRTY_END, 8);
            self.region.fence();
        }
        let (mut at, mut crc, mut buffer) = (start, 0, [0; SMALL_BYTES]);
        for range in ranges {
            let head: [u8; 16] = le_bytes(redo_words(range.offset, range.len));
            self.region.write_through(at, &head);
            let put = |at, bytes: &[u8]| self.region.write_through(at, bytes);
            crc = crc32c(crc, &head);
            crc = put_checksummed(&mut buffer, self.working.bytes(range), at + REDO_BYTES, crc, put);
            at += redo_total(range.len);
        }
        let mut writer = self.writers[log].lock();
        let bytes = COMMIT_BYTES + SPILL_BYTES;
        self.make_space(log, writer.position + bytes)?;
        let seq = self.handover.begin(log);
        let mut commit = CommitRecord { bytes, seq, position: writer.position, records: 1, crc: 0 };
        let record = [u64::from(crc) << 32 | KIND_SPILL, start, records, count];
        let record: [u8; 32] = le_bytes(record);
        commit.crc = crc32c(commit.crc_of_head(writer.seed), &record);
        self.put(log, writer.position, &le_bytes::<4, 32>(commit.words()));
        self.put(log, writer.position + COMMIT_BYTES, &record);
        *spill_area = SpillArea { seq, end: start + records };
        writer.units += 1;
        writer.bytes += bytes + records;
        self.publish(log, &mut writer, bytes)?;
        Ok(seq)
    }

    /// Makes the first `bytes` bytes of the working copy usable.
    ///
    /// Durable-order: zeros over spilled records, before the length that includes their place. Otherwise bytes that
    /// were never committed would be found in the durable copy after a crash.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.len() {
            return Ok(());
        }
        if bytes > self.layout.capacity || bytes > self.working.len() {
            let wanted = bytes - self.layout.capacity.min(self.working.len());
            return Err(Error::NoSpace { path: "the shadow's address space".into(), wanted });
        }
        let spill_area = self.spill_area.lock();
        let (len, to) = (self.len(), bytes.next_multiple_of(PAGE_BYTES).min(self.layout.capacity));
        if to <= len {
            return Ok(());
        }
        let image = self.layout.image_start();
        self.region.grow(image + to)?;
        if spill_area.end > image + len {
            self.wait_applied(spill_area.seq)?;
        }
        // Relaxed: a thread that grows or spills holds the lock.
        let dirty = self.region.word(AT_DIRTY_END).load(Ordering::Relaxed).min(to);
        if dirty > len {
            self.region.zero(image + len, (dirty - len) as usize);
            self.region.flush(image + len, (dirty - len) as usize);
            self.region.fence();
        }
        self.region.store(AT_LEN, to, Ordering::Relaxed);
        self.region.flush(AT_LEN, 8);
        self.region.fence();
        self.region.drain()?;
        // Release pairs with the Acquire in `len`.
        self.len.store(to, Ordering::Release);
        Ok(())
    }

    /// Waits until every atomic group up to `seq` is durable.
    #[inline]
    pub(crate) fn wait(&self, seq: u64) -> Result<()> {
        let mut spins = 0;
        while self.handover.watermark() < seq {
            self.alive()?;
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        Ok(())
    }

    /// Waits until the atomic group `seq` is in the durable copy.
    fn wait_applied(&self, seq: u64) -> Result<()> {
        self.wait(seq)?;
        while self.replayer.lock().applied() < seq {
            self.alive()?;
            self.replay_once();
        }
        Ok(())
    }

    /// Applies everything published to the durable copy.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let seq = self.handover.begun();
        self.wait_applied(seq)
    }

    /// Runs one batch of the replayer; false when there was nothing to do.
    pub(crate) fn replay_once(&self) -> bool {
        let progress = self.replayer.lock().batch(&self.region, &self.layout, &self.handover);
        if progress {
            self.handover.space.notify_all();
        }
        progress
    }

    fn alive(&self) -> Result<()> {
        self.poisoned().map_or_else(|| self.region.drain(), Err)
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        // Relaxed: a flag that nothing else depends on.
        let panicked = self.panicked.load(Ordering::Relaxed);
        panicked.then(|| Error::Poisoned { first: "the replayer panicked".into() })
    }

    /// Counters.
    pub(crate) fn count(&self, stat: &mut Stat) {
        let logs = self.layout.log_count as usize;
        stat.log_bytes = self.layout.log_count * self.layout.ring_bytes;
        stat.log_used = (0..logs).map(|log| self.handover.tail(log) - self.handover.head(log)).sum();
        for writer in &self.writers {
            let writer = writer.lock();
            stat.units += writer.units;
            stat.log_written += writer.bytes;
        }
        // Relaxed: a counter.
        stat.full_waits = self.full_waits.load(Ordering::Relaxed);
        let replayer = self.replayer.lock();
        stat.applied_units = replayer.units;
        stat.applied_bytes = replayer.bytes;
        stat.batches = replayer.batches;
        stat.image_written = replayer.flushed_bytes;
    }

    /// The replayer's thread (Fig. 4).
    pub(crate) fn replay_loop(&self) {
        let guarded = std::panic::AssertUnwindSafe(|| self.replay_until_stopped());
        if std::panic::catch_unwind(guarded).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
            self.handover.space.notify_all();
        }
    }

    fn replay_until_stopped(&self) {
        loop {
            let ticket = self.handover.work.ticket();
            // Acquire pairs with the Release in `stop`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.handover.begin_round();
            if self.replay_once() {
                self.handover.work.wait_for(ticket, GATHER);
            } else {
                self.handover.go_idle();
                self.handover.work.wait(ticket);
                let ticket = self.handover.work.ticket();
                // After the ticket: a later request wakes the replayer, and an earlier one keeps it from waiting.
                if !self.stop.load(Ordering::Acquire) && !self.handover.is_space_requested() {
                    self.handover.work.wait_for(ticket, GATHER);
                }
            }
        }
    }

    /// Ends `replay_loop`; the caller joins its thread.
    pub(crate) fn stop(&self) {
        // Release pairs with the Acquire in `replay_loop`.
        self.stop.store(true, Ordering::Release);
        self.handover.work.notify_all();
    }
}
