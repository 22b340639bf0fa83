//! The undo log of one attempt, in DRAM: what its writes replaced, byte for byte, and so also where the redo log finds
//! what it wrote.

use super::entries::Entries;
use crate::memory::{TxMemory, WORD_BYTES, load, store};
use crate::sink::{TxWrites, Unit, UnitSize};
use std::collections::HashSet;

/// Bits of an entry's first word that hold the address; the rest holds the size, 0 for a whole word.
const ADDRESS_BITS: u32 = 56;

/// Neighbouring writes of so many bytes go to the redo log as one range: 16 bytes and their own, where words take twice
/// their own.
pub(crate) const RUN_BYTES_MIN: usize = 32;

/// A longer run is several ranges: each ends with the entry that brings it to so many bytes.
const RANGE_BYTES_MAX: usize = 1024;

/// Entries of a piece, in the mean, from which on compacting looks at pieces before entries.
const PIECE_ENTRIES_MIN: usize = 8;

/// One write: where, how many bytes, and what was there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUndo {
    place: u64,
    old: u64,
}

impl MemoryUndo {
    fn address(self) -> usize {
        (self.place & ((1 << ADDRESS_BITS) - 1)) as usize
    }

    fn size(self) -> usize {
        match (self.place >> ADDRESS_BITS) as usize {
            0 => WORD_BYTES,
            size => size,
        }
    }

    /// Writes back what was there.
    fn restore(self, memory: &TxMemory) {
        let (address, size) = (self.address(), self.size());
        // SAFETY: the address was checked with this size when the entry was made.
        unsafe { store(memory.at(address, size), size, self.old) };
        if let Some(stores) = memory.stores() {
            stores.stored(&mut std::iter::once((address, size)));
        }
    }
}

/// What one attempt's writes replaced.
#[derive(Debug)]
pub(crate) struct UndoLog {
    entries: Entries<MemoryUndo>,
    /// Entries that are no whole word, and their bytes.
    ranges: usize,
    range_bytes: usize,
    /// Some writes were longer than words: commits look for neighbours.
    has_runs: bool,
    /// How many entries there were when each open nested transaction began.
    nested: Vec<usize>,
}

impl UndoLog {
    pub(crate) fn new() -> Self {
        Self { entries: Entries::new(), ranges: 0, range_bytes: 0, has_runs: false, nested: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.ranges, self.range_bytes, self.has_runs) = (0, 0, false);
        self.nested.clear();
    }

    /// What is noted next is neighbours, at least [`RUN_BYTES_MIN`] bytes.
    #[inline(always)]
    pub(crate) fn expect_runs(&mut self) {
        self.has_runs = true;
    }

    /// A nested transaction begins.
    pub(crate) fn nest(&mut self) {
        self.nested.push(self.entries.len());
    }

