//! Mangrove's own rows. The one place that knows which executor and which log they run on.

use super::collection;
use super::load::{OneTransaction, TxnWork, WordAccess, WorkDone, drive};
use super::peer::{TxnDomain, TxnHeap, TxnKind};
use super::place::{LOG_BYTES, PlaceOptions, WordPool};
use mangrove_sys::Reservation;
use mangrove_txn::{
    Halt, HeapLog, Interrupted, Isolation, RedoLog, RedoSink, Stm, StmOptions, TxAccess, TxMemory, TxThread,
    VolatileLog,
};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Ownership records and solo mode; every commit is durable, and the replayer keeps up on the same processors. Maps are
/// those of the durable heap.
pub(super) struct DurableExecutor;

/// The same, with a log that keeps nothing.
pub(super) struct Volatile;

/// What the words lie in.
enum Lies {
    Memory(Reservation),
    Pool(WordPool),
}

struct Heap<L> {
    stm: Stm<L>,
    base: usize,
    count: usize,
    lies: Lies,
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

/// An executor on words at `base`.
///
/// # Safety
/// The words stay there for longer than the heap, and only its transactions use them.
unsafe fn heap<L: RedoLog + 'static>(base: *mut u8, words: &[u64], log: L, lies: Lies) -> Box<dyn TxnHeap>
where
    Heap<L>: TxnHeap,
{
    // SAFETY: the caller's promise.
    let memory = unsafe { TxMemory::new(base, size_of_val(words)) };
    let stm = Stm::new(memory, log, StmOptions::default());
    Box::new(Heap { stm, base: memory.base(), count: words.len(), lies })
}

impl TxnKind for Volatile {
    fn name(&self) -> &'static str {
        "Mangrove (volatile)"
    }

    fn environment(&self, _domain: TxnDomain) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    fn open(
        &self,
        _dir: &Path,
        _domain: TxnDomain,
        _work: TxnWork,
        words: &[u64],
    ) -> anyhow::Result<Box<dyn TxnHeap>> {
        let reservation = Reservation::anonymous(size_of_val(words))?;
        let base = reservation.base().as_ptr();
        // SAFETY: the reservation is as long as the words, and no other thread uses it yet.
        unsafe { base.copy_from_nonoverlapping(words.as_ptr().cast(), size_of_val(words)) };
        // SAFETY: the heap keeps the reservation.
        Ok(unsafe { heap(base, words, VolatileLog::new(), Lies::Memory(reservation)) })
    }
}

impl TxnKind for DurableExecutor {
    fn name(&self) -> &'static str {
        "Mangrove"
    }

    fn environment(&self, _domain: TxnDomain) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    fn can(&self, _work: TxnWork) -> bool {
        true
    }

    fn open(
        &self,
        dir: &Path,
        domain: TxnDomain,
        work: TxnWork,
        words: &[u64],
    ) -> anyhow::Result<Box<dyn TxnHeap>> {
        if !matches!(work, TxnWork::Swaps(_)) {
            return collection::open(dir, domain, work, words, true);
        }
        // That of the goals for 8 MiB of words, and less for a smoke test.
        let log_bytes = LOG_BYTES.min(size_of_val(words) as u64 * 4);
        let options = PlaceOptions { log_bytes, ..PlaceOptions::new(domain) };
        let place = WordPool::new(dir, &options, size_of_val(words))?;
        place.fill(words)?;
        let (base, log) = (place.shadow().base(), HeapLog::new(Arc::clone(place.shadow())));
        // SAFETY: the heap keeps the place.
        Ok(unsafe { heap(base, words, log, Lies::Pool(place)) })
    }
}

impl<L: RedoLog> TxnHeap for Heap<L>
where
    for<'log> <L::Sink<'log> as RedoSink>::Error: std::fmt::Debug,
{
    fn work(&self, work: TxnWork, seed: u64, stop: &AtomicBool) -> anyhow::Result<WorkDone> {
        let mut thread = self.stm.thread();
        let base = self.base;
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
        let base = match &self.lies {
            Lies::Memory(reservation) => reservation.base().as_ptr(),
            Lies::Pool(place) => place.shadow().base(),
        };
        // SAFETY: as many words as were put there; no thread works.
        (0..self.count).map(|at| unsafe { base.cast::<u64>().add(at).read() }).collect()
    }
}
