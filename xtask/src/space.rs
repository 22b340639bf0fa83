//! `cargo xtask space`: what a store takes on the disk and in memory when it was filled, when nine of ten records were
//! deleted, when it was compacted, and when it was opened again, against a fresh load of the rest.
//!
//! The programs print a line for each step and wait; what they take is measured then. Memory is the process's resident
//! set without the pages of files that others could use too.

use crate::{apps, tree};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records
    #[arg(long, default_value_t = 500_000)]
    records: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1000)]
    value: u64,
    /// Only these: map, leveldb, app, heap
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// A program that takes a directory, a part of the work, and the numbers.
struct Subject {
    name: &'static str,
    program: PathBuf,
    words: &'static [&'static str],
    /// The numbers are options, and these with them; else they are the last two words.
    options: Option<&'static [&'static str]>,
}

/// What one step left.
struct Taken {
    step: String,
    disk: u64,
    memory: u64,
}

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<()> {
    let scratch = tree::target().join("space");
    println!("{} records of 16 and {} bytes; MiB on the disk and in memory", args.records, args.value);
    for subject in subjects(&args.only)? {
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch)?;
        }
        std::fs::create_dir_all(&scratch)?;
        let (whole, rest) = (scratch.join("whole"), scratch.join("rest"));
        let mut taken = subject.run(&whole, "whole", args)?;
        taken.extend(subject.run(&whole, "open", args)?);
        let mut fresh = subject.run(&rest, "rest", args)?;
        fresh.extend(subject.run(&rest, "open", args)?);
        println!("\n{}", subject.name);
        taken.iter().for_each(show);
        println!("  against a fresh load of the rest:");
        fresh.iter().for_each(show);
        if let (Some(is), Some(would_be)) = (taken.last(), fresh.last()) {
            let ratio = |is: u64, would_be: u64| is as f64 / would_be.max(1) as f64;
            let (disk, memory) = (ratio(is.disk, would_be.disk), ratio(is.memory, would_be.memory));
            println!("  opened again: {disk:.2}x the disk, {memory:.2}x the memory");
        }
    }
    Ok(std::fs::remove_dir_all(&scratch)?)
}

fn show(taken: &Taken) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("  {:<28}{:>9.1}{:>9.1}", taken.step, mib(taken.disk), mib(taken.memory));
}

fn subjects(only: &[String]) -> Result<Vec<Subject>> {
    let asked = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let from = tree::root().join("xtask/src/space");
    let mut subjects = Vec::new();
    if asked("map") {
        let program = tree::mangrove_stress()?;
        subjects.push(Subject { name: "map", program, words: &["space"], options: Some(&[]) });
    }
    if asked("leveldb") {
        let include = format!("-I{}", tree::root().join("crates/leveldb/cpp/include").display());
        let program =
            apps::compile("mangrove-leveldb", "space-leveldb", &[from.join("leveldb.c")], &[&include])?;
        subjects.push(Subject { name: "leveldb", program, words: &[], options: None });
    }
    if asked("app") {
        let program = apps::compile("mangrove-app", "space-app", &[from.join("app.c")], &[])?;
        subjects.push(Subject { name: "app", program, words: &[], options: None });
    }
    if asked("heap") {
        let program = tree::mangrove_stress()?;
        subjects.push(Subject { name: "heap", program, words: &["space"], options: Some(&["--heap"]) });
    }
    ensure!(!subjects.is_empty(), "nothing of that name; there are map, leveldb, app and heap");
    Ok(subjects)
}

impl Subject {
    /// Runs a part of the work; what was taken at each step.
    fn run(&self, directory: &Path, part: &str, args: &Args) -> Result<Vec<Taken>> {
        let (records, value) = (args.records.to_string(), args.value.to_string());
        let mut command = Command::new(&self.program);
        command.args(self.words).arg(directory).arg(part);
        match self.options {
            Some(options) => command.args(["--records", &records, "--value", &value]).args(options),
            None => command.args([&records, &value]),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("the child's input")?;
        let output = BufReader::new(child.stdout.take().context("the child's output")?);
        let mut taken = Vec::new();
        for step in output.lines() {
            let memory = memory_of(child.id())?;
            taken.push(Taken { step: step?, disk: disk_of(directory)?, memory });
            // A child that has ended does not read it.
            let _ = input.write_all(b"\n");
        }
        ensure!(child.wait()?.success(), "{} {part} failed", self.name);
        if part != "open" {
            taken.push(Taken { step: "closed".to_owned(), disk: disk_of(directory)?, memory: 0 });
        }
        Ok(taken)
    }
}

/// Bytes that a directory takes on the disk.
fn disk_of(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?
    {
        let meta = entry?.metadata();
        // A checkpoint may remove a file meanwhile.
        let Ok(meta) = meta else { continue };
        bytes += meta.blocks() * 512;
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            bytes += disk_of(&entry.path())?;
        }
    }
    Ok(bytes)
}

/// Bytes of memory that a process has for itself.
fn memory_of(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Ok(kib("RssAnon:").context("no line RssAnon")? << 10)
}
