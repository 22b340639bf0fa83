//! A commit to a ring: the steps from reserved space to the published atomic group.
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
//! 1. Durable-order: an atomic group is durable before the first byte of the next one in its log is stored.
//!    Otherwise a crash could keep the next one alone, and recovery would take the hole before it for damage. An
//!    atomic group that follows a deferred one, for which this is not sure, has a mark (`defer.rs`). With
//!    `Order::Gaps` there is no fence: caches are persistent, and stores become durable in their order.
//! 2. Durable-order: space is written again only when the head that frees it is durable. Otherwise recovery would
//!    read new records as old ones.

use crate::Result;
use crate::layout::{
    COMMIT_BYTES, CommitRecord, KIND_SPILL, SPILL_BYTES, UNIT_ALIGN, WORDS_COMMIT_BYTES, WordsCommit,
    le_bytes, redo_total, redo_words,
};
use crate::log::log_writer::{Deferred, LONG_BYTES, LogWriter, NOT_A_WORD, SMALL_BYTES};
use crate::log::spill_area::{Held, Spilled};
use crate::log::stamps::refused;
use crate::recovery::scan::NUMBER_MAX;
use crate::replay::replay::{Aim, ReplayStep, SHARES};
use crate::ring::Rings;
use crate::sync::give_way;
use mangrove_pool::{ByteRange, crc32c};
use mangrove_sys::{CACHE_LINE_BYTES, Crc32c, Stored, prefetch_write};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Lines behind the last atomic group that are fetched before the next; behind a longer group, as many as that has.
const FETCHED_AHEAD_LINES: usize = 6;
/// Lines fetched after one commit at most.
const FETCHED_LINES_MAX: usize = 64;
/// How long a log writer waits for space before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Puts `data` at `at` through a copy, and returns the checksum of the copy. Another thread may be storing next to
/// the bytes that a command wrote (into a block that it got from a command, or has freed), and the checksum must be
/// that of the bytes that were put.
pub(crate) fn put_checksummed(
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

/// Collects bytes that follow each other in a log, and puts them a buffer at a time.
struct PutBuffer<'a> {
    buffer: &'a mut [u8; SMALL_BYTES],
    /// Where the buffer's first byte goes.
    at: u64,
    /// What is to be put.
    from: usize,
    until: usize,
}

impl<'a> PutBuffer<'a> {
    /// The first byte goes to `at + from`. Where `at` begins a line, every buffer does.
    fn new(buffer: &'a mut [u8; SMALL_BYTES], at: u64, from: usize) -> Self {
        Self { buffer, at, from, until: from }
    }

    /// Adds bytes; returns the checksum `crc` continued with them, as they were copied (see `put_checksummed`).
    #[inline]
    fn add(&mut self, mut bytes: &[u8], mut crc: u32, put: impl Fn(u64, &[u8])) -> u32 {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(SMALL_BYTES - self.until));
            let copy = &mut self.buffer[self.until..self.until + piece.len()];
            copy.copy_from_slice(piece);
            crc = crc32c(crc, copy);
            self.until += piece.len();
            if self.until == SMALL_BYTES {
                self.put(&put);
            }
            bytes = rest;
        }
        crc
    }

    /// Puts what was added since the last time.
    fn put(&mut self, put: impl Fn(u64, &[u8])) {
        if self.from < self.until {
            put(self.at + self.from as u64, &self.buffer[self.from..self.until]);
        }
        self.at += self.until as u64;
        (self.from, self.until) = (0, 0);
    }
}

impl Rings {
    /// Commits `ranges` of the working copy as one atomic group of `log`; returns its number. It is durable on
    /// return, but atomic groups with smaller numbers may not be.
    pub(crate) fn commit(&self, log: usize, ranges: impl Iterator<Item = ByteRange> + Clone) -> Result<u64> {
        if self.stamps.is_some() {
            return refused();
        }
        self.refuse_child()?;
        let mut writer = self.writers.lock(log);
        self.close_log(&mut writer)?;
        let (bytes, records) =
            ranges.clone().fold((COMMIT_BYTES, 0), |(bytes, n), r| (bytes + redo_total(r.len), n + 1));
        let pieces = ranges.map(|range| (range.offset, self.working.bytes(range)));
        self.reserve_for(&mut writer, bytes, pieces.clone())?;
        let seq = self.number(&mut writer);
        if writer.spilled.is_some() {
            self.seal(&mut writer);
        } else {
            let bytes = writer.bytes;
            let mut commit =
                CommitRecord { bytes, seq, position: writer.position, records: records as u32, crc: 0 };
            if bytes as usize <= SMALL_BYTES {
                self.put_small(&mut writer, &mut commit, pieces);
            } else {
                self.put_large(&mut writer, &mut commit, pieces);
            }
        }
        let flushed = self.flush(&mut writer);
        self.publish(&mut writer);
        flushed.map(|()| seq)
    }