    /// The innermost nested transaction ends. Unless it is kept, restores every byte that it wrote.
    pub(crate) fn unnest(&mut self, keeps: bool, memory: &TxMemory) {
        let Some(from) = self.nested.pop() else { return };
        if !keeps {
            if memory.may_undo() {
                for entry in self.entries[from..].iter().rev() {
                    entry.restore(memory);
                }
            }
            self.entries.truncate(from);
            self.count_ranges();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes that `size` bytes at `address` (inside one word) held `old` before they are written.
    #[inline(always)]
    pub(crate) fn note(&mut self, address: usize, size: usize, old: u64) {
        if self.entries.is_full() {
            self.make_room();
        }
        self.entries
            .push(MemoryUndo { place: address as u64 | ((size % WORD_BYTES) as u64) << ADDRESS_BITS, old });
        if size != WORD_BYTES {
            self.ranges += 1;
            self.range_bytes += size;
        }
    }

    /// Of several entries for the same bytes the first is the one to restore: the first of the transaction, and the
    /// first of each nested one.
    #[cold]
    fn make_room(&mut self) {
        let nested = &mut self.nested;
        self.entries.make_room(|list| {
            let mut pieces = pieces(list);
            mark_overlaps(&mut pieces);
            if pieces.iter().all(|piece| piece.is_apart) {
                return;
            }
            let mut seen = HashSet::new();
            let (mut at, mut kept, mut begun) = (0, 0, 0);
            let mut pieces = pieces.iter().peekable();
            let mut is_apart = false;
            list.retain(|entry| {
                while nested.get(begun) == Some(&at) {
                    nested[begun] = kept;
                    begun += 1;
                    seen.clear();
                }
                if let Some(piece) = pieces.next_if(|piece| piece.first == at) {
                    is_apart = piece.is_apart;
                }
                at += 1;
                let is_first = is_apart || seen.insert(entry.place);
                kept += usize::from(is_first);
                is_first
            });
            // Those that have written nothing yet.
            nested[begun..].fill(kept);
        });
        self.count_ranges();
    }

    fn count_ranges(&mut self) {
        let odd = self.entries.iter().filter(|entry| entry.size() != WORD_BYTES);
        (self.ranges, self.range_bytes) = odd.fold((0, 0), |(n, bytes), entry| (n + 1, bytes + entry.size()));
    }

    /// Restores every byte that was written, and no other, newest write first; forgets them. In a child of fork the
    /// bytes of a durable range stay: they are those of its parent's transaction.
    pub(crate) fn roll_back(&mut self, memory: &TxMemory) {
        if memory.may_undo() {
            for entry in self.entries.iter().rev() {
                entry.restore(memory);
            }
        }
        self.clear();
    }

    /// These writes as memory holds them now. The caller keeps other writers out.
    #[inline]
    pub(crate) fn written<'a>(&'a self, memory: &'a TxMemory) -> AttemptWrites<'a> {
        AttemptWrites { undo: self, memory }
    }
}

/// Entries one after the other whose addresses ascend: no two are for the same bytes.
struct Piece {
    from: usize,
    to: usize,
    /// The place of its first entry in the list.
    first: usize,
    /// No other piece has bytes between `from` and `to`.
    is_apart: bool,
}

/// The pieces of a list: neighbours, as long writes leave them; else ascending addresses; where both are short, one
/// piece that is not apart.
fn pieces(list: &[MemoryUndo]) -> Vec<Piece> {
    pieces_of(list, |to, from| to == from)
        .or_else(|| pieces_of(list, |to, from| to <= from))
        .unwrap_or_else(|| vec![Piece { from: 0, to: usize::MAX, first: 0, is_apart: false }])
}

/// The pieces in which `follows` holds between the end of an entry and the begin of the next; none if they are short.
fn pieces_of(list: &[MemoryUndo], follows: impl Fn(usize, usize) -> bool) -> Option<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (first, entry) in list.iter().enumerate() {
        let (from, to) = (entry.address(), entry.address() + entry.size());
        if let Some(piece) = pieces.last_mut().filter(|piece| follows(piece.to, from)) {
            piece.to = to;
        } else if pieces.len() * PIECE_ENTRIES_MIN <= list.len() {
            pieces.push(Piece { from, to, first, is_apart: true });
        } else {
            return None;
        }
    }
    Some(pieces)
}

/// Notes which pieces overlap others.
fn mark_overlaps(pieces: &mut [Piece]) {
    pieces.sort_unstable_by_key(|piece| piece.from);
    // The piece that reaches furthest so far.
    let mut furthest = 0;
    for at in 1..pieces.len() {
        if pieces[at].from < pieces[furthest].to {
            (pieces[at].is_apart, pieces[furthest].is_apart) = (false, false);
        }
        if pieces[at].to > pieces[furthest].to {
            furthest = at;
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.first);
}

/// What one attempt wrote, as memory holds it.
#[derive(Debug)]
pub(crate) struct AttemptWrites<'a> {
    undo: &'a UndoLog,
    memory: &'a TxMemory,
}

impl AttemptWrites<'_> {
    /// Passes the entries to `each`, with their bytes: neighbours of [`RUN_BYTES_MIN`] bytes or more at once, others
    /// one by one.
    fn each_run(&self, mut each: impl FnMut(&[MemoryUndo], usize)) {
        let mut left = &*self.undo.entries;
        while let Some(first) = left.first() {
            let (begin, mut end, mut count) = (first.address(), first.address() + first.size(), 1);
            while let Some(next) = left.get(count).filter(|next| next.address() == end) {
                (end, count) = (end + next.size(), count + 1);
            }
            let (run, rest) = left.split_at(count);
            left = rest;
            if end - begin >= RUN_BYTES_MIN {
                each(run, end - begin);
            } else {
                run.iter().for_each(|entry| each(std::slice::from_ref(entry), entry.size()));
            }
        }
    }

