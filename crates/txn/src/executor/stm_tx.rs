//! One transaction under ownership records: reads, writes, snapshot, commit and undoing.
//!
//! Encounter-time locking with write-through (TinySTM: Felber, Fetzer, Riegel, PPoPP 2008) on the clock of TL2 (Dice,
//! Shalev, Shavit, DISC 2006), extended as in LSA (Riegel, Felber, Fetzer, DISC 2006). Different here: the clock is
//! the redo log's number, and the redo log takes what was written from memory at commit. An attempt that is undone
//! before its commit draws no number (incarnations in the records, as in TinySTM; a void number only if they are used
//! up); one whose reads turn out to be invalid at its commit leaves a void number.
//!
//! 1. Every value that a read returns belongs to the state after commit `snapshot`; so attempts that are undone in
//!    the end have acted on a consistent state, too (opacity: Guerraoui and Kapalka, PPoPP 2008).
//! 2. Each logged read's record was as noted at `snapshot`, and no later commit up to it changed it. Extending the
//!    snapshot checks that again, for a later one.
//! 3. A commit's number is drawn while all its records are owned, and its reads are checked after that. If no other
//!    number lies between snapshot and commit, there is nothing to check.
//! 4. The atomic group is sealed before the first record is released.

use super::entries::Entries;
use super::gate::{Gate, Slot};
use super::ownership::{
    OwnershipRecords, OwnershipTable, is_owned, limit_of, mark_of, next_incarnation, number_of, record_of,
};
use super::policy::Policy;
use super::undo::{RUN_BYTES_MIN, UndoLog};
use super::wakeup::Wakeups;
use crate::access::{Interrupted, TxAccess, write_in_pieces};
use crate::memory::{TxMemory, load, store};
use crate::sink::{RedoLog, RedoSink, Taken};
use crate::sync::{Ordering, pause};
use std::sync::Arc;

/// Pauses for which an access waits for another thread's record before the attempt is undone.
const OWNED_ROUNDS_MAX: u32 = 64;

/// The executor with ownership records, for all threads: the default.
///
/// - Reads write no line that other threads use.
/// - Many conflicts in a row make a transaction run alone ([`serial_after`](crate::StmOptions::serial_after)), so
///   that each commits in the end.
/// - While only one thread has transactions, it runs without ownership records (*solo mode*).
#[derive(Debug)]
pub struct Stm<L> {
    pub(super) memory: TxMemory,
    pub(super) table: OwnershipTable,
    pub(super) gate: Gate,
    pub(super) wakeups: Wakeups,
    pub(super) serial_after: u32,
    pub(super) solo_after: Option<u32>,
    pub(super) policy: Option<Policy>,
    pub(super) log: L,
}

impl<L: RedoLog> Stm<L> {
    /// The redo log.
    pub fn log(&self) -> &L {
        &self.log
    }
}

/// A logged read: which record, and what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    index: u32,
    record: u64,
}

/// Whether the record of each of these reads is as it was, or owned by the attempt that noted them (which took it as it
/// was: a record that has changed since the snapshot is not taken without extending).
fn are_unchanged(reads: &[Seen], records: &OwnershipRecords<'_>, mark: u64) -> bool {
    reads.iter().all(|seen| {
        // Relaxed: the number or the clock that the caller has just loaded (Acquire) orders it; see there.
        let record = records.at(seen.index).load(Ordering::Relaxed);
        record == seen.record || record == mark
    })
}

/// The result of an attempt that reached its commit.
pub(super) enum Commit {
    /// It wrote, and is visible; [`RedoSink::finish`] is still to be called.
    Wrote(u64),
    /// It only read, nothing newer than this commit.
    Read(u64),
    /// It was undone: something that it read has changed.
    Invalid,
}

