//! Runs the cases on every server, interleaved, and writes the report.

use super::cases::{self, Case, RESTART, SECTIONS};
use super::lines::{CPU, CPU_MAIN, P50, P99, P999, THROUGHPUT};
use super::processor::Pinning;
use super::subjects::{Running, SUBJECTS, Subject};
use super::{RedisArgs, client, figures, goals};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::report::{BenchReport, RowKey, Unit};
use crate::report::save::{illustrate, save};
use crate::report::{render, say};
use anyhow::{Context as _, bail, ensure};
use std::time::{Duration, Instant};

const PAGE: Page<'_> = Page { title: "The durable Redis-compatible server, measured", sections: &SECTIONS };

/// After the records are made, checkpoints and rewrites may go on for a while.
const SETTLING: Duration = Duration::from_millis(1_500);

/// `mangrove bench redis`.
///
/// # Errors
/// No server is built, a bad argument, or the first error of a server.
pub fn run(args: RedisArgs) -> anyhow::Result<()> {
    let args = if args.run.quick { quick(args) } else { args };
    if args.run.lists() {
        return say::answer(&list(&SECTIONS));
    }
    args.run.check_names(&SECTIONS.map(|(name, _)| name))?;
    ensure!(args.updates.iter().all(|&updates| updates <= 100), "--updates takes percentages");
    ensure!(args.clients.iter().all(|&clients| clients > 0), "--clients takes counts above 0");
    let report = measure(&args)?;
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &report, false), args.run.out.display()))
}

/// Tiny inputs: every section runs, but its figures mean nothing.
fn quick(args: RedisArgs) -> RedisArgs {
    RedisArgs {
        run: args.run.limited(),
        records: args.records.min(1_000),
        clients: args.clients.into_iter().take(2).collect(),
        ..args
    }
}

/// The servers that were asked for and are built.
fn subjects(args: &RedisArgs, report: &mut BenchReport) -> anyhow::Result<Vec<Subject>> {
    let is = |subject: &Subject, asked: &String| subject.name.eq_ignore_ascii_case(asked.trim());
    if let Some(unknown) = args.subjects.iter().find(|asked| !SUBJECTS.iter().any(|s| is(s, asked))) {
        bail!("there is no server '{unknown}'; there are {}", SUBJECTS.map(|s| s.name).join(", "));
    }
    let mut subjects = SUBJECTS.to_vec();
    subjects.retain(|s| args.subjects.is_empty() || args.subjects.iter().any(|asked| is(s, asked)));
    for subject in &subjects {
        if !subject.program(args).is_file() {
            report.note(format!(
                "{} is not built here: `make redis` builds it.",
                subject.program(args).display()
            ));
        }
    }
    subjects.retain(|s| s.program(args).is_file());
    if subjects.is_empty() {
        bail!(
            "there is neither {} nor {}; `make redis` builds both, --server and --stock name others",
            args.server.display(),
            args.stock.display()
        );
    }
    Ok(subjects)
}

fn measure(args: &RedisArgs) -> anyhow::Result<BenchReport> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut report = args.run.report(&args.dir);
    let pinning = Pinning::new(!args.unpinned)?;
    report.note(
        "A closed loop: each client sends when it has its answers, over a Unix socket; one thread drives all of them. \
         Latencies are those at the throughput beside them.",
    );
    report.note(
        "All servers run at the same time; one at a time is measured, each case on one after the other.",
    );
    let subjects = subjects(args, &mut report)?;
    let cases = cases::cases(args);
    let restarts = usize::from(args.run.wants(RESTART)) * subjects.len();
    let progress = SectionProgress::new("redis", args.run.rounds * (subjects.len() * cases.len() + restarts));
    for round in 0..args.run.rounds {
        let mut bench = Round { args, pinning: &pinning, report: &mut report, progress: &progress, round };
        let servers = bench.start_all(&subjects)?;
        for case in &cases {
            for (subject, server) in &servers {
                bench
                    .case(subject, server, case)
                    .with_context(|| format!("{}, {}", subject.name, case.name()))?;
            }
        }
        bench.restarts(servers)?;
        // After every round, so that an interrupted run leaves what it has measured.
        if args.run.goals {
            report.goals = goals::judge(&report);
        }
        save(&report, &PAGE, "redis", &args.run)?;
    }
    figures::draw(&report, &args.run.out)?;
    if let Some(page) = &args.run.markdown {
        illustrate(page, |dir| figures::draw(&report, dir))?;
    }
    Ok(report)
}

