//! `cargo xtask redis-suite`: Valkey's own tests, in Tcl, with the durable server in the place of `src/valkey-server`.
//!
//! `suite.txt` names the files that run, and every test and file that does not, with the reason. The tests run in a
//! tree of links beside a copy of `tests`, where `src/valkey-server` is a script that gives each server a state in the
//! directory of its configuration.

use super::server::{self, Programs, ServerKind};
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The files, and what is skipped.
const TABLE: &str = include_str!("suite.txt");
/// What the tests put into the place of the server.
const WRAPPER: &str = include_str!("suite-server.sh");
/// A file of tests that runs for so many seconds hangs.
const FILE_SECONDS_MAX: &str = "900";
/// What the write fence's reports begin with.
const FENCE: &str = "write fence";
/// Failures that are shown of one file.
const SHOWN_MAX: usize = 10;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of tests, such as unit/type/string; all of the table when left out
    files: Vec<String>,
    /// What the states lie on: emulated, emulated=WRITE/READ, file
    #[arg(long, default_value = "emulated")]
    medium: String,
    /// Let the server report every write to the state from outside of its commands
    #[arg(long)]
    fence: bool,
    /// The server under test; a stock one shows which tests fail on this machine anyway
    #[arg(long, value_enum, default_value_t = ServerKind::Durable)]
    kind: ServerKind,
    /// Run the slow tests, too
    #[arg(long)]
    slow: bool,
    #[command(flatten)]
    programs: Programs,
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A file that runs; `empty`: each server starts with an empty state.
    File { name: &'a str, empty: bool },
    /// A test of a file that does not run.
    Skip { file: &'a str, test: &'a str, reason: &'a str },
    /// Files that do not run.
    Without { files: &'a str, reason: &'a str },
}

/// Reads the table.
fn table(text: &str) -> Result<Vec<Line<'_>>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, '|').map(str::trim);
            let head = parts.next().unwrap_or_default();
            match (head.split_once(' '), parts.next(), parts.next()) {
                (None, None, None) => Ok(Line::File { name: head, empty: false }),
                (Some((name, "empty")), None, None) => Ok(Line::File { name, empty: true }),
                (Some(("skip", file)), Some(test), Some(reason)) => Ok(Line::Skip { file, test, reason }),
                (Some(("without", files)), Some(reason), None) => Ok(Line::Without { files, reason }),
                _ => bail!("suite.txt has a line that is none of its kinds: {line}"),
            }
        })
        .collect()
}

/// What a file of tests gave.
#[derive(Default)]
struct Counts {
    passed: u64,
    skipped: u64,
    failures: Vec<String>,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let table = table(TABLE)?;
    let mut files = Vec::new();
    for line in &table {
        if let Line::File { name, empty } = line {
            files.push((name.to_string(), *empty));
        }
    }
    if !args.files.is_empty() {
        let empty = |name: &String| files.iter().any(|(file, empty)| file == name && *empty);
        files = args.files.iter().map(|name| (name.clone(), empty(name))).collect();
    }
    let suite = Suite::prepare(&args)?;
    let begun = Instant::now();
    let (mut total, mut writers) = (Counts::default(), BTreeMap::new());
    for (name, empty) in &files {
        let begun = Instant::now();
        let skips: Vec<_> = table
            .iter()
            .filter_map(|line| match line {
                Line::Skip { file, test, reason } if file == name => Some((*test, *reason)),
                _ => None,
            })
            .collect();
        let tests: Vec<_> = skips.iter().map(|(test, _)| *test).collect();
        let counts = suite.file(name, *empty, &tests).with_context(|| name.clone())?;
        println!(
            "{name}: {} passed, {} skipped, {} failed, {:.0} s",
            counts.passed,
            counts.skipped,
            counts.failures.len(),
            begun.elapsed().as_secs_f64()
        );
        skips.iter().for_each(|(test, reason)| println!("  skipped: {test}: {reason}"));
        counts.failures.iter().take(SHOWN_MAX).for_each(|failure| println!("  {failure}"));
        total.passed += counts.passed;
        total.skipped += counts.skipped;
        total.failures.extend(counts.failures.into_iter().map(|failure| format!("{name}: {failure}")));
        if args.fence {
            for (writer, callers) in suite.writers()? {
                writers.entry(writer).or_insert(format!("{name}: {callers}"));
            }
        }
    }
    if args.files.is_empty() {
        for line in &table {
            if let Line::Without { files, reason } = line {
                println!("not run: {files}: {reason}");
            }
        }
    }
    for (writer, callers) in &writers {
        println!("  {writer}\n    {callers}");
    }
    println!(
        "redis-suite: {:?} on {}{}: {} files, {} passed, {} skipped, {} failed, {:.0} s",
        args.kind,
        args.medium,
        if args.fence { format!(", {} writers found by the fence", writers.len()) } else { String::new() },
        files.len(),
        total.passed,
        total.skipped,
        total.failures.len(),
        begun.elapsed().as_secs_f64()
    );
    ensure!(
        total.failures.is_empty(),
        "{} failed; the output is in {}",
        total.failures.len(),
        suite.out.display()
    );
    ensure!(writers.is_empty(), "{} writers to the state outside of commands", writers.len());
    Ok(())
}

/// The tree in which tests run.
struct Suite<'a> {
    args: &'a Args,
    tree: PathBuf,
    out: PathBuf,
    server: PathBuf,
    medium: String,
}

