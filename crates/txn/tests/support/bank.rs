//! Accounts in durable words, transfers between them by several threads, and a counter of each thread behind them: what
//! was acknowledged, and the total, must be there after every opening.

use mangrove_txn::{Halt, Isolation, TxAccess, TxError, TxThread};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

/// What each account has at first.
const START: u64 = 1000;

pub(crate) type Body<T> = Result<T, Halt<Infallible>>;

/// So many accounts, and so many threads.
#[derive(Clone, Copy)]
pub(crate) struct Bank {
    pub(crate) accounts: usize,
    pub(crate) threads: usize,
    /// One transfer in seven is undone, and after each the total is read.
    pub(crate) varies: bool,
}

impl Bank {
    /// Words that it takes.
    pub(crate) const fn words(self) -> usize {
        self.accounts + self.threads
    }

    /// What the counters hold at first.
    pub(crate) fn none(self) -> Vec<u64> {
        vec![0; self.threads]
    }

    /// Gives each account what it has at first. The words lie at `base`.
    pub(crate) fn fill<X: Isolation>(self, executor: &X, base: usize) {
        let fill = |tx: &mut <X::Thread<'_> as TxThread>::Tx| -> Body<()> {
            (0..self.accounts).try_for_each(|n| Ok(tx.write_word(base + n * 8, START)?))
        };
        assert!(executor.thread().run(fill).is_ok());
    }

    /// Runs `rounds` transfers on each thread. Returns the counts that were acknowledged.
    pub(crate) fn transfers<X: Isolation>(self, executor: &X, base: usize, rounds: usize) -> Vec<u64> {
        let acknowledged: Vec<AtomicU64> = (0..self.threads).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (number, acknowledged) in acknowledged.iter().enumerate() {
                scope.spawn(move || self.run(executor, base, rounds, number, acknowledged));
            }
        });
        acknowledged.into_iter().map(AtomicU64::into_inner).collect()
    }

    /// What one thread does.
    fn run<X: Isolation>(
        self,
        executor: &X,
        base: usize,
        rounds: usize,
        number: usize,
        acknowledged: &AtomicU64,
    ) {
        let mut thread = executor.thread();
        let mut random = 77 + number as u64;
        let mut account = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            base + (random >> 33) as usize % self.accounts * 8
        };
        let counter = base + (self.accounts + number) * 8;
        for round in 0..rounds {
            let (from, to) = (account(), account());
            let count = thread.run(|tx| {
                let has = tx.read_word(from)?;
                tx.write_word(from, has.wrapping_sub(3))?;
                let has = tx.read_word(to)?;
                tx.write_word(to, has.wrapping_add(3))?;
                let count = tx.read_word(counter)? + 1;
                tx.write_word(counter, count)?;
                if self.varies && round % 7 == 3 { Err(Halt::Abort(())) } else { Ok(count) }
            });
            match count {
                // Relaxed: read when the threads have ended.
                Ok(count) => acknowledged.store(count, Ordering::Relaxed),
                Err(TxError::Aborted(())) => {}
                Err(error) => panic!("{error:?}"),
            }
            if self.varies {
                let total = thread.read(|tx| -> Body<u64> {
                    (0..self.accounts)
                        .try_fold(0_u64, |sum, n| Ok(sum.wrapping_add(tx.read_word(base + n * 8)?)))
                });
                assert_eq!(total.unwrap(), START * self.accounts as u64);
            }
        }
    }

    /// Whether these words hold the total, and the counts that were acknowledged.
    #[track_caller]
    pub(crate) fn is_right(self, words: &[u64], acknowledged: &[u64], way: &str) {
        let (accounts, counts) = words.split_at(self.accounts);
        let total = accounts.iter().fold(0_u64, |sum, &word| sum.wrapping_add(word));
        assert_eq!((total, counts), (START * self.accounts as u64, acknowledged), "{way}");
    }
}
