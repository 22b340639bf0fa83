//! Mangrove's own rows. The one place that knows which executor and which log they run on.

use super::load::{OneTransaction, TxnWork, WordAccess, WorkDone, drive};
use super::peer::{TxnDomain, TxnHeap, TxnKind};
use mangrove_sys::Reservation;
use mangrove_txn::{
    Halt, Interrupted, Isolation, Stm, StmOptions, TxAccess, TxMemory, TxThread, VolatileLog,
};
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Ownership records, and a log that keeps nothing.
pub(super) struct Mangrove;

struct Heap {
    stm: Stm<VolatileLog>,
    memory: TxMemory,
    count: usize,
    /// What `memory` lies in.
    reservation: Reservation,
}

struct Words<'a, T> {
    tx: &'a mut T,
    base: usize,
}

impl<T: TxAccess> WordAccess for Words<'_, T> {
    type Interrupted = Interrupted;

    #[inline(always)]
    fn read(&mut self, at: usize) -> Result<u64, Interrupted> {
        self.tx.read_word(self.base + at * 8)
    }

    #[inline(always)]
    fn write(&mut self, at: usize, value: u64) -> Result<(), Interrupted> {
        self.tx.write_word(self.base + at * 8, value)
    }
}

impl TxnKind for Mangrove {
    fn name(&self) -> &'static str {
        "Mangrove (volatile)"
    }

    fn environment(&self, _domain: TxnDomain) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    fn open(&self, _dir: &Path, words: &[u64]) -> anyhow::Result<Box<dyn TxnHeap>> {
        let bytes = size_of_val(words);
        let reservation = Reservation::anonymous(bytes)?;
        let base = reservation.base().as_ptr();
        // SAFETY: the reservation is as long as the words, and nobody else uses it yet.
        unsafe { base.copy_from_nonoverlapping(words.as_ptr().cast(), bytes) };
        // SAFETY: the heap keeps the reservation longer than the executor, and only transactions use it meanwhile.
        let memory = unsafe { TxMemory::new(base, bytes) };
        let stm = Stm::new(memory, VolatileLog::new(), StmOptions::default());
        Ok(Box::new(Heap { stm, memory, count: words.len(), reservation }))
    }
}

impl TxnHeap for Heap {
    fn work(&self, work: TxnWork, seed: u64, stop: &AtomicBool) -> anyhow::Result<WorkDone> {
        let mut thread = self.stm.thread();
        let base = self.memory.base();
        drive(work, self.count, seed, stop, |one: OneTransaction| {
            let done = if one.is_read_only() {
                thread.read(|tx| one.body(&mut Words { tx, base }).map_err(Halt::<Infallible>::from))
            } else {
                thread.run(|tx| one.body(&mut Words { tx, base }).map_err(Halt::<Infallible>::from))
            };
            done.map_err(|error| anyhow::anyhow!("{error:?}"))
        })
    }

    fn words(&mut self) -> Vec<u64> {
        let base = self.reservation.base().as_ptr().cast::<u64>();
        // SAFETY: as many words as were put there; no thread works.
        (0..self.count).map(|at| unsafe { base.add(at).read() }).collect()
    }
}