impl<'a> Suite<'a> {
    fn prepare(args: &'a Args) -> Result<Self> {
        let from = args.programs.valkey()?;
        let server = match args.kind {
            ServerKind::Durable => args.programs.durable()?,
            _ => from.join("src/valkey-server"),
        };
        let work = tree::target().join("redis-suite");
        if work.exists() {
            std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
        }
        std::fs::create_dir_all(work.join("tree/src"))?;
        std::fs::create_dir_all(work.join("out"))?;
        let work = work.canonicalize()?;
        let tree = work.join("tree");
        link_all(&from, &tree, &["src", "tests"])?;
        link_all(&from.join("src"), &tree.join("src"), &["valkey-server"])?;
        // Tests write to files beside them.
        tree::run(Command::new("cp").arg("-r").arg(from.join("tests")).arg(&tree))?;
        let wrapper = tree.join("src/valkey-server");
        std::fs::write(&wrapper, WRAPPER)?;
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { args, tree, out: work.join("out"), server, medium: server::medium(&args.medium)? })
    }

    fn file(&self, name: &str, empty: bool, skips: &[&str]) -> Result<Counts> {
        ensure!(
            self.tree.join("tests").join(format!("{name}.tcl")).is_file(),
            "Valkey has no such file of tests"
        );
        let plain = name.replace('/', "-");
        let skip_file = self.out.join(format!("{plain}.skip"));
        std::fs::write(&skip_file, skips.join("\n") + "\n")?;
        // Two suites at once do not meet: the tests take the ports after it.
        let port = 20_000 + server::free_port(0)? % 10_000;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", FILE_SECONDS_MAX, "./runtest", "--single", name, "--clients", "1"]);
        command.args(["--no-latency", "--skipfile"]).arg(&skip_file);
        command.args(["--baseport", &port.to_string(), "--portcount", "400"]);
        if !self.args.slow {
            command.args(["--tags", "-slow"]);
        }
        if self.args.fence {
            command.arg("--dont-clean").env("MANGROVE_REDIS_FENCE", "1");
        }
        if empty {
            command.env("MANGROVE_SUITE_EMPTY", "1");
        }
        if self.args.kind == ServerKind::Durable {
            command.env("MANGROVE_SUITE_DURABLE", "1");
        }
        command.env("MANGROVE_SUITE_SERVER", &self.server).env("MANGROVE_REDIS_MEDIUM", &self.medium);
        let log = self.out.join(format!("{plain}.log"));
        let output = std::fs::File::create(&log)?;
        let status = command
            .current_dir(&self.tree)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
            .context("there is no `timeout` of GNU coreutils")?;
        let said = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let mut counts = count(&said);
        if !status.success() && counts.failures.is_empty() {
            counts.failures.push(format!("the tests ended with {status}: see {}", log.display()));
        }
        Ok(counts)
    }

    /// The write fence's reports of the servers that the last file started, each with its callers; forgets them.
    fn writers(&self) -> Result<BTreeMap<String, String>> {
        let mut writers = BTreeMap::new();
        let dir = self.tree.join("tests/tmp");
        for server in std::fs::read_dir(&dir).context("the tests left no directory")?.flatten() {
            for log in ["stderr", "stdout"] {
                let text = std::fs::read(server.path().join(log)).unwrap_or_default();
                let text = String::from_utf8_lossy(&text).into_owned();
                let mut lines = text.lines().peekable();
                while let Some(line) = lines.next() {
                    if line.contains(FENCE) {
                        let callers = lines.peek().copied().unwrap_or_default();
                        writers.entry(line.to_owned()).or_insert_with(|| callers.to_owned());
                    }
                }
            }
        }
        std::fs::remove_dir_all(&dir)?;
        std::fs::create_dir_all(&dir)?;
        Ok(writers)
    }
}

/// Links everything in `from` into `to`, but for some names.
fn link_all(from: &Path, to: &Path, but: &[&str]) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if !but.iter().any(|name| entry.file_name() == *name) {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Counts the results in what the tests print, without the terminal's colours.
fn count(said: &str) -> Counts {
    let mut counts = Counts::default();
    let mut plain = String::new();
    for part in said.split('\x1b') {
        let text = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let _ = write!(plain, "{}", text.map_or(part, |(_, text)| text));
    }
    let mut lines = plain.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("[ok]:") {
            counts.passed += 1;
        } else if line.starts_with("[skip]:") || line.starts_with("[ignore]:") {
            counts.skipped += 1;
        } else if line.starts_with("[err]:")
            || line.starts_with("[exception]:")
            || line.starts_with("[TIMEOUT]")
        {
            let why = lines.peek().copied().unwrap_or_default();
            counts.failures.push(format!("{line} {why}").chars().take(400).collect());
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() -> Result<()> {
        let table = table(TABLE)?;
        let names: Vec<_> = table
            .iter()
            .filter_map(|l| if let Line::File { name, .. } = l { Some(*name) } else { None })
            .collect();
        assert!(names.len() > 30);
        assert_eq!(
            names.iter().collect::<std::collections::BTreeSet<_>>().len(),
            names.len(),
            "each file once"
        );
        for line in &table {
            match line {
                Line::Skip { file, .. } => assert!(names.contains(file), "{line:?}"),
                Line::Without { reason, .. } => assert!(!reason.is_empty()),
                Line::File { .. } => {}
            }
        }
        assert!(super::table("unit/a b c").is_err());
        Ok(())
    }

    #[test]
    fn results_are_counted_without_colours() {
        let said = "\x1b[0;32m[ok]\x1b[0m: SET and GET (1 ms)\n[skip]: slow one: Tag: slow denied\n\
            \x1b[0;31m[err]\x1b[0m: DEL in tests/unit/x.tcl\nExpected 1\n[testing]: x\n";
        let counts = count(said);
        assert_eq!((counts.passed, counts.skipped), (1, 1));
        assert_eq!(counts.failures, ["[err]: DEL in tests/unit/x.tcl Expected 1"]);
    }
}
