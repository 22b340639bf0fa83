//! Batches of 1,000 records, each synced; and a fill, on one thread and on two, in which no put waits for the disk.

use super::threads::span;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, SyncMode};
use crate::report::report::FigureUnit;
use anyhow::ensure;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "batches";
pub(crate) const BATCH: &str = "put in a synced batch of 1,000";
pub(crate) const FILL: &str = "unsynced put";
/// Thread counts of [`FILL`], unless `--threads` names others.
const FILL_THREADS: [usize; 2] = [1, 2];
/// Records of a batch.
const BATCH_RECORDS: usize = 1_000;

/// Puts the records `from..from + count` in one batch.
pub(super) fn put_batch(store: &dyn OpenStore, from: u64, count: usize) -> anyhow::Result<()> {
    let records: Vec<_> = (from..from + count as u64)
        .map(|n| {
            let key = records::key(n);
            (key, records::value(&key))
        })
        .collect();
    let borrowed: Vec<(&[u8], &[u8])> = records.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    store.batch(&borrowed)
}

/// Loads `count` records as fast as the store goes, and makes them durable.
pub(super) fn load(store: &dyn OpenStore, count: usize) -> anyhow::Result<()> {
    for from in (0..count).step_by(BATCH_RECORDS) {
        put_batch(store, from as u64, BATCH_RECORDS.min(count - from))?;
    }
    store.sync()
}

/// Puts per second when `threads` threads put `count` records, each its own part of the keys.
fn fill_rate(store: &dyn OpenStore, threads: usize, count: usize) -> anyhow::Result<f64> {
    let barrier = Barrier::new(threads);
    let first_error = Mutex::new(None);
    let seconds = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let (barrier, first_error) = (&barrier, &first_error);
                let part = count * t / threads..count * (t + 1) / threads;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    for number in part {
                        let key = records::key(number as u64);
                        if let Err(e) = store.put(&key, &records::value(&key)) {
                            *first_error.lock().unwrap_or_else(|p| p.into_inner()) = Some(e);
                            break;
                        }
                    }
                    (start, Instant::now())
                })
            })
            .collect();
        span(workers)
    });
    match first_error.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some(e) => Err(e),
        None => Ok(count as f64 / seconds),
    }
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.seconds());
    let fill = c.records();
    let counts = if c.args.threads.is_empty() { FILL_THREADS.to_vec() } else { c.threads.clone() };
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, (1 + counts.len()) * stores.len() * c.args.run.rounds);
    for _ in 0..c.args.run.rounds {
        for kind in &stores {
            progress.step(format!("{} batches", kind.name()));
            let dir = c.fresh_dir(kind.name())?;
            let store = kind.open(&dir, SyncMode::Sync)?;
            let (mut done, start) = (0u64, Instant::now());
            while start.elapsed() < time {
                put_batch(&*store, done, BATCH_RECORDS)?;
                done += BATCH_RECORDS as u64;
            }
            let rate = done as f64 / start.elapsed().as_secs_f64();
            store.close()?;
            let line =
                TableLine { section: SECTION, medium: "file", workload: "", operation: BATCH, threads: 1 };
            c.add(&line, kind.name(), FigureUnit::PerSecond, rate);
            progress.done();

            for &threads in &counts {
                progress.step(format!("{} fill, {threads} threads", kind.name()));
                let dir = c.fresh_dir(kind.name())?;
                let store = kind.open(&dir, SyncMode::Async)?;
                let rate = fill_rate(&*store, threads, fill)?;
                let count = store.scan(&mut |_, _| {})?;
                ensure!(count == fill as u64, "{} has {count} of {fill} records", kind.name());
                store.close()?;
                std::fs::remove_dir_all(&dir)?;
                let line = TableLine { operation: FILL, threads, ..line };
                c.add(&line, kind.name(), FigureUnit::PerSecond, rate);
                progress.done();
            }
        }
    }
    Ok(())
}
