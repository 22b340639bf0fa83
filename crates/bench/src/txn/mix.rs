//! The synthetic benchmark of the SPHT-eADR dissertation (section 4.2): each transaction reads and writes so many
//! random words of its thread's own part of the heap. No two transactions conflict.

use super::load::Random;
use super::measure::on_threads;
use super::place::WordPool;
use super::ways::ExecutorJob;
use anyhow::ensure;
use mangrove_txn::{Halt, Isolation, TxAccess, TxCounts, TxThread};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of each so many words, one is looked at afterwards.
const VERIFIED: usize = 61;

/// Reads and writes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) writes: usize,
    pub(super) reads: usize,
}

/// Those of the dissertation: small and large, balanced and not.
pub(super) const MIXES: [Mix; 6] = [
    Mix { writes: 1, reads: 9 },
    Mix { writes: 5, reads: 45 },
    Mix { writes: 5, reads: 5 },
    Mix { writes: 25, reads: 25 },
    Mix { writes: 9, reads: 1 },
    Mix { writes: 45, reads: 5 },
];

impl Mix {
    pub(super) fn name(self) -> String {
        format!("writes {}, reads {}", self.writes, self.reads)
    }

    /// The accesses of the `number`-th transaction: index, and whether it is a write. Reads and writes alternate as
    /// evenly as their numbers allow.
    fn accesses(self, mut random: Random, words: usize) -> impl Iterator<Item = (usize, bool)> {
        let all = self.reads + self.writes;
        (0..all).map(move |at| (random.below(words), at * self.writes / all != (at + 1) * self.writes / all))
    }
}

/// What a transaction writes to a word: a number that says which word it is, and which transaction wrote.
fn value(number: u64, at: usize) -> u64 {
    number << 32 | at as u64 & 0xFFFF_FFFF
}

/// The seed of a thread's transaction.
fn random(thread: usize, number: u64) -> Random {
    Random::new(number.wrapping_mul(0xD134_2543_DE82_EF95) ^ thread as u64)
}

/// What a measurement gave.
#[derive(Debug)]
pub(super) struct MixAnswer {
    pub(super) seconds: f64,
    /// Of each thread.
    pub(super) counts: Vec<TxCounts>,
}

impl MixAnswer {
    pub(super) fn transactions(&self) -> u64 {
        self.counts.iter().map(|counts| counts.commits).sum()
    }
}

/// Where the words of a mix lie.
pub(super) trait WordPlace {
    /// The address of the first word.
    fn base(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// One of them, while no transaction runs.
    fn look_at(&self, at: usize) -> u64;

    /// Bytes in logs that are not replayed yet.
    fn log_bytes_used(&self) -> u64;
}

impl WordPlace for WordPool {
    fn base(&self) -> usize {
        self.memory().base()
    }

    fn count(&self) -> usize {
        self.words()
    }

    fn look_at(&self, at: usize) -> u64 {
        self.word(at)
    }

    fn log_bytes_used(&self) -> u64 {
        self.shadow().stat().log_used
    }
}

/// A mix on so many threads.
pub(super) struct MixJob<'a> {
    pub(super) mix: Mix,
    pub(super) threads: usize,
    pub(super) place: &'a (dyn WordPlace + Sync),
    pub(super) time: Duration,
    /// Bytes in the logs at which the measurement ends, because nothing replays them.
    pub(super) log_bytes_max: Option<u64>,
}

