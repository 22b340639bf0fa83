//! A shadow on a medium without a log of its own (dax, emulated): the front of its logs.
//!
//! Source: Fig. 3 of the Mangosteen paper. One batch is one unit: its REDO records, then the tail. The paper has
//! two fences: one makes the records durable, one the tail, which is what commits. Here a unit has a checksum that
//! tells by itself whether it is all there, and a whole unit proves that those before it in its log had been durable:
//! so there is one fence, and no tail to be stored (docs/decisions/shadow.md). Further deviations: records
//! carry ranges of any length instead of one block each (the blocks are deduplicated before, by who tracks
//! stores); the COMMIT record stands first, since length and number are known when it is written; several logs,
//! in the order of one counter (`handover.rs`).
//!
//! Invariants:
//! 1. Durable-order: a unit before the first byte of the next in its log. Otherwise a crash could keep the next one
//!    alone, and recovery would take the hole before it for damage.
//! 2. Durable-order: space is written again only when the head that frees it is durable. Otherwise recovery
//!    would read new records as old ones.
//! 3. Locks, outermost first: `aside`, a front, the replayer.

use crate::handover::Handover;
use crate::layout::{
    ASIDE_BYTES, AT_DIRTY_END, AT_LEN, COMMIT_BYTES, Commit, KIND_ASIDE, Layout, PAGE_BYTES, REDO_BYTES,
    le_bytes, redo_total, redo_words,
};
use crate::replay::Replayer;
use crate::working::Working;
use crate::{Error, Result, Stat};
use mangrove_pmem::{Range, Region, crc32c};
use mangrove_sys::{CACHE_LINE_BYTES, prefetch_write};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Units up to this size are put together first and copied at once: lines are then flushed once each.
const SMALL_BYTES: usize = 8192;
/// Lines fetched ahead.
const PREFETCH_LINES: u64 = 6;
/// How long the replayer lets units gather: what they have in common is then written once.
const GATHER: Duration = Duration::from_millis(10);
/// Spins before a wait for another front yields the processor.
const SPINS: u32 = 200;

/// The front of one log.
struct Front {
    /// Where the next unit goes.
    position: u64,
    seed: u32,
    units: u64,
    bytes: u64,
    unit: Box<[u8; SMALL_BYTES]>,
}

/// Where a unit that no ring takes is put: behind the image.
#[derive(Default)]
pub(crate) struct Aside {
    /// Number of the unit that lies there, 0 for none yet.
    seq: u64,
    /// Where it ends in the region.
    end: u64,
}

/// Puts `data` at `at` and sums it, from a copy: another thread may be storing into a neighbour of what a command wrote
/// (a block that it got from a command, or has freed), and the sum is that of the bytes that were put.
fn put_summed(
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
    pub(crate) layout: Layout,
    pub(crate) working: Working,
    pub(crate) handover: Handover,
    fronts: Box<[Mutex<Front>]>,
    aside: Mutex<Aside>,
    pub(crate) replayer: Mutex<Replayer>,
    /// A thread replays; otherwise whoever finds a ring full does.
    background: bool,
    stop: AtomicBool,
    panicked: AtomicBool,
    len: AtomicU64,
    pub(crate) full_waits: AtomicU64,
}

/// What a recovery or creation leaves: where each log stands, and the number of its last unit.
pub(crate) struct Start {
    pub(crate) positions: Vec<u64>,
    pub(crate) seq: u64,
    pub(crate) len: u64,
    /// Of the units that will be written.
    pub(crate) incarnation: u64,
}

