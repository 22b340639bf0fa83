//! A register of the last operations in the collections of a heap: each operation enters itself into a queue, under its
//! stamp into an ordered map, under its name into a hash map, and counts itself in a vector; what has been there
//! longest leaves.

use super::ledger::{Findings, Ledger, operation, stamp};
use crate::value::{WriterOperation, mix};
use mangrove::heap::{Heap, HeapBytes, HeapMap, HeapOrderedMap, HeapQueue, HeapResult, HeapVec, Stop, Tx};
use std::collections::BTreeMap;

/// Operations that stay in the register.
const KEPT: u64 = 300;
/// The place of the vector that counts what has left; behind it are the threads'.
const LEFT: u64 = 0;

#[derive(Clone, Copy)]
pub(crate) struct Register {
    /// Stamps in the order of their transactions.
    queue: HeapQueue<u64>,
    names: HeapOrderedMap<u64, HeapBytes>,
    stamps: HeapMap<HeapBytes, u64>,
    /// Operations of each thread, of all rounds.
    counts: HeapVec<u64>,
    /// The last stamp of each thread.
    last: HeapMap<u64, u64>,
}

/// The name of a stamp: some lie in blocks of their own, some in their handles.
fn name(stamp: u64) -> Vec<u8> {
    let noise = mix(stamp);
    let mut name = stamp.to_be_bytes().to_vec();
    name.resize(8 + (noise % 120) as usize / (1 + noise as usize / 128 % 4), noise as u8);
    name
}

impl Register {
    fn at(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Ok(Self {
            queue: HeapQueue::at_root(tx, "queue")?,
            names: HeapOrderedMap::at_root(tx, "names")?,
            stamps: HeapMap::at_root(tx, "stamps")?,
            counts: HeapVec::at_root(tx, "counts")?,
            last: HeapMap::at_root(tx, "last")?,
        })
    }

    fn count(self, tx: &mut Tx<'_>, place: u64) -> Result<(), Stop> {
        while self.counts.len(tx)? <= place {
            self.counts.push(tx, 0)?;
        }
        let before = self.counts.get(tx, place)?.unwrap_or(0);
        self.counts.set(tx, place, before + 1).map(drop)
    }

    /// Whether the collections contradict each other. All of one instant.
    fn judge(self, tx: &mut Tx<'_>, problems: &mut Vec<String>) -> Result<Vec<WriterOperation>, Stop> {
        let queue: Vec<u64> = self.queue.iter(tx).collect::<Result<_, _>>()?;
        let counts: Vec<u64> = self.counts.iter(tx).collect::<Result<_, _>>()?;
        let mut names = BTreeMap::new();
        let entries: Vec<_> = self.names.iter(tx).collect::<Result<_, _>>()?;
        for (stamp, handle) in entries {
            names.insert(stamp, handle.to_vec(tx)?);
        }
        let mut stamps = BTreeMap::new();
        let mut walk = self.stamps.walk();
        while let Some((handle, stamp)) = walk.next(tx)? {
            stamps.insert(stamp, handle.to_vec(tx)?);
        }
        let expected: BTreeMap<u64, Vec<u8>> = queue.iter().map(|&stamp| (stamp, name(stamp))).collect();
        if expected.len() != queue.len() {
            problems.push("an operation is twice in the queue".to_owned());
        }
        for (what, found) in [("ordered map", &names), ("hash map", &stamps)] {
            if *found != expected {
                let (has, queued) = (found.len(), expected.len());
                problems.push(format!(
                    "the {what} has {has} operations, not the {queued} of the queue, or other names"
                ));
            }
        }
        let last: BTreeMap<u64, u64> = self.last.iter(tx).collect::<Result<_, _>>()?;
        for stamp in &queue {
            let thread = u64::from(operation(*stamp).thread);
            if last.get(&thread).is_none_or(|last| last < stamp) {
                problems
                    .push(format!("{} is in the queue, and its thread has not made it", operation(*stamp)));
            }
        }
        let left = counts.first().copied().unwrap_or(0);
        let made: u64 = counts.iter().skip(1).sum();
        if made != left + queue.len() as u64 {
            problems
                .push(format!("{made} operations were counted; {left} have left, {} are there", queue.len()));
        }
        Ok(last.into_values().map(operation).collect())
    }
}

impl Ledger for Register {
    const NAME: &'static str = "register";

    fn open(heap: &Heap, _keys: u64) -> HeapResult<Self> {
        heap.transaction(Self::at)
    }

