//! Runs the workloads on every subject and writes the report.

use super::api::ApiLibrary;
use super::args::Api;
use super::classes;
use super::lines::{READING, UNSYNCED, WRITING};
use super::workloads::{self, READS, UNSYNCED_WRITES, WRITES, WriteWorkload};
use super::{LeveldbArgs, goals};
use crate::harness::own_path::{emptied, own_path};
use crate::harness::progress::SectionProgress;
use crate::harness::run_args::list;
use crate::report::render::Page;
use crate::report::report::{BenchReport, FigureUnit, OURS, RowKey};
use crate::report::save::save;
use crate::report::{render, say};
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Our engines: their names in the report, and the value of the option that chooses them. The first is the default.
const OUR_ENGINES: [(&str, &str); 2] = [(OURS, "durable"), ("Mangrove (map)", "map")];
const LIBRARY: &str = "libmangrove_leveldb.so";
const STATIC_LIBRARY: &str = "libmangrove_leveldb.a";

const PAGE: Page<'_> = Page {
    title: "LevelDB's API, measured",
    sections: &[
        (WRITING, "Every write synced (the Mangosteen paper's Fig. 8)"),
        (UNSYNCED, "Writes without sync, of one thread"),
        (READING, "Reading (the Mangosteen paper's Fig. 9, and random gets)"),
    ],
};

/// Records that exist before the workload that overwrites them.
const OVERWRITTEN: u64 = 100_000;

/// `mangrove bench leveldb`.
///
/// # Errors
/// Our library is not built, a bad argument, or the first error of a subject.
pub fn run(args: LeveldbArgs) -> anyhow::Result<()> {
    let args = if args.run.quick { quick(args) } else { args };
    if args.run.lists() {
        let names: Vec<_> = names().map(|name| (name, "")).collect();
        return say::answer(&list(&names));
    }
    let report = measure(&args)?;
    say::answer(&format!("{}Written to {}.\n", render::page(&PAGE, &report, false), args.run.out.display()))
}

/// The workloads.
fn names() -> impl Iterator<Item = &'static str> {
    WRITES.iter().chain(&UNSYNCED_WRITES).map(|w| w.name).chain(READS.iter().map(|r| r.0))
}

/// Tiny inputs: every workload runs, but its figures mean nothing.
fn quick(args: LeveldbArgs) -> LeveldbArgs {
    LeveldbArgs { run: args.run.limited(), records: args.records.min(4_000), ..args }
}

/// Where our library is.
fn library(args: &LeveldbArgs) -> anyhow::Result<PathBuf> {
    if let Some(file) = &args.library {
        return Ok(file.clone());
    }
    let exe = std::env::current_exe().context("cannot find this program's file")?;
    let beside = exe.with_file_name(match args.api {
        Api::C => LIBRARY,
        Api::Cpp => STATIC_LIBRARY,
    });
    if !beside.exists() {
        bail!(
            "{} is not there; build it (cargo build --release --package mangrove-leveldb), or say where it is with --library",
            beside.display()
        );
    }
    Ok(beside)
}

/// Our library, and those of the others that are installed.
fn subjects(args: &LeveldbArgs, report: &mut BenchReport) -> anyhow::Result<Vec<ApiLibrary>> {
    let mut subjects = match args.api {
        Api::C => by_functions(&library(args)?, report)?,
        Api::Cpp => by_classes(args, report)?,
    };
    if let Some(unknown) = args.subjects.iter().find(|name| !subjects.iter().any(|s| is(s.name, name))) {
        bail!("there is no subject '{unknown}' here");
    }
    subjects.retain(|s| args.subjects.is_empty() || args.subjects.iter().any(|name| is(s.name, name)));
    Ok(subjects)
}

/// The subjects through the C API.
fn by_functions(ours: &Path, report: &mut BenchReport) -> anyhow::Result<Vec<ApiLibrary>> {
    let mut subjects = our_engines(ours, "leveldb")?;
    for (name, prefix, files) in [
        ("LevelDB", "leveldb", &["libleveldb.so.1d", "libleveldb.so.1"][..]),
        ("RocksDB", "rocksdb", &["librocksdb.so.7.8", "librocksdb.so"][..]),
    ] {
        let found = files.iter().find_map(|file| ApiLibrary::load(name, Path::new(file), prefix, None).ok());
        match found {
            Some(subject) => subjects.push(subject),
            None => report.note(format!("{name} is not installed here.")),
        }
    }
    Ok(subjects)
}

/// The subjects through the C++ classes.
fn by_classes(args: &LeveldbArgs, report: &mut BenchReport) -> anyhow::Result<Vec<ApiLibrary>> {
    let out = own_path(&args.dir, "leveldb-classes");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = out.canonicalize().with_context(|| format!("cannot find {}", out.display()))?;
    let mut subjects = our_engines(&classes::ours(&library(args)?, &out)?, classes::PREFIX)?;
    match classes::theirs(&out) {
        Ok(file) => subjects.push(ApiLibrary::load("LevelDB", &file, classes::PREFIX, None)?),
        Err(why) => report.note(format!("LevelDB's classes cannot be compiled here: {why:#}.")),
    }
    Ok(subjects)
}

fn our_engines(file: &Path, prefix: &'static str) -> anyhow::Result<Vec<ApiLibrary>> {
    OUR_ENGINES.into_iter().map(|(name, engine)| ApiLibrary::load(name, file, prefix, Some(engine))).collect()
}