impl Rings {
    pub(crate) fn new(
        region: Region,
        layout: Layout,
        working: Working,
        start: &Start,
        options: &crate::Options,
    ) -> Self {
        let front = |(log, &position): (usize, &u64)| {
            Mutex::new(Front {
                position,
                seed: layout.seed(log, start.incarnation),
                units: 0,
                bytes: 0,
                unit: Box::new([0; SMALL_BYTES]),
            })
        };
        Self {
            handover: Handover::new(start.seq + 1, &start.positions),
            fronts: start.positions.iter().enumerate().map(front).collect(),
            replayer: Mutex::new(Replayer::new(start.positions.clone(), start.seq)),
            aside: Mutex::default(),
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

    /// Commits `ranges` of the working copy as one unit of `log`; its number. Durable on return, except that
    /// units with smaller numbers may not be.
    pub(crate) fn commit(&self, log: usize, ranges: impl Iterator<Item = Range> + Clone) -> Result<u64> {
        let (bytes, records) =
            ranges.clone().fold((COMMIT_BYTES, 0), |(bytes, n), r| (bytes + redo_total(r.len), n + 1));
        if bytes > self.layout.ring_bytes / 2 {
            return self.commit_aside(log, ranges, bytes, records);
        }
        let mut front = self.fronts[log].lock();
        self.make_space(log, front.position + bytes)?;
        let seq = self.handover.begin(log);
        let mut commit = Commit { bytes, seq, position: front.position, records: records as u32, crc: 0 };
        if bytes as usize <= SMALL_BYTES {
            self.put_small(log, &mut front, &mut commit, ranges);
        } else {
            let mut at = front.position + COMMIT_BYTES;
            commit.crc = commit.crc_of_head(front.seed);
            for range in ranges {
                let head: [u8; 16] = le_bytes(redo_words(range.offset, range.len));
                self.put(log, at, &head);
                let crc = crc32c(commit.crc, &head);
                let put = |at, bytes: &[u8]| self.put(log, at, bytes);
                commit.crc =
                    put_summed(&mut front.unit, self.working.bytes(range), at + REDO_BYTES, crc, put);
                at += redo_total(range.len);
            }
            self.put(log, front.position, &le_bytes::<4, 32>(commit.words()));
        }
        front.units += 1;
        front.bytes += bytes;
        self.publish(log, &mut front, bytes)?;
        Ok(seq)
    }

    /// Makes the unit of `bytes` bytes at the front durable, whose bytes have been put and flushed.
    #[inline]
    fn publish(&self, log: usize, front: &mut Front, bytes: u64) -> Result<()> {
        front.position += bytes;
        self.region.fence();
        // The lines of the next unit, most likely a short one, are fetched while the caller goes on.
        for line in 0..PREFETCH_LINES {
            prefetch_write(self.region.at(self.layout.ring(log, front.position + line * 64)));
        }
        let drained = self.region.drain();
        // Published in any case, or everybody would wait for it for ever; a failure latches below.
        self.handover.publish(log, front.position);
        if self.background {
            self.handover.nudge();
            if front.position - self.handover.head(log) > self.layout.ring_bytes / 4 {
                self.handover.press();
            }
        }
        drained
    }

    /// A whole unit in one copy into the ring.
    #[inline]
    fn put_small(
        &self,
        log: usize,
        front: &mut Front,
        commit: &mut Commit,
        ranges: impl Iterator<Item = Range>,
    ) {
        let unit = &mut front.unit;
        let mut at = COMMIT_BYTES as usize;
        commit.crc = commit.crc_of_head(front.seed);
        for range in ranges {
            let data = self.working.bytes(range);
            unit[at..at + 16].copy_from_slice(&le_bytes::<2, 16>(redo_words(range.offset, range.len)));
            unit[at + 16..at + 16 + data.len()].copy_from_slice(data);
            commit.crc = crc32c(commit.crc, &unit[at..at + 16 + data.len()]);
            let end = at + redo_total(range.len) as usize;
            unit[at + 16 + data.len()..end].fill(0);
            at = end;
        }
        unit[..COMMIT_BYTES as usize].copy_from_slice(&le_bytes::<4, 32>(commit.words()));
        self.put(log, front.position, &front.unit[..at]);
    }

    /// Copies bytes to a position of a log, in two parts where the ring ends, and asks for them to be durable.
    #[inline]
    fn put(&self, log: usize, position: u64, bytes: &[u8]) {
        let left = (self.layout.ring_bytes - position % self.layout.ring_bytes) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(left));
        self.region.write_through(self.layout.ring(log, position), first);
        if !second.is_empty() {
            self.region.write_through(self.layout.ring(log, position + left as u64), second);
        }
    }

    /// Waits until the ring of `log` takes bytes up to `end`.
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
                self.handover.press();
                // And again, if nothing happens: the replayer may have heeded it, found the unit that all wait for not yet
                // published, and missed that one's nudge.
                self.handover.space.wait_for(ticket, GATHER);
            } else if !self.replay_once() {
                // What fills the ring is a unit of this log behind one that another front has under way.
                std::thread::yield_now();
            }
        }
    }

    /// Commits a unit that no ring takes. Its records are put behind the image, and the log gets one that
    /// names them. One such unit at a time: the place is free when the last one has been applied.
    ///
    /// Durable-order: that the region is no longer zero behind the image, before the records. Otherwise `grow`
    /// would not know, after a crash, what to zero. The records need no fence before the unit that names them: one
    /// fence makes both durable, and a unit whose records do not match their checksum was not finished.
    fn commit_aside(
        &self,
        log: usize,
        ranges: impl Iterator<Item = Range>,
        bytes: u64,
        count: u64,
    ) -> Result<u64> {
        let mut aside = self.aside.lock();
        self.wait_applied(aside.seq)?;
        let start = self.layout.image_start() + self.len();
        let records = bytes - COMMIT_BYTES;
        let no_space = |wanted| Error::NoSpace { path: "a unit longer than its log".into(), wanted };
        if start + records > self.region.len() {
            return Err(no_space(start + records - self.region.len()));
        }
        self.region.grow(start + records)?;
        let dirty_end = self.len() + records;
        // Relaxed: whoever grows or commits aside holds the lock.
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
            crc = put_summed(&mut buffer, self.working.bytes(range), at + REDO_BYTES, crc, put);
            at += redo_total(range.len);
        }
        let mut front = self.fronts[log].lock();
        let bytes = COMMIT_BYTES + ASIDE_BYTES;
        self.make_space(log, front.position + bytes)?;
        let seq = self.handover.begin(log);
        let mut commit = Commit { bytes, seq, position: front.position, records: 1, crc: 0 };
        let record = [u64::from(crc) << 32 | KIND_ASIDE, start, records, count];
        let record: [u8; 32] = le_bytes(record);
        commit.crc = crc32c(commit.crc_of_head(front.seed), &record);
        self.put(log, front.position, &le_bytes::<4, 32>(commit.words()));
        self.put(log, front.position + COMMIT_BYTES, &record);
        *aside = Aside { seq, end: start + records };
        front.units += 1;
        front.bytes += bytes + records;
        self.publish(log, &mut front, bytes)?;
        Ok(seq)
    }

    /// Makes the first `bytes` bytes of the working copy usable.
    ///
    /// Durable-order: zeros over what a unit aside has left there, before the length that takes them in.
    /// Otherwise bytes that nobody committed would be found in the image after a crash.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.len() {
            return Ok(());
        }
        if bytes > self.layout.capacity || bytes > self.working.len() {
            let wanted = bytes - self.layout.capacity.min(self.working.len());
            return Err(Error::NoSpace { path: "the shadow's address space".into(), wanted });
        }
        let aside = self.aside.lock();
        let (len, to) = (self.len(), bytes.next_multiple_of(PAGE_BYTES).min(self.layout.capacity));
        if to <= len {
            return Ok(());
        }
        let image = self.layout.image_start();
        self.region.grow(image + to)?;
        if aside.end > image + len {
            self.wait_applied(aside.seq)?;
        }
        // Relaxed: whoever grows or commits aside holds the lock.
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

    /// Waits until every unit up to `seq` is durable.
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

    /// Waits until the unit `seq` is in the image.
    fn wait_applied(&self, seq: u64) -> Result<()> {
        self.wait(seq)?;
        while self.replayer.lock().applied() < seq {
            self.alive()?;
            self.replay_once();
        }
        Ok(())
    }

    /// Applies everything published to the image.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let seq = self.handover.begun();
        self.wait_applied(seq)
    }

    /// One batch of the replayer; false when there was nothing to do.
    pub(crate) fn replay_once(&self) -> bool {
        let progress = self.replayer.lock().batch(self);
        if progress {
            self.handover.space.open();
        }
        progress
    }

    fn alive(&self) -> Result<()> {
        self.poisoned().map_or_else(|| self.region.drain(), Err)
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        // Relaxed: only looked at.
        let panicked = self.panicked.load(Ordering::Relaxed);
        panicked.then(|| Error::Poisoned { first: "the replayer panicked".into() })
    }

    /// Counters.
    pub(crate) fn count(&self, stat: &mut Stat) {
        let logs = self.layout.log_count as usize;
        stat.log_bytes = self.layout.log_count * self.layout.ring_bytes;
        stat.log_used = (0..logs).map(|log| self.handover.tail(log) - self.handover.head(log)).sum();
        for front in &self.fronts {
            let front = front.lock();
            stat.units += front.units;
            stat.log_written += front.bytes;
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
            self.handover.space.open();
        }
    }

    fn replay_until_stopped(&self) {
        loop {
            let ticket = self.handover.work.ticket();
            // Acquire pairs with the Release in `stop`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.handover.heed();
            if self.replay_once() {
                self.handover.work.wait_for(ticket, GATHER);
            } else {
                self.handover.rest();
                self.handover.work.wait(ticket);
                let ticket = self.handover.work.ticket();
                // After the ticket: who presses from now on wakes it, who has pressed before is not kept waiting.
                if !self.stop.load(Ordering::Acquire) && !self.handover.is_pressed() {
                    self.handover.work.wait_for(ticket, GATHER);
                }
            }
        }
    }

    /// Ends `replay_loop`; the caller joins its thread.
    pub(crate) fn stop(&self) {
        // Release pairs with the Acquire in `replay_loop`.
        self.stop.store(true, Ordering::Release);
        self.handover.work.open();
    }
}