/// One round.
struct Round<'a> {
    args: &'a RedisArgs,
    pinning: &'a Pinning,
    report: &'a mut BenchReport,
    progress: &'a SectionProgress,
    round: usize,
}

impl Round<'_> {
    /// Fresh servers with all records.
    fn start_all(&self, subjects: &[Subject]) -> anyhow::Result<Vec<(Subject, Running)>> {
        let mut servers = Vec::new();
        for subject in subjects {
            self.progress.step(format!("{}: making the records", subject.name));
            let dir = subject.dir(self.args);
            if dir.exists() {
                std::fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
            }
            let server = subject.start(self.args, self.pinning).context(subject.name)?;
            client::load(&server.socket, self.args.records).context(subject.name)?;
            servers.push((*subject, server));
        }
        if !self.args.run.quick {
            std::thread::sleep(SETTLING);
        }
        Ok(servers)
    }

    fn add(&mut self, subject: &Subject, case: &Case, operation: &str, unit: Unit, value: f64) {
        let key = RowKey {
            section: case.section,
            medium: "disk".into(),
            workload: case.name(),
            operation: operation.into(),
            threads: case.clients,
            subject: subject.name.into(),
        };
        self.report.add(key, unit, value);
    }

    fn case(&mut self, subject: &Subject, server: &Running, case: &Case) -> anyhow::Result<()> {
        self.progress.step(format!("{}: {}, {} clients", subject.name, case.name(), case.clients));
        let time = Duration::from_secs_f64(self.args.run.seconds());
        let (mut before, mut after) = (Ok(Default::default()), Ok(Default::default()));
        let outcome = client::drive(
            &server.socket,
            case,
            self.args.records,
            self.args.seed + self.round as u64,
            time,
            || before = server.used(),
            || after = server.used(),
        )?;
        let used = after?.since(before?);
        let operations = outcome.operations as f64;
        self.add(subject, case, THROUGHPUT, Unit::PerSecond, operations / outcome.seconds);
        for (name, share) in [(P50, 0.5), (P99, 0.99), (P999, 0.999)] {
            let latency = outcome.latencies.value_at_quantile(share) as f64 / 1e6;
            self.add(subject, case, name, Unit::Milliseconds, latency);
        }
        self.add(subject, case, CPU, Unit::Nanoseconds, used.all as f64 / operations);
        self.add(subject, case, CPU_MAIN, Unit::Nanoseconds, used.main as f64 / operations);
        self.progress.done();
        Ok(())
    }

    /// Kills each server and times its next start; removes their directories.
    fn restarts(&mut self, servers: Vec<(Subject, Running)>) -> anyhow::Result<()> {
        for (subject, server) in servers {
            drop(server);
            if self.args.run.wants(RESTART) && subject.survives() {
                let begun = Instant::now();
                let server = subject.start(self.args, self.pinning).context(subject.name)?;
                let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
                drop(server);
                let key = RowKey {
                    section: RESTART,
                    medium: "disk".into(),
                    workload: format!("{} strings", self.args.records),
                    operation: "restart".into(),
                    threads: 0,
                    subject: subject.name.into(),
                };
                self.report.add(key, Unit::Milliseconds, milliseconds);
                self.progress.done();
            }
            let dir = subject.dir(self.args);
            std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: RedisArgs,
    }

    fn parse(words: &[&str]) -> RedisArgs {
        Cli::parse_from(std::iter::once("bench").chain(words.iter().copied())).args
    }

    #[test]
    fn without_a_server_the_bench_says_how_to_build_it() {
        let args = parse(&["--quick", "--server", "/nonexistent/a", "--stock", "/nonexistent/b"]);
        let error = subjects(&args, &mut BenchReport::default()).expect_err("nothing is there");
        assert!(error.to_string().contains("make redis"), "{error}");
        let unknown = parse(&["--subjects", "memcached"]);
        assert!(subjects(&unknown, &mut BenchReport::default()).is_err());
    }

    #[test]
    fn a_smoke_test_measures_what_is_built() -> anyhow::Result<()> {
        let mut args = parse(&["--quick", "--goals"]);
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        (args.server, args.stock) = (root.join(&args.server), root.join(&args.stock));
        if !args.stock.is_file() && !args.server.is_file() {
            // The client's own test has a server of this process.
            return Ok(());
        }
        let dir = std::env::temp_dir().join(format!("mangrove-bench-redis-{}", std::process::id()));
        (args.run.out, args.dir) = (dir.join("out"), dir.join("pools"));
        let report = measure(&quick(args))?;
        assert!(report.rows.iter().any(|row| row.key.section == cases::HASHES && row.median > 0.0));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }
}
