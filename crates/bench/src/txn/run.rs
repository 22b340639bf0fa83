//! Runs the sections and writes the report.

use super::backup::BACKUP;
use super::beside::BESIDE;
use super::child;
use super::collection::Plain;
use super::context::TxnBench;
use super::crowd::CROWD;
use super::endurance::ENDURANCE;
use super::floors::FLOORS;
use super::mixes::{MIXES_SECTION, PATHS_SECTION};
use super::opening::OPENING;
use super::peer::TxnKind;
use super::recovery::RECOVERY;
use super::subject::{DurableExecutor, Volatile};
use super::tickets::TICKETS;
use super::words::{MAP, ORDERED, SWAPS};
use super::{
    TxnArgs, backup, beside, crowd, endurance, figures, floors, goals, mixes, opening, recovery, tickets,
    words,
};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::save::{illustrate, save};
use crate::report::{render, say};
use anyhow::{Context as _, ensure};

const PAGE: Page<'_> = Page {
    title: "Transactions, measured",
    sections: &[
        (FLOORS, "Floors"),
        (SWAPS, "Swaps of random words"),
        (MAP, "A hash map: look-ups, and updates of values"),
        (ORDERED, "An ordered map: look-ups, and updates of values"),
        (
            MIXES_SECTION,
            "The six mixes of the SPHT-eADR dissertation, each thread in its own part of the heap",
        ),
        (PATHS_SECTION, "What became of the mixes' transactions"),
        (CROWD, "More threads than CPUs"),
        (BESIDE, "Short updates beside long transactions"),
        (OPENING, "Opening a heap that was closed"),
        (RECOVERY, "Recovery after a crash with full logs, by the number of CPUs"),
        (ENDURANCE, "What is written to the medium"),
        (TICKETS, "Waiting for many commits at once, with tickets"),
        (BACKUP, "Backing up a heap in use: by the number of writers"),
    ],
};

type Section = (&'static str, fn(&mut TxnBench<'_>) -> anyhow::Result<()>);

const SECTIONS: [Section; 12] = [
    (FLOORS, floors::run),
    (SWAPS, words::run_swaps),
    (MAP, words::run_map),
    (ORDERED, words::run_ordered),
    (MIXES_SECTION, mixes::run),
    (CROWD, crowd::run),
    (BESIDE, beside::run),
    (OPENING, opening::run),
    (RECOVERY, recovery::run),
    (ENDURANCE, endurance::run),
    (TICKETS, tickets::run),
    (BACKUP, backup::run),
];

const NOTES: [&str; 9] = [
    "\"Mangrove (volatile)\" keeps nothing: its rows are a ceiling, and no comparison with a library that does.",
    "Mangrove's maps are `HeapMap` and `HeapOrderedMap`, called as programs call them. Those of the other libraries, \
     and of \"Mangrove (volatile)\", are open addressing over the words. There are a quarter as many keys as words; an \
     update adds 1 to a value.",
    "\"no transactions\" reads Mangrove's maps, in the same heap, by plain loads: what transactions cost a look-up.",
    "PMDK isolates nothing by itself: here by one lock for many readers or one writer, in its process.",
    "Protocols: on ADR dense numbers and one fence a commit, on eADR neither flush nor fence (Order::Gaps). Replay is \
     on, on the same CPUs, where nothing else is said.",
    "The papers' protocols (SPHT, SPHT-eADR, HTM+SGL) are tried ten times in hardware before they take the lock; \
     \"RTM\" alone finds its own number.",
    "Latencies are added to DRAM's: flushes queue and a fence waits for them. Transactions read a working copy in \
     DRAM, so read latencies are spent on no line of theirs.",
    "With replay off a measurement ends when a log is 75 % full; the image bytes are then those of replaying all of \
     it at once.",
    "Medium \"file\" is the file system of --dir; in memory, which is the default, a sync costs next to nothing.",
];

