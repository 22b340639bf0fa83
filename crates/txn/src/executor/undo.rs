//! The undo log of one attempt, in DRAM: what its writes replaced, byte for byte, and so also where the redo log finds
//! what it wrote.

use super::entries::Entries;
use crate::memory::{TxMemory, WORD_BYTES, load, store};
use crate::sink::{Unit, UnitSize, Writes};
use std::collections::HashSet;

/// Bits of an entry's first word that hold the address; the rest holds the size, 0 for a whole word.
const ADDRESS_BITS: u32 = 56;

/// One write: where, how many bytes, and what was there.
#[derive(Clone, Copy, Debug)]
struct Undo {
    place: u64,
    old: u64,
}

impl Undo {
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
    }
}

/// What one attempt's writes replaced.
#[derive(Debug)]
pub(crate) struct UndoLog {
    entries: Entries<Undo>,
    /// Entries that are no whole word, and their bytes.
    ranges: usize,
    range_bytes: usize,
    /// How many entries there were when each open nested transaction began.
    nested: Vec<usize>,
}

impl UndoLog {
    pub(crate) fn new() -> Self {
        Self { entries: Entries::new(), ranges: 0, range_bytes: 0, nested: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.ranges, self.range_bytes) = (0, 0);
        self.nested.clear();
    }

    /// A nested transaction begins.
    pub(crate) fn nest(&mut self) {
        self.nested.push(self.entries.len());
    }

    /// The innermost nested transaction ends. Unless it is kept, restores every byte that it wrote.
    pub(crate) fn unnest(&mut self, keeps: bool, memory: &TxMemory) {
        let Some(from) = self.nested.pop() else { return };
        if !keeps {
            for entry in self.entries[from..].iter().rev() {
                entry.restore(memory);
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
        self.entries.push(Undo { place: address as u64 | ((size % WORD_BYTES) as u64) << ADDRESS_BITS, old });
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
            let mut seen = HashSet::with_capacity(list.len());
            let (mut at, mut kept, mut begun) = (0, 0, 0);
            list.retain(|entry| {
                while nested.get(begun) == Some(&at) {
                    nested[begun] = kept;
                    begun += 1;
                    seen.clear();
                }
                at += 1;
                let is_first = seen.insert(entry.place);
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

    /// Restores every byte that was written, and no other, newest write first; forgets them.
    pub(crate) fn roll_back(&mut self, memory: &TxMemory) {
        for entry in self.entries.iter().rev() {
            entry.restore(memory);
        }
        self.clear();
    }

    /// These writes as memory holds them now. The caller keeps other writers out.
    #[inline]
    pub(crate) fn written<'a>(&'a self, memory: &'a TxMemory) -> Written<'a> {
        Written { undo: self, memory }
    }
}

/// What one attempt wrote, as memory holds it.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    undo: &'a UndoLog,
    memory: &'a TxMemory,
}

impl Writes for Written<'_> {
    #[inline]
    fn size(&self) -> UnitSize {
        UnitSize {
            words: self.undo.entries.len() - self.undo.ranges,
            ranges: self.undo.ranges,
            range_bytes: self.undo.range_bytes,
        }
    }

    #[inline]
    fn each(&self, unit: &mut impl Unit) {
        if self.undo.ranges == 0 {
            // SAFETY: every address was checked, as a whole word's, when its entry was made.
            let now = |address| unsafe { self.memory.load_word(address) };
            return unit.words(
                self.undo.entries.iter().map(|entry| (entry.place as usize, now(entry.place as usize))),
            );
        }
        for entry in self.undo.entries.iter() {
            let (address, size) = (entry.address(), entry.size());
            // SAFETY: as in `restore`.
            let value = unsafe { load(self.memory.at(address, size), size) };
            if size == WORD_BYTES {
                unit.word(address, value);
            } else {
                unit.range(address, &value.to_le_bytes()[..size]);
            }
        }
    }
}
