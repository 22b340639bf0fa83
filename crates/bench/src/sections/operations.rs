//! The four operations of section IV-B on each workload and each emulated medium.

use crate::Keys;
use crate::harness::clock;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::index::BenchIndex;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::{OURS, Unit};
use crate::subjects::IndexKind;
use anyhow::ensure;
use mangrove_pool::Latency;

pub(crate) const SECTION: &str = "operations";

/// Nanoseconds per record of `body`.
pub(super) fn per_record(records: usize, body: impl FnOnce()) -> f64 {
    clock::time(body).as_nanos() as f64 / records.max(1) as f64
}

/// Runs the four operations once and returns their times; every answer is checked.
pub(super) fn four(subject: &IndexKind, keys: &Keys, latency: Latency) -> anyhow::Result<[f64; 4]> {
    let mut index = (subject.create)(BenchMedium::region(latency, keys.len())?)?;
    let n = keys.len();
    let mut wrong = 0usize;
    let insert = per_record(n, || insert_all(&mut *index, keys));
    let search = per_record(n, || {
        for (i, k) in keys.iter().enumerate() {
            wrong += usize::from(index.get(k) != Some(i as u64));
        }
    });
    let update = per_record(n, || {
        for (i, k) in keys.iter().enumerate() {
            wrong += usize::from(!index.update(k, !(i as u64)));
        }
    });
    for i in (0..n).step_by(97) {
        wrong += usize::from(index.get(keys.get(i)) != Some(!(i as u64)));
    }
    let delete = per_record(n, || {
        for k in keys.iter() {
            wrong += usize::from(!index.delete(k));
        }
    });
    wrong += usize::from(index.scan(b"", 1, &mut |_, _| {}) != 0);
    ensure!(wrong == 0, "{} gave {wrong} wrong answers", subject.name);
    Ok([insert, search, update, delete])
}

/// Inserts every key with its number as the value.
pub(super) fn insert_all(index: &mut dyn BenchIndex, keys: &Keys) {
    for (i, k) in keys.iter().enumerate() {
        index.insert(k, i as u64);
    }
}

/// The names of the four operations.
pub(super) const OPERATIONS: [&str; 4] = ["insert", "search", "update", "delete"];

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let media = c.emulated();
    // Volatile bounds have no latency, so they are measured once, on the first medium.
    let on = |s: &IndexKind, first: bool| s.is_durable() || first;
    let each: usize = (0..media.len()).map(|m| c.subjects.iter().filter(|s| on(s, m == 0)).count()).sum();
    let progress = SectionProgress::new(SECTION, each * c.workloads.len() * c.args.run.rounds);
    let subjects = std::mem::take(&mut c.subjects);
    for workload in c.workloads.clone() {
        let keys = c.keys(workload, c.records())?;
        for (m, (medium, latency)) in media.iter().enumerate() {
            for _ in 0..c.args.run.rounds {
                for subject in subjects.iter().filter(|s| on(s, m == 0)) {
                    progress.step(format!("{} {} {medium}", subject.name, workload.name()));
                    let times = four(subject, &keys, *latency)?;
                    for (operation, time) in OPERATIONS.into_iter().zip(times) {
                        let line = TableLine {
                            section: SECTION,
                            medium,
                            workload: workload.name(),
                            operation,
                            threads: 1,
                        };
                        c.add(&line, subject.name, Unit::Nanoseconds, time);
                    }
                    progress.done();
                }
            }
        }
    }
    c.subjects = subjects;
    if !c.subjects.iter().any(|s| s.name == OURS) {
        c.report.note("Mangrove was left out of this run by --subjects");
    }
    Ok(())
}
