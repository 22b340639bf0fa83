//! Runs the sections and writes the report.

use super::media::Place;
use super::{DurableArgs, calls, goals, log, programs, ratios, recovery, sqlite};
use crate::progress::Progress;
use crate::render::Page;
use crate::report::{Key, OURS, Report, Unit};
use crate::{machine, render, say};
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};

const PAGE: Page = Page {
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

type Section = (&'static str, fn(&mut Bench) -> anyhow::Result<()>, bool);

/// Name, body, and whether it runs in every round.
const SECTIONS: [Section; 8] = [
    (calls::CALLS, calls::run, true),
    (calls::PUTS, calls::run_puts, true),
    (programs::PROGRAMS, programs::run, true),
    (ratios::LOCAL, ratios::run_local, true),
    (ratios::RPC, ratios::run_rpc, true),
    (log::LOG, log::run, true),
    (sqlite::SQLITE, sqlite::run, true),
    (recovery::RECOVERY, recovery::run, false),
];

/// One run.
pub(super) struct Bench {
    pub(super) args: DurableArgs,
    pub(super) report: Report,
}

impl Bench {
    /// A size of the real run, or of the smoke test.
    pub(super) fn size(&self, full: usize, quick: usize) -> usize {
        if self.args.quick { quick.min(full) } else { full }
    }

    pub(super) fn places(&self) -> anyhow::Result<Vec<Place>> {
        self.args.media.iter().map(|name| Place::new(name, &self.args.dir)).collect()
    }

    pub(super) fn sources(&self) -> PathBuf {
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        self.args.sources.clone().unwrap_or(built_from)
    }

    pub(super) fn libraries(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.args.libraries {
            return Ok(dir.canonicalize()?);
        }
        let exe = std::env::current_exe().context("cannot find this program's file")?;
        Ok(exe.parent().map_or_else(PathBuf::new, Path::to_owned))
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add_of(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        threads: usize,
        subject: &str,
        unit: Unit,
        value: f64,
    ) {
        let key = Key {
            section,
            medium: medium.to_owned(),
            workload: workload.to_owned(),
            operation: operation.to_owned(),
            threads,
            subject: subject.to_owned(),
        };
        self.report.add(key, unit, value);
    }

    /// A number of ours.
    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        threads: usize,
        unit: Unit,
        value: f64,
    ) {
        self.add_of(section, medium, workload, operation, threads, OURS, unit, value);
    }

    /// A number to compare ours with.
    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add_floor(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        subject: &str,
        unit: Unit,
        value: f64,
    ) {
        self.add_of(section, medium, workload, operation, 1, subject, unit, value);
    }
}

/// `mangrove bench durable`.
///
/// # Errors
/// A bad argument, something that is not built, or the first error of a subject.
pub fn run(args: DurableArgs) -> anyhow::Result<()> {
    if let Some(task) = &args.child {
        return recovery::run_child(task);
    }
    let args = if args.quick { quick(args) } else { args };
    let known = |name: &String| SECTIONS.iter().any(|s| s.0 == name.trim());
    if let Some(unknown) = args.only.iter().find(|name| !known(name)) {
        let names: Vec<_> = SECTIONS.iter().map(|s| s.0).collect();
        bail!("there is no section '{unknown}'; there are {}", names.join(", "));
    }
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let report = Report { quick: args.quick, rounds: args.rounds, ..Report::default() };
    let mut b = Bench { args, report };
    b.report.command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    b.report.started = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    b.report.machine = machine::describe(&b.args.dir);
    if b.report.machine.load > 0.5 && !b.args.quick {
        let load = b.report.machine.load;
        b.report
            .note(format!("The load average was {load:.2} when the run began: the figures are disturbed."));
    }
    b.report.note("Figures of one call and of one PUT are the fastest of 20 slices of a run; the median over the rounds is shown.");
    let wanted: Vec<&Section> = SECTIONS
        .iter()
        .filter(|s| b.args.only.is_empty() || b.args.only.iter().any(|name| name.trim() == s.0))
        .collect();
    let progress = Progress::new("durable", wanted.len() * b.args.rounds);
    for round in 0..b.args.rounds {
        for (name, body, repeats) in &wanted {
            progress.step(*name);
            if round == 0 || *repeats {
                body(&mut b).with_context(|| format!("section '{name}'"))?;
            }
            progress.done();
            // After every section, so that a long run that is interrupted leaves what it has.
            b.report.goals = goals::judge(&b.report);
            write(&b.report, &b.args)?;
        }
    }
    drop(progress);
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &b.report, false), b.args.out.display()))
}

/// Tiny inputs: everything runs, nothing means anything.
fn quick(args: DurableArgs) -> DurableArgs {
    DurableArgs { rounds: 1, seconds: args.seconds.min(0.05), ..args }
}

fn write(report: &Report, args: &DurableArgs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let save = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    save(&args.out.join("durable.txt"), &render::page(&PAGE, report, false))?;
    save(&args.out.join("durable.json"), &serde_json::to_string_pretty(report)?)?;
    match &args.markdown {
        Some(page) => save(page, &render::page(&PAGE, report, true)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DurableArgs,
    }

    /// What needs no child process and nothing that is built apart, on tiny input.
    #[test]
    fn a_smoke_test_writes_a_report() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-bench-durable-{}", std::process::id()));
        let words = ["bench", "--quick", "--media", "zero", "--only", "calls,puts,log,local,rpc"];
        let mut args = Cli::parse_from(words).args;
        (args.out, args.dir) = (dir.join("out"), dir.join("pools"));
        run(args)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/durable.json"))?)?;
        assert!(json["rows"].as_array().is_some_and(|rows| rows.len() > 40));
        assert!(json["goals"].as_array().is_some_and(|goals| goals.len() > 10));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn an_unknown_section_is_refused_with_a_list() {
        let args = Cli::parse_from(["bench", "--only", "tea"]).args;
        assert!(run(args).is_err_and(|e| e.to_string().contains("calls")));
    }
}