    // The steps of a commit by value, in their order. `LogLease` describes them.

    /// Waits for space for what was added to the writer; puts it beside the durable copy if it is too long for a ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserve(&self, writer: &mut LogWriter) -> Result<()> {
        let total = writer.total();
        if !writer.has_only_words() || total > self.layout.ring_bytes / 2 {
            self.close_log(writer)?;
        }
        if total <= self.layout.ring_bytes / 2 {
            writer.bytes = total;
            self.make_space(writer.log, writer.position + total)?;
            writer.space_end = self.handover.head(writer.log) + self.layout.ring_bytes;
            return Ok(());
        }
        // What was added borrows the writer, and so does its buffer.
        let mut buffer = std::mem::replace(&mut writer.buffer, Box::new([0; SMALL_BYTES]));
        let spilled = self.spill(&mut buffer, writer.pieces());
        writer.buffer = buffer;
        self.reserve_spilled(writer, spilled?)
    }

    fn reserve_spilled(&self, writer: &mut LogWriter, spilled: Spilled) -> Result<()> {
        writer.spilled = Some(spilled);
        writer.bytes = COMMIT_BYTES + SPILL_BYTES;
        self.make_space(writer.log, writer.position + writer.bytes).inspect_err(|_| self.unreserve(writer))
    }

    /// Waits for space for `bytes` bytes, or for the greatest atomic group that a ring holds.
    pub(crate) fn make_room(&self, writer: &LogWriter, bytes: u64) -> Result<()> {
        let bytes = bytes.next_multiple_of(UNIT_ALIGN).min(self.layout.ring_bytes / 2);
        self.make_space(writer.log, writer.position + bytes)
    }

    /// Draws the number of the writer's atomic group. Until `publish`, no atomic group of this or a later number
    /// becomes durable or is applied.
    #[inline(always)]
    pub(crate) fn number(&self, writer: &mut LogWriter) -> u64 {
        writer.seq = self.handover.begin(writer.log);
        writer.seq
    }

    /// Takes the caller's number for the writer's atomic group. Stores to the writer and to a line of its log alone: it
    /// may be called inside a hardware transaction.
    #[inline]
    pub(crate) fn number_as(&self, writer: &mut LogWriter, number: u64) {
        let stamps = self.stamps.as_ref().expect("a number is given only with Options::stamped");
        let is_right = number > stamps.covered && number >= writer.seq && number <= NUMBER_MAX;
        assert!(is_right, "a number that is too small, or cannot be");
        writer.seq_before = writer.seq;
        writer.seq = number;
        self.handover.give(writer.log, number);
    }

    /// Forgets the number that the caller gave: it has no atomic group.
    pub(crate) fn take_number_back(&self, writer: &mut LogWriter) {
        writer.seq = writer.seq_before;
        self.handover.give(writer.log, writer.seq);
    }

    /// As `number`, while no other thread draws one.
    #[inline(always)]
    pub(crate) fn number_alone(&self, writer: &mut LogWriter) -> u64 {
        writer.seq = self.handover.begin_alone(writer.log);
        writer.seq
    }

    /// Draws a number that has no atomic group: the medium has failed. Recovery will drop all that follows.
    pub(crate) fn skip(&self, writer: &mut LogWriter) -> u64 {
        let seq = self.handover.begin(writer.log);
        self.leave_open(writer);
        if writer.deferred == Deferred::None {
            self.handover.publish(writer.log, writer.position);
        } else {
            self.handover.defer(writer.log, seq, writer.position);
        }
        seq
    }

    /// Puts the writer's atomic group into the ring. With `Order::Gaps` it is durable then.
    #[inline]
    pub(crate) fn seal(&self, writer: &mut LogWriter) {
        let (log, position) = (writer.log, writer.position);
        let Some(Spilled { crc, start, bytes, count }) = writer.spilled else {
            if writer.has_only_words() {
                self.put_words(writer);
            } else {
                self.put(log, position, writer.assemble_records());
            }
            // Release: for the compiler; the stores that make the caller's values visible come after.
            fence(Ordering::Release);
            return;
        };
        let record: [u8; 32] = le_bytes([u64::from(crc) << 32 | KIND_SPILL, start, bytes, count]);
        let mut commit = CommitRecord { bytes: writer.bytes, seq: writer.seq, position, records: 1, crc: 0 };
        commit.crc = crc32c(commit.crc_of_head(writer.seed), &record);
        let mut unit = [0; UNIT_ALIGN as usize];
        unit[..COMMIT_BYTES as usize].copy_from_slice(&le_bytes::<4, 32>(commit.words()));
        unit[COMMIT_BYTES as usize..].copy_from_slice(&record);
        self.put(log, position, &unit);
        // Release: as above.
        fence(Ordering::Release);
    }

    /// Puts an empty atomic group in place of the writer's, whose number has been drawn.
    pub(crate) fn seal_void(&self, writer: &mut LogWriter) {
        writer.make_void();
        self.put_words(writer);
    }

    /// Asks for the lines of the sealed atomic group to be written back: to its end, in two parts where the ring ends.
    /// (Records beside the durable copy are not among them.)
    pub(crate) fn write_back(&self, writer: &LogWriter) {
        self.flush_positions(writer.log, writer.position..writer.position + writer.bytes);
    }

    /// Makes the sealed atomic group durable, unless it is, and with it what was deferred in its log.
    #[inline]
    pub(crate) fn flush(&self, writer: &mut LogWriter) -> Result<()> {
        if writer.deferred != Deferred::None && self.close_log(writer)? {
            self.fetch_ahead(writer);
            return self.wait_sealed(writer);
        }
        let is_durable = !self.gaps && self.region.fence_completes();
        self.fetch_ahead(writer);
        if is_durable { Ok(()) } else { self.wait_sealed(writer) }
    }

    /// After the fence. A medium with rings has no log of its own: no position to wait for, only a failure to be told.
    #[inline(never)]
    fn wait_sealed(&self, writer: &mut LogWriter) -> Result<()> {
        self.region.wait(0).inspect_err(|_| self.leave_open(writer))
    }

    /// Marks the atomic group under way, which the medium did not take, as deferred for good. Waits for its number, or
    /// for a greater one, then return the medium's error. (With `Order::Gaps`, what is sealed is durable; with time
    /// stamps nothing is acknowledged before its marker.)
    #[cold]
    fn leave_open(&self, writer: &mut LogWriter) {
        if writer.deferred == Deferred::None && !self.gaps && self.stamps.is_none() {
            writer.deferred = Deferred::ByOther(writer.position);
        }
    }

    /// Fetches lines behind the atomic group of the writer, for those that follow, while the caller continues: as many
    /// as it has itself, since those before them were fetched when the groups before it ended. (Behind the ring's end
    /// lies the next ring, or the durable copy.)
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self, writer: &LogWriter) {
        let lines = (writer.bytes as usize / CACHE_LINE_BYTES).min(FETCHED_LINES_MAX);
        let first = FETCHED_AHEAD_LINES.saturating_sub(lines) * CACHE_LINE_BYTES;
        let mut next = self.region.base().wrapping_add((writer.place + writer.bytes) as usize + first);
        for _ in 0..lines {
            prefetch_write(next);
            next = next.wrapping_add(CACHE_LINE_BYTES);
        }
    }

    /// `flush`, `publish` and `clear`. Whether the medium has taken the atomic group, and whether every one before it
    /// is known to be durable, too.
    #[inline(always)]
    pub(crate) fn finish(&self, writer: &mut LogWriter) -> (bool, bool) {
        if writer.deferred != Deferred::None {
            return self.finish_open(writer);
        }
        let is_durable = match self.gaps {
            true => self.region.wait(0).is_ok(),
            false => self.region.fence_completes() || self.wait_sealed(writer).is_ok(),
        };
        self.fetch_ahead(writer);
        let is_last = self.publish(writer);
        writer.clear();
        (is_durable, is_last)
    }

    /// `finish`, where something was deferred in the log.
    #[cold]
    fn finish_open(&self, writer: &mut LogWriter) -> (bool, bool) {
        let is_durable = self.flush(writer).is_ok();
        let is_last = self.publish(writer);
        writer.clear();
        (is_durable, is_last)
    }

    /// Reports the atomic group durable, and readies the writer for the next. Called even when `flush` failed: then the
    /// atomic group stays deferred, and waits for it return the failure. While something is deferred in the log, the
    /// atomic group is, too. True if every atomic group up to this one is known to be durable.
    #[inline(always)]
    pub(crate) fn publish(&self, writer: &mut LogWriter) -> bool {
        let log = writer.log;
        writer.advance();
        let mut bytes = writer.bytes;
        if writer.spilled.is_some() {
            bytes += self.release_spilled(writer);
        }
        let written = &self.written[log];
        // Relaxed: counters, which only the owner of the writer changes.
        written.units.store(written.units.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        written.bytes.store(written.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        let covers_it = if writer.deferred == Deferred::None {
            self.handover.publish(log, writer.position);
            self.handover.note_published(writer.seq)
        } else {
            self.handover.defer(log, writer.seq, writer.position);
            false
        };
        if self.background {
            self.handover.wake_if_idle();
            if writer.position >= writer.ask_at {
                self.ask_for_space(writer);
            }
        }
        self.gaps || covers_it
    }

    /// What was put beside the durable copy is published; returns its bytes.
    #[cold]
    fn release_spilled(&self, writer: &mut LogWriter) -> u64 {
        writer.spilled.take().map_or(0, |spilled| {
            let held = Held { seq: writer.seq, end: spilled.start + spilled.bytes };
            self.spill_area.release(Some(held));
            spilled.bytes
        })
    }

    /// Asks the replayer for space when a quarter of the ring is in use, once for each share of it; when little is
    /// left, lets other threads run first.
    #[cold]
    fn ask_for_space(&self, writer: &mut LogWriter) {
        let share = self.layout.ring_bytes / SHARES;
        let head = self.handover.head(writer.log);
        let used = writer.position - head;
        if used <= self.layout.ring_bytes / 4 {
            writer.ask_at = head + self.layout.ring_bytes / 4 + 1;
        } else {
            self.handover.request_space();
            writer.ask_at = writer.position + share;
        }
        if used > (SHARES - 1) * share {
            // At each commit until space was freed.
            writer.ask_at = writer.position;
            give_way();
        }
    }

    /// Gives back what `reserve` took, when no number will be drawn.
    pub(crate) fn unreserve(&self, writer: &mut LogWriter) {
        if writer.spilled.take().is_some() {
            self.spill_area.release(None);
        }
    }

    /// Waits for space for an atomic group of REDO records of `pieces`, which take `bytes` with their COMMIT record.
    #[inline]
    fn reserve_for<'a>(
        &self,
        writer: &mut LogWriter,
        bytes: u64,
        pieces: impl Iterator<Item = (u64, &'a [u8])> + Clone,
    ) -> Result<()> {
        writer.bytes = bytes.next_multiple_of(UNIT_ALIGN);
        if writer.bytes > self.layout.ring_bytes / 2 {
            let spilled = self.spill(&mut writer.buffer, pieces)?;
            return self.reserve_spilled(writer, spilled);
        }
        self.make_space(writer.log, writer.position + writer.bytes)
    }

    /// Copies a whole atomic group into the ring at once.
    #[inline]
    fn put_small<'a>(
        &self,
        writer: &mut LogWriter,
        commit: &mut CommitRecord,
        pieces: impl Iterator<Item = (u64, &'a [u8])>,
    ) {
        let buffer = &mut writer.buffer;
        let mut at = COMMIT_BYTES as usize;
        commit.crc = commit.crc_of_head(writer.seed);
        for (offset, data) in pieces {
            let total = redo_total(data.len() as u64) as usize;
            buffer[at..at + 16].copy_from_slice(&le_bytes::<2, 16>(redo_words(offset, data.len() as u64)));
            buffer[at + 16..at + 16 + data.len()].copy_from_slice(data);
            commit.crc = crc32c(commit.crc, &buffer[at..at + 16 + data.len()]);
            buffer[at + 16 + data.len()..at + total].fill(0);
            at += total;
        }
        buffer[..COMMIT_BYTES as usize].copy_from_slice(&le_bytes::<4, 32>(commit.words()));
        buffer[at..commit.bytes as usize].fill(0);
        self.put(writer.log, writer.position, &writer.buffer[..commit.bytes as usize]);
    }

    /// Copies an atomic group into the ring, one buffer after the other: a record alone would flush its last line, and
    /// the record after it the same line again.
    fn put_large<'a>(
        &self,
        writer: &mut LogWriter,
        commit: &mut CommitRecord,
        pieces: impl Iterator<Item = (u64, &'a [u8])>,
    ) {
        let (log, position) = (writer.log, writer.position);
        let put = |at, bytes: &[u8]| self.put(log, at, bytes);
        // The head is put last, when the checksum is known.
        let mut buffer = PutBuffer::new(&mut writer.buffer, position, COMMIT_BYTES as usize);
        commit.crc = commit.crc_of_head(writer.seed);
        for (offset, data) in pieces {
            let head: [u8; 16] = le_bytes(redo_words(offset, data.len() as u64));
            commit.crc = buffer.add(&head, commit.crc, put);
            commit.crc = buffer.add(data, commit.crc, put);
            buffer.add(&[0; 8][..data.len().next_multiple_of(8) - data.len()], 0, put);
        }
        buffer.put(put);
        put(position, &le_bytes::<4, 32>(commit.words()));
    }

    /// Copies bytes to a position of a log, in two parts where the ring ends, and flushes them.
    #[inline]
    fn put(&self, log: usize, position: u64, bytes: &[u8]) {
        let left = (self.layout.ring_bytes - position % self.layout.ring_bytes) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(left));
        self.put_piece(self.layout.ring(log, position), first);
        if !second.is_empty() {
            self.put_piece(self.layout.ring(log, position + left as u64), second);
        }
    }

    /// Puts the words of the writer into the ring. Short atomic groups are copied and summed at once, and no padding is
    /// written: after a crash before the head was stored, no checksum fits what is there.
    #[inline]
    fn put_words(&self, writer: &mut LogWriter) {
        let (place, bytes) = (writer.place, writer.bytes);
        if bytes < LONG_BYTES
            && place + bytes <= writer.ring.end
            && let Some(crc) = writer.crc
        {
            self.put_summed(writer, crc, writer.words_unit().1, |word| *word);
            return;
        }
        let (log, position) = (writer.log, writer.position);
        self.put(log, position, writer.assemble_words());
    }

    /// Puts the words that `word` makes of the entries, each as offset and value, into the ring, which has the place
    /// for them in one piece.
    #[inline(always)]
    fn put_summed<T>(
        &self,
        writer: &LogWriter,
        crc: Crc32c,
        entries: &[T],
        word: impl FnMut(&T) -> [u64; 2],
    ) -> Stored {
        let follows_deferred = writer.deferred != Deferred::None;
        let mut commit =
            WordsCommit { count: entries.len() as u64, seq: writer.seq, follows_deferred, crcs: [0; 2] };
        let (place, head) = (writer.place, commit.head(writer.position));
        let at = place + WORDS_COMMIT_BYTES;
        let stored = self.region.write_summed(at, crc, writer.seed, head, entries, word);
        commit.crcs = stored.crcs;
        self.region.store_words(place, commit.words());
        if !self.gaps {
            self.region.flush(place, writer.bytes as usize);
        }
        stored
    }

    /// Seals an atomic group of the words that `word` makes of the entries, each as offset and value, in one pass:
    /// `take_one_pass` has taken its space, and the number is drawn.
    #[inline(always)]
    pub(crate) fn seal_one_pass<T>(
        &self,
        writer: &LogWriter,
        crc: Crc32c,
        entries: &[T],
        word: impl Fn(&T) -> [u64; 2],
    ) {
        let stored = self.put_summed(writer, crc, entries, word);
        // One look in place of one for each word.
        assert!(stored.greatest + 8 <= self.len() && stored.bits.is_multiple_of(8), "{NOT_A_WORD}");
        // Release: as in `seal`.
        fence(Ordering::Release);
    }

    /// Durable-order: with `Order::Gaps`, the atomic group before any later store of this thread. Plain stores become
    /// visible, and there durable, in their order; a store past the caches would need a fence.
    #[inline]
    fn put_piece(&self, at: u64, bytes: &[u8]) {
        if self.gaps { self.region.write(at, bytes) } else { self.region.write_through(at, bytes) }
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
        self.handover.set_waiting(true);
        let result = self.wait_for_end(log, end);
        self.handover.set_waiting(false);
        result
    }

    fn wait_for_end(&self, log: usize, end: u64) -> Result<()> {
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
            } else if self.replay_step(Aim::Space) == ReplayStep::Nothing {
                // The ring is full of atomic groups of this log that wait for one that another log writer has under
                // way.
                give_way();
            }
        }
    }
}
