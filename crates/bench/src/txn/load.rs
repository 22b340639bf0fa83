//! What is measured: swaps of random words, and maps. Swaps, and the hash map of libraries without one, are accesses to
//! words: such subjects differ in how they read and write a word, and in how a transaction begins and ends. A library
//! with maps gets the keys.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// What the transactions of a measurement do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TxnWork {
    /// So many swaps of two random words in each transaction.
    Swaps(u32),
    /// Look-ups of random keys that are there, so many percent of them followed by a new value.
    Map {
        /// Percent of the transactions that update.
        updates: u32,
    },
    /// The same on an ordered map.
    Ordered {
        /// Percent of the transactions that update.
        updates: u32,
    },
}

/// What a thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Transactions that committed.
    pub transactions: u64,
    /// Of these, updates of the map: each adds 1 to one value.
    pub updates: u64,
}

/// Reads and writes of one transaction.
pub trait WordAccess {
    /// Why an access did not take place: the transaction runs again.
    type Interrupted;

    /// The word with this index.
    ///
    /// # Errors
    /// When the transaction must run again.
    fn read(&mut self, at: usize) -> Result<u64, Self::Interrupted>;

    /// Writes the word with this index.
    ///
    /// # Errors
    /// As for `read`.
    fn write(&mut self, at: usize, value: u64) -> Result<(), Self::Interrupted>;
}

/// xorshift64 (Marsaglia, 2003), and numbers below a power of two.
#[derive(Clone, Copy)]
pub(super) struct Random(u64);

impl Random {
    /// Any seed but 0, and far from those of other numbers.
    pub(super) fn new(number: u64) -> Self {
        Self(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[inline(always)]
    pub(super) fn below(&mut self, words: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as usize & (words - 1)
    }
}

/// One transaction. It may run several times.
#[derive(Clone, Copy)]
pub struct OneTransaction {
    what: What,
    words: usize,
}

#[derive(Clone, Copy)]
enum What {
    Swap { random: Random, count: u32 },
    LookUp { key: u64 },
    Update { key: u64 },
}

impl OneTransaction {
    /// True when it writes nothing.
    #[inline(always)]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.what, What::LookUp { .. })
    }

    /// The key that it looks up or updates.
    #[inline(always)]
    #[must_use]
    pub fn key(&self) -> Option<u64> {
        match self.what {
            What::LookUp { key } | What::Update { key } => Some(key),
            What::Swap { .. } => None,
        }
    }

    /// Its accesses.
    ///
    /// # Errors
    /// When an access did not take place.
    #[inline(always)]
    pub fn body<W: WordAccess>(self, access: &mut W) -> Result<(), W::Interrupted> {
        match self.what {
            What::Swap { mut random, count } => {
                for _ in 0..count {
                    let (one, other) = (random.below(self.words), random.below(self.words));
                    let (x, y) = (access.read(one)?, access.read(other)?);
                    access.write(one, y)?;
                    access.write(other, x)?;
                }
            }
            What::LookUp { key } => {
                let at = self.find(access, key)?;
                std::hint::black_box(access.read(at + 1)?);
            }
            What::Update { key } => {
                let at = self.find(access, key)?;
                let value = access.read(at + 1)?;
                access.write(at + 1, value + 1)?;
            }
        }
        Ok(())
    }

    /// The place of a key that is there: linear probing.
    #[inline(always)]
    fn find<W: WordAccess>(&self, access: &mut W, key: u64) -> Result<usize, W::Interrupted> {
        let mut at = home(key, self.words);
        while access.read(at)? != key {
            at = (at + 2) & (self.words - 1);
        }
        Ok(at)
    }
}

/// Where the search for a key begins: pairs of key and value fill the words.
#[inline(always)]
fn home(key: u64, words: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (words - 2)
}

/// Keys of the map: 1 to this number.
fn keys(words: usize) -> usize {
    words / 4
}

impl TxnWork {
    /// The words before the first transaction.
    #[must_use]
    pub fn initial(self, words: usize) -> Vec<u64> {
        if let Self::Swaps(_) = self {
            return (0..words as u64).collect();
        }
        let mut table = vec![0; words];
        for key in 1..=keys(words) as u64 {
            let mut at = home(key, words);
            while table[at] != 0 {
                at = (at + 2) & (words - 1);
            }
            table[at] = key;
        }
        table
    }

    /// Whether the words are those that `done` leaves.
    #[must_use]
    pub fn is_right(self, words: &[u64], done: WorkDone) -> bool {
        match self {
            Self::Swaps(_) => {
                let mut sorted = words.to_vec();
                sorted.sort_unstable();
                sorted.into_iter().eq(0..words.len() as u64)
            }
            Self::Map { .. } | Self::Ordered { .. } => {
                let values = words.iter().skip(1).step_by(2);
                values.sum::<u64>() == done.updates
            }
        }
    }

    /// As a report's line names it.
    pub(super) fn operation(self) -> String {
        match self {
            Self::Swaps(1) => "1 swap a transaction".to_owned(),
            Self::Swaps(count) => format!("{count} swaps a transaction"),
            Self::Map { updates } | Self::Ordered { updates } => {
                format!("look-ups, {updates} % of them updates")
            }
        }
    }
}

/// Passes transactions to `one` until `stop`; `words` is a power of two.
///
/// # Errors
/// The first of `one`.
pub fn drive(
    work: TxnWork,
    words: usize,
    seed: u64,
    stop: &AtomicBool,
    mut one: impl FnMut(OneTransaction) -> anyhow::Result<()>,
) -> anyhow::Result<WorkDone> {
    let mut random = Random::new(seed);
    let mut done = WorkDone::default();
    // Relaxed: nothing is read that the other thread wrote before.
    while !stop.load(Ordering::Relaxed) {
        let what = match work {
            TxnWork::Swaps(count) => {
                random.below(words);
                What::Swap { random, count }
            }
            TxnWork::Map { updates } | TxnWork::Ordered { updates } => {
                let key = random.below(keys(words)) as u64 + 1;
                if random.below(1 << 20) * 100 < updates as usize * (1 << 20) {
                    done.updates += 1;
                    What::Update { key }
                } else {
                    What::LookUp { key }
                }
            }
        };
        one(OneTransaction { what, words })?;
        done.transactions += 1;
    }
    Ok(done)
}
