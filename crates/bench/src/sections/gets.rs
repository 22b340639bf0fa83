//! Random gets on one and two threads, with all keys under one prefix while a writer runs, and an
//! ordered scan of everything.

use super::loaded::{LoadedKeys, open_loaded};
use super::threads::span;
use crate::harness::clock::thread_time;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::OpenStore;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

pub(crate) const SECTION: &str = "gets";
pub(crate) const GET: &str = "random get";
/// For lookups that a program can make together: by RocksDB's call for that, in one transaction of LMDB and redb, and
/// one by one elsewhere.
pub(crate) const GET_MANY: &str = "random get, 32 keys a call";
pub(crate) const GET_PREFIX: &str = "random get, one prefix, one writer";
/// The same by the readers' processor time: what the index allows two readers where three threads share two
/// processors. It would hide a reader that waits asleep, but Mangrove's readers never do.
pub(crate) const GET_PREFIX_CPU: &str = "random get, one prefix, one writer, by processor time";
pub(crate) const SCAN: &str = "record of an ordered scan";

/// Gets per second of several threads, by wall time and by their processor time.
struct Rates {
    wall: f64,
    processor: f64,
}

/// Keys of a call of [`GET_MANY`].
const KEYS_A_CALL: usize = 32;

/// Gets per second of one thread that has [`KEYS_A_CALL`] keys at a time; every answer is checked.
fn get_many_rate(store: &dyn OpenStore, gets: usize, loaded: usize) -> anyhow::Result<f64> {
    let mut rng = SmallRng::seed_from_u64(0);
    let (mut found, mut asked) = (0, 0);
    let start = Instant::now();
    while asked < gets {
        let keys: [_; KEYS_A_CALL] =
            std::array::from_fn(|_| records::key(rng.random_range(0..loaded as u64)));
        found += store.get_many(&keys.each_ref().map(|key| &key[..]), records::VALUE_BYTES)?;
        asked += KEYS_A_CALL;
    }
    let rate = asked as f64 / start.elapsed().as_secs_f64();
    ensure!(found == asked, "{} gets of many found nothing or the wrong length", asked - found);
    Ok(rate)
}

/// Rates of `threads` threads that make `gets` gets each; every answer is checked.
fn get_rate(
    store: &dyn OpenStore,
    threads: usize,
    gets: usize,
    loaded: usize,
    key_of: fn(u64) -> [u8; records::KEY_BYTES],
) -> anyhow::Result<Rates> {
    let barrier = Barrier::new(threads);
    let (wrong, processor_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let seconds = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|t| {
                let (barrier, wrong, processor_ns) = (&barrier, &wrong, &processor_ns);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(t);
                    let mut value = Vec::with_capacity(records::VALUE_BYTES);
                    let mut bad = 0;
                    barrier.wait();
                    let (start, before) = (Instant::now(), thread_time());
                    for _ in 0..gets {
                        let key = key_of(rng.random_range(0..loaded as u64));
                        let found = store.get(&key, &mut value).unwrap_or(false);
                        // The length reveals a wrong value; checking every byte would measure the bench.
                        bad += u64::from(!found || value.len() != records::VALUE_BYTES);
                    }
                    let took = thread_time() - before;
                    processor_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                    wrong.fetch_add(bad, Ordering::Relaxed);
                    (start, Instant::now())
                })
            })
            .collect();
        span(workers)
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{wrong} gets found nothing or the wrong length");
    let total = (threads * gets) as f64;
    let processor_seconds = processor_ns.into_inner() as f64 / 1e9 / threads as f64;
    Ok(Rates { wall: total / seconds, processor: total / processor_seconds })
}

/// The same, while another thread overwrites records under the same prefix without waiting for durability.
fn get_rate_with_a_writer(
    store: &dyn OpenStore,
    threads: usize,
    gets: usize,
    loaded: usize,
) -> anyhow::Result<Rates> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(99);
            while !stop.load(Ordering::Relaxed) {
                let key = records::prefixed_key(rng.random_range(0..loaded as u64));
                store.put(&key, &records::value(&key))?;
            }
            anyhow::Ok(())
        });
        let rate = get_rate(store, threads, gets, loaded, records::prefixed_key);
        stop.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(done) => done?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        rate
    })
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let loaded = c.records();
    let gets = loaded;
    let stores = c.stores_and_c();
    let progress = SectionProgress::new(SECTION, stores.len() * c.args.run.rounds);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..c.args.run.rounds {
        for kind in &stores {
            let line =
                TableLine { section: SECTION, medium: "file", workload: "", operation: GET, threads: 1 };
            progress.step(format!("{} load", kind.name()));
            let (_, store) = open_loaded(c, *kind, LoadedKeys::Scattered, loaded)?;
            progress.step(format!("{} gets", kind.name()));
            for threads in [1, 2] {
                let rate = get_rate(&*store, threads, gets, loaded, records::key)?;
                c.add(&TableLine { threads, ..line }, kind.name(), FigureUnit::PerSecond, rate.wall);
            }
            let rate = get_many_rate(&*store, gets, loaded)?;
            c.add(&TableLine { operation: GET_MANY, ..line }, kind.name(), FigureUnit::PerSecond, rate);
            progress.step(format!("{} scan", kind.name()));
            let start = Instant::now();
            let mut bytes = 0;
            let count = store.scan(&mut |k, v| bytes += k.len() + v.len())?;
            let rate = count as f64 / start.elapsed().as_secs_f64();
            ensure!(
                count == loaded as u64 && bytes == loaded * records::PAYLOAD_BYTES,
                "{} scanned {count} of {loaded} records",
                kind.name()
            );
            c.add(&TableLine { operation: SCAN, ..line }, kind.name(), FigureUnit::PerSecond, rate);
            store.close()?;

            progress.step(format!("{} one prefix", kind.name()));
            let (dir, store) = open_loaded(c, *kind, LoadedKeys::Prefixed, loaded)?;
            for threads in [1, 2] {
                let rate = get_rate_with_a_writer(&*store, threads, gets, loaded)?;
                for (operation, rate) in [(GET_PREFIX, rate.wall), (GET_PREFIX_CPU, rate.processor)] {
                    c.add(
                        &TableLine { operation, threads, ..line },
                        kind.name(),
                        FigureUnit::PerSecond,
                        rate,
                    );
                }
            }
            store.close()?;
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    if cpus < 3 {
        c.report.note(format!(
            "This machine has {cpus} processors: two readers beside a writer share them with it, \
             so that row cannot show a scaling of 2; the row by the readers' processor time can."
        ));
    }
    Ok(())
}
