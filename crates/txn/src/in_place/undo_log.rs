//! The undo log on the medium (P_undoLog, line 1 of Algorithm 1 of the SPHT-eADR dissertation). One transaction has it
//! at a time: the one that has the lock.
//!
//! What the text leaves open:
//!
//! - Durable-order: an entry, then its count, then the store that it undoes. Otherwise a crash leaves a store that
//!   nothing undoes, or a count without its entry. Entry and count lie in one line, which persists in the order of its
//!   stores, so where caches are volatile one flush and one fence stand between them and the store.
//! - Durable-order: all that a transaction stored, then the cleared log. Otherwise a crash leaves some of it, and
//!   nothing that undoes it. Where caches are volatile the cleared log is durable before the lock is released: the next
//!   transaction may run on another thread, whose fence does not order this thread's flush.
//! - With persistent caches (eADR) the order of stores is enough, and nothing is flushed or fenced.

use super::layout::{
    AT_CLEARED, COUNT_MAX, ENTRY_BYTES, IN_ENTRY_COUNT, IN_ENTRY_CRC, IN_ENTRY_OLD, IN_ENTRY_PLACE,
    InPlaceLayout, Undo,
};
use crate::left_out::is_left_out;
use crate::sync::{AtomicU64, Ordering, fence};
use mangrove_pool::Region;

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

/// The undo log of the transaction that has the lock.
#[derive(Debug)]
pub(crate) struct DurableUndo {
    pub(crate) region: Region,
    pub(super) layout: InPlaceLayout,
    /// Caches are volatile.
    pub(super) flushes: bool,
    /// Entries that were ever cleared. (Relaxed, as the words below: only the holder of the lock uses them.)
    cleared: AtomicU64,
    /// Entries of the transaction that runs.
    len: AtomicU64,
    /// 1: an entry found no space.
    refused: AtomicU64,
}

impl DurableUndo {
    pub(super) fn new(region: Region, layout: InPlaceLayout, flushes: bool, cleared: u64) -> Self {
        let [len, refused] = [0, 0].map(AtomicU64::new);
        Self { region, layout, flushes, cleared: AtomicU64::new(cleared), len, refused }
    }

    /// Entries ever cleared.
    pub(super) fn cleared(&self) -> u64 {
        self.cleared.load(Ordering::Relaxed)
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) != 0
    }

    /// undoLogWrite(addr, prevVal), l.9: `size` bytes at `offset` of the region held `old`. False if the log is full.
    pub(crate) fn log_previous(&self, offset: u64, size: usize, old: u64) -> bool {
        self.append(Undo { offset, size, old })
    }

    /// Adds an entry; durable, and before every later store, when this returns. False if the log is full.
    fn append(&self, undo: Undo) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let count = self.cleared() + len + 1;
        // A larger count would spoil its own check, and the memory could not be opened again.
        if len == self.layout.entries || count > COUNT_MAX {
            self.refused.store(1, Ordering::Relaxed);
            return false;
        }
        let (at, place) = (self.layout.entry(len), undo.place());
        let store_count = || {
            self.region.store(at + IN_ENTRY_COUNT, self.layout.counted(count), Ordering::Release);
        };
        // Release, here and above: the order in which the line persists, and eADR keeps the stores.
        let early = is_left_out();
        if early {
            store_count();
        }
        self.region.store(at + IN_ENTRY_PLACE, place, Ordering::Release);
        self.region.store(at + IN_ENTRY_OLD, undo.old, Ordering::Release);
        self.region.store(
            at + IN_ENTRY_CRC,
            self.layout.entry_crc(place, undo.old, count),
            Ordering::Release,
        );
        if !early {
            store_count();
        }
        if self.flushes {
            self.region.flush(at, ENTRY_BYTES as usize);
            self.region.fence();
        }
        // The compiler keeps the caller's store behind the entry; so does the CPU, which keeps the order of stores.
        fence(Ordering::Release);
        self.len.store(len + 1, Ordering::Relaxed);
        true
    }

    /// Clears the log (l.12): what was stored, or stored back, becomes durable first.
    pub(crate) fn clear(&self) {
        self.refused.store(0, Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        if len == 0 {
            return;
        }
        let early = is_left_out();
        if early {
            self.forget(len);
        }
        if self.flushes {
            let mut last = u64::MAX;
            for index in 0..len {
                // Relaxed: this thread stored it.
                let place =
                    self.region.word(self.layout.entry(index) + IN_ENTRY_PLACE).load(Ordering::Relaxed);
                let line = Undo::of(place, 0).offset / LINE_BYTES;
                if line != last {
                    self.region.flush(line * LINE_BYTES, LINE_BYTES as usize);
                }
                last = line;
            }
            self.region.fence();
        }
        if !early {
            self.forget(len);
        }
        self.len.store(0, Ordering::Relaxed);
    }

    /// The first `len` entries do not count any more; durable when this returns.
    pub(super) fn forget(&self, len: u64) {
        let cleared = self.cleared() + len;
        // Release: what the transaction stored stays before it.
        self.region.store(AT_CLEARED, self.layout.counted(cleared), Ordering::Release);
        if self.flushes {
            self.region.flush(AT_CLEARED, size_of::<u64>());
            self.region.fence();
        }
        self.cleared.store(cleared, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::recover::read;
    use super::*;
    use mangrove_pool::Emulated;
    use std::path::Path;

    #[test]
    fn an_entry_after_the_largest_count_is_refused() {
        let layout = InPlaceLayout { bytes: 64, entries: 4, nonce: 77 };
        let region = Emulated::region(1 << 20).unwrap();
        layout.write(&region).unwrap();
        let undo = DurableUndo::new(region, layout, false, COUNT_MAX - 2);
        undo.forget(0);
        for _ in 0..2 {
            assert!(undo.log_previous(layout.data(), 8, 5));
        }
        assert!(!undo.log_previous(layout.data(), 8, 5) && undo.has_refused());
        assert_eq!(read(&undo.region, &layout, Path::new("p")).unwrap().entries.len(), 2);
        undo.clear();
        let found = read(&undo.region, &layout, Path::new("p")).unwrap();
        assert_eq!((found.cleared, found.entries.len()), (COUNT_MAX, 0));
    }
}
