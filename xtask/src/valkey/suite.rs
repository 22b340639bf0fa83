//! `cargo xtask redis-suite`: Valkey's own tests, in Tcl, with the durable server in the place of `src/valkey-server`.
//!
//! `suite.txt` names the files that run, and every test and file that does not, with the reason. The tests run in a
//! tree of links beside a copy of `tests`, where `src/valkey-server` is a script that gives each server a state in the
//! directory of its configuration.

use super::server::{self, Programs, ServerKind};
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
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

/// A file of tests, and how it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SuiteFile<'a> {
    name: &'a str,
    /// Each server starts with an empty state.
    empty: bool,
    /// Its tests have no names, so that they print no result.
    untold: bool,
}

impl<'a> SuiteFile<'a> {
    /// The words behind the name tell how it runs; none if one of them is unknown.
    fn new(name: &'a str, words: &str) -> Option<Self> {
        let plain = Self { name, empty: false, untold: false };
        words.split_whitespace().try_fold(plain, |file, word| match word {
            "empty" => Some(Self { empty: true, ..file }),
            "untold" => Some(Self { untold: true, ..file }),
            _ => None,
        })
    }
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A file that runs.
    File(SuiteFile<'a>),
    /// A test of a file that does not run.
    Skip { file: &'a str, test: &'a str, reason: &'a str },
    /// Files that do not run.
    Without { files: &'a str, reason: &'a str },
}

impl<'a> Line<'a> {
    fn file(&self) -> Option<SuiteFile<'a>> {
        if let Self::File(file) = self { Some(*file) } else { None }
    }
}

/// Reads the table.
fn table(text: &str) -> Result<Vec<Line<'_>>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, '|').map(str::trim);
            let head = parts.next().unwrap_or_default();
            let (first, rest) = head.split_once(' ').unwrap_or((head, ""));
            match (first, SuiteFile::new(first, rest), parts.next(), parts.next()) {
                (_, Some(file), None, None) => Ok(Line::File(file)),
                ("skip", _, Some(test), Some(reason)) => Ok(Line::Skip { file: rest, test, reason }),
                ("without", _, Some(reason), None) => Ok(Line::Without { files: rest, reason }),
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
    /// Of these, groups of tests and tests that are slow, and that this chore does not ask for.
    slow: u64,
    /// The names of those that were skipped by their names.
    by_name: BTreeSet<String>,
    failures: Vec<String>,
}

impl Counts {
    /// Whether no test passed, nor was left out on purpose: slow, or one of these names.
    fn is_silent(&self, skips: &[&str]) -> bool {
        self.passed == 0 && self.slow == 0 && !skips.iter().any(|test| self.by_name.contains(*test))
    }
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let table = table(TABLE)?;
    let mut files: Vec<_> = table.iter().filter_map(Line::file).collect();
    if !args.files.is_empty() {
        let known = |name: &String| files.iter().find(|file| file.name == name).copied();
        let unknown = |name| SuiteFile { name, empty: false, untold: false };
        files = args.files.iter().map(|name| known(name).unwrap_or_else(|| unknown(name))).collect();
    }
    let suite = Suite::prepare(&args)?;
    let begun = Instant::now();
    let (mut total, mut writers) = (Counts::default(), BTreeMap::new());
    for file in &files {
        let name = file.name;
        let begun = Instant::now();
        let skips: Vec<_> = table
            .iter()
            .filter_map(|line| match line {
                Line::Skip { file, test, reason } if *file == name => Some((*test, *reason)),
                _ => None,
            })
            .collect();
        let tests: Vec<_> = skips.iter().map(|(test, _)| *test).collect();
        let counts = suite.file(*file, &tests).with_context(|| name.to_owned())?;
        println!(
            "{name}: {} passed, {} skipped, {} failed, {:.0} s",
            counts.passed,
            counts.skipped,
            counts.failures.len(),
            begun.elapsed().as_secs_f64()
        );
        for (test, reason) in skips {
            let met = if counts.by_name.contains(test) { "skipped" } else { "NOT MET, nothing to skip" };
            println!("  {met}: {test}: {reason}");
        }
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
    _folder: tree::RunFolder,
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
        let folder = tree::RunFolder::of(None, "redis-suite")?;
        let work = folder.path.clone();
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
        let (out, medium) = (work.join("out"), server::medium(&args.medium)?);
        Ok(Self { args, _folder: folder, tree, out, server, medium })
    }

    fn file(&self, file: SuiteFile<'_>, skips: &[&str]) -> Result<Counts> {
        let name = file.name;
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
        if file.empty {
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
        if counts.failures.is_empty() && !file.untold && counts.is_silent(skips) {
            counts.failures.push(format!("no test passed, and none was left out: see {}", log.display()));
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
    let mut parts = said.split('\x1b');
    // No escape is before the first part.
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let text = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let _ = write!(plain, "{}", text.map_or(part, |(_, text)| text));
    }
    let mut lines = plain.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("[ok]:") {
            counts.passed += 1;
        } else if let Some(name) = line.strip_prefix("[skip]:") {
            counts.skipped += 1;
            counts.by_name.insert(name.trim().to_owned());
        } else if line.starts_with("[ignore]:") {
            counts.skipped += 1;
            counts.slow += u64::from(line.ends_with("Tag: slow denied"));
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
        let names: Vec<_> = table.iter().filter_map(Line::file).map(|file| file.name).collect();
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
                Line::File(_) => {}
            }
        }
        assert!(super::table("unit/a b c").is_err());
        let file = SuiteFile { name: "unit/a", empty: true, untold: true };
        assert_eq!(super::table("unit/a empty untold")?, [Line::File(file)]);
        Ok(())
    }

    #[test]
    fn results_are_counted_without_colours() {
        let said = "\x1b[0;32m[ok]\x1b[0m: SET and GET (1 ms)\n[skip]: one by name\n\
            [ignore]: slow one: Tag: slow denied\n[ignore]: large one: large memory flag not provided\n\
            \x1b[0;31m[err]\x1b[0m: DEL in tests/unit/x.tcl\nExpected 1\n[testing]: x\n";
        let counts = count(said);
        assert_eq!((counts.passed, counts.skipped, counts.slow), (1, 3, 1));
        assert_eq!(counts.by_name, BTreeSet::from(["one by name".to_owned()]));
        assert_eq!(counts.failures, ["[err]: DEL in tests/unit/x.tcl Expected 1"]);
    }

    #[test]
    fn a_file_without_a_result_is_silent_unless_that_is_on_purpose() {
        let is_silent = |said| count(said).is_silent(&["one by name"]);
        assert!(is_silent("Testing unit/x\nAll tests passed without errors!\n"));
        assert!(is_silent("[skip]: another\n[ignore]: large one: large memory flag not provided\n"));
        assert!(!is_silent("[skip]: one by name\n"));
        assert!(!is_silent("[ignore]: Tag: slow denied\n"));
        assert!(!is_silent("[ok]: SET and GET (1 ms)\n"));
    }
}