fn is(name: &str, asked: &str) -> bool {
    name.eq_ignore_ascii_case(asked.trim())
}

fn measure(args: &LeveldbArgs) -> anyhow::Result<BenchReport> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut report = args.run.report(&args.dir);
    let through = match args.api {
        Api::C => "the same calls of LevelDB's C API",
        Api::Cpp => "LevelDB's C++ classes, by an adapter with the names that the bench calls",
    };
    report.note(format!(
        "All subjects through {through}; rivals with a cache that holds everything and a Bloom filter. fill100K \
         measures the disk's bandwidth."
    ));
    report.note(
        "Reading: all threads read everything (readrandom: as many random keys); databases were loaded in \
         random order and compacted; the first byte of each value is looked at.",
    );
    let subjects = subjects(args, &mut report)?;
    args.run.check_names(&names().collect::<Vec<_>>())?;
    let steps = args.run.rounds
        * subjects.len()
        * (args.threads.len() * WRITES.len() + UNSYNCED_WRITES.len() + READS.len());
    let progress = SectionProgress::new("leveldb", steps);
    for _ in 0..args.run.rounds {
        for subject in &subjects {
            let mut run = Round { args, report: &mut report, subject, progress: &progress };
            run.writing()?;
            run.writing_unsynced()?;
            run.reading()?;
        }
        // After every round, so that an interrupted run leaves what it has measured.
        if args.run.goals {
            report.goals = goals::judge(&report);
        }
        save(&report, &PAGE, "leveldb", &args.run)?;
    }
    Ok(report)
}

/// One subject in one round.
struct Round<'a> {
    args: &'a LeveldbArgs,
    report: &'a mut BenchReport,
    subject: &'a ApiLibrary,
    progress: &'a SectionProgress,
}

impl Round<'_> {
    fn wanted(&self, name: &str) -> bool {
        self.args.run.wants(name)
    }

    fn fresh_dir(&self) -> anyhow::Result<PathBuf> {
        emptied(own_path(&self.args.dir, "leveldb"))
    }

    fn add(&mut self, section: &'static str, operation: &str, threads: usize, rate: f64) {
        let key = RowKey::on_file(section, operation, threads, self.subject.name);
        self.report.add(key, FigureUnit::PerSecond, rate);
        self.progress.done();
    }

    fn writing(&mut self) -> anyhow::Result<()> {
        for workload in WRITES.into_iter().filter(|w| self.wanted(w.name)).collect::<Vec<_>>() {
            for &threads in &self.args.threads {
                self.writes(WRITING, workload, threads, OVERWRITTEN.min(self.args.records))?;
            }
        }
        Ok(())
    }

    fn writing_unsynced(&mut self) -> anyhow::Result<()> {
        for workload in UNSYNCED_WRITES.into_iter().filter(|w| self.wanted(w.name)).collect::<Vec<_>>() {
            self.writes(UNSYNCED, workload, 1, self.args.records)?;
        }
        Ok(())
    }

    /// One line: a workload on a database of its own, in which `loaded` records are if it needs some.
    fn writes(
        &mut self,
        section: &'static str,
        workload: WriteWorkload,
        threads: usize,
        loaded: u64,
    ) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(self.args.run.seconds());
        self.progress.step(format!("{} {} {threads}", self.subject.name, workload.name));
        let dir = self.fresh_dir()?;
        let db = self.subject.open(&dir)?;
        if workload.overwrites || workload.deletes {
            workloads::load(&db, loaded, 100)?;
        }
        // Earlier writes must not count for this workload.
        rustix::fs::sync();
        let rate = workloads::write_rate(&db, workload, threads, time, loaded)
            .with_context(|| format!("{}, {}", self.subject.name, workload.name))?;
        drop(db);
        std::fs::remove_dir_all(&dir)?;
        self.add(section, workload.name, threads, rate);
        Ok(())
    }

    fn reading(&mut self) -> anyhow::Result<()> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: &[usize] = if cpus > 1 { &[1, 2] } else { &[1] };
        let mut open: Option<(usize, u64, super::api::Database)> = None;
        for (name, how, value_bytes) in READS {
            if !self.wanted(name) {
                continue;
            }
            self.progress.step(format!("{} {name}", self.subject.name));
            if open.as_ref().is_none_or(|(bytes, ..)| *bytes != value_bytes) {
                drop(open.take());
                let records =
                    if value_bytes > 1000 { self.args.records.div_ceil(4) } else { self.args.records };
                let db = self.subject.open(&self.fresh_dir()?)?;
                workloads::load(&db, records, value_bytes)?;
                db.compact();
                // Once without the clock, so that caches are as warm as they get.
                db.scan(false)?;
                open = Some((value_bytes, records, db));
            }
            let Some((_, records, db)) = &open else { continue };
            let rates = threads
                .iter()
                .map(|&t| Ok((t, workloads::read_rate(db, how, t, *records, value_bytes)?)))
                .collect::<anyhow::Result<Vec<_>>>()
                .with_context(|| format!("{}, {name}", self.subject.name))?;
            for (threads, rate) in rates {
                self.add(READING, name, threads, rate);
            }
        }
        drop(open);
        self.fresh_dir().and_then(|dir| Ok(std::fs::remove_dir_all(dir)?))
    }
}
