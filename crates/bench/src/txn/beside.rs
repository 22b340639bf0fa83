//! How long short updates take beside transactions of 10 ms: alone, beside a thread that only computes, and beside a
//! thread with such transactions. Their words are far from each other.
//!
//! The updates are due at fixed times, and each is timed from when it was due: one that waits delays those after it,
//! which would not be seen if they began only when it has ended.

use super::context::TxnBench;
use super::load::Random;
use super::peer::TxnDomain;
use super::place::WordPool;
use super::ways::ExecutorJob;
use crate::harness::stats::Samples;
use crate::report::report::FigureUnit;
use mangrove_txn::{Halt, Isolation, TxAccess, TxThread};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const BESIDE: &str = "beside";

/// Half for the short transactions, half for the long ones.
const BYTES: usize = 16 << 20;
const LONG: Duration = Duration::from_millis(10);
/// Between two reads of a long transaction.
const LONG_STEP: Duration = Duration::from_micros(1);
/// Words that a long transaction reads, again and again.
const LONG_WORDS: usize = 4096;
const SHORT_WRITES: usize = 4;
/// Between two updates.
const DUE_EACH: Duration = Duration::from_micros(20);
/// Updates that are timed at most.
const TIMED_MAX: usize = 1 << 22;

/// What runs on the other thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Nothing,
    Computing,
    Long,
}

const COMPANIES: [(Company, &str); 3] = [
    (Company::Nothing, "alone"),
    (Company::Computing, "beside a thread without transactions"),
    (Company::Long, "beside transactions of 10 ms"),
];

struct ShortJob<'a> {
    place: &'a WordPool,
    company: Company,
    time: Duration,
}

impl ShortJob<'_> {
    fn accompany<E: Isolation>(&self, executor: &E, stop: &AtomicBool) -> anyhow::Result<()> {
        // Relaxed: nothing is read that the other thread wrote before.
        let stops = || stop.load(Ordering::Relaxed);
        match self.company {
            Company::Nothing => {}
            Company::Computing => {
                while !stops() {
                    black_box(Random::new(1));
                }
            }
            Company::Long => {
                let base = self.place.memory().base() + BYTES / 2;
                let mut thread = executor.thread();
                while !stops() {
                    let answer = thread.run(|tx| -> Result<(), Halt<Infallible>> {
                        let begun = Instant::now();
                        let mut sum = 0u64;
                        for step in 0.. {
                            sum = sum.wrapping_add(tx.read_word(base + step % LONG_WORDS * 8)?);
                            let next = LONG_STEP * (step as u32 + 1);
                            while begun.elapsed() < next.min(LONG) {}
                            if next >= LONG {
                                break;
                            }
                        }
                        tx.write_word(base, sum + 1).map_err(Halt::from)
                    });
                    answer.map_err(|error| anyhow::anyhow!("{error:?}"))?;
                }
            }
        }
        Ok(())
    }

    /// Nanoseconds of each update.
    fn time_updates<E: Isolation>(&self, executor: &E) -> anyhow::Result<Samples> {
        let base = self.place.memory().base();
        let (mut thread, mut random) = (executor.thread(), Random::new(3));
        // Written before: the measurement takes no page faults of its own.
        let (mut times, mut count) = (vec![1u32; TIMED_MAX], 0);
        let begun = Instant::now();
        let mut due = begun;
        while due - begun < self.time && count < TIMED_MAX {
            while Instant::now() < due {}
            random.below(BYTES);
            let answer = thread.run(|tx| -> Result<(), Halt<Infallible>> {
                let mut random = random;
                for _ in 0..SHORT_WRITES {
                    let at = base + random.below(BYTES / 16) * 8;
                    let word = tx.read_word(at)?;
                    tx.write_word(at, word + 1)?;
                }
                Ok(())
            });
            answer.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            times[count] = due.elapsed().as_nanos().min(u32::MAX.into()) as u32;
            count += 1;
            due += DUE_EACH;
        }
        let mut samples = Samples::default();
        times[..count].iter().for_each(|&time| samples.push(f64::from(time)));
        Ok(samples)
    }
}

impl ExecutorJob for ShortJob<'_> {
    type Answer = Samples;

    fn run<E: Isolation>(&self, executor: &E) -> anyhow::Result<Samples> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            let other = scope.spawn(move || self.accompany(executor, stop));
            let times = self.time_updates(executor);
            stop.store(true, Ordering::Relaxed);
            other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            times
        })
    }
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let mut place = WordPool::new(&b.args.dir, &b.place(TxnDomain::Adr), BYTES)?;
    place.touch()?;
    for way in b.ways()?.into_iter().filter(|way| way.fits(TxnDomain::Adr)) {
        place = place.opened_for(way.protocol())?;
        for (company, name) in COMPANIES {
            b.progress.step(format!("{} {name}", way.subject()));
            // Ten long transactions at least.
            let time =
                Duration::from_secs_f64(b.seconds()).max(if b.args.run.quick { LONG } else { LONG * 10 });
            let times = way.run(&place, &ShortJob { place: &place, company, time })?;
            for (what, share) in [("median", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                let value = times.quantile(share);
                b.add(
                    BESIDE,
                    TxnDomain::Adr.name(),
                    name,
                    what,
                    1,
                    way.subject(),
                    FigureUnit::Nanoseconds,
                    value,
                );
            }
        }
    }
    Ok(())
}
