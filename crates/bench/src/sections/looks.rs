//! A reader in another process opens the pool, reads 1,000 records and closes it, once a second, beside a writer at
//! full speed: what does that take from the writer, and how long does a look take?

use super::child;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::report::report::FigureUnit;
use anyhow::{Context as _, ensure};
use mangrove::{Durability, Map};
use std::io::Read as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "looks";
const ALONE: &str = "overwrites alone";
const BESIDE: &str = "overwrites beside a look a second";
const LOOK: &str = "open, read 1,000 records, close";
/// A writer at full speed: one thread that does not wait, and eight that share device writes.
const WRITERS: [(usize, &str, Durability); 2] =
    [(1, "interval=100", Durability::interval_ms(100)), (8, "sync", Durability::Sync)];

/// Overwrites random records on `threads` threads until `until` says so; how many a second.
fn overwrite(
    map: &Map,
    threads: usize,
    count: u64,
    until: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let (stop, puts, first_error) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(None));
    let start = Instant::now();
    let ended = std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (stop, puts, first_error) = (&stop, &puts, &first_error);
            scope.spawn(move || {
                let mut done = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    // An odd multiplier walks through all residues in no order that a cache knows.
                    let key =
                        records::key((done * threads as u64 + thread).wrapping_mul(0x9E37_79B1) % count);
                    if let Err(e) = map.put(key, records::value(&key)) {
                        *first_error.lock().unwrap_or_else(|p| p.into_inner()) = Some(e);
                        break;
                    }
                    done += 1;
                }
                puts.fetch_add(done, Ordering::Relaxed);
            });
        }
        let ended = until();
        stop.store(true, Ordering::Relaxed);
        ended
    });
    let seconds = start.elapsed().as_secs_f64();
    ended?;
    match first_error.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some(e) => Err(e.into()),
        None => Ok(puts.into_inner() as f64 / seconds),
    }
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let count = c.records();
    let looks = (c.seconds().ceil() as usize).max(2);
    let progress = SectionProgress::new(SECTION, WRITERS.len() * c.args.run.rounds);
    for (threads, workload, durability) in WRITERS {
        for _ in 0..c.args.run.rounds {
            progress.step(format!("{workload}, {threads} threads"));
            let dir = c.fresh_dir("mangrove")?;
            let map = Map::options().durability(durability).open(dir.join("pool"))?;
            for n in 0..count as u64 {
                let key = records::key(n);
                map.put_nowait(key, records::value(&key))?;
            }
            map.sync()?;
            let alone = overwrite(&map, threads, count as u64, || {
                std::thread::sleep(Duration::from_secs(looks as u64));
                Ok(())
            })?;
            let mut times = String::new();
            let mut started = true;
            let beside = overwrite(&map, threads, count as u64, || {
                let child = child::start(c, "look", &looks.to_string(), count, &dir.join("pool"))?;
                let Some(mut child) = child else {
                    started = false;
                    return Ok(());
                };
                child.stdout.take().context("the child has no output")?.read_to_string(&mut times)?;
                let status = child.wait()?;
                ensure!(status.success(), "the reader ended with {status}");
                Ok(())
            })?;
            map.close()?;
            std::fs::remove_dir_all(&dir)?;
            if !started {
                c.report.note("Looks were left out: this program cannot start itself as a child here.");
                return Ok(());
            }
            let line = TableLine { section: SECTION, medium: "file", workload, operation: ALONE, threads };
            c.add(&line, "mangrove", FigureUnit::PerSecond, alone);
            c.add(&TableLine { operation: BESIDE, ..line }, "mangrove", FigureUnit::PerSecond, beside);
            for time in times.split_whitespace() {
                let line = TableLine { operation: LOOK, ..line };
                c.add(&line, "mangrove", FigureUnit::Milliseconds, time.parse()?);
            }
            progress.done();
        }
    }
    Ok(())
}
