//! Transactions for the tests of this crate: NOrec (Dalessandro, Spear, Scott; PPoPP 2010), the shortest algorithm
//! that gives each transaction a consistent snapshot and makes its writes visible together. Reads are noted with
//! their values, writes wait in a buffer, one clock orders the commits.

use crate::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The clock: odd while a commit writes.
#[derive(Default)]
pub(crate) struct Clock {
    now: AtomicU64,
    /// Leaves validation out, to show that the tests need it.
    pub(crate) is_broken: bool,
}

/// The transaction met another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict;

pub(crate) struct Tx<'a> {
    clock: &'a Clock,
    snapshot: u64,
    pub(crate) reads: BTreeMap<usize, u64>,
    pub(crate) writes: BTreeMap<usize, u64>,
}

fn word_at<'a>(address: usize) -> &'a AtomicU64 {
    assert!(address.is_multiple_of(8));
    // SAFETY: the tests use addresses of words in regions that outlive their transactions; all access is atomic.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

impl<'a> Tx<'a> {
    pub(crate) fn begin(clock: &'a Clock) -> Self {
        let mut tx = Self { clock, snapshot: 0, reads: BTreeMap::new(), writes: BTreeMap::new() };
        tx.snapshot = tx.quiet();
        tx
    }

    /// A time at which no commit writes.
    fn quiet(&self) -> u64 {
        loop {
            // Acquire, with the Release that ends a commit: its writes are seen.
            let now = self.clock.now.load(Ordering::Acquire);
            if now.is_multiple_of(2) {
                return now;
            }
            std::thread::yield_now();
        }
    }

    /// Moves the snapshot to a time at which all that was read still holds.
    fn validate(&mut self) -> Result<(), Conflict> {
        loop {
            let time = self.quiet();
            let holds = |(&at, &value): (&usize, &u64)| word_at(at).load(Ordering::Relaxed) == value;
            if !self.clock.is_broken && !self.reads.iter().all(holds) {
                return Err(Conflict);
            }
            // The loads above come before this one.
            fence(Ordering::Acquire);
            if self.clock.now.load(Ordering::Relaxed) == time {
                self.snapshot = time;
                return Ok(());
            }
        }
    }

    pub(crate) fn get(&mut self, at: usize) -> Result<u64, Conflict> {
        if let Some(&value) = self.writes.get(&at) {
            return Ok(value);
        }
        loop {
            // Acquire: the clock is read after the word.
            let value = word_at(at).load(Ordering::Acquire);
            if self.clock.now.load(Ordering::Acquire) == self.snapshot {
                let known = *self.reads.entry(at).or_insert(value);
                assert!(known == value || self.clock.is_broken, "a snapshot has one value of a word");
                return Ok(value);
            }
            self.validate()?;
        }
    }

    pub(crate) fn put(&mut self, at: usize, value: u64) {
        self.writes.insert(at, value);
    }

    pub(crate) fn commit(mut self) -> Result<(), Conflict> {
        if self.writes.is_empty() {
            return Ok(());
        }
        // Acquire: the commit before this one is seen. Its own writes come after.
        while self
            .clock
            .now
            .compare_exchange(self.snapshot, self.snapshot + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            self.validate()?;
        }
        // A reader that sees one of the writes sees that the clock is odd.
        fence(Ordering::Release);
        for (&at, &value) in &self.writes {
            word_at(at).store(value, Ordering::Relaxed);
        }
        // Release, with the Acquire in `quiet`.
        self.clock.now.store(self.snapshot + 2, Ordering::Release);
        Ok(())
    }

    /// Every word that the transaction read or wrote.
    pub(crate) fn touched(&self) -> BTreeSet<usize> {
        self.reads.keys().chain(self.writes.keys()).copied().collect()
    }

    /// The words at which this transaction and another one conflict: one writes what the other reads or writes.
    pub(crate) fn conflicts(&self, other: &Self) -> BTreeSet<usize> {
        let (mine, theirs) = (self.touched(), other.touched());
        let written = self.writes.keys().filter(|at| theirs.contains(at));
        written.chain(other.writes.keys().filter(|at| mine.contains(at))).copied().collect()
    }
}

impl Words for Tx<'_> {
    type Stop = Conflict;
    const ALONE: bool = false;

    fn load(&mut self, word: &AtomicU64) -> Result<u64, Conflict> {
        self.get(word.as_ptr() as usize)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) -> Result<(), Conflict> {
        self.put(word.as_ptr() as usize, value);
        Ok(())
    }

    fn store_all(&mut self, words: &[AtomicU64], values: &[u64]) -> Result<(), Conflict> {
        assert_eq!(words.len(), values.len());
        words.iter().zip(values).try_for_each(|(word, &value)| self.store(word, value))
    }

    unsafe fn zero(&mut self, at: *mut u8, len: usize) -> Result<(), Conflict> {
        // Blocks are whole multiples of 16 bytes.
        (at as usize..at as usize + len).step_by(8).for_each(|word| self.put(word, 0));
        Ok(())
    }

    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) -> Result<(), Conflict> {
        for offset in (0..len).step_by(8) {
            let value = self.get(from as usize + offset)?;
            self.put(to as usize + offset, value);
        }
        Ok(())
    }
}
