//! One step: a command, how it counts, and what it took.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A command that counts.
pub(super) struct Step {
    pub(super) name: String,
    command: Command,
    counts: Counts,
}

/// How a step counts.
#[derive(Clone, Copy)]
enum Counts {
    /// It passes or fails as one.
    Once,
    /// Each test that it runs counts.
    EachTest,
    /// It compiles test programs. Each of those that belong to such a package, by its directory, is a step then.
    ItsPrograms(fn(&str) -> bool),
}

/// What one step has counted, the processor time that it took, and the steps that follow from it.
pub(super) struct Ran {
    pub(super) good: u64,
    pub(super) bad: u64,
    pub(super) cpu: Duration,
    pub(super) found: VecDeque<Step>,
}

impl Step {
    /// A command that passes or fails as one.
    pub(super) fn command(name: &str, command: Command) -> Self {
        Self { name: name.to_owned(), command, counts: Counts::Once }
    }

    /// A command that prints the results of tests as `cargo test` does.
    pub(super) fn tests(name: &str, command: Command) -> Self {
        Self { name: name.to_owned(), command, counts: Counts::EachTest }
    }

    /// What `cargo test` does for some packages, with each test program as a step of its own: cargo runs one after the
    /// other, and many wait for the disk. (It compiles the tests of all packages: those of one alone have fewer
    /// features.)
    pub(super) fn test_programs(name: &str, mut cargo_test: Command, is_of: fn(&str) -> bool) -> Self {
        cargo_test.args(["--no-run", "--message-format", "json-render-diagnostics"]);
        Self { name: name.to_owned(), command: cargo_test, counts: Counts::ItsPrograms(is_of) }
    }

    /// Runs the command, and shows its output when it has ended: another lane writes, too.
    pub(super) fn run(self) -> Result<Ran> {
        let Self { name, mut command, counts } = self;
        let shown = format!("{command:?}");
        let environment: Vec<_> =
            command.get_envs().map(|(key, value)| (key.to_owned(), value.map(OsStr::to_owned))).collect();
        let (mut reader, writer) = std::io::pipe().context("no pipe")?;
        command.stdout(writer.try_clone().context("no pipe")?);
        if !matches!(counts, Counts::ItsPrograms(_)) {
            command.stderr(writer.try_clone().context("no pipe")?);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        // The pipe ends when the last process that writes to it does, and this one writes nothing.
        drop((command, writer));
        let mut output = Vec::new();
        reader.read_to_end(&mut output).context("cannot read a step's output")?;
        let (status, cpu) = wait(&mut child)?;
        let output = String::from_utf8_lossy(&output);
        let (mut good, mut bad, mut found) = (0, 0, VecDeque::new());
        let mut out = std::io::stdout().lock();
        writeln!(out, "== {name}")?;
        match counts {
            Counts::Once => {
                out.write_all(output.as_bytes())?;
                good = u64::from(status.success());
            }
            Counts::EachTest => {
                // A test that ends the whole program takes the others with it, whatever the exit status.
                bad = u64::from(!output.lines().any(|line| line.starts_with(RESULT)));
                for line in output.lines() {
                    good += count(line, " passed");
                    bad += count(line, " failed");
                    // One line a passed test is noise; the rest is news.
                    if !line.ends_with(" ... ok") && !line.is_empty() {
                        writeln!(out, "{line}")?;
                    }
                }
            }
            // The last one compiled first: it stands on most others, and lasts long.
            Counts::ItsPrograms(is_of) => {
                let programs = output.lines().filter_map(|line| program(&name, line, &environment, is_of));
                found = programs.rev().collect();
                // Cargo's messages may change, and none understood must not pass for none failed.
                bad = u64::from(found.is_empty());
            }
        }
        // Also a program that fails without a failed test: it did not compile, or it died.
        if !status.success() {
            bad = bad.max(1);
            writeln!(out, "{shown} ended with {status}")?;
        }
        Ok(Ran { good, bad, cpu, found })
    }
}

/// How a line begins that sums up a test program; those without libtest print it, too.
const RESULT: &str = "test result: ";

/// The tests before `word` in a line that sums up a test program.
fn count(line: &str, word: &str) -> u64 {
    let Some(result) = line.strip_prefix(RESULT) else { return 0 };
    let before = result.split(word).next().unwrap_or_default();
    before.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The step that runs the test program that a line of cargo's messages tells of, as cargo would run it.
fn program(
    name: &str,
    line: &str,
    environment: &[(OsString, Option<OsString>)],
    is_of: fn(&str) -> bool,
) -> Option<Step> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = Path::new(message["executable"].as_str()?);
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let directory = package.file_name()?.to_str().filter(|directory| is_of(directory))?;
    let name = format!("{name}, {directory} {}", message["target"]["name"].as_str()?);
    let mut command = Command::new(executable);
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package);
    for (key, value) in environment {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let mut libraries: Vec<_> = executable.ancestors().skip(1).take(2).map(Path::to_owned).collect();
    libraries.extend(std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).ok()?);
    Some(Step::tests(&name, command))
}

/// Waits for a step, and tells the processor time that it took with all the processes that it waited for.
fn wait(child: &mut Child) -> Result<(ExitStatus, Duration)> {
    let pid = i32::try_from(child.id()).context("the system numbers processes with 31 bits")?;
    let mut status = 0;
    // SAFETY: plain integers, for which zero is a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both point to variables of this function. The child was not waited for yet, so its number is its own.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) } == pid {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error).context("cannot wait for a step");
        }
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok((ExitStatus::from_raw(status), time(used.ru_utime) + time(used.ru_stime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests that passed and failed in a program that prints this and succeeds.
    fn counted(prints: &str) -> Result<(u64, u64)> {
        let mut program = Command::new("printf");
        program.arg("%s").arg(prints);
        let Ran { good, bad, .. } = Step::tests("a program", program).run()?;
        Ok((good, bad))
    }

    #[test]
    fn a_test_program_that_ends_early_has_failed() -> Result<()> {
        let begins = "running 2 tests\ntest one ... ok\n";
        assert_eq!(counted(begins)?, (0, 1));
        let ends = format!("{begins}test result: ok. 2 passed; 0 failed; 0 ignored\n");
        assert_eq!(counted(&ends)?, (2, 0));
        Ok(())
    }
}
