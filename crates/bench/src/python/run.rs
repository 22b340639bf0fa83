//! Runs the driver for every subject in every round, and writes the report.

use super::lines::{READING, WRITING};
use super::{PythonArgs, goals};
use crate::harness::own_path::{emptied, own_path};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::report::{BenchReport, FigureUnit, OURS, RowKey};
use crate::report::save::save;
use crate::report::{render, say};
use anyhow::{Context as _, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DRIVER: &str = include_str!("driver.py");

const SUBJECTS: [&str; 3] = [OURS, "plyvel", "lmdb"];

const SECTIONS: [(&str, &str); 2] = [(WRITING, "Writing"), (READING, "Reading")];
const PAGE: Page<'_> = Page { title: "Python, measured", sections: &SECTIONS };

/// `mangrove bench python`.
///
/// # Errors
/// The package is not installed, a bad argument, or the first error of a subject.
pub fn run(args: PythonArgs) -> anyhow::Result<()> {
    let args = if args.run.quick { quick(args) } else { args };
    if args.run.lists() {
        return say::answer(&list(&SECTIONS));
    }
    args.run.check_names(&SECTIONS.map(|(name, _)| name))?;
    ensure!(args.threads.iter().all(|&threads| threads > 0), "--threads takes counts above 0");
    ensure!(args.records >= 1_000, "--records takes a count of 1,000 or more");
    let report = measure(&args)?;
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &report, false), args.run.out.display()))
}

/// Tiny inputs: every measurement is made, but its figures mean nothing.
fn quick(args: PythonArgs) -> PythonArgs {
    PythonArgs { run: args.run.limited(), records: args.records.min(4_000), ..args }
}

/// The driver, for `subject`. It runs in the folder of the databases, where no module lies.
fn driver(args: &PythonArgs, subject: &str) -> anyhow::Result<Command> {
    let named = &args.python;
    // Not canonical: the interpreter of an environment is a link to another's, and finds its packages by its own name.
    let python = if named.components().count() > 1 {
        std::path::absolute(named).with_context(|| format!("cannot find {}", named.display()))?
    } else {
        named.clone()
    };
    let mut command = Command::new(python);
    command.args(["-c", DRIVER, subject]).stdin(Stdio::null()).current_dir(&args.dir);
    Ok(command)
}

/// The subjects that were asked for and that the interpreter can import.
fn subjects(args: &PythonArgs, report: &mut BenchReport) -> anyhow::Result<Vec<&'static str>> {
    let is = |name: &str, asked: &str| name.eq_ignore_ascii_case(asked.trim());
    if let Some(unknown) = args.subjects.iter().find(|asked| !SUBJECTS.iter().any(|name| is(name, asked))) {
        bail!("there is no subject '{unknown}'; there are {}", SUBJECTS.join(", "));
    }
    let mut subjects = SUBJECTS.to_vec();
    subjects.retain(|name| args.subjects.is_empty() || args.subjects.iter().any(|asked| is(name, asked)));
    let mut found = Vec::new();
    for name in subjects {
        let version = driver(args, name)?.arg("--version").output();
        match version {
            Ok(output) if output.status.success() => {
                report.note(format!("Measured: {}.", String::from_utf8_lossy(&output.stdout).trim()));
                found.push(name);
            }
            _ if name == OURS => bail!(
                "{} cannot import mangrove; `python/run bench` makes one that can; see --python",
                args.python.display()
            ),
            _ => report.note(format!("{name} is not installed for {}.", args.python.display())),
        }
    }
    Ok(found)
}

