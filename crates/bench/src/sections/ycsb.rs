//! YCSB's workloads A, B, C and E: one thread, requests after Zipf's law, unsynced.

use super::loaded::{LoadedKeys, open_loaded};
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::OpenStore;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "ycsb";
/// The name of the workload E.
pub(crate) const SCANS: &str = "E: 95 % scans of 1 to 100, 5 % insertions";
/// YCSB's skew.
const EXPONENT: f64 = 0.99;
/// Requests that are drawn before the clock starts; a run goes over them again and again.
const REQUESTS: usize = 1 << 20;
/// The most records of a scan.
const SCAN_RECORDS_MAX: usize = 100;

/// One workload of YCSB; what is neither a read nor a scan nor an update is an insertion.
struct Mix {
    name: &'static str,
    reads: u8,
    updates: u8,
    scans: u8,
}

/// C first: E, which inserts, last.
const MIXES: [Mix; 4] = [
    Mix { name: "C: reads", reads: 100, updates: 0, scans: 0 },
    Mix { name: "B: 95 % reads, 5 % updates", reads: 95, updates: 5, scans: 0 },
    Mix { name: "A: 50 % reads, 50 % updates", reads: 50, updates: 50, scans: 0 },
    Mix { name: SCANS, reads: 0, updates: 0, scans: 95 },
];

/// A request: percent that chooses the operation, and the record.
type Request = (u8, u32);

/// Requests for `loaded` records. The popular records lie anywhere in the order of insertion, as YCSB's do.
fn requests(loaded: usize, seed: u64) -> anyhow::Result<Vec<Request>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut place: Vec<u32> = (0..loaded as u32).collect();
    place.shuffle(&mut rng);
    let zipf = Zipf::new(loaded as f64, EXPONENT)?;
    let request = |_| {
        let rank = (zipf.sample(&mut rng) as usize).clamp(1, loaded) - 1;
        (rng.random_range(0..100), place[rank])
    };
    Ok((0..REQUESTS).map(request).collect())
}

/// Requests per second.
fn rate(
    store: &dyn OpenStore,
    mix: &Mix,
    requests: &[Request],
    next: &mut u64,
    time: Duration,
) -> anyhow::Result<f64> {
    let mut value = Vec::with_capacity(records::VALUE_BYTES);
    let (mut done, mut wrong, mut bytes) = (0usize, 0u64, 0usize);
    let start = Instant::now();
    while start.elapsed() < time {
        // The clock is read once in a while.
        for _ in 0..64 {
            let (percent, number) = requests[done % requests.len()];
            let key = records::key(u64::from(number));
            if percent < mix.reads {
                wrong += u64::from(!store.get(&key, &mut value)? || value.len() != records::VALUE_BYTES);
            } else if percent < mix.reads + mix.updates {
                store.put(&key, &records::value(&key))?;
            } else if percent < mix.reads + mix.updates + mix.scans {
                let count = 1 + done % SCAN_RECORDS_MAX;
                let seen = store.scan_from(&key, count, &mut |k, v| bytes += k.len() + v.len())?;
                // A scan that begins near the last key may be short, but never empty.
                wrong += u64::from(seen == 0);
            } else {
                let key = records::key(*next);
                *next += 1;
                store.put(&key, &records::value(&key))?;
            }
            done += 1;
        }
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    ensure!(wrong == 0, "{wrong} wrong answers");
    ensure!(bytes.is_multiple_of(records::PAYLOAD_BYTES), "scans saw {bytes} bytes, no whole records");
    Ok(rate)
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.args.run.seconds_or(2.0));
    let loaded = c.records();
    let requests = requests(loaded, c.args.seed)?;
    let stores = c.stores_and_c();
    let progress = SectionProgress::new(SECTION, stores.len() * c.args.run.rounds);
    for _ in 0..c.args.run.rounds {
        for kind in &stores {
            progress.step(format!("{} load", kind.name()));
            let (dir, store) = open_loaded(c, *kind, LoadedKeys::Scattered, loaded)?;
            let mut next = loaded as u64;
            for mix in &MIXES {
                progress.step(format!("{} {}", kind.name(), mix.name));
                let rate = rate(&*store, mix, &requests, &mut next, time)?;
                let line = TableLine {
                    section: SECTION,
                    medium: "file",
                    workload: "",
                    operation: mix.name,
                    threads: 1,
                };
                c.add(&line, kind.name(), FigureUnit::PerSecond, rate);
            }
            store.close()?;
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_skewed_and_ask_for_loaded_records() -> anyhow::Result<()> {
        let requests = requests(1_000, 7)?;
        let mut counts = vec![0usize; 1_000];
        for (percent, number) in &requests {
            assert!(*percent < 100);
            counts[*number as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // Of 1,000 records under Zipf's law with 0.99 the first has an eighth of all requests.
        let share = counts[0] as f64 / requests.len() as f64;
        assert!((0.11..0.15).contains(&share), "{share}");
        assert!(counts[999] > 0);
        Ok(())
    }
}
