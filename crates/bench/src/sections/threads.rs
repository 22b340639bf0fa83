//! Several threads on one index (section IV-G): Random keys, and the same keys under one prefix, where a lock for
//! each tree, as the paper has it, lets one writer in. Mangrove runs with its locks for single nodes, and with the
//! paper's.

use super::operations::OPERATIONS;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::index::BenchIndex;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::{FigureUnit, OURS};
use crate::{Keys, Workload};
use anyhow::ensure;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

pub(crate) const SECTION: &str = "threads";

/// Operations per second when every handle takes every n-th key.
fn phase(handles: &mut [Box<dyn BenchIndex>], keys: &Keys, operation: usize) -> anyhow::Result<f64> {
    let threads = handles.len();
    let barrier = Barrier::new(threads);
    let wrong = AtomicUsize::new(0);
    let seconds = std::thread::scope(|scope| {
        let workers: Vec<_> = handles
            .iter_mut()
            .enumerate()
            .map(|(t, index)| {
                let (barrier, wrong) = (&barrier, &wrong);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    for i in (t..keys.len()).step_by(threads) {
                        let (k, v) = (keys.get(i), i as u64);
                        let right = match operation {
                            0 => {
                                index.insert(k, v);
                                true
                            }
                            1 => index.get(k) == Some(v),
                            2 => index.update(k, v),
                            _ => index.delete(k),
                        };
                        if !right {
                            wrong.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    (start, Instant::now())
                })
            })
            .collect();
        span(workers)
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{wrong} wrong answers on {threads} threads");
    Ok(keys.len() as f64 / seconds)
}

/// Seconds from the first worker's start to the last one's end, by the workers' own clocks: a parent that is not
/// scheduled when they start would measure too little.
pub(super) fn span(workers: Vec<ScopedJoinHandle<'_, (Instant, Instant)>>) -> f64 {
    let mut times: Option<(Instant, Instant)> = None;
    for worker in workers {
        match worker.join() {
            Ok((start, end)) => {
                let (first, last) = times.unwrap_or((start, end));
                times = Some((first.min(start), last.max(end)));
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    times.map_or(f64::NAN, |(first, last)| (last - first).as_secs_f64())
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let Some((medium, latency)) = c.emulated().into_iter().next() else { return Ok(()) };
    let random = c.keys(Workload::Random, c.records())?;
    let mut prefixed = Keys::with_capacity(random.len(), random.len() * 14);
    for k in random.iter() {
        prefixed.push(&[b"pre", &k[..k.len().min(crate::harness::workload::KEY_BYTES_MAX - 3)]].concat());
    }
    let subjects = std::mem::take(&mut c.subjects);
    let own = std::mem::take(&mut c.subjects_of_threads);
    let probe = BenchMedium::region(latency, 1)?;
    let mut chosen = Vec::new();
    for subject in subjects.iter().chain(&own) {
        if (subject.create)(probe.clone())?.handle().is_some() {
            chosen.push(subject);
        }
        probe.zero(0, probe.len() as usize);
    }
    // Mangrove's two kinds of lock in neighbouring columns.
    chosen.sort_by_key(|subject| !subject.name.starts_with(OURS));
    let counts = c.threads.clone();
    let progress = SectionProgress::new(SECTION, 2 * counts.len() * chosen.len() * c.args.run.rounds);
    for (workload, keys) in [("Random", &*random), ("one prefix", &prefixed)] {
        for &threads in &counts {
            for _ in 0..c.args.run.rounds {
                for subject in &chosen {
                    progress.step(format!("{} {workload} {threads} threads", subject.name));
                    let first = (subject.create)(BenchMedium::region(latency, keys.len())?)?;
                    let mut handles: Vec<_> = (0..threads).filter_map(|_| first.handle()).collect();
                    for (n, operation) in OPERATIONS.into_iter().enumerate() {
                        let rate = phase(&mut handles, keys, n)?;
                        let line =
                            TableLine { section: SECTION, medium: &medium, workload, operation, threads };
                        c.add(&line, subject.name, FigureUnit::PerSecond, rate);
                    }
                    progress.done();
                }
            }
        }
    }
    (c.subjects, c.subjects_of_threads) = (subjects, own);
    Ok(())
}
