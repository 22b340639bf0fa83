//! How the four operations depend on the number of records (Fig. 8), Random, first emulated medium.

use super::operations::{OPERATIONS, four};
use crate::Workload;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;

pub(crate) const SECTION: &str = "scale";

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let Some((medium, latency)) = c.emulated().into_iter().next() else { return Ok(()) };
    let most = c.records();
    // As in the paper, a decade and its middle; --records sets the upper end.
    let mut sizes = vec![most / 100, most / 10, most / 10 * 3, most];
    sizes.retain(|n| *n > 0);
    sizes.dedup();
    let subjects = std::mem::take(&mut c.subjects);
    let progress = SectionProgress::new(SECTION, sizes.len() * subjects.len() * c.args.run.rounds);
    for n in sizes {
        let keys = c.keys(Workload::Random, n)?;
        let workload = n.to_string();
        for _ in 0..c.args.run.rounds {
            for subject in &subjects {
                progress.step(format!("{} {n} records", subject.name));
                let times = four(subject, &keys, latency)?;
                for (operation, time) in OPERATIONS.into_iter().zip(times) {
                    let line = TableLine {
                        section: SECTION,
                        medium: &medium,
                        workload: &workload,
                        operation,
                        threads: 1,
                    };
                    c.add(&line, subject.name, FigureUnit::Nanoseconds, time);
                }
                progress.done();
            }
        }
    }
    c.subjects = subjects;
    Ok(())
}
