//! One round: fresh servers with all records, restarts, and every case on every server.
//!
//! A case is measured in slices, there and back over the servers (A B C C B A), so that a machine that becomes slower
//! or faster meanwhile does so for all. The servers whose turn it is not are stopped.

use super::cases::{self, Case, DEDUP, LARGE, RESTART};
use super::client::{self, ClientRun};
use super::lines::{CPU, CPU_MAIN, LOGGED, P50, P99, P999, START, THROUGHPUT};
use super::processor::{Pinning, Used};
use super::server::RunningServer;
use super::server_dir::ServerDir;
use super::subjects::{INTERVAL, STOCK, ServerSubject, dedup_pairs};
use super::{RedisArgs, args};
use crate::harness::progress::SectionProgress;
use crate::report::report::{BenchReport, FigureUnit, OURS, RowKey};
use anyhow::Context as _;
use std::time::{Duration, Instant};

/// After the records are made, checkpoints may go on for a while.
const SETTLING: Duration = Duration::from_millis(1_500);
/// Slices of a case on one server.
const SLICES: usize = 2;

/// A server, what it is, and what the slices of the present case gave.
struct Measured {
    subject: ServerSubject,
    server: RunningServer,
    /// Behind the server, which ends first.
    dir: ServerDir,
    outcome: ClientRun,
    used: Used,
    /// What it has logged in the slices.
    logged: f64,
}

/// What a row is about beside the case.
struct Place {
    medium: &'static str,
    subject: &'static str,
    /// Behind each operation's name.
    suffix: &'static str,
}

pub(super) struct Round<'a> {
    pub(super) args: &'a RedisArgs,
    pub(super) pinning: &'a Pinning,
    pub(super) report: &'a mut BenchReport,
    pub(super) progress: &'a SectionProgress,
    pub(super) round: usize,
}

/// Measurements of a round, for the progress.
pub(super) fn steps(args: &RedisArgs, subjects: &[ServerSubject]) -> usize {
    let large = subjects.iter().filter(|subject| subject.is_for_large()).count();
    let mut steps = cases::cases(args).len() * subjects.len();
    if args.run.wants(LARGE) {
        steps += cases::large_cases().len() * large;
    }
    if args.run.wants(RESTART) {
        steps += subjects.len() + large;
    }
    if args.run.wants(DEDUP) {
        steps += cases::dedup_cases().len() * dedup_pairs(subjects).len();
    }
    steps
}

