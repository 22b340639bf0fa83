//! Runs the rounds and writes the report.

use super::cases::SECTIONS;
use super::lines::DIRECT_WRITE;
use super::processor::Pinning;
use super::round::{Round, steps};
use super::subjects::{SUBJECTS, ServerSubject};
use super::{RedisArgs, figures, goals};
use crate::harness::own_path::own_path;
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::report::{BenchReport, FigureUnit, RowKey};
use crate::report::save::{illustrate, save};
use crate::report::{render, say};
use crate::sections::floors::{FLOOR, odsync_rate};
use anyhow::{Context as _, bail, ensure};
use std::time::Duration;

const PAGE: Page<'_> = Page { title: "The durable Redis-compatible server, measured", sections: &SECTIONS };

/// Bytes of the write that is the floor of the section on clients.
const FLOOR_BYTES: usize = 4096;

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
    ensure!(
        args.clients.iter().chain(&args.hash_clients).all(|&clients| clients > 0),
        "--clients and --hash-clients take counts above 0"
    );
    let report = measure(&args)?;
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &report, false), args.run.out.display()))
}

/// Tiny inputs: every section runs, but its figures mean nothing.
fn quick(args: RedisArgs) -> RedisArgs {
    RedisArgs {
        run: args.run.limited(),
        records: args.records.min(1_000),
        large_records: args.large_records.min(2_000),
        clients: args.clients.into_iter().take(2).collect(),
        hash_clients: args.hash_clients.into_iter().take(1).collect(),
        updates: args.updates.into_iter().take(2).collect(),
        ..args
    }
}

/// The servers that were asked for and are built.
fn subjects(args: &RedisArgs, report: &mut BenchReport) -> anyhow::Result<Vec<ServerSubject>> {
    let is = |subject: &ServerSubject, asked: &String| subject.name.eq_ignore_ascii_case(asked.trim());
    if let Some(unknown) = args.subjects.iter().find(|asked| !SUBJECTS.iter().any(|s| is(s, asked))) {
        bail!("there is no server '{unknown}'; there are {}", SUBJECTS.map(|s| s.name).join(", "));
    }
    let mut subjects = SUBJECTS.to_vec();
    subjects.retain(|s| args.subjects.is_empty() || args.subjects.iter().any(|asked| is(s, asked)));
    for subject in &subjects {
        if !subject.program(args).is_file() {
            report.note(format!("{} is not built here.", subject.program(args).display()));
        }
    }
    subjects.retain(|s| s.program(args).is_file());
    if subjects.is_empty() {
        bail!(
            "there is neither {} nor {}; `make redis` builds the first, then `crates/redis/scripts/stock data/valkey` \
             the second; --server and --stock name others",
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
        "A closed loop: each client sends when it has its answers, over a Unix socket; one thread on a processor of \
         its own drives all of them. Latencies are those at the throughput beside them. Processor time is that of the \
         server's threads.",
    );
    report.note(
        "All servers run at the same time on the other processors; one at a time is measured and the rest are stopped; \
         each case goes over all of them, there and back.",
    );
    report.note(
        "Emulated persistent memory lies in /dev/shm; the rest on the disk. Valkey's rewriting of the append-only file \
         is off, in its favour.",
    );
    let subjects = subjects(args, &mut report)?;
    let progress = SectionProgress::new("redis", args.run.rounds * steps(args, &subjects));
    for round in 0..args.run.rounds {
        floor(args, &mut report)?;
        Round { args, pinning: &pinning, report: &mut report, progress: &progress, round }.run(&subjects)?;
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

/// What a write waits for at least.
fn floor(args: &RedisArgs, report: &mut BenchReport) -> anyhow::Result<()> {
    let file = own_path(&args.dir, "redis-floor");
    let rate = odsync_rate(&file, FLOOR_BYTES, Duration::from_secs_f64(args.run.seconds()))?;
    std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    let Some(rate) = rate else { return Ok(()) };
    let key = RowKey {
        section: super::cases::CLIENTS,
        medium: String::new(),
        workload: String::new(),
        operation: DIRECT_WRITE.into(),
        threads: 1,
        subject: FLOOR.into(),
    };
    report.add(key, FigureUnit::PerSecond, rate);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::cases;
    use crate::report::report::Row;
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
    fn a_bench_that_fails_leaves_nothing_behind() -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("mangrove-bench-failing-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let server = dir.join("server");
        std::fs::write(&server, "#!/bin/sh\necho no such door; exit 1\n")?;
        std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o755))?;
        for subject in [super::super::subjects::EMULATED, "Mangrove"] {
            let mut args = parse(&["--quick", "--subjects", subject]);
            (args.server, args.run.out, args.dir) = (server.clone(), dir.join("out"), dir.join("pools"));
            let error = format!("{:#}", measure(&quick(args)).expect_err("the server ends"));
            assert!(error.contains("no such door"), "{error}");
        }
        assert_eq!(std::fs::read_dir(dir.join("pools"))?.count(), 0);
        // Other tests of this process have servers there meanwhile.
        let mine =
            |dir: &std::path::PathBuf| super::super::server_dir::last_words(dir).contains("no such door");
        let memory = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let left: Vec<_> = memory.map(|entry| entry.path()).filter(mine).collect();
        assert!(left.is_empty(), "{left:?}");
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn a_smoke_test_measures_what_is_built() -> anyhow::Result<()> {
        let mut args = parse(&["--quick", "--goals"]);
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        (args.server, args.stock) = (root.join(&args.server), root.join(&args.stock));
        let is_ours_built = args.server.is_file();
        if !args.stock.is_file() && !is_ours_built {
            // The client's own test has a server of this process.
            return Ok(());
        }
        let dir = std::env::temp_dir().join(format!("mangrove-bench-redis-{}", std::process::id()));
        (args.run.out, args.dir) = (dir.join("out"), dir.join("pools"));
        let report = measure(&quick(args))?;
        if is_ours_built {
            let logged = |what: &str| {
                let of_zipf = |row: &&Row| {
                    row.key.section == cases::DEDUP
                        && row.key.operation.contains(what)
                        && row.key.operation.starts_with("bytes logged")
                        && row.key.workload.contains("Zipf")
                };
                report.rows.iter().filter(of_zipf).map(|row| row.median).sum::<f64>()
            };
            let (on, off) = (logged(", deduplicated"), logged(", each command's stores"));
            assert!(0.0 < on && on < off, "{on} bytes with deduplication, {off} without");
        }
        for (section, _) in SECTIONS.iter().filter(|(section, _)| is_ours_built || *section != cases::DEDUP) {
            let measured = report.rows.iter().filter(|row| row.key.section == *section && row.median > 0.0);
            assert!(measured.count() > 0, "nothing of the section {section}");
        }
        assert!(dir.join("out/redis-peak-uniform.svg").exists());
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }
}