fn measure(args: &PythonArgs) -> anyhow::Result<BenchReport> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut report = args.run.report(&args.dir);
    let subjects = subjects(args, &mut report)?;
    report.note(format!(
        "{} records; keys of 16 bytes in no order, values of 100 bytes. Each subject is a process of its own.",
        args.records
    ));
    report.note(
        "plyvel has a cache that holds everything and a Bloom filter; for many keys it is asked one by one. lmdb \
         reads in one transaction, for many keys by getmulti, and puts in a transaction each. Not synced: Mangrove \
         is durable within 100 ms, plyvel is not told to sync, lmdb is opened with sync=False.",
    );
    let steps = args.run.rounds * subjects.len() * measurements(args);
    let progress = SectionProgress::new("python", steps);
    for _ in 0..args.run.rounds {
        for subject in &subjects {
            round(args, subject, &progress, &mut report).with_context(|| (*subject).to_owned())?;
        }
        // After every round, so that an interrupted run leaves what it has measured.
        if args.run.goals {
            report.goals = goals::judge(&report);
        }
        save(&report, &PAGE, "python", &args.run)?;
    }
    Ok(report)
}

/// Lines that the driver prints.
fn measurements(args: &PythonArgs) -> usize {
    let of = |section, count| if args.run.wants(section) { count } else { 0 };
    of(WRITING, args.threads.len() + 2) + of(READING, 3)
}

/// A folder that is removed with what was left in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> anyhow::Result<Self> {
        emptied(path).map(Self)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One subject in one round.
fn round(
    args: &PythonArgs,
    subject: &str,
    progress: &SectionProgress,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let scratch = Scratch::new(own_path(&std::path::absolute(&args.dir)?, "python"))?;
    let only: Vec<_> = args.run.only.iter().map(|name| name.trim()).collect();
    let settings = serde_json::json!({
        "seconds": args.run.seconds(),
        "threads": args.threads,
        "records": args.records,
        "only": only,
    });
    let said = scratch.0.join("said");
    let mut child = driver(args, subject)?
        .arg(&scratch.0)
        .arg(settings.to_string())
        .stdout(Stdio::piped())
        .stderr(File::create(&said).with_context(|| format!("cannot make {}", said.display()))?)
        .spawn()
        .with_context(|| format!("cannot start {}", args.python.display()))?;
    progress.step(subject.to_owned());
    let out = child.stdout.take().context("no pipe")?;
    let lines = read(BufReader::new(out), subject, progress, report);
    if lines.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().context("cannot wait for the driver")?;
    let lines = lines?;
    ensure!(status.success(), "the driver ended with {status}: {}", last_words(&said));
    ensure!(lines == measurements(args), "the driver measured {lines} of {} lines", measurements(args));
    Ok(())
}

/// The end of what a driver wrote on standard error.
fn last_words(said: &Path) -> String {
    let text = std::fs::read_to_string(said).unwrap_or_default();
    text.trim().lines().next_back().unwrap_or_default().to_owned()
}

/// Adds what the driver prints; returns the number of lines.
fn read(
    out: impl BufRead,
    subject: &str,
    progress: &SectionProgress,
    report: &mut BenchReport,
) -> anyhow::Result<usize> {
    let mut count = 0;
    for line in out.lines() {
        let line = line.context("cannot read what the driver prints")?;
        let (section, operation, threads, rate) =
            measured(&line).with_context(|| format!("the driver prints '{line}'"))?;
        let key = RowKey::on_file(section, operation, threads, subject);
        report.add(key, FigureUnit::PerSecond, rate);
        progress.done();
        count += 1;
    }
    Ok(count)
}