/// A transaction of [`Stm`].
pub struct StmTx<'stm, L: RedoLog + 'stm> {
    stm: &'stm Stm<L>,
    sink: L::Sink<'stm>,
    slot: Arc<Slot>,
    memory: TxMemory,
    records: OwnershipRecords<'stm>,
    /// This thread's mark in the records it owns.
    mark: u64,
    snapshot: u64,
    /// The largest record that the snapshot accepts.
    limit: u64,
    /// No other transaction runs: no records are needed.
    alone: bool,
    /// Alone, or the one writer, as it has found out: accesses need no records any more.
    direct: bool,
    /// Words that begin at smaller offsets are accessed without records; 0 unless `direct`. One comparison is both the
    /// check of the address and the question for the mode.
    direct_end: usize,
    /// At most one transaction writes.
    one_writer: bool,
    /// `direct` or `one_writer`: stripes need no records. One question where both are rare.
    without_stripes: bool,
    /// What the record of all memory held, while there is at most one writer.
    watched: u64,
    logs_reads: bool,
    /// An access was interrupted: whatever the body returns, the attempt is undone.
    doomed: bool,
    /// The body wrote although its reads were not logged.
    wants_log: bool,
    privatises: bool,
    /// The largest record that unlogged reads saw.
    newest_read: u64,
    reads: Entries<Seen>,
    owned: Entries<Seen>,
    undo: UndoLog,
}

impl<L: RedoLog> std::fmt::Debug for StmTx<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StmTx")
            .field("snapshot", &self.snapshot)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

impl<'stm, L: RedoLog> StmTx<'stm, L> {
    pub(super) fn new(stm: &'stm Stm<L>) -> Self {
        let slot = stm.gate.register();
        Self {
            stm,
            sink: stm.log.sink(),
            memory: stm.memory,
            records: stm.table.records(),
            mark: mark_of(slot.number()),
            slot,
            snapshot: 0,
            limit: 0,
            alone: false,
            direct: false,
            direct_end: 0,
            one_writer: false,
            without_stripes: false,
            watched: 0,
            logs_reads: true,
            doomed: false,
            wants_log: false,
            privatises: false,
            newest_read: 0,
            reads: Entries::new(),
            owned: Entries::new(),
            undo: UndoLog::new(),
        }
    }

    pub(super) fn stm(&self) -> &'stm Stm<L> {
        self.stm
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn sink(&mut self) -> &mut L::Sink<'stm> {
        &mut self.sink
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    pub(super) fn is_doomed(&self) -> bool {
        self.doomed
    }

    pub(super) fn logs_reads(&self) -> bool {
        self.logs_reads
    }

    /// Whether the attempt must be repeated with its reads logged, for no other thread's sake.
    pub(super) fn wants_log(&self) -> bool {
        self.wants_log
    }

    /// Begins an attempt; `exclusive` if the caller has closed the gate.
    #[inline(always)]
    pub(super) fn begin(&mut self, exclusive: bool, logs_reads: bool) {
        debug_assert!(self.owned.is_empty(), "an attempt that ends gives back what it owns");
        self.undo.clear();
        self.memory.refresh();
        self.logs_reads = logs_reads;
        (self.doomed, self.wants_log, self.privatises) = (false, false, false);
        if exclusive {
            self.alone = true;
            self.set_direct(true);
        } else {
            (self.alone, self.snapshot) = self.stm.gate.enter(&self.slot, || self.stm.log.newest());
            self.set_direct(self.alone);
            if self.alone {
                return;
            }
            self.reads.clear();
            self.newest_read = 0;
            self.limit = limit_of(self.snapshot);
            self.one_writer = self.stm.gate.one_writer();
            self.without_stripes = self.one_writer;
            if self.one_writer {
                self.watch();
            }
        }
    }

    #[inline(always)]
    fn set_direct(&mut self, direct: bool) {
        (self.direct, self.without_stripes) = (direct, direct);
        self.direct_end = if direct { self.memory.end_of_words() } else { 0 };
    }

    /// Where an access needs no records, if its address is a common one.
    #[inline(always)]
    fn directly(&self, address: usize) -> Option<*mut u8> {
        // SAFETY: 0, or the end of the words when it was set; the range only grows.
        unsafe { self.memory.at_before(self.direct_end, address) }
    }

