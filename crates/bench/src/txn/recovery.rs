//! Recovery after a crash with full logs: nanoseconds a logged word, on one processor and on all.

use super::context::TxnBench;
use super::peer::TxnDomain;
use super::place::{PlaceOptions, WordPool};
use super::swaps::{SwapJob, fill, verify};
use super::ways::Way;
use crate::report::report::{FigureUnit, OURS};
use anyhow::ensure;
use std::time::Duration;

pub(super) const RECOVERY: &str = "recovery";

const BYTES: usize = 8 << 20;
const SWAPS: u32 = 16;
const WORD_BYTES: u64 = 8;
/// Of a log, as much is in use at the crash.
const FULL_PERCENT: u64 = 75;
/// Filling the logs takes no longer.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Runs `work` on a thread that may use so many processors.
fn on_processors<T: Send>(count: usize, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let body = move || -> anyhow::Result<T> {
        let all = rustix::thread::sched_getaffinity(None)?;
        let mut few = rustix::thread::CpuSet::new();
        let here = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
        here.take(count).for_each(|cpu| few.set(cpu));
        // Of this thread, and those that it begins.
        rustix::thread::sched_setaffinity(None, &few)?;
        Ok(work())
    };
    std::thread::scope(|scope| scope.spawn(body).join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let bytes = b.quick_bytes(BYTES);
    let log_bytes = b.quick_log(b.args.log_mib << 20);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (domain, processors) in
        [(TxnDomain::Adr, 1), (TxnDomain::Adr, cpus), (TxnDomain::Eadr, 1), (TxnDomain::Eadr, cpus)]
    {
        if processors == 1 && cpus == 1 && domain == TxnDomain::Eadr {
            continue;
        }
        b.progress.step(format!("{} {processors} processors", domain.name()));
        let options = PlaceOptions { replay: false, log_bytes, ..PlaceOptions::new(domain) };
        let place = WordPool::new(&b.args.dir, &options, bytes)?;
        fill(&place)?;
        let filled = place.shadow().stat();
        let log_bytes_max = Some(log_bytes * FULL_PERCENT / 100);
        let words = place.words();
        let job = SwapJob { swaps: SWAPS, threads: 1, words, place: &place, time: TIME_MAX, log_bytes_max };
        let (count, _) = Way::Records.run(&place, &job)?;
        let applied = place.shadow().stat().applied_units - filled.applied_units;
        let folder = place.crash();
        // Once for the log, and once without one: the difference is what the log takes.
        let (crashed, clean, report) = on_processors(processors, move || -> anyhow::Result<_> {
            let place = WordPool::reopened(folder, &options, bytes)?;
            let report = *place.shadow().report();
            verify(&place)?;
            let place = WordPool::reopened(place.close()?, &options, bytes)?;
            Ok((report.nanoseconds, place.shadow().report().nanoseconds, report))
        })??;
        // A thread that found its log full has applied some before.
        let found = report.units + applied;
        ensure!(found >= count, "recovery found {found} of {count} transactions");
        let words = report.unit_bytes / WORD_BYTES;
        let each = (crashed as f64 - clean as f64) / words as f64;
        let mut add = |what: &str, unit, value| {
            b.add(RECOVERY, domain.name(), "", what, processors, OURS, unit, value);
        };
        add("a logged word", FigureUnit::Nanoseconds, each);
        add("opening after the crash", FigureUnit::Milliseconds, crashed as f64 / 1e6);
        add("opening after closing", FigureUnit::Milliseconds, clean as f64 / 1e6);
        add("logged words, millions", FigureUnit::Count, words as f64 / 1e6);
    }
    Ok(())
}