    fn operate(self, tx: &mut Tx<'_>, of: WriterOperation, _noise: u64) -> Result<(), Stop> {
        let (stamp, thread) = (stamp(of), u64::from(of.thread));
        self.queue.push(tx, stamp)?;
        let handle = HeapBytes::new(tx, &name(stamp))?;
        self.names.insert(tx, &stamp, handle)?;
        self.stamps.insert(tx, &name(stamp), stamp)?;
        self.count(tx, thread + 1)?;
        self.last.insert(tx, &thread, stamp)?;
        if self.queue.len(tx)? <= KEPT {
            return Ok(());
        }
        let Some(oldest) = self.queue.pop(tx)? else { return Ok(()) };
        if let Some(handle) = self.names.remove(tx, &oldest)? {
            handle.free(tx)?;
        }
        self.stamps.remove(tx, &name(oldest))?;
        self.count(tx, LEFT)
    }

    fn look(self, tx: &mut Tx<'_>, thread: u8) -> Result<Result<Option<WriterOperation>, String>, Stop> {
        let lengths = [self.queue.len(tx)?, self.names.len(tx)?, self.stamps.len(tx)?];
        if lengths.iter().any(|len| *len != lengths[0]) {
            return Ok(Err(format!("queue, ordered map and hash map have {lengths:?} operations")));
        }
        Ok(Ok(self.last.get(tx, &u64::from(thread))?.map(operation)))
    }

    fn examine(heap: &Heap) -> HeapResult<Findings> {
        let mut problems = heap.check()?;
        if heap.roots()?.len() < 5 {
            return Ok(Findings { last: Vec::new(), problems });
        }
        let mut found = Vec::new();
        let last = heap.read(|tx| {
            found.clear();
            Self::at(tx)?.judge(tx, &mut found)
        })?;
        problems.append(&mut found);
        Ok(Findings { last, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove::{Latency, Medium};

    /// A register after some operations, and what `break_it` does to it afterwards, is examined.
    fn problems(break_it: impl Fn(&mut Tx<'_>, Register) -> Result<(), Stop>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let medium = Medium::Emulated(Latency::new(0, 0));
        let heap = Heap::options().medium(medium).capacity(64 << 20).log_bytes(1 << 20);
        let heap = heap.open(folder.path().join("heap")).unwrap();
        assert_eq!(Register::examine(&heap).unwrap().problems, Vec::<String>::new(), "without a register");
        let register = Register::open(&heap, 0).unwrap();
        for number in 1..=500 {
            let of = WriterOperation { round: 3, thread: (number % 2) as u8, number };
            heap.transaction(|tx| register.operate(tx, of, 0)).unwrap();
        }
        let findings = Register::examine(&heap).unwrap();
        assert_eq!(findings.problems, Vec::<String>::new());
        let last: Vec<u32> = findings.last.iter().map(|of| of.number).collect();
        assert_eq!(last, [500, 499]);
        heap.transaction(|tx| break_it(tx, register)).unwrap();
        Register::examine(&heap).unwrap().problems
    }

    #[track_caller]
    fn finds(sentence: &str, break_it: impl Fn(&mut Tx<'_>, Register) -> Result<(), Stop>) {
        let problems = problems(break_it);
        assert!(problems.iter().any(|p| p.contains(sentence)), "{sentence:?} is not in {problems:?}");
    }

    #[test]
    fn half_an_operation_is_found() {
        finds("the hash map has 299 operations", |tx, register| {
            let of = WriterOperation { round: 3, thread: 0, number: 400 };
            register.stamps.remove(tx, &name(stamp(of))).map(drop)
        });
        finds("500 operations were counted; 200 have left, 299 are there", |tx, register| {
            register.queue.pop(tx).map(drop)
        });
        finds("501 operations were counted", |tx, register| register.count(tx, 1));
    }

    #[test]
    fn an_operation_that_nobody_made_is_found() {
        let of = WriterOperation { round: 3, thread: 1, number: 501 };
        finds("r3t1 501 is in the queue, and its thread has not made it", |tx, register| {
            register.queue.push(tx, stamp(of))
        });
    }

    #[test]
    fn another_name_is_found() {
        finds("the ordered map has 300 operations", |tx, register| {
            let of = WriterOperation { round: 3, thread: 0, number: 400 };
            let other = HeapBytes::new(tx, b"another name")?;
            register.names.insert(tx, &stamp(of), other).map(drop)
        });
    }
}