impl MixJob<'_> {
    /// Words of one thread's part: a power of two.
    fn part(&self) -> usize {
        let words = self.place.count() / self.threads;
        1 << words.ilog2()
    }

    /// The transactions of one thread: how many, and what they met.
    fn work<E: Isolation>(
        &self,
        executor: &E,
        number: usize,
        stop: &AtomicBool,
    ) -> anyhow::Result<(u64, TxCounts)> {
        let (words, base) = (self.part(), self.place.base());
        let first = number * words;
        let mut thread = executor.thread();
        let mut done = 0u64;
        loop {
            let random = random(number, done + 1);
            let answer = thread.run(|tx| -> Result<(), Halt<Infallible>> {
                for (at, writes) in self.mix.accesses(random, words) {
                    let address = base + (first + at) * 8;
                    if writes {
                        tx.write_word(address, value(done + 1, first + at))?;
                    } else {
                        std::hint::black_box(tx.read_word(address)?);
                    }
                }
                Ok(())
            });
            answer.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            done += 1;
            // Relaxed: nothing is read that the other thread wrote before.
            if stop.load(Ordering::Relaxed) {
                return Ok((done, thread.counts()));
            }
        }
    }

    /// Each thread's last transaction is there, and no word holds what belongs to another one.
    fn verify(&self, done: &[u64]) -> anyhow::Result<()> {
        for (thread, &number) in done.iter().enumerate().filter(|done| *done.1 > 0) {
            let first = thread * self.part();
            let written = self.mix.accesses(random(thread, number), self.part()).filter(|access| access.1);
            for (at, _) in written {
                ensure!(self.place.look_at(first + at) == value(number, first + at), "a transaction is lost");
            }
        }
        for at in (0..self.place.count()).step_by(VERIFIED) {
            let word = self.place.look_at(at);
            ensure!(word == 0 || word & 0xFFFF_FFFF == at as u64, "word {at} holds another one's value");
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.log_bytes_max.is_some_and(|most| self.place.log_bytes_used() > most)
    }
}

impl ExecutorJob for MixJob<'_> {
    type Answer = MixAnswer;

    fn run<E: Isolation>(&self, executor: &E) -> anyhow::Result<MixAnswer> {
        let is_full = || self.is_full();
        let is_full: Option<&dyn Fn() -> bool> =
            if self.log_bytes_max.is_some() { Some(&is_full) } else { None };
        let work = |number: usize, stop: &AtomicBool| self.work(executor, number, stop);
        let (done, seconds) = on_threads(self.threads, self.time, is_full, work)?;
        self.verify(&done.iter().map(|done| done.0).collect::<Vec<_>>())?;
        Ok(MixAnswer { seconds, counts: done.into_iter().map(|done| done.1).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::peer::TxnDomain;
    use crate::txn::place::PlaceOptions;
    use crate::txn::ways::Way;

    #[test]
    fn a_mix_has_as_many_reads_and_writes_as_it_says() {
        for mix in MIXES {
            let writes = mix.accesses(random(0, 1), 64).filter(|access| access.1).count();
            assert_eq!(
                (writes, mix.accesses(random(0, 1), 64).count()),
                (mix.writes, mix.writes + mix.reads)
            );
        }
    }

    /// The check after each measurement finds a transaction that is not there, and a word of another one.
    #[test]
    fn lost_and_misplaced_words_are_found() -> anyhow::Result<()> {
        let place = WordPool::new(&std::env::temp_dir(), &PlaceOptions::new(TxnDomain::Adr), 1 << 16)?;
        let time = Duration::from_millis(2);
        let job = MixJob { mix: MIXES[2], threads: 2, place: &place, time, log_bytes_max: None };
        let answer = Way::Records.run(&place, &job)?;
        let done: Vec<u64> = answer.counts.iter().map(|counts| counts.commits).collect();
        assert!(done.iter().all(|&count| count > 0));
        job.verify(&done)?;
        assert!(job.verify(&[done[0] + 1, done[1]]).is_err(), "a commit that did not take place");
        place.fill(&[7])?;
        assert!(job.verify(&[0, 0]).is_err(), "word 0 says that it is word 7");
        Ok(())
    }

    /// A mix with each protocol of time stamps, and with dense numbers in between; a mix verifies its own words.
    #[test]
    fn protocols_with_time_stamps_take_turns_on_one_pool() -> anyhow::Result<()> {
        for domain in [TxnDomain::Adr, TxnDomain::Eadr] {
            let mut place = WordPool::new(&std::env::temp_dir(), &PlaceOptions::new(domain), 1 << 16)?;
            for name in
                ["model:spht", "lock:spht", "default", "model:spht-eadr", "lock:spht-eadr-flush", "lock"]
            {
                let way = Way::parse(name)?;
                if !way.fits(domain) || !way.runs_here() {
                    continue;
                }
                place = place.opened_for(way.protocol())?;
                assert_eq!(place.shadow().is_stamped(), name.contains("spht"), "{name}");
                let time = Duration::from_millis(2);
                let job = MixJob { mix: MIXES[2], threads: 2, place: &place, time, log_bytes_max: None };
                let paths = way.paths(&way.run(&place, &job)?.counts);
                assert_eq!(paths.hardware > 0, name.contains("model"), "{name} {paths:?}");
            }
        }
        Ok(())
    }
}
