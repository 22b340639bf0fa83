//! Recovery, compared with building the structure anew (section IV-F).

use crate::harness::context::{MapBench, TableLine};
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use std::time::Instant;

pub(crate) const SECTION: &str = "recovery";

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let media = c.emulated();
    let subjects = std::mem::take(&mut c.subjects);
    let chosen: Vec<_> = subjects.iter().filter(|s| s.rebuilds()).collect();
    let progress =
        SectionProgress::new(SECTION, media.len() * c.workloads.len() * chosen.len() * c.args.run.rounds);
    for workload in c.workloads.clone() {
        let keys = c.keys(workload, c.records())?;
        for (medium, latency) in &media {
            for _ in 0..c.args.run.rounds {
                for subject in &chosen {
                    progress.step(format!("{} {} {medium}", subject.name, workload.name()));
                    let region = BenchMedium::region(*latency, keys.len())?;
                    let start = Instant::now();
                    let mut index = (subject.create)(region.clone())?;
                    super::operations::insert_all(&mut *index, &keys);
                    let build = start.elapsed().as_secs_f64() * 1e3;
                    drop(index);
                    let Some(recover) = subject.recover else { continue };
                    let start = Instant::now();
                    let mut index = recover(region)?;
                    let recovery = start.elapsed().as_secs_f64() * 1e3;
                    let wrong =
                        keys.iter().enumerate().filter(|(i, k)| index.get(k) != Some(*i as u64)).count();
                    ensure!(wrong == 0, "{} lost {wrong} records in recovery", subject.name);
                    for (operation, time) in [("build", build), ("recover", recovery)] {
                        let line = TableLine {
                            section: SECTION,
                            medium,
                            workload: workload.name(),
                            operation,
                            threads: 0,
                        };
                        c.add(&line, subject.name, FigureUnit::Milliseconds, time);
                    }
                    progress.done();
                }
            }
        }
    }
    c.subjects = subjects;
    Ok(())
}