/// `mangrove bench txn`, beside `peers`.
///
/// # Errors
/// A bad argument, or the first error of a subject; also when the words that a subject leaves are wrong.
pub fn run(args: TxnArgs, peers: &[Box<dyn TxnKind>]) -> anyhow::Result<()> {
    let kinds: Vec<&dyn TxnKind> = [&DurableExecutor as &dyn TxnKind, &Plain, &Volatile]
        .into_iter()
        .chain(peers.iter().map(|peer| &**peer))
        .collect();
    if let Some(task) = &args.child {
        return child::run(&kinds, task);
    }
    let args = complete(args);
    if args.run.lists() {
        return say::answer(&list(PAGE.sections));
    }
    args.run.check_names(&SECTIONS.map(|section| section.0))?;
    ensure!(args.words.is_power_of_two() && args.words >= 1024, "--words takes a power of two from 1024 on");
    ensure!(args.threads.iter().all(|&threads| threads > 0), "--threads takes numbers from 1 on");
    ensure!(args.heap_mib > 0 && args.log_mib > 0, "--heap-mib and --log-mib take numbers from 1 on");
    let sections: Vec<_> = SECTIONS.into_iter().filter(|section| args.run.wants(section.0)).collect();
    let report = args.run.report(&args.dir);
    let progress = SectionProgress::new("txn", args.run.rounds * sections.len());
    let mut b = TxnBench { args, kinds, report, progress };
    NOTES.iter().for_each(|note| b.report.note(*note));
    for _ in 0..b.args.run.rounds {
        for (name, body) in &sections {
            body(&mut b).with_context(|| format!("section '{name}'"))?;
            b.progress.done();
            // After every section, so that an interrupted run leaves what it has measured.
            if b.args.run.goals {
                b.report.goals = goals::judge(&b.report);
            }
            save(&b.report, &PAGE, "txn", &b.args.run)?;
        }
    }
    figures::draw(&b.report, &b.args.run.out)?;
    if let Some(page) = &b.args.run.markdown {
        illustrate(page, |folder| figures::draw(&b.report, folder))?;
    }
    drop(b.progress);
    let text = render::page(&PAGE, &b.report, false);
    say::answer(&format!("{text}Written to {}.\n", b.args.run.out.display()))
}

