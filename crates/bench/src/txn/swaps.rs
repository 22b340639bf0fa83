//! Swaps of random words as a job for any executor.

use super::load::Random;
use super::measure::on_threads;
use super::place::WordPool;
use super::ways::ExecutorJob;
use anyhow::ensure;
use mangrove_txn::{Halt, Isolation, TxAccess, TxThread};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Swaps on so many threads, among the first `words` words.
pub(super) struct SwapJob<'a> {
    pub(super) swaps: u32,
    pub(super) threads: usize,
    pub(super) words: usize,
    pub(super) place: &'a WordPool,
    pub(super) time: Duration,
    /// Bytes in the logs at which the measurement ends, because nothing replays them.
    pub(super) log_bytes_max: Option<u64>,
}

impl ExecutorJob for SwapJob<'_> {
    /// Transactions, and a second's.
    type Answer = (u64, f64);

    fn run<E: Isolation>(&self, executor: &E) -> anyhow::Result<(u64, f64)> {
        let base = self.place.memory().base();
        let work = |number: usize, stop: &AtomicBool| {
            let (mut thread, mut random) = (executor.thread(), Random::new(number as u64));
            let mut done = 0u64;
            // Relaxed: nothing is read that the other thread wrote before.
            while !stop.load(Ordering::Relaxed) {
                random.below(self.words);
                let answer = thread.run(|tx| -> Result<(), Halt<Infallible>> {
                    let mut random = random;
                    for _ in 0..self.swaps {
                        let mut at = || base + random.below(self.words) * 8;
                        let (one, other) = (at(), at());
                        let (x, y) = (tx.read_word(one)?, tx.read_word(other)?);
                        tx.write_word(one, y)?;
                        tx.write_word(other, x)?;
                    }
                    Ok(())
                });
                answer.map_err(|error| anyhow::anyhow!("{error:?}"))?;
                done += 1;
            }
            Ok(done)
        };
        let is_full = || self.log_bytes_max.is_some_and(|most| self.place.shadow().stat().log_used > most);
        let is_full: Option<&dyn Fn() -> bool> =
            if self.log_bytes_max.is_some() { Some(&is_full) } else { None };
        let (done, seconds) = on_threads(self.threads, self.time, is_full, work)?;
        let count = done.into_iter().sum::<u64>();
        Ok((count, count as f64 / seconds))
    }
}

/// Fills a place with numbers that swaps keep.
pub(super) fn fill(place: &WordPool) -> anyhow::Result<()> {
    place.fill(&(0..place.words() as u64).collect::<Vec<_>>())
}

/// Looks whether each number is still there once.
pub(super) fn verify(place: &WordPool) -> anyhow::Result<()> {
    let mut left: Vec<u64> = (0..place.words()).map(|at| place.word(at)).collect();
    left.sort_unstable();
    ensure!(left.into_iter().eq(0..place.words() as u64), "the words are not what swaps leave");
    Ok(())
}
