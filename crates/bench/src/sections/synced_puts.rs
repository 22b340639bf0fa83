//! Puts that return only once they survive a power cut, on several threads; how long the slowest of them take, and the
//! bytes that the device wrote for them.

use super::floors::{FDATASYNC, FLOOR, ODSYNC, durable_write_rate};
use crate::harness::context::{MapBench, TableLine};
use crate::harness::machine::BlockDevice;
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, SyncMode};
use crate::report::report::FigureUnit;
use anyhow::ensure;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "puts";
/// Thread counts of the goals.
pub(super) const THREADS: [usize; 4] = [1, 2, 8, 32];
pub(crate) const PUT: &str = "synced put";
pub(crate) const WRITTEN: &str = "device bytes per put";
pub(crate) const P999: &str = "p99.9 of a synced put";
pub(crate) const LONGEST: &str = "longest synced put";

/// What the threads did together.
struct SyncedPuts {
    seconds: f64,
    /// How long each put took.
    latency_ns: Histogram<u64>,
}

/// Puts distinct keys on `threads` threads for `time`.
fn put_for(store: &dyn OpenStore, threads: usize, time: Duration) -> anyhow::Result<SyncedPuts> {
    let stop = AtomicBool::new(false);
    let mut latency_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let empty = latency_ns.clone();
    let start = Instant::now();
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|t| {
                let (stop, empty) = (&stop, &empty);
                scope.spawn(move || put_until(store, t, stop, empty.clone()))
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let ended = workers.into_iter().map(|worker| match worker.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<anyhow::Result<Vec<_>>>()
    });
    let seconds = start.elapsed().as_secs_f64();
    for part in parts? {
        latency_ns.add(&part)?;
    }
    Ok(SyncedPuts { seconds, latency_ns })
}

/// Puts the `thread`-th thread's keys one after the other until `stop`, at least one, and adds each put's time to
/// `latency_ns`. A put's time runs from the end of the one before.
fn put_until(
    store: &dyn OpenStore,
    thread: u64,
    stop: &AtomicBool,
    mut latency_ns: Histogram<u64>,
) -> anyhow::Result<Histogram<u64>> {
    let mut before = Instant::now();
    let mut done = 0u64;
    loop {
        let key = records::key(thread << 40 | done);
        store.put(&key, &records::value(&key))?;
        let now = Instant::now();
        latency_ns.saturating_record((now.duration_since(before).as_nanos() as u64).max(1));
        before = now;
        done += 1;
        if stop.load(Ordering::Relaxed) {
            return Ok(latency_ns);
        }
    }
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.seconds());
    let threads: Vec<usize> = if c.args.run.quick { vec![1, 4] } else { THREADS.to_vec() };
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, threads.len() * stores.len() * c.args.run.rounds);
    for &threads in &threads {
        for _ in 0..c.args.run.rounds {
            let line = TableLine { section: SECTION, medium: "file", workload: "", operation: PUT, threads };
            let dir = c.fresh_dir("floor")?;
            let rate = durable_write_rate(&dir, time.min(Duration::from_secs(1)))?;
            c.add(&line, FLOOR, FigureUnit::PerSecond, rate);
            std::fs::remove_dir_all(&dir)?;
            for kind in &stores {
                progress.step(format!("{} {threads} threads", kind.name()));
                let dir = c.fresh_dir(kind.name())?;
                let store = kind.open(&dir, SyncMode::Sync)?;
                // The writes of opening must not count for the puts.
                rustix::fs::sync();
                let device = BlockDevice::of(&dir);
                let before = device.as_ref().map(BlockDevice::written_bytes);
                let SyncedPuts { seconds, latency_ns } = put_for(&*store, threads, time)?;
                let puts = latency_ns.len();
                ensure!(puts > 0, "{} made no put in {seconds:.1} s", kind.name());
                let after = device.as_ref().map(BlockDevice::written_bytes);
                let mut value = Vec::new();
                let key = records::key(0);
                ensure!(
                    store.get(&key, &mut value)? && value == records::value(&key),
                    "{} does not give back what was put",
                    kind.name()
                );
                store.close()?;
                c.add(&line, kind.name(), FigureUnit::PerSecond, puts as f64 / seconds);
                if let (Some(before), Some(after)) = (before, after) {
                    let line = TableLine { operation: WRITTEN, ..line };
                    c.add(
                        &line,
                        kind.name(),
                        FigureUnit::Bytes,
                        after.saturating_sub(before) as f64 / puts as f64,
                    );
                }
                let p999 = latency_ns.value_at_quantile(0.999);
                for (operation, ns) in [(P999, p999), (LONGEST, latency_ns.max())] {
                    let line = TableLine { operation, ..line };
                    c.add(&line, kind.name(), FigureUnit::Microseconds, ns as f64 / 1e3);
                }
                std::fs::remove_dir_all(&dir)?;
                progress.done();
            }
        }
    }
    c.report.note(format!(
        "The floor beside synced puts is the faster of '{FDATASYNC}' and '{ODSYNC}', into a \
         preallocated file, one thread, in the same round. Device bytes are counted by the block device during the \
         puts, everybody's writes included: run on a quiet disk. A put carries {} bytes. Its time runs from the end \
         of the one before it on its thread.",
        records::PAYLOAD_BYTES
    ));
    Ok(())
}
