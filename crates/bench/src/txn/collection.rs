//! Maps of the durable heap, as a program uses them; and their look-ups without transactions, the yardstick.

use super::load::{OneTransaction, TxnWork, WorkDone, drive};
use super::peer::{TxnDomain, TxnHeap, TxnKind};
use super::place::{Folder, LOG_BYTES};
use anyhow::{Context as _, bail, ensure};
use mangrove_txn::{
    Create, Domain, Heap, HeapMap, HeapOrderedMap, HeapResult, Latency, Medium, Order, PlainReads, Ptr,
    Reads, Stop, Tx,
};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Keys that one transaction inserts when a map is made.
const LOADED_KEYS: usize = 512;
/// Bytes of a heap beside its keys, and for each word of the other subjects.
const HEAP_BYTES: u64 = 64 << 20;
const HEAP_BYTES_A_WORD: u64 = 64;

/// The same maps, read without transactions; nothing is written.
pub(super) struct Plain;

/// A map of the heap.
trait Keyed: Copy + Sync {
    fn insert(self, tx: &mut Tx<'_>, key: u64, value: u64) -> Result<(), Stop>;
    fn get<R: Reads>(self, reads: &mut R, key: u64) -> Result<Option<u64>, R::Stop>;
    fn get_ptr(self, tx: &mut Tx<'_>, key: u64) -> Result<Option<Ptr<u64>>, Stop>;
    fn pairs(self, tx: &mut Tx<'_>) -> Result<Vec<(u64, u64)>, Stop>;
}

macro_rules! keyed {
    ($map:ident) => {
        impl Keyed for $map<u64, u64> {
            fn insert(self, tx: &mut Tx<'_>, key: u64, value: u64) -> Result<(), Stop> {
                self.insert(tx, &key, value).map(drop)
            }

            #[inline(always)]
            fn get<R: Reads>(self, reads: &mut R, key: u64) -> Result<Option<u64>, R::Stop> {
                self.get(reads, &key)
            }

            #[inline(always)]
            fn get_ptr(self, tx: &mut Tx<'_>, key: u64) -> Result<Option<Ptr<u64>>, Stop> {
                self.get_ptr(tx, &key)
            }

            fn pairs(self, tx: &mut Tx<'_>) -> Result<Vec<(u64, u64)>, Stop> {
                self.iter(tx).collect()
            }
        }
    };
}

keyed!(HeapMap);
keyed!(HeapOrderedMap);

/// A heap with one map.
struct MapHeap<M> {
    map: M,
    heap: Heap,
    has_transactions: bool,
    /// Words of the other subjects, by which the keys are chosen.
    word_count: usize,
    /// Removed after the heap.
    #[expect(dead_code, reason = "dropped with the heap")]
    folder: Folder,
}

impl TxnKind for Plain {
    fn name(&self) -> &'static str {
        "no transactions"
    }

    fn environment(&self, _domain: TxnDomain) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    fn can(&self, work: TxnWork) -> bool {
        matches!(work, TxnWork::Map { updates: 0 } | TxnWork::Ordered { updates: 0 })
    }

    fn open(
        &self,
        dir: &Path,
        domain: TxnDomain,
        work: TxnWork,
        words: &[u64],
    ) -> anyhow::Result<Box<dyn TxnHeap>> {
        open(dir, domain, work, words, false)
    }
}

/// A heap in the folder `dir` with the map that `work` needs; `words` are the pairs of keys and values.
pub(super) fn open(
    dir: &Path,
    domain: TxnDomain,
    work: TxnWork,
    words: &[u64],
    has_transactions: bool,
) -> anyhow::Result<Box<dyn TxnHeap>> {
    let folder = Folder::new(dir)?;
    let (domain, order) = match domain {
        TxnDomain::Adr => (Domain::Adr, Order::Dense),
        TxnDomain::Eadr => (Domain::Eadr, Order::Gaps),
    };
    let heap = Heap::options()
        .create(Create::New)
        .medium(Medium::Emulated(Latency::new(0, 0)))
        .capacity(HEAP_BYTES + words.len() as u64 * HEAP_BYTES_A_WORD)
        .log_bytes(LOG_BYTES)
        .log_count(4)
        .domain(domain)
        .order(order)
        .open(folder.path())?;
    // A seed that is the same in every run.
    Ok(match work {
        TxnWork::Map { .. } => {
            let map = heap.transaction(|tx| HeapMap::<u64, u64>::with_seed(tx, 1))?;
            Box::new(load(MapHeap { map, heap, has_transactions, word_count: words.len(), folder }, words)?)
        }
        TxnWork::Ordered { .. } => {
            let map = heap.transaction(HeapOrderedMap::<u64, u64>::create)?;
            Box::new(load(MapHeap { map, heap, has_transactions, word_count: words.len(), folder }, words)?)
        }
        TxnWork::Swaps(_) => bail!("swaps need no map"),
    })
}

/// Inserts the pairs in their order, which is one of chance.
fn load<M: Keyed>(heap: MapHeap<M>, words: &[u64]) -> anyhow::Result<MapHeap<M>> {
    let pairs: Vec<_> = words.chunks_exact(2).filter(|pair| pair[0] != 0).collect();
    for some in pairs.chunks(LOADED_KEYS) {
        heap.heap.transaction(|tx| some.iter().try_for_each(|pair| heap.map.insert(tx, pair[0], pair[1])))?;
    }
    // What was inserted is not replayed while something else is measured.
    heap.heap.shadow().checkpoint()?;
    Ok(heap)
}

impl<M: Keyed> MapHeap<M> {
    fn one(&self, one: OneTransaction, key: u64) -> HeapResult<bool> {
        let map = self.map;
        if one.is_read_only() {
            return self.heap.read(|tx| Ok(black_box(map.get(tx, key)?).is_some()));
        }
        self.heap.transaction(|tx| {
            let Some(at) = map.get_ptr(tx, key)? else { return Ok(false) };
            let value = tx.read(at)?;
            tx.write(at, value + 1)?;
            Ok(true)
        })
    }
}

impl<M: Keyed> TxnHeap for MapHeap<M> {
    fn work(&self, work: TxnWork, seed: u64, stop: &AtomicBool) -> anyhow::Result<WorkDone> {
        // SAFETY: while nothing has transactions, nothing is written; the heap stays open.
        let mut plain = unsafe { PlainReads::new() };
        drive(work, self.word_count, seed, stop, |one| {
            let key = one.key().context("work without keys")?;
            let is_there = if self.has_transactions {
                self.one(one, key)?
            } else {
                let Ok(value) = self.map.get(&mut plain, key);
                black_box(value).is_some()
            };
            ensure!(is_there, "the key {key} is gone");
            Ok(())
        })
    }

    fn words(&mut self) -> Vec<u64> {
        let pairs = self.heap.read(|tx| self.map.pairs(tx)).expect("memory does not fail");
        pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()
    }
}