/// With what was left to this machine; tiny inputs for a smoke test, whose figures mean nothing.
fn complete(mut args: TxnArgs) -> TxnArgs {
    if args.threads.is_empty() {
        args.threads = (1..=std::thread::available_parallelism().map_or(1, usize::from)).collect();
    }
    if args.run.quick {
        args.words = args.words.min(1 << 12);
        args.threads.truncate(2);
        for list in [&mut args.latencies, &mut args.flush] {
            list.truncate(1);
        }
    }
    TxnArgs { run: args.run.limited(), ..args }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::PathBuf;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: TxnArgs,
    }

    /// A smoke test of some sections; where its files are, and its rows.
    fn smoke(name: &str, sections: &str) -> anyhow::Result<(PathBuf, Vec<serde_json::Value>)> {
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = parent.join(format!("mangrove-bench-txn-{name}-{}", std::process::id()));
        let mut args =
            Cli::parse_from(["bench", "--quick", "--goals", "--threads", "1,2", "--only", sections]).args;
        (args.run.out, args.dir, args.run.markdown) =
            (dir.join("out"), dir.clone(), Some(dir.join("txn.md")));
        run(args, &[])?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/txn.json"))?)?;
        Ok((dir, json["rows"].as_array().cloned().unwrap_or_default()))
    }

    /// The words are verified by the run itself.
    #[test]
    fn swaps_and_maps_write_a_report() -> anyhow::Result<()> {
        let (dir, rows) = smoke("words", "floors,swaps,map,ordered")?;
        // 6 floors. In 2 domains, on 1 and 2 threads: 4 kinds of swaps and 3 of hash maps by 2 subjects, the swaps
        // without replay, 3 of ordered maps by one, and look-ups in both maps without transactions.
        assert_eq!(rows.len(), 6 + (4 * 2 + 4 + 3 * 2 + 3 + 2) * 2 * 2);
        Ok(std::fs::remove_dir_all(dir)?)
    }

    #[test]
    fn mixes_write_a_report_with_figures() -> anyhow::Result<()> {
        let (dir, rows) = smoke("mixes", "mixes")?;
        // 6 mixes with each executor and protocol of the two domains, with replay on and off, on 1 and 2 threads: a
        // rate, 8 paths, bytes to log and image. SPHT runs in both domains, SPHT-eADR in one, with and without flushes.
        // HTM+SGL runs in place, on eADR and once: a rate, 8 paths.
        let (rtm, stamps) = (mangrove_sys::rtm().commits(), mangrove_sys::tsc().unusable.is_none());
        let each = if rtm { 5 } else { 4 };
        let stamped =
            [(stamps, 4), (stamps && rtm, 4)].iter().filter(|(runs, _)| *runs).map(|(_, n)| n).sum::<usize>();
        let executors = 2 * each + stamped;
        let in_place = 1 + usize::from(rtm);
        assert_eq!(rows.len(), 6 * executors * 2 * 2 * (1 + 8 + 2) + 6 * in_place * 2 * (1 + 8));
        let commits = |row: &&serde_json::Value| {
            row["section"] == "paths"
                && row["operation"].as_str().is_some_and(|what| what.starts_with("commits"))
        };
        let shares: f64 = rows.iter().filter(commits).filter_map(|row| row["median"].as_f64()).sum();
        assert!(
            (shares / (6 * (executors * 2 + in_place) * 2) as f64 - 100.0).abs() < 1e-6,
            "each commit has one path"
        );
        let page = std::fs::read_to_string(dir.join("txn.md"))?;
        for figure in ["txn-mixes-adr.svg", "txn-mixes-eadr.svg"] {
            assert!(page.contains(&format!("]({figure})")), "{figure}");
            assert!(std::fs::read_to_string(dir.join(figure))?.contains("<svg"), "{figure}");
        }
        Ok(std::fs::remove_dir_all(dir)?)
    }

    #[test]
    fn mixes_in_place_write_a_report() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-bench-in-place-{}", std::process::id()));
        let words = [
            "bench",
            "--quick",
            "--threads",
            "1,2",
            "--only",
            "mixes",
            "--executors",
            "lock:htm-sgl,model:htm-sgl",
        ];
        let mut args = Cli::parse_from(words).args;
        (args.run.out, args.dir) = (dir.join("out"), dir.clone());
        run(args, &[])?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/txn.json"))?)?;
        let rows = json["rows"].as_array().cloned().unwrap_or_default();
        // 6 mixes on 1 and 2 threads, with both executors: a rate, 8 paths.
        assert_eq!(rows.len(), 6 * 2 * 2 * (1 + 8));
        let share = |name: &str, what: &str| -> f64 {
            let what = |row: &&serde_json::Value| {
                row["operation"].as_str().is_some_and(|text| text.starts_with(what))
            };
            let rows = rows.iter().filter(|row| row["subject"] == name && row["medium"] == "eADR, in place");
            rows.filter(what).filter_map(|row| row["median"].as_f64()).sum::<f64>() / 12.0
        };
        assert!((share("one lock, HTM+SGL", "commits under a lock") - 100.0).abs() < 1e-6);
        assert!(share("model, HTM+SGL", "commits in hardware") > 50.0);
        Ok(std::fs::remove_dir_all(dir)?)
    }

    #[test]
    fn the_other_sections_measure_what_goals_are_for() -> anyhow::Result<()> {
        let (dir, _) = smoke("others", "crowd,beside,opening,recovery,endurance")?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/txn.json"))?)?;
        let unmeasured = |goal: &&serde_json::Value| goal["met"].is_null();
        let goals = json["goals"].as_array().cloned().unwrap_or_default();
        let left: Vec<_> = goals.iter().filter(unmeasured).map(|goal| goal["goal"].to_string()).collect();
        // Those of the sections that were not asked for.
        assert!(left.iter().all(|goal| goal.contains("swap")), "{left:?}");
        assert!(goals.len() > left.len() + 5, "{goals:?}");
        Ok(std::fs::remove_dir_all(dir)?)
    }

    /// Both verify their words themselves, of backups those of the last one.
    #[test]
    fn tickets_and_backups_are_measured() -> anyhow::Result<()> {
        let (dir, rows) = smoke("tickets", "tickets,backup")?;
        let of = |section: &str| rows.iter().filter(|row| row["section"] == section).count();
        // On ADR and a file. A wait each 1, 8 and 64, with and without; 3 times for 1 and 2 writers.
        assert_eq!((of("tickets"), of("backup")), (2 * 3 * 2, 2 * 2 * 3));
        let longest = |row: &&serde_json::Value| row["operation"] == "transactions stopped, longest";
        assert!(rows.iter().filter(longest).all(|row| row["median"].as_f64() > Some(0.0)));
        Ok(std::fs::remove_dir_all(dir)?)
    }

    #[test]
    fn an_unknown_section_or_executor_is_refused_with_a_list() {
        let args = Cli::parse_from(["bench", "--only", "tea"]).args;
        assert!(run(args, &[]).is_err_and(|e| e.to_string().contains("swaps")));
        let args = Cli::parse_from(["bench", "--quick", "--only", "beside", "--executors", "tea"]).args;
        assert!(run(args, &[]).is_err_and(|e| format!("{e:#}").contains("one-writer")));
    }
}
