//! Threads that move amounts between collections: the sum is right in every state that a transaction sees.

use crate::subject::{Random, no_block_is_left, options, sized};
use crate::ways::on_each_way;
use mangrove_txn::{
    Cancel, Heap, HeapMap, HeapOptions, HeapOrderedMap, HeapQueue, HeapVec, Pod, Stop, Tx, Zeroable,
};
use std::path::Path;

/// One of each, and what they hold together stays the same.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Bank {
    map: HeapMap<u64, u64>,
    ordered: HeapOrderedMap<u64, u64>,
    queue: HeapQueue<u64>,
    vector: HeapVec<u64>,
}

const KEYS: usize = 200;
const SUM: u64 = 1_000_000;

impl Bank {
    fn make(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let bank = Self {
            map: HeapMap::with_seed(tx, 3)?,
            ordered: HeapOrderedMap::create(tx)?,
            queue: HeapQueue::create(tx)?,
            vector: HeapVec::create(tx)?,
        };
        bank.vector.push(tx, SUM)?;
        let root = tx.alloc(bank)?;
        tx.set_root("bank", root)?;
        Ok(bank)
    }

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let root = tx.root("bank")?.expect("made when the heap was");
        tx.read(root)
    }

    /// Takes something out of one collection.
    fn take(self, tx: &mut Tx<'_>, random: &mut Random) -> Result<u64, Stop> {
        let key = random.below(KEYS) as u64;
        Ok(match random.below(4) {
            0 => self.map.remove(tx, &key)?.unwrap_or(0),
            1 => {
                let found = self.ordered.range(tx, key..).next().transpose()?;
                match found {
                    Some((key, _)) => self.ordered.remove(tx, &key)?.unwrap_or(0),
                    None => 0,
                }
            }
            2 => self.queue.pop(tx)?.unwrap_or(0),
            _ => {
                let last = self.vector.pop(tx)?.unwrap_or(0);
                let part = last / 2;
                self.vector.push(tx, last - part)?;
                part
            }
        })
    }

    /// Puts it into another.
    fn put(self, tx: &mut Tx<'_>, amount: u64, random: &mut Random) -> Result<(), Stop> {
        let key = random.below(KEYS) as u64;
        match random.below(4) {
            0 => {
                let old = self.map.get(tx, &key)?.unwrap_or(0);
                self.map.insert(tx, &key, old + amount).map(drop)
            }
            1 => {
                let old = self.ordered.remove(tx, &key)?.unwrap_or(0);
                self.ordered.insert(tx, &key, old + amount).map(drop)
            }
            2 => self.queue.push(tx, amount),
            _ => self.vector.push(tx, amount),
        }
    }

    fn sum(self, tx: &mut Tx<'_>) -> Result<u64, Stop> {
        let (mut sum, mut counts) = (0, [0; 4]);
        for item in self.map.iter(tx) {
            (sum, counts[0]) = (sum + item?.1, counts[0] + 1);
        }
        for item in self.ordered.iter(tx) {
            (sum, counts[1]) = (sum + item?.1, counts[1] + 1);
        }
        for item in self.queue.iter(tx) {
            (sum, counts[2]) = (sum + item?, counts[2] + 1);
        }
        for item in self.vector.iter(tx) {
            (sum, counts[3]) = (sum + item?, counts[3] + 1);
        }
        let told = [self.map.len(tx)?, self.ordered.len(tx)?, self.queue.len(tx)?, self.vector.len(tx)?];
        assert_eq!(told, counts);
        Ok(sum)
    }
}

#[test]
fn transfers_between_collections_keep_the_sum() {
    on_each_way(|options, path| keeps_the_sum(&sized(options), path));
}

fn keeps_the_sum(options: &HeapOptions, path: &Path) {
    let heap = options.open(path).unwrap();
    let bank = heap.transaction(Bank::make).unwrap();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let heap = &heap;
            scope.spawn(move || {
                let mut random = Random::new(number);
                for round in 0..200 {
                    let seed = random.next();
                    let done = heap.try_transaction(|tx| {
                        let mut random = Random::new(seed);
                        let amount = bank.take(tx, &mut random)?;
                        bank.put(tx, amount, &mut random)?;
                        if round % 5 == 0 { Err(Cancel::Abort(())) } else { Ok(()) }
                    });
                    assert_eq!(done.unwrap().is_err(), round % 5 == 0);
                    if round % 50 == 0 {
                        assert_eq!(heap.read(|tx| bank.sum(tx)).unwrap(), SUM);
                    }
                }
            });
        }
    });
    assert_eq!(heap.read(|tx| bank.sum(tx)).unwrap(), SUM);
    drop(heap);
    let heap = options.open(path).unwrap();
    heap.transaction(|tx| {
        let bank = Bank::open(tx)?;
        assert_eq!(bank.sum(tx)?, SUM);
        bank.map.free(tx)?;
        bank.ordered.free(tx)?;
        bank.queue.free(tx)?;
        bank.vector.free(tx)?;
        let root = tx.root::<Bank>("bank")?.expect("made when the heap was");
        tx.free(root)?;
        assert!(tx.remove_root("bank")?);
        Ok(())
    })
    .unwrap();
    no_block_is_left(&heap);
}

/// Threads that insert keys of their own lose none, and consumers get each job once.
#[test]
fn threads_share_a_map_and_a_queue() {
    const COUNT: u64 = 1_500;
    let folder = tempfile::tempdir().unwrap();
    let heap: Heap = options().open(folder.path().join("heap")).unwrap();
    let (bank, done) = heap
        .transaction(|tx| {
            let bank = Bank::make(tx)?;
            Ok((bank, HeapMap::<u64, u64>::with_seed(tx, 4)?))
        })
        .unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let heap = &heap;
            scope.spawn(move || {
                for n in 0..COUNT {
                    let key = n * 2 + number;
                    let add = |tx: &mut Tx<'_>| {
                        bank.queue.push(tx, key)?;
                        bank.ordered.insert(tx, &key, number).map(drop)
                    };
                    heap.transaction(add).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..COUNT {
                    let work = |tx: &mut Tx<'_>| {
                        let Some(job) = bank.queue.pop(tx)? else { return Err(tx.retry()) };
                        assert_eq!(done.insert(tx, &job, number)?, None, "job {job} came twice");
                        Ok(())
                    };
                    heap.transaction(work).unwrap();
                }
            });
        }
    });
    heap.read(|tx| {
        assert_eq!((bank.queue.len(tx)?, done.len(tx)?), (0, 2 * COUNT));
        for key in 0..2 * COUNT {
            assert_eq!(bank.ordered.get(tx, &key)?, Some(key % 2));
            assert!(done.contains(tx, &key)?);
        }
        Ok(())
    })
    .unwrap();
}
