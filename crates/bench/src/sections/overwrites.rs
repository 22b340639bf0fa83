//! Records that exist are overwritten at random, without waiting for each: how fast, how long the slowest puts take,
//! and what the disk writes for them.

use super::loaded::{LoadedKeys, open_loaded};
use crate::harness::context::{MapBench, TableLine};
use crate::harness::machine::BlockDevice;
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::OpenStore;
use crate::report::figures;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "overwrites";
pub(crate) const OVERWRITE: &str = "unsynced overwrite";
pub(crate) const LONGEST: &str = "unsynced overwrite, the longest";
pub(crate) const WRITTEN: &str = "device bytes per overwrite";
/// Width of a point of the timeline.
const SLICE: Duration = Duration::from_millis(100);

/// What one store did.
struct Overwritten {
    puts: u64,
    seconds: f64,
    latency_ns: Histogram<u64>,
    /// Milliseconds of the slowest put of each slice.
    timeline: Vec<f64>,
}

/// Overwrites random records for `time`, and makes all of it durable.
fn overwrite(store: &dyn OpenStore, loaded: u64, time: Duration) -> anyhow::Result<Overwritten> {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut done = Overwritten {
        puts: 0,
        seconds: 0.0,
        latency_ns: Histogram::new_with_bounds(1, 600_000_000_000, 3)?,
        timeline: Vec::new(),
    };
    let start = Instant::now();
    let mut before = start;
    while before.duration_since(start) < time {
        let key = records::key(rng.random_range(0..loaded));
        let mut value = records::value(&key);
        value[0] = done.puts as u8;
        store.put(&key, &value)?;
        let now = Instant::now();
        let took = now.duration_since(before);
        done.latency_ns.saturating_record((took.as_nanos() as u64).max(1));
        // A put counts where it ends; the slices that it spans wait with it.
        let slice = (now.duration_since(start).as_nanos() / SLICE.as_nanos()) as usize;
        done.timeline.resize(done.timeline.len().max(slice + 1), 0.0);
        done.timeline[slice] = done.timeline[slice].max(took.as_secs_f64() * 1e3);
        done.puts += 1;
        before = now;
    }
    done.seconds = start.elapsed().as_secs_f64();
    store.sync()?;
    Ok(done)
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.args.run.seconds_or(10.0));
    let loaded = c.records();
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, stores.len() * c.args.run.rounds);
    let mut points = Vec::new();
    for round in 0..c.args.run.rounds {
        for kind in &stores {
            progress.step(format!("{} load", kind.name()));
            let (dir, store) = open_loaded(c, *kind, LoadedKeys::Scattered, loaded)?;
            progress.step(format!("{} overwrites", kind.name()));
            let device = BlockDevice::of(&dir);
            let before = device.as_ref().map(BlockDevice::written_bytes);
            let done = overwrite(&*store, loaded as u64, time)?;
            let count = store.scan(&mut |_, _| {})?;
            ensure!(count == loaded as u64, "{} has {count} of {loaded} records", kind.name());
            store.close()?;
            rustix::fs::sync();
            let after = device.as_ref().map(BlockDevice::written_bytes);
            let mut add = |operation: &str, unit: FigureUnit, value: f64| {
                let line =
                    TableLine { section: SECTION, medium: "file", workload: "", operation, threads: 1 };
                c.add(&line, kind.name(), unit, value);
            };
            add(OVERWRITE, FigureUnit::PerSecond, done.puts as f64 / done.seconds);
            for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                let at = done.latency_ns.value_at_quantile(quantile);
                add(&format!("{OVERWRITE}, {name}"), FigureUnit::Nanoseconds, at as f64);
            }
            let longest = done.latency_ns.max() as f64 / 1e6;
            add(LONGEST, FigureUnit::Milliseconds, longest);
            if let (Some(before), Some(after)) = (before, after) {
                let bytes = after.saturating_sub(before) as f64 / done.puts as f64;
                add(WRITTEN, FigureUnit::Bytes, bytes);
            }
            if round == 0 {
                let at = |slice: usize| (slice as f64 + 0.5) * SLICE.as_secs_f64();
                points.extend(done.timeline.iter().enumerate().map(|(s, ms)| (kind.name(), (at(s), *ms))));
            }
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    std::fs::create_dir_all(&c.args.run.out)?;
    figures::curves_of(
        &c.args.run.out.join("map-overwrites.svg"),
        &format!("Random overwrites of {loaded} records: the slowest put of each 100 ms"),
        ["seconds", "milliseconds"],
        &points,
    )?;
    c.report.note(
        "Overwrites: the device's bytes are counted until the store is closed and the disk is quiet, everybody's \
         writes included; map-overwrites.svg shows the first round.",
    );
    Ok(())
}
