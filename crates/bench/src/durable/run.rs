//! Runs the sections and writes the report.

use super::context::DurableBench;
use super::{DurableArgs, calls, goals, log, programs, ratios, recovery, sqlite};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::save::save;
use crate::report::{render, say};
use anyhow::Context as _;

const PAGE: Page<'_> = Page {
    title: "Durable applications, measured",
    sections: &[
        (calls::CALLS, "One call: native, tracked, durable"),
        (calls::PUTS, "A durable PUT, beside two copies of its bytes"),
        (programs::PROGRAMS, "What tracking costs programs (execution only)"),
        (ratios::LOCAL, "The key-value store in local mode, by the share of writes"),
        (
            ratios::RPC,
            "The key-value store in RPC mode, over Unix sockets, 16 requests in flight a connection",
        ),
        (log::LOG, "What goes into the log, batches of 32 (the Mangosteen paper's Fig. 7)"),
        (sqlite::SQLITE, "SQLite: durable :memory: and its own WAL"),
        (recovery::RECOVERY, "Recovery after SIGKILL, by the size of the state"),
    ],
};

type DurableSection = (&'static str, fn(&mut DurableBench) -> anyhow::Result<()>, bool);

/// Name, body, and whether it runs in every round.
const SECTIONS: [DurableSection; 8] = [
    (calls::CALLS, calls::run, true),
    (calls::PUTS, calls::run_puts, true),
    (programs::PROGRAMS, programs::run, true),
    (ratios::LOCAL, ratios::run_local, true),
    (ratios::RPC, ratios::run_rpc, true),
    (log::LOG, log::run, true),
    (sqlite::SQLITE, sqlite::run, true),
    (recovery::RECOVERY, recovery::run, false),
];

/// `mangrove bench durable`.
///
/// # Errors
/// A bad argument, something that is not built, or the first error of a subject.
pub fn run(args: DurableArgs) -> anyhow::Result<()> {
    if let Some(task) = &args.child {
        return recovery::run_child(task);
    }
    let args = DurableArgs { run: args.run.limited(), ..args };
    if args.run.lists() {
        return say::answer(&list(PAGE.sections));
    }
    args.run.check_names(&SECTIONS.map(|s| s.0))?;
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let report = args.run.report(&args.dir);
    let mut b = DurableBench { args, report };
    b.report.note(
        "Figures of one call and of one PUT are the fastest of 20 slices of a run; the median over the rounds is \
         shown.",
    );
    let wanted: Vec<&DurableSection> = SECTIONS.iter().filter(|s| b.args.run.wants(s.0)).collect();
    let progress = SectionProgress::new("durable", wanted.len() * b.args.run.rounds);
    for round in 0..b.args.run.rounds {
        for (name, body, repeats) in &wanted {
            progress.step(*name);
            if round == 0 || *repeats {
                body(&mut b).with_context(|| format!("section '{name}'"))?;
            }
            progress.done();
            // After every section, so that an interrupted run leaves what it has measured.
            if b.args.run.goals {
                b.report.goals = goals::judge(&b.report);
            }
            save(&b.report, &PAGE, "durable", &b.args.run)?;
        }
    }
    drop(progress);
    say::answer(&format!(
        "{}Written to {}.\n",
        render::page(&PAGE, &b.report, false),
        b.args.run.out.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::sync::{Mutex, PoisonError};

    /// A process runs one tracked call at a time, and the section `calls` makes one without a runtime, which
    /// would wait. So a test that runs the section holds this.
    static TRACKED_CALL: Mutex<()> = Mutex::new(());

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DurableArgs,
    }

    /// Everything that needs neither a child process nor a program of its own, on tiny input.
    #[test]
    fn a_smoke_test_writes_a_report() -> anyhow::Result<()> {
        let _alone = TRACKED_CALL.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = std::env::temp_dir().join(format!("mangrove-bench-durable-{}", std::process::id()));
        let words = ["bench", "--quick", "--goals", "--media", "zero", "--only", "calls,puts,log,local,rpc"];
        let mut args = Cli::parse_from(words).args;
        (args.run.out, args.dir) = (dir.join("out"), dir.join("pools"));
        run(args)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/durable.json"))?)?;
        assert!(json["rows"].as_array().is_some_and(|rows| rows.len() > 40));
        assert!(json["goals"].as_array().is_some_and(|goals| goals.len() > 10));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn goals_are_judged_only_on_request() -> anyhow::Result<()> {
        let _alone = TRACKED_CALL.lock().unwrap_or_else(PoisonError::into_inner);
        let dir =
            std::env::temp_dir().join(format!("mangrove-bench-durable-no-goals-{}", std::process::id()));
        let mut args = Cli::parse_from(["bench", "--quick", "--media", "zero", "--only", "calls"]).args;
        (args.run.out, args.dir) = (dir.join("out"), dir.join("pools"));
        run(args)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/durable.json"))?)?;
        assert_eq!(json["goals"].as_array().map(Vec::len), Some(0));
        assert!(!std::fs::read_to_string(dir.join("out/durable.txt"))?.contains("Goals"));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn an_unknown_section_is_refused_with_a_list() {
        let args = Cli::parse_from(["bench", "--only", "tea"]).args;
        assert!(run(args).is_err_and(|e| e.to_string().contains("calls")));
    }
}
