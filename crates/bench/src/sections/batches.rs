//! Batches of 1,000 records, each synced; and a fill in which no put waits for the disk.

use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, SyncMode};
use crate::report::report::Unit;
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "batches";
pub(crate) const BATCH: &str = "put in a synced batch of 1,000";
pub(crate) const FILL: &str = "unsynced put";
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

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.seconds());
    let fill = c.records();
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, 2 * stores.len() * c.args.run.rounds);
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
            c.add(&line, kind.name(), Unit::PerSecond, rate);
            progress.done();

            progress.step(format!("{} fill", kind.name()));
            let dir = c.fresh_dir(kind.name())?;
            let store = kind.open(&dir, SyncMode::Async)?;
            let start = Instant::now();
            for n in 0..fill as u64 {
                let key = records::key(n);
                store.put(&key, &records::value(&key))?;
            }
            let rate = fill as f64 / start.elapsed().as_secs_f64();
            store.close()?;
            std::fs::remove_dir_all(&dir)?;
            c.add(&TableLine { operation: FILL, ..line }, kind.name(), Unit::PerSecond, rate);
            progress.done();
        }
    }
    Ok(())
}
