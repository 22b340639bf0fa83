//! A range of 100,000 records in order (section IV-D).

use crate::harness::clock;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::index::BenchIndex;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use crate::{Keys, Workload};
use anyhow::ensure;

pub(crate) const SECTION: &str = "range";
const RANGE_RECORDS: usize = 100_000;
/// Ranges per round: the first is cold.
const REPEATS: usize = 5;

/// Milliseconds of one range, and how many records of it were wrong.
fn one(index: &mut dyn BenchIndex, keys: &Keys, wanted: &[u32]) -> (f64, usize) {
    let mut wrong = 0;
    let elapsed = clock::time(|| {
        if index.scans_by_search() {
            for &i in wanted {
                wrong += usize::from(index.get(keys.get(i as usize)) != Some(u64::from(i)));
            }
        } else {
            let mut at = 0;
            let seen = index.scan(keys.get(wanted[0] as usize), wanted.len(), &mut |_, value| {
                wrong += usize::from(wanted.get(at).is_none_or(|i| u64::from(*i) != value));
                at += 1;
            });
            wrong += wanted.len() - seen;
        }
    });
    (elapsed.as_secs_f64() * 1e3, wrong)
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let media = c.emulated();
    let subjects = std::mem::take(&mut c.subjects);
    let workloads: Vec<_> = c.workloads.iter().copied().filter(|w| *w != Workload::Dictionary).collect();
    let progress =
        SectionProgress::new(SECTION, media.len() * workloads.len() * subjects.len() * c.args.run.rounds);
    for workload in workloads {
        let keys = c.keys(workload, c.records())?;
        let order = keys.sorted();
        let start = order.len() / 4;
        let wanted = &order[start..(start + RANGE_RECORDS).min(order.len())];
        for (m, (medium, latency)) in media.iter().enumerate() {
            for _ in 0..c.args.run.rounds {
                for subject in subjects.iter() {
                    if subject.is_durable() || m == 0 {
                        progress.step(format!("{} {} {medium}", subject.name, workload.name()));
                        let mut index = (subject.create)(BenchMedium::region(*latency, keys.len())?)?;
                        super::operations::insert_all(&mut *index, &keys);
                        let mut best = f64::INFINITY;
                        for _ in 0..REPEATS {
                            let (time, wrong) = one(&mut *index, &keys, wanted);
                            ensure!(wrong == 0, "{} gave {wrong} wrong records in a range", subject.name);
                            best = best.min(time);
                        }
                        let line = TableLine {
                            section: SECTION,
                            medium,
                            workload: workload.name(),
                            operation: "100k records",
                            threads: 1,
                        };
                        c.add(&line, subject.name, FigureUnit::Milliseconds, best);
                    }
                    progress.done();
                }
            }
        }
    }
    c.subjects = subjects;
    Ok(())
}
