//! Runs the sections and writes the report.

use super::child::{self, Task};
use super::load::TxnWork;
use super::peer::{TxnDomain, TxnKind};
use super::subject::{Durable, Volatile};
use super::{TxnArgs, floors};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::report::{RowKey, Unit};
use crate::report::save::save;
use crate::report::{render, say};
use anyhow::ensure;

const FLOORS: &str = "floors";
const SWAPS: &str = "swaps";
const MAP: &str = "map";

const PAGE: Page<'_> = Page {
    title: "Transactions, measured",
    sections: &[
        (FLOORS, "Floors"),
        (SWAPS, "Swaps of random words"),
        (MAP, "A hash map: look-ups, and updates of values"),
    ],
};

/// `mangrove bench txn`, beside `peers`.
///
/// # Errors
/// A bad argument, or the first error of a subject; also when the words that a subject leaves are wrong.
pub fn run(args: TxnArgs, peers: &[Box<dyn TxnKind>]) -> anyhow::Result<()> {
    let kinds: Vec<&dyn TxnKind> =
        [&Durable as &dyn TxnKind, &Volatile].into_iter().chain(peers.iter().map(|peer| &**peer)).collect();
    if let Some(task) = &args.child {
        return child::run(&kinds, task);
    }
    let args = if args.run.quick { quick(args) } else { args };
    let sections = [FLOORS, SWAPS, MAP];
    if args.run.lists() {
        return say::answer(&list(PAGE.sections));
    }
    args.run.check_names(&sections)?;
    ensure!(args.words.is_power_of_two() && args.words >= 1024, "--words takes a power of two from 1024 on");
    ensure!(args.threads.iter().all(|&threads| threads > 0), "--threads takes numbers from 1 on");
    let mut report = args.run.report(&args.dir);
    report.note(
        "\"Mangrove (volatile)\" keeps nothing: its rows are a ceiling, and no comparison with a library that does.",
    );
    report.note("The hash map is open addressing over the words, a quarter as many keys; an update adds 1 to a value.");
    report.note(
        "PMDK isolates nothing by itself: here by one lock for many readers or one writer, in its process.",
    );
    let wanted = |name: &str| args.run.wants(name);
    let swaps = args.swaps.iter().filter(|_| wanted(SWAPS)).map(|&count| (SWAPS, TxnWork::Swaps(count)));
    let maps = args.updates.iter().filter(|_| wanted(MAP)).map(|&updates| (MAP, TxnWork::Map { updates }));
    let works: Vec<_> = swaps.chain(maps).collect();
    let progress = SectionProgress::new("txn", args.run.rounds * (works.len() + usize::from(wanted(FLOORS))));
    for _ in 0..args.run.rounds {
        if wanted(FLOORS) {
            progress.step(FLOORS);
            for (line, ns) in floors::measure(args.run.quick, &args.swaps)? {
                report.add(key(FLOORS, "", line, 1, "floor"), Unit::Nanoseconds, ns);
            }
            progress.done();
        }
        for &(section, work) in &works {
            progress.step(work.operation());
            for domain in [TxnDomain::Adr, TxnDomain::Eadr] {
                for &threads in &args.threads {
                    for kind in &kinds {
                        let task = Task {
                            subject: kind.name().to_owned(),
                            domain,
                            work,
                            threads,
                            words: args.words,
                            seconds: args.run.seconds(),
                            dir: args.dir.clone(),
                        };
                        let rate = child::measure(*kind, &task)?;
                        let key = key(section, domain.name(), work.operation(), threads, kind.name());
                        report.add(key, Unit::PerSecond, rate);
                    }
                }
            }
            progress.done();
        }
        // After every round, so that an interrupted run leaves what it has measured.
        save(&report, &PAGE, "txn", &args.run)?;
    }
    drop(progress);
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &report, false), args.run.out.display()))
}

fn key(section: &'static str, medium: &str, operation: String, threads: usize, subject: &str) -> RowKey {
    let (medium, subject) = (medium.to_owned(), subject.to_owned());
    RowKey { section, medium, workload: String::new(), operation, threads, subject }
}

/// Tiny inputs: every section runs, but its figures mean nothing.
fn quick(args: TxnArgs) -> TxnArgs {
    TxnArgs { run: args.run.limited(), words: args.words.min(1 << 14), ..args }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: TxnArgs,
    }

    /// Every section; the words are verified by the run itself.
    #[test]
    fn a_smoke_test_writes_a_report() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-bench-txn-{}", std::process::id()));
        let mut args = Cli::parse_from(["bench", "--quick"]).args;
        (args.run.out, args.dir) = (dir.join("out"), dir.clone());
        run(args, &[])?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/txn.json"))?)?;
        // 6 floors; 4 kinds of swaps and 3 of maps, in 2 domains, on 1 and 2 threads, by 2 subjects.
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(6 + (4 + 3) * 2 * 2 * 2));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn an_unknown_section_is_refused_with_a_list() {
        let args = Cli::parse_from(["bench", "--only", "tea"]).args;
        assert!(run(args, &[]).is_err_and(|e| e.to_string().contains("swaps")));
    }
}