    /// Notes what a write replaces, and writes.
    ///
    /// # Safety
    /// `at` came from the memory, for this address and size; and no other transaction uses the stripe now.
    #[inline(always)]
    unsafe fn replace(&mut self, at: *mut u8, address: usize, size: usize, value: u64) {
        // SAFETY: the caller's promises.
        unsafe {
            self.undo.note(address, size, load(at, size));
            store(at, size, value);
        }
    }

    /// Tries to commit. An error comes from [`RedoSink::put`] or [`RedoSink::seal`]; the caller undoes the attempt.
    #[inline(always)]
    pub(super) fn commit(&mut self) -> Result<Commit, <L::Sink<'stm> as RedoSink>::Error> {
        if self.undo.is_empty() {
            let newest = match (L::KEEPS, self.alone) {
                (true, true) => self.stm.log.newest(),
                (true, false) => self.newest_seen(),
                (false, _) => 0,
            };
            if self.owned.is_empty() {
                // Nothing was announced or put.
                self.leave();
            } else {
                // All that it wrote was undone by nested transactions, and others may have seen some of that.
                self.undo();
            }
            return Ok(Commit::Read(newest));
        }
        let Self { sink, undo, memory, direct, snapshot, reads, records, mark, .. } = self;
        let may_commit =
            |number| *direct || (L::DENSE && number == *snapshot + 1) || are_unchanged(reads, records, *mark);
        let number = match sink.take(&undo.written(memory), *direct, may_commit)? {
            Taken::Sealed(number) => number,
            Taken::Numbered(number) => {
                self.void(number);
                return Ok(Commit::Invalid);
            }
        };
        let mut sleepers = false;
        if self.alone {
            // Sleepers of before have been told that the gate was closed.
            if L::KEEPS {
                self.stm.gate.note_unrecorded(number);
            }
        } else {
            let record = record_of(number);
            self.owned.iter().for_each(|owned| self.records.release(owned.index, record));
            self.owned.clear();
            // Between the writes and the look for sleepers; pairs with the heavy half in `sleep`.
            self.stm.gate.light();
            sleepers = self.stm.wakeups.needed();
        }
        self.leave();
        if sleepers {
            self.stm.wakeups.wake();
        }
        Ok(Commit::Wrote(number))
    }

    /// After a commit that wrote: waits for older snapshots if the body asked for it. A transaction that ran alone
    /// waited for all others before.
    #[inline(always)]
    pub(super) fn wait_for_older(&mut self, number: u64) {
        if self.privatises && !self.alone {
            self.stm.gate.quiesce(&self.slot, number);
        }
    }

    /// Undoes the attempt and leaves the gate.
    #[cold]
    #[inline(never)]
    pub(super) fn undo(&mut self) {
        self.undo.roll_back(&self.memory);
        let mut void = None;
        for owned in self.owned.iter() {
            let record = next_incarnation(owned.record);
            let record =
                record.unwrap_or_else(|| record_of(*void.get_or_insert_with(|| self.sink.number_void())));
            self.records.release(owned.index, record);
        }
        self.owned.clear();
        if void.is_none() {
            self.sink.withdraw();
        }
        self.leave();
        if void.is_some() {
            // The empty atomic group acknowledges nothing; the next commit reports a medium that failed.
            let _ = self.sink.finish();
        }
    }

    /// Notes what the attempt owns as read, for `sleep`: reads of it are not noted otherwise.
    #[cold]
    pub(super) fn note_owned_as_read(&mut self) {
        let owned: Vec<Seen> = self.owned.to_vec();
        owned.into_iter().for_each(|seen| self.note_read(seen.index, seen.record));
    }

    /// Sleeps until something that the undone attempt read has changed, or for some milliseconds. `closings` was
    /// counted while the attempt ran.
    pub(super) fn sleep(&self, closings: u64) {
        let (gate, records) = (&self.stm.gate, self.records);
        // An owner that has not committed wakes us when it does; incarnations are not changes.
        let is_other = |seen: &Seen| {
            // Relaxed: the next attempt synchronizes; this only chooses its time.
            let record = records.at(seen.index).load(Ordering::Relaxed);
            !is_owned(record) && number_of(record) != number_of(seen.record)
        };
        self.stm.wakeups.join();
        gate.heavy();
        self.stm.wakeups.sleep(|| gate.closings() != closings || self.reads.iter().any(is_other));
    }

    /// Undoes an attempt whose number was drawn in vain.
    #[cold]
    #[inline(never)]
    fn void(&mut self, number: u64) {
        self.undo.roll_back(&self.memory);
        self.sink.void();
        self.owned.iter().for_each(|owned| self.records.release(owned.index, record_of(number)));
        self.owned.clear();
        self.leave();
        // As in `undo`.
        let _ = self.sink.finish();
    }

    #[inline(always)]
    fn leave(&mut self) {
        // After an exclusive attempt the slot is idle already.
        self.stm.gate.leave(&self.slot);
    }

    /// The number up to which commits must be durable before what was read beside others may be reported.
    fn newest_seen(&self) -> u64 {
        // Of what it owns it may have read more than it noted.
        let logged = self.reads.iter().chain(self.owned.iter()).map(|seen| seen.record).max().unwrap_or(0);
        number_of(logged.max(self.newest_read)).max(self.stm.gate.unrecorded())
    }

    fn is_valid(&self) -> bool {
        are_unchanged(&self.reads, &self.records, self.mark)
    }

    /// Takes a later snapshot, if all that was read belongs to it as well.
    #[cold]
    fn extend(&mut self) -> Result<(), Interrupted> {
        let snapshot = self.stm.log.newest();
        if !self.logs_reads || !self.is_valid() {
            return Err(self.doom());
        }
        (self.snapshot, self.limit) = (snapshot, limit_of(snapshot));
        self.stm.gate.advance(&self.slot, snapshot);
        Ok(())
    }

    #[cold]
    fn doom(&mut self) -> Interrupted {
        self.doomed = true;
        Interrupted(())
    }

    #[inline(always)]
    fn note_read(&mut self, index: u32, record: u64) {
        if self.logs_reads {
            if self.reads.is_full() {
                self.reads.make_room(|list| {
                    list.sort_unstable();
                    list.dedup();
                });
            }
            self.reads.push(Seen { index, record });
        } else if L::KEEPS {
            self.newest_read = self.newest_read.max(record);
        }
    }

    #[inline(always)]
    fn note_owned(&mut self, index: u32, record: u64) {
        if self.owned.is_full() {
            self.owned.make_room(|_| ());
        }
        self.owned.push(Seen { index, record });
    }

    /// Waits until no transaction writes, and notes the record of all memory: what equals it later belongs to the
    /// snapshot.
    #[inline]
    fn watch(&mut self) {
        // With one record there is nothing to save.
        self.logs_reads = true;
        let (index, mut round) = (self.records.of_all(), 0);
        loop {
            // Acquire pairs with the Release in `OwnershipRecords::release`: we see the bytes of that commit.
            let record = self.records.at(index).load(Ordering::Acquire);
            if is_owned(record) {
                pause(round);
                round = round.saturating_add(1);
            } else if record > self.limit {
                self.snapshot = self.stm.log.newest();
                self.limit = limit_of(self.snapshot);
                self.stm.gate.advance(&self.slot, self.snapshot);
            } else {
                self.watched = record;
                return self.note_read(index, record);
            }
        }
    }

    /// Takes the record of all memory.
    #[inline(never)]
    fn become_writer(&mut self) -> Result<(), Interrupted> {
        let index = self.records.of_all();
        if !self.records.own(index, self.watched, self.mark) {
            return Err(self.doom());
        }
        self.note_owned(index, self.watched);
        self.set_direct(true);
        Ok(())
    }

    /// What the record holds, if no transaction owns it and the snapshot accepts it. Otherwise pauses, or extends
    /// the snapshot, and the caller looks again.
    #[inline]
    fn accepted(&mut self, index: u32, round: u32) -> Result<Option<u64>, Interrupted> {
        // Acquire pairs with the Release in `OwnershipRecords::release`: we see the bytes of that commit.
        let record = self.records.at(index).load(Ordering::Acquire);
        if is_owned(record) {
            pause(round);
            return Ok(None);
        }
        if record > self.limit {
            self.extend()?;
            return Ok(None);
        }
        Ok(Some(record))
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        let at = self.memory.at(address, size);
        let index = self.records.index(address);
        for round in 0..OWNED_ROUNDS_MAX {
            let Some(record) = self.accepted(index, round)? else { continue };
            // SAFETY: checked by `at`.
            let value = unsafe { load(at, size) };
            if self.records.unchanged(index, record) {
                self.note_read(index, record);
                return Ok(value);
            }
        }
        Err(self.doom())
    }

    #[cold]
    #[inline(never)]
    fn own_slowly(&mut self, index: u32) -> Result<(), Interrupted> {
        if !self.logs_reads {
            self.wants_log = true;
            return Err(self.doom());
        }
        for round in 0..OWNED_ROUNDS_MAX {
            let Some(record) = self.accepted(index, round)? else { continue };
            if self.records.own(index, record, self.mark) {
                self.note_owned(index, record);
                return Ok(());
            }
        }
        Err(self.doom())
    }
}