impl Round<'_> {
    pub(super) fn run(&mut self, subjects: &[ServerSubject]) -> anyhow::Result<()> {
        let cases = cases::cases(self.args);
        if !cases.is_empty() || self.args.run.wants(RESTART) {
            self.on_fresh(subjects, self.args.records, &cases)?;
        }
        let wants_large = self.args.run.wants(LARGE);
        if wants_large || self.args.run.wants(RESTART) {
            let few: Vec<ServerSubject> = subjects.iter().filter(|s| s.is_for_large()).copied().collect();
            let cases = if wants_large { cases::large_cases() } else { Vec::new() };
            self.on_fresh(&few, self.args.large_records, &cases)?;
        }
        if self.args.run.wants(DEDUP) {
            let pairs = dedup_pairs(subjects);
            if !pairs.is_empty() {
                self.on_fresh(&pairs, self.args.records, &cases::dedup_cases())?;
            }
        }
        Ok(())
    }

    /// Cases on fresh servers, which are gone afterwards.
    fn on_fresh(&mut self, subjects: &[ServerSubject], records: u64, cases: &[Case]) -> anyhow::Result<()> {
        let is_dedup = cases.first().is_some_and(|case| case.section == DEDUP);
        let mut servers = self.start_all(subjects, records)?;
        if self.args.run.wants(RESTART) && !is_dedup {
            servers = self.restart_all(servers, records)?;
        }
        for case in cases {
            self.case(&mut servers, case, records).with_context(|| case.name())?;
        }
        for Measured { server, dir, .. } in servers {
            drop(server);
            dir.remove()?;
        }
        Ok(())
    }

    fn measured(subject: ServerSubject, server: RunningServer, dir: ServerDir) -> anyhow::Result<Measured> {
        Ok(Measured {
            subject,
            server,
            dir,
            outcome: ClientRun::empty()?,
            used: Used::default(),
            logged: 0.0,
        })
    }

    /// Fresh servers with all records; each is stopped.
    fn start_all(&self, subjects: &[ServerSubject], records: u64) -> anyhow::Result<Vec<Measured>> {
        let mut servers = Vec::new();
        for &subject in subjects {
            self.progress.step(format!("{}: making {records} records", subject.name));
            let dir = subject.dir(self.args)?;
            let server = subject.start(self.args, self.pinning, dir.path()).context(subject.name)?;
            client::load(&server.socket, records).context(subject.name)?;
            // A kill takes the last second of the one with an interval.
            if !self.args.run.quick || subject.name == INTERVAL {
                std::thread::sleep(SETTLING);
            }
            server.pause()?;
            servers.push(Self::measured(subject, server, dir)?);
        }
        Ok(servers)
    }

    /// Kills each server and times its next start. The stock one without a file for its writes loads a dump.
    fn restart_all(&mut self, servers: Vec<Measured>, records: u64) -> anyhow::Result<Vec<Measured>> {
        let mut again = Vec::new();
        for Measured { subject, server, dir, .. } in servers {
            self.progress.step(format!("{}: restart with {records} records", subject.name));
            if subject.name == STOCK {
                server.go_on()?;
                server.ask("SAVE")?;
            }
            drop(server);
            let begun = Instant::now();
            let server = subject.start(self.args, self.pinning, dir.path()).context(subject.name)?;
            let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
            let key = RowKey {
                section: RESTART,
                medium: String::new(),
                workload: format!("{records} strings, {} hashes", super::commands::hashes(records)),
                operation: START.into(),
                threads: 0,
                subject: if subject.name == STOCK { "Valkey, RDB file".into() } else { subject.name.into() },
            };
            self.report.add(key, FigureUnit::Milliseconds, milliseconds);
            server.pause()?;
            again.push(Self::measured(subject, server, dir)?);
            self.progress.done();
        }
        Ok(again)
    }

    /// All slices of a case on all servers.
    fn case(&mut self, servers: &mut [Measured], case: &Case, records: u64) -> anyhow::Result<()> {
        for slice in 0..SLICES {
            let mut order: Vec<usize> = (0..servers.len()).collect();
            if (slice + self.round) % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let subject = servers[at].subject.name;
                self.progress.step(format!("{subject}: {}, {} clients", case.name(), case.clients));
                self.slice(&mut servers[at], case, records, slice).context(subject)?;
            }
        }
        for measured in servers {
            self.take(measured, case)?;
            self.progress.done();
        }
        Ok(())
    }

    fn slice(&self, on: &mut Measured, case: &Case, records: u64, slice: usize) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(self.args.run.seconds_or(args::SECONDS) / SLICES as f64);
        let (mut before, mut after) = (Ok(Used::default()), Ok(Used::default()));
        on.server.go_on()?;
        let logs = case.section == DEDUP;
        let counts = |server: &RunningServer| -> anyhow::Result<[f64; 2]> {
            let of = |field| server.info("mangrove", field);
            Ok([of("mangrove_logged_bytes")?, of("mangrove_commands")?])
        };
        let logged = if logs { counts(&on.server)? } else { [0.0; 2] };
        let seed = self.args.seed + (self.round * SLICES + slice) as u64;
        let outcome = client::drive(
            &on.server.socket,
            case,
            records,
            seed,
            time,
            || before = on.server.used(),
            || after = on.server.used(),
        )?;
        if logs {
            let [bytes, commands] = counts(&on.server)?;
            on.logged += (bytes - logged[0]) / (commands - logged[1]).max(1.0) / SLICES as f64;
        }
        on.server.pause()?;
        on.used.add(after?.since(before?));
        on.outcome.add(&outcome)
    }

    /// Puts what the slices gave into the report.
    fn take(&mut self, of: &mut Measured, case: &Case) -> anyhow::Result<()> {
        let outcome = std::mem::replace(&mut of.outcome, ClientRun::empty()?);
        let used = std::mem::take(&mut of.used);
        let logged = std::mem::take(&mut of.logged);
        let operations = outcome.operations as f64;
        let place = place(&of.subject, case);
        self.add(&place, case, THROUGHPUT, FigureUnit::PerSecond, operations / outcome.seconds);
        if case.section == DEDUP {
            self.add(&place, case, LOGGED, FigureUnit::Bytes, logged);
            self.add(&place, case, CPU, FigureUnit::Nanoseconds, used.all as f64 / operations);
            return Ok(());
        }
        for (name, share) in [(P50, 0.5), (P99, 0.99), (P999, 0.999)] {
            let latency = outcome.latencies.value_at_quantile(share) as f64 / 1e6;
            self.add(&place, case, name, FigureUnit::Milliseconds, latency);
        }
        self.add(&place, case, CPU, FigureUnit::Nanoseconds, used.all as f64 / operations);
        self.add(&place, case, CPU_MAIN, FigureUnit::Nanoseconds, used.main as f64 / operations);
        Ok(())
    }

    fn add(&mut self, place: &Place, case: &Case, operation: &str, unit: FigureUnit, value: f64) {
        let key = RowKey {
            section: case.section,
            medium: place.medium.into(),
            workload: case.name(),
            operation: format!("{operation}{}", place.suffix),
            threads: case.clients,
            subject: place.subject.into(),
        };
        self.report.add(key, unit, value);
    }
}

/// Servers with and without deduplication are lines of one column.
fn place(subject: &ServerSubject, case: &Case) -> Place {
    if case.section != DEDUP {
        return Place { medium: "", subject: subject.name, suffix: "" };
    }
    let suffix = if subject.deduplicates { ", deduplicated" } else { ", each command's stores" };
    Place { medium: subject.medium, subject: OURS, suffix }
}