    /// The bytes of an entry as memory holds them, in the low ones of a number.
    fn now(&self, entry: &MemoryUndo) -> u64 {
        let (address, size) = (entry.address(), entry.size());
        // SAFETY: as in `restore`.
        unsafe { load(self.memory.at(address, size), size) }
    }

    /// Passes one entry.
    fn pass(&self, entry: &MemoryUndo, unit: &mut impl Unit) {
        let (address, size, value) = (entry.address(), entry.size(), self.now(entry));
        if size == WORD_BYTES {
            unit.word(address, value);
        } else {
            unit.range(address, &value.to_le_bytes()[..size]);
        }
    }

    /// Passes neighbours, as ranges.
    fn pass_run(&self, entries: &[MemoryUndo], unit: &mut impl Unit) {
        let mut range = [0; RANGE_BYTES_MAX + WORD_BYTES];
        let (mut at, mut used) = (entries[0].address(), 0);
        for entry in entries {
            range[used..used + WORD_BYTES].copy_from_slice(&self.now(entry).to_le_bytes());
            used += entry.size();
            if used >= RANGE_BYTES_MAX {
                unit.range(at, &range[..used]);
                (at, used) = (at + used, 0);
            }
        }
        if used > 0 {
            unit.range(at, &range[..used]);
        }
    }
}

impl TxWrites for AttemptWrites<'_> {
    type Entry = MemoryUndo;

    #[inline]
    fn size(&self) -> UnitSize {
        if self.undo.has_runs {
            let mut size = UnitSize::default();
            self.each_run(|entries, bytes| match entries {
                [word] if bytes == WORD_BYTES && word.size() == WORD_BYTES => size.words += 1,
                _ => {
                    size.ranges += bytes.div_ceil(RANGE_BYTES_MAX);
                    size.range_bytes += bytes;
                }
            });
            return size;
        }
        UnitSize {
            words: self.undo.entries.len() - self.undo.ranges,
            ranges: self.undo.ranges,
            range_bytes: self.undo.range_bytes,
        }
    }

    #[inline(always)]
    fn as_words(&self) -> Option<&[MemoryUndo]> {
        (self.undo.ranges == 0 && !self.undo.has_runs).then_some(&*self.undo.entries)
    }

    #[inline(always)]
    fn word(&self, entry: &MemoryUndo) -> (usize, u64) {
        let address = entry.place as usize;
        // SAFETY: the address was checked, as a whole word's, when the entry was made.
        (address, unsafe { self.memory.load_word(address) })
    }

    #[inline]
    fn each(&self, unit: &mut impl Unit) {
        if let Some(entries) = self.as_words() {
            return unit.words(entries.iter().map(|entry| self.word(entry)));
        }
        if self.undo.has_runs {
            return self.each_run(|entries, _| match entries {
                [entry] => self.pass(entry, unit),
                _ => self.pass_run(entries, unit),
            });
        }
        self.undo.entries.iter().for_each(|entry| self.pass(entry, unit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces of neighbours, some of which overlap, and nested transactions between them.
        #[test]
        fn compacting_keeps_the_first_entry_of_each_transaction(
            pieces in prop::collection::vec((0..400usize, 1..40usize, prop::bool::weighted(0.1)), 1..200),
        ) {
            let mut log = UndoLog::new();
            let mut all: Vec<Vec<usize>> = vec![Vec::new()];
            for (from, len, nests) in pieces {
                if nests {
                    log.nest();
                    all.push(Vec::new());
                }
                for address in (from..from + len).map(|word| word * WORD_BYTES) {
                    log.note(address, WORD_BYTES, 0);
                    all.last_mut().expect("one at least").push(address);
                }
            }
            log.make_room();
            let mut begins = log.nested.clone();
            begins.insert(0, 0);
            begins.push(log.entries.len());
            for (all, begin) in all.iter().zip(begins.windows(2)) {
                let kept: Vec<_> = log.entries[begin[0]..begin[1]].iter().map(|e| e.address()).collect();
                let mut firsts = HashSet::new();
                let firsts: Vec<_> = all.iter().copied().filter(|&address| firsts.insert(address)).collect();
                prop_assert_eq!(kept, firsts);
            }
        }
    }
}