impl<L: RedoLog> TxAccess for StmTx<'_, L> {
    #[inline(always)]
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        if let Some(at) = self.directly(address) {
            // SAFETY: the memory gave it, for a whole word.
            return Ok(unsafe { load(at, size) });
        }
        let at = self.memory.at(address, size);
        if self.without_stripes {
            // SAFETY: checked by `at`.
            let value = unsafe { load(at, size) };
            if self.direct {
                return Ok(value);
            }
            let unchanged = self.records.unchanged(self.records.of_all(), self.watched);
            return if unchanged { Ok(value) } else { Err(self.doom()) };
        }
        let index = self.records.index(address);
        // Acquire pairs with the Release in `OwnershipRecords::release`: we see the bytes of that commit.
        let record = self.records.at(index).load(Ordering::Acquire);
        if record <= self.limit {
            // SAFETY: as above.
            let value = unsafe { load(at, size) };
            if self.records.unchanged(index, record) {
                self.note_read(index, record);
                return Ok(value);
            }
        } else if record == self.mark {
            // SAFETY: as above.
            return Ok(unsafe { load(at, size) });
        }
        self.read_slowly(address, size)
    }

    #[inline(always)]
    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        if let Some(at) = self.directly(address) {
            // SAFETY: the memory gave it, for a whole word; no other thread writes.
            unsafe { self.replace(at, address, size, value) };
            return Ok(());
        }
        let at = self.memory.at(address, size);
        if self.without_stripes {
            if !self.direct {
                self.become_writer()?;
            }
        } else {
            let index = self.records.index(address);
            // Relaxed: `own` acquires.
            let record = self.records.at(index).load(Ordering::Relaxed);
            if record != self.mark {
                if record <= self.limit && self.logs_reads && self.records.own(index, record, self.mark) {
                    self.note_owned(index, record);
                } else {
                    self.own_slowly(index)?;
                }
            }
        }
        // SAFETY: checked by `at`; and no other transaction uses the stripe now.
        unsafe { self.replace(at, address, size, value) };
        Ok(())
    }

    #[inline]
    fn write_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<(), Interrupted> {
        if bytes.len() >= RUN_BYTES_MIN {
            self.undo.expect_runs();
        }
        write_in_pieces(self, address, bytes)
    }

    fn privatise(&mut self) {
        self.privatises = true;
    }

    #[inline]
    fn begin_nested(&mut self) {
        self.undo.nest();
    }

    #[inline]
    fn end_nested(&mut self, keeps: bool) {
        self.undo.unnest(keeps, &self.memory);
    }
}

impl<L: RedoLog> Drop for StmTx<'_, L> {
    fn drop(&mut self) {
        self.stm.gate.unregister(&self.slot);
    }
}
