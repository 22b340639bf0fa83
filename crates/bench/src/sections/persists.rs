//! Flushes and fences per operation, counted by a counting medium. They are means over a whole run, with chunk
//! allocation, node growth and splits.

use super::operations::OPERATIONS;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::counting::counting;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use mangrove_pool::Latency;

pub(crate) const SECTION: &str = "persists";
/// Enough for a mean.
const RECORDS_MAX: usize = 100_000;

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let subjects = std::mem::take(&mut c.subjects);
    let durable: Vec<_> = subjects.iter().filter(|s| s.is_durable()).collect();
    let progress = SectionProgress::new(SECTION, c.workloads.len() * durable.len());
    for workload in c.workloads.clone() {
        let all = c.keys(workload, c.records().min(RECORDS_MAX))?;
        let n = all.len().min(RECORDS_MAX);
        for subject in &durable {
            progress.step(format!("{} {}", subject.name, workload.name()));
            let (region, counter) = counting(BenchMedium::region(Latency::default(), n)?);
            let mut index = (subject.create)(region)?;
            for (which, operation) in OPERATIONS.into_iter().enumerate() {
                let before = counter.now();
                for i in 0..n {
                    let k = all.get(i);
                    match which {
                        0 => index.insert(k, i as u64),
                        1 => drop(index.get(k)),
                        2 => drop(index.update(k, !(i as u64))),
                        _ => drop(index.delete(k)),
                    }
                }
                let spent = counter.now() - before;
                for (what, count) in
                    [("fences", spent.fences), ("flushes", spent.flushes), ("lines flushed", spent.lines)]
                {
                    let operation = format!("{operation}: {what}");
                    let line = TableLine {
                        section: SECTION,
                        medium: "zero",
                        workload: workload.name(),
                        operation: &operation,
                        threads: 1,
                    };
                    c.add(&line, subject.name, FigureUnit::Count, count as f64 / n as f64);
                }
            }
            progress.done();
        }
    }
    c.subjects = subjects;
    Ok(())
}
