//! The four operations of section IV-B on each workload and each emulated medium, in the order of insertion as in the
//! paper, and in random order.

use crate::Keys;
use crate::harness::clock;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::index::BenchIndex;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::{FigureUnit, OURS};
use crate::subjects::IndexKind;
use anyhow::ensure;
use mangrove_pool::Latency;

pub(crate) const SECTION: &str = "operations";

/// Nanoseconds per record of `body`.
pub(super) fn per_record(records: usize, body: impl FnOnce()) -> f64 {
    clock::time(body).as_nanos() as f64 / records.max(1) as f64
}

/// A subject with the keys of a workload in it; every answer is checked.
struct Filled<'a> {
    subject: &'a IndexKind,
    index: Box<dyn BenchIndex>,
    wrong: usize,
}

/// Keys in the order in which they are visited, and the number of each: the value that was inserted with it.
type Visited<'a> = (&'a Keys, &'a [u32]);

impl<'a> Filled<'a> {
    /// Makes the index and inserts the keys; returns the time of that too.
    fn new(subject: &'a IndexKind, keys: &Keys, latency: Latency) -> anyhow::Result<(Self, f64)> {
        let mut index = (subject.create)(BenchMedium::region(latency, keys.len())?)?;
        let insert = per_record(keys.len(), || insert_all(&mut *index, keys));
        Ok((Self { subject, index, wrong: 0 }, insert))
    }

    fn search(&mut self, (keys, numbers): Visited<'_>) -> f64 {
        per_record(keys.len(), || {
            for (key, number) in keys.iter().zip(numbers) {
                self.wrong += usize::from(self.index.get(key) != Some(u64::from(*number)));
            }
        })
    }

    /// Changes the values by `changed`, which then gives the value of each number.
    fn update(&mut self, (keys, numbers): Visited<'_>, changed: fn(u64) -> u64) -> f64 {
        let update = per_record(keys.len(), || {
            for (key, number) in keys.iter().zip(numbers) {
                self.wrong += usize::from(!self.index.update(key, changed(u64::from(*number))));
            }
        });
        for (key, number) in keys.iter().zip(numbers).step_by(97) {
            self.wrong += usize::from(self.index.get(key) != Some(changed(u64::from(*number))));
        }
        update
    }

    fn delete(&mut self, (keys, _): Visited<'_>) -> f64 {
        let delete = per_record(keys.len(), || {
            for key in keys.iter() {
                self.wrong += usize::from(!self.index.delete(key));
            }
        });
        self.wrong += usize::from(self.index.scan(b"", 1, &mut |_, _| {}) != 0);
        delete
    }

    fn finish(self) -> anyhow::Result<()> {
        ensure!(self.wrong == 0, "{} gave {} wrong answers", self.subject.name, self.wrong);
        Ok(())
    }
}

/// Runs the four operations once, in the order of insertion, and returns their times.
pub(super) fn four(subject: &IndexKind, keys: &Keys, latency: Latency) -> anyhow::Result<[f64; 4]> {
    let numbers: Vec<u32> = (0..keys.len() as u32).collect();
    let in_order = (keys, &numbers[..]);
    let (mut filled, insert) = Filled::new(subject, keys, latency)?;
    let times = [insert, filled.search(in_order), filled.update(in_order, |n| !n), filled.delete(in_order)];
    filled.finish()?;
    Ok(times)
}

/// As [`four`], and search, update and delete in random order.
fn in_both_orders(
    subject: &IndexKind,
    keys: &Keys,
    shuffled: Visited<'_>,
    latency: Latency,
) -> anyhow::Result<[f64; 7]> {
    let numbers: Vec<u32> = (0..keys.len() as u32).collect();
    let in_order = (keys, &numbers[..]);
    let (mut filled, insert) = Filled::new(subject, keys, latency)?;
    let search = [filled.search(in_order), filled.search(shuffled)];
    let update = [filled.update(in_order, |n| !n), filled.update(shuffled, |n| n + 7)];
    let delete = filled.delete(in_order);
    insert_all(&mut *filled.index, keys);
    let delete_shuffled = filled.delete(shuffled);
    filled.finish()?;
    Ok([insert, search[0], update[0], delete, search[1], update[1], delete_shuffled])
}

/// Inserts every key with its number as the value.
pub(super) fn insert_all(index: &mut dyn BenchIndex, keys: &Keys) {
    for (i, k) in keys.iter().enumerate() {
        index.insert(k, i as u64);
    }
}

/// The names of the four operations.
pub(super) const OPERATIONS: [&str; 4] = ["insert", "search", "update", "delete"];
/// Those of them that are repeated in random order: in the order of insertion, leaves lie side by side and the
/// processor prefetches them.
const SHUFFLED: [&str; 3] = [SEARCH_SHUFFLED, UPDATE_SHUFFLED, DELETE_SHUFFLED];
pub(crate) const SEARCH_SHUFFLED: &str = "search, shuffled";
pub(crate) const UPDATE_SHUFFLED: &str = "update, shuffled";
pub(crate) const DELETE_SHUFFLED: &str = "delete, shuffled";

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let media = c.emulated();
    // Volatile bounds have no latency, so they are measured once, on the first medium.
    let on = |s: &IndexKind, first: bool| s.is_durable() || first;
    let each: usize = (0..media.len()).map(|m| c.subjects.iter().filter(|s| on(s, m == 0)).count()).sum();
    let progress = SectionProgress::new(SECTION, each * c.workloads.len() * c.args.run.rounds);
    let subjects = std::mem::take(&mut c.subjects);
    for workload in c.workloads.clone() {
        let keys = c.keys(workload, c.records())?;
        let (shuffled, numbers) = keys.shuffled(c.args.seed);
        for (m, (medium, latency)) in media.iter().enumerate() {
            for _ in 0..c.args.run.rounds {
                for subject in subjects.iter().filter(|s| on(s, m == 0)) {
                    progress.step(format!("{} {} {medium}", subject.name, workload.name()));
                    let times = in_both_orders(subject, &keys, (&shuffled, &numbers), *latency)?;
                    for (operation, time) in OPERATIONS.into_iter().chain(SHUFFLED).zip(times) {
                        let line = TableLine {
                            section: SECTION,
                            medium,
                            workload: workload.name(),
                            operation,
                            threads: 1,
                        };
                        c.add(&line, subject.name, FigureUnit::Nanoseconds, time);
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
