//! Puts that return only once they survive a power cut, on several threads; and the bytes that the device wrote for
//! them.

use super::floors::{self, FDATASYNC, FLOOR};
use crate::harness::context::{MapBench, TableLine};
use crate::harness::machine::Device;
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, SyncMode};
use crate::report::report::Unit;
use anyhow::ensure;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "puts";
/// Thread counts of the goals.
pub(super) const THREADS: [usize; 4] = [1, 2, 8, 32];
pub(crate) const PUT: &str = "synced put";
pub(crate) const WRITTEN: &str = "device bytes per put";

/// Puts of distinct keys on `threads` threads for `time`: how many, and in how many seconds.
fn put_for(store: &dyn OpenStore, threads: usize, time: Duration) -> anyhow::Result<(u64, f64)> {
    let stop = AtomicBool::new(false);
    let puts = AtomicU64::new(0);
    let first_error = Mutex::new(None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for t in 0..threads as u64 {
            let (stop, puts, first_error) = (&stop, &puts, &first_error);
            scope.spawn(move || {
                let mut done = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let key = records::key(t << 40 | done);
                    if let Err(e) = store.put(&key, &records::value(&key)) {
                        *first_error.lock().unwrap_or_else(|p| p.into_inner()) = Some(e);
                        break;
                    }
                    done += 1;
                }
                puts.fetch_add(done, Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = start.elapsed().as_secs_f64();
    match first_error.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some(e) => Err(e),
        None => Ok((puts.into_inner(), seconds)),
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
            let rate = raw_rate(&dir.join("raw"), time.min(Duration::from_secs(2)))?;
            c.add(&line, FLOOR, Unit::PerSecond, rate);
            std::fs::remove_dir_all(&dir)?;
            for kind in &stores {
                progress.step(format!("{} {threads} threads", kind.name()));
                let dir = c.fresh_dir(kind.name())?;
                let store = kind.open(&dir, SyncMode::Sync)?;
                // The writes of opening must not count for the puts.
                rustix::fs::sync();
                let device = Device::of(&dir);
                let before = device.as_ref().map(Device::written_bytes);
                let (puts, seconds) = put_for(&*store, threads, time)?;
                ensure!(puts > 0, "{} made no put in {seconds:.1} s", kind.name());
                let after = device.as_ref().map(Device::written_bytes);
                let mut value = Vec::new();
                let key = records::key(0);
                ensure!(
                    store.get(&key, &mut value)? && value == records::value(&key),
                    "{} does not give back what was put",
                    kind.name()
                );
                store.close()?;
                c.add(&line, kind.name(), Unit::PerSecond, puts as f64 / seconds);
                if let (Some(before), Some(after)) = (before, after) {
                    let line = TableLine { operation: WRITTEN, ..line };
                    c.add(&line, kind.name(), Unit::Bytes, after.saturating_sub(before) as f64 / puts as f64);
                }
                std::fs::remove_dir_all(&dir)?;
                progress.done();
            }
        }
    }
    c.report.note(format!(
        "The floor beside synced puts is '{FDATASYNC}' into a preallocated file, one thread, in the same round. \
         Device bytes are counted by the block device during the puts, everybody's writes included: run on a \
         quiet disk. A put carries {} bytes.",
        records::PAYLOAD_BYTES
    ));
    Ok(())
}

fn raw_rate(path: &std::path::Path, time: Duration) -> anyhow::Result<f64> {
    let file = floors::preallocated(path)?;
    let record = [0x5Au8; 128];
    let (mut count, start) = (0u64, Instant::now());
    while start.elapsed() < time {
        file.write_all_at(&record, count * 128 % (16 << 20))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
