//! The three mixes of section IV-C, uniform requests over Random keys.

use crate::harness::context::{MapBench, TableLine};
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use crate::{Keys, Workload};
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) const SECTION: &str = "mixes";

/// A mix: percent of insertions, searches, updates; the rest are deletions.
struct Mix {
    name: &'static str,
    insert: u32,
    search: u32,
    update: u32,
}

const MIXES: [Mix; 3] = [
    Mix { name: "read-intensive", insert: 10, search: 70, update: 10 },
    Mix { name: "read-modify-write", insert: 0, search: 50, update: 50 },
    Mix { name: "write-intensive", insert: 40, search: 20, update: 40 },
];

#[derive(Clone, Copy)]
enum Request {
    Insert(u32),
    Search(u32),
    Update(u32),
    Delete(u32),
}

/// Requests over keys of which the first half is loaded. They are drawn before the clock starts, so that every
/// subject gets the same requests and no subject pays for drawing them.
fn requests(mix: &Mix, keys: usize, count: usize, seed: u64) -> Vec<Request> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut live: Vec<u32> = (0..keys as u32 / 2).collect();
    let mut next = live.len() as u32;
    (0..count)
        .map(|_| {
            let dice = rng.random_range(0..100);
            let at = rng.random_range(0..live.len());
            if dice < mix.insert && (next as usize) < keys {
                live.push(next);
                next += 1;
                Request::Insert(next - 1)
            } else if dice < mix.insert + mix.search {
                Request::Search(live[at])
            } else if dice < mix.insert + mix.search + mix.update || live.len() == 1 {
                Request::Update(live[at])
            } else {
                Request::Delete(live.swap_remove(at))
            }
        })
        .collect()
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let media = c.emulated();
    let records = c.records();
    let keys: std::sync::Arc<Keys> = c.keys(Workload::Random, records * 2)?;
    let subjects = std::mem::take(&mut c.subjects);
    let durable = subjects.iter().filter(|s| s.is_durable()).count();
    let progress = SectionProgress::new(SECTION, media.len() * MIXES.len() * durable * c.args.run.rounds);
    for mix in &MIXES {
        let plan = requests(mix, keys.len(), records, c.args.seed);
        for (medium, latency) in &media {
            for _ in 0..c.args.run.rounds {
                for subject in subjects.iter().filter(|s| s.is_durable()) {
                    progress.step(format!("{} {} {medium}", subject.name, mix.name));
                    let mut index = (subject.create)(BenchMedium::region(*latency, keys.len())?)?;
                    for i in 0..keys.len() / 2 {
                        index.insert(keys.get(i), i as u64);
                    }
                    let mut wrong = 0;
                    let time = super::operations::per_record(plan.len(), || {
                        for request in &plan {
                            let right = match *request {
                                Request::Insert(i) => {
                                    index.insert(keys.get(i as usize), u64::from(i));
                                    true
                                }
                                Request::Search(i) => index.get(keys.get(i as usize)).is_some(),
                                Request::Update(i) => index.update(keys.get(i as usize), !u64::from(i)),
                                Request::Delete(i) => index.delete(keys.get(i as usize)),
                            };
                            wrong += usize::from(!right);
                        }
                    });
                    ensure!(wrong == 0, "{} gave {wrong} wrong answers in {}", subject.name, mix.name);
                    let line = TableLine {
                        section: SECTION,
                        medium,
                        workload: mix.name,
                        operation: "mixed",
                        threads: 1,
                    };
                    c.add(&line, subject.name, FigureUnit::Nanoseconds, time);
                    progress.done();
                }
            }
        }
    }
    c.subjects = subjects;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_mix_are_kept_and_only_live_keys_are_asked_for() {
        for mix in &MIXES {
            let plan = requests(mix, 20_000, 10_000, 1);
            let mut live: std::collections::HashSet<u32> = (0..10_000).collect();
            let mut inserts = 0;
            for request in plan {
                match request {
                    Request::Insert(i) => {
                        assert!(live.insert(i));
                        inserts += 1;
                    }
                    Request::Search(i) | Request::Update(i) => assert!(live.contains(&i)),
                    Request::Delete(i) => assert!(live.remove(&i)),
                }
            }
            let share = f64::from(inserts) / 100.0;
            assert!((share - f64::from(mix.insert)).abs() < 2.0, "{}: {share}", mix.name);
        }
    }
}