/// A line of the driver.
fn measured(line: &str) -> Option<(&'static str, &str, usize, f64)> {
    let mut fields = line.split('\t');
    let section = fields.next()?;
    let (section, _) = SECTIONS.into_iter().find(|(name, _)| *name == section)?;
    let operation = fields.next()?;
    let threads = fields.next()?.parse().ok()?;
    let rate = fields.next()?.parse().ok().filter(|rate: &f64| *rate > 0.0)?;
    Some((section, operation, threads, rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PythonArgs,
    }

    fn parse(words: &[&str]) -> PythonArgs {
        Cli::parse_from(std::iter::once("bench").chain(words.iter().copied())).args
    }

    /// A module that behaves as ours does, in memory, but for what `fault` replaces.
    const STAND_IN: &str = r#"
import threading

__version__ = "0"


class Map(dict):
    def __init__(self, path, durability):
        self.lock = threading.Lock()

    def __setitem__(self, key, value):
        with self.lock:
            dict.__setitem__(self, key, value)

    def get_many(self, keys):
        return [self.get(key) for key in keys]

    def items(self):
        return sorted(dict.items(self))

    def batch(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def close(self):
        pass
"#;

    /// What the bench measures with the stand-in, whose `before` is replaced by `after`.
    fn with_stand_in(name: &str, before: &str, after: &str) -> anyhow::Result<BenchReport> {
        assert!(STAND_IN.contains(before), "{before}");
        let dir = std::env::temp_dir().join(format!("mangrove-bench-python-{name}-{}", std::process::id()));
        let modules = dir.join("modules");
        std::fs::create_dir_all(&modules)?;
        std::fs::write(modules.join("mangrove.py"), STAND_IN.replacen(before, after, 1))?;
        let python = dir.join("python");
        let script = format!("#!/bin/sh\nPYTHONPATH='{}' exec python3 \"$@\"\n", modules.display());
        std::fs::write(&python, script)?;
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755))?;
        let mut args = parse(&["--quick", "--goals", "--subjects", "mangrove", "--threads", "1,3"]);
        (args.python, args.run.out, args.dir) = (python, dir.join("out"), dir.join("pools"));
        let report = measure(&quick(args));
        assert_eq!(std::fs::read_dir(dir.join("pools"))?.count(), 0, "what a run leaves");
        std::fs::remove_dir_all(dir)?;
        report
    }

    #[test]
    fn every_line_is_measured() -> anyhow::Result<()> {
        let report = with_stand_in("sound", "0", "0")?;
        let lines: Vec<_> =
            report.rows.iter().map(|row| (row.key.operation.as_str(), row.key.threads)).collect();
        let synced = super::super::lines::SYNCED_PUT;
        assert_eq!(lines[..3], [(synced, 1), (synced, 3), ("put, not synced", 1)]);
        assert_eq!(lines[4].0, super::super::lines::GET);
        assert_eq!(lines[6].0, super::super::lines::SCAN);
        assert_eq!(lines.len(), 7);
        Ok(())
    }

    #[test]
    fn a_subject_that_returns_a_wrong_result_ends_the_run() {
        for (name, before, after, said) in [
            (
                "put",
                "dict.__setitem__(self, key, value)",
                "pass",
                "the last record that a thread put is wrong",
            ),
            ("scan", "sorted(dict.items(self))", "sorted(dict.items(self))[:-1]", "a scan is wrong"),
            (
                "many",
                "[self.get(key) for key in keys]",
                "[self.get(keys[-1])] * len(keys)",
                "got at once is wrong",
            ),
        ] {
            let error = format!("{:#}", with_stand_in(name, before, after).expect_err(name));
            assert!(error.contains(said), "{name}: {error}");
        }
    }

    #[test]
    fn without_the_package_the_bench_says_how_to_get_it() {
        let mut args = parse(&["--quick", "--python", "/nonexistent/python"]);
        args.dir = std::env::temp_dir();
        let error = subjects(&args, &mut BenchReport::default()).expect_err("nothing is there");
        assert!(error.to_string().contains("python/run bench"), "{error}");
        args.subjects = vec!["shelve".into()];
        let error = subjects(&args, &mut BenchReport::default()).expect_err("nothing has that name");
        assert!(error.to_string().contains("there are Mangrove, plyvel, lmdb"), "{error}");
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        assert_eq!(measured("reading\tget\t1\t2.5"), Some((READING, "get", 1, 2.5)));
        for line in ["", "reading\tget\t1", "tea\tget\t1\t2.5", "reading\tget\t1\t0", "reading\tget\tone\t2"]
        {
            assert_eq!(measured(line), None, "{line}");
        }
    }
}
