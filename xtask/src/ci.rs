//! `cargo xtask ci`: what `make test` runs: two lanes of steps, side by side. Every step runs even if an earlier one
//! failed; the last line counts.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the steps whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// A step and how it counts.
enum Step {
    /// A command that passes or fails as one.
    One(&'static str, Command),
    /// `cargo test`: each test counts.
    Tests(&'static str, Command),
}

/// Steps that run one after the other. Lanes run side by side: few steps keep two CPUs busy.
struct Lane {
    steps: Vec<Step>,
}

/// What one step has counted, and the processor time that it took.
struct Ran {
    good: u64,
    bad: u64,
    cpu: Duration,
}

/// What the steps have counted.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    /// The steps in which something failed.
    failures: Vec<&'static str>,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let counts = Mutex::new(Counts::default());
    let lanes = lanes()?;
    std::thread::scope(|scope| {
        let counts = &counts;
        let only = args.only.as_str();
        let lanes: Vec<_> =
            lanes.into_iter().map(|lane| scope.spawn(move || lane.run(only, counts))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    let Counts { passed, failed, failures } = counts.into_inner().expect("no lane panicked");
    if !failures.is_empty() {
        println!("failed: {}", failures.join(", "));
    }
    println!("{:.0} s in all", start.elapsed().as_secs_f64());
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(())
}

impl Lane {
    /// Runs the steps whose name begins with `only`.
    fn run(self, only: &str, counts: &Mutex<Counts>) -> Result<()> {
        for step in self.steps {
            let (Step::One(name, _) | Step::Tests(name, _)) = &step;
            let name = *name;
            if !name.starts_with(only) {
                continue;
            }
            let begin = Instant::now();
            let Ran { good, bad, cpu } = match step {
                Step::One(_, command) => one(name, command)?,
                Step::Tests(_, command) => tests(command)?,
            };
            let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu.as_secs_f64());
            println!("== {name}: {good} passed, {bad} failed, {wall:.0} s, {cpu:.0} s of processor time");
            let mut counts = counts.lock().expect("no lane panicked");
            counts.passed += good;
            counts.failed += bad;
            if bad > 0 {
                counts.failures.push(name);
            }
        }
        Ok(())
    }
}

fn lanes() -> Result<[Lane; 2]> {
    Ok([Lane { steps: checks()? }, Lane { steps: campaigns()? }])
}

/// What takes the debug builds. The examples are compiled by the lints only.
fn checks() -> Result<Vec<Step>> {
    Ok(vec![
        Step::One("format", cargo(&["fmt", "--all", "--check"])),
        Step::One("tidy", xtask(&["tidy"])?),
        // `cargo test --example` would build its tests, and not the program that a test runs.
        Step::One("example", cargo(&["build", "--quiet", "--profile", "test", "--example", "phonebook"])),
        Step::Tests("tests", cargo(&["test", "--no-fail-fast", "--lib", "--bins", "--tests"])),
    ])
}

/// A short slice of each campaign, on release builds, and what is built for others.
fn campaigns() -> Result<Vec<Step>> {
    Ok(vec![
        Step::One("crash", xtask(&["crash", "--engine", "map", "--images", "5000"])?),
        // An eighth of the call sites: all of them take two minutes, by hand.
        Step::One(
            "crash, planted",
            xtask(&["crash", "--engine", "map", "--planted", "--own", "--every", "8"])?,
        ),
        Step::One("crash, shadow", xtask(&["crash", "--engine", "shadow", "--images", "5000"])?),
        Step::One("crash, shadow, planted", xtask(&["crash", "--engine", "shadow", "--planted"])?),
        Step::One("crash, durable", xtask(&["crash", "--engine", "durable", "--images", "1000"])?),
        Step::One("crash, durable, planted", xtask(&["crash", "--engine", "durable", "--planted", "--own"])?),
        Step::One("crash, txn", xtask(&["crash", "--engine", "txn", "--images", "4000"])?),
        Step::One("crash, txn, planted", xtask(&["crash", "--engine", "txn", "--planted", "--own"])?),
        Step::One("instructions", xtask(&["instructions"])?),
        Step::One("fuzz", xtask(&["fuzz", "--runs", "400"])?),
        Step::One("fuzz, planted", xtask(&["fuzz", "--planted", "--sparse"])?),
        Step::One("kill9", xtask(&["kill9", "--rounds", "12"])?),
        Step::One("kill9, planted", xtask(&["kill9", "--rounds", "5", "--planted"])?),
        Step::One(
            "kill9, sqlite, planted",
            xtask(&["kill9", "--app", "sqlite", "--rounds", "5", "--planted"])?,
        ),
        Step::One("kill9, rpc, planted", xtask(&["kill9", "--app", "rpc", "--rounds", "5", "--planted"])?),
        Step::One("kill9, sqlite", xtask(&["kill9", "--app", "sqlite", "--rounds", "10"])?),
        Step::One("kill9, lua", xtask(&["kill9", "--app", "lua", "--rounds", "10"])?),
        Step::One("kill9, lua, planted", xtask(&["kill9", "--app", "lua", "--rounds", "5", "--planted"])?),
        Step::One("kill9, rpc", xtask(&["kill9", "--app", "rpc", "--rounds", "10"])?),
        Step::One("kill9, txn", xtask(&["kill9", "--app", "txn", "--rounds", "5"])?),
        Step::One("kill9, txn, planted", xtask(&["kill9", "--app", "txn", "--rounds", "5", "--planted"])?),
        Step::One(
            "kill9, txn, emulated",
            xtask(&["kill9", "--app", "txn", "--medium", "emulated", "--rounds", "5"])?,
        ),
        Step::One("kill9, collections", xtask(&["kill9", "--app", "collections", "--rounds", "5"])?),
        Step::One("redis, build", redis_build()),
        Step::One("redis, launcher", cargo(&["test", "--quiet", "--package", "mangrove-redis"])),
        Step::One("kill9, redis", xtask(&["kill9", "--app", "redis", "--rounds", "10"])?),
        Step::One(
            "kill9, redis, planted",
            xtask(&["kill9", "--app", "redis", "--rounds", "40", "--planted", "--plant", "gate"])?,
        ),
        Step::One("redis-memory", xtask(&["redis-memory"])?),
        Step::One("redis-suite", xtask(&[&["redis-suite"][..], &SUITE_FILES].concat())?),
        Step::One("powercut", xtask(&["powercut", "--rounds", "1"])?),
        Step::One("powercut, txn", xtask(&["powercut", "--app", "txn", "--rounds", "1"])?),
        Step::One(
            "powercut, redis",
            xtask(&["powercut", "--app", "redis", "--rounds", "1", "--medium", "ext4"])?,
        ),
        // Two of five models: `cargo xtask tla` runs them all, which takes minutes.
        Step::One("tla, file medium", xtask(&["tla", "--model", "FileMedium"])?),
        Step::One("tla, SPHT-eADR", xtask(&["tla", "--model", "SphtEadr"])?),
        Step::One("python", python()),
        Step::One("packages", xtask(&["packages"])?),
        // The lints know which names of the standard library the oldest Rust lacks; `cargo xtask oldest-rust` compiles.
        Step::One("docs", docs()),
        // They share the debug builds: these must not wait for each other's.
        Step::Tests("tests, documentation", cargo(&["test", "--no-fail-fast", "--doc"])),
        Step::One("lints", cargo(&["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"])),
        Step::One("packages, Debian", debian()?),
    ])
}

/// Files of Valkey's own tests that are short and meet many types.
const SUITE_FILES: [&str; 5] =
    ["unit/type/string", "unit/type/hash", "unit/type/zset", "unit/multi", "unit/functions"];

/// Builds the documentation, in which no link is broken.
fn docs() -> Command {
    let mut command = cargo(&["doc", "--quiet", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Fetches and builds the Redis-compatible server, of the present library and glue.
fn redis_build() -> Command {
    let mut command = Command::new("crates/redis/scripts/ready");
    command.args(["data/valkey", "--newest"]).current_dir(tree::root());
    command
}

/// Builds the Python wheel, installs it in an environment of its own, and runs its tests. Optimised less than what is
/// published, which takes half of the time.
fn python() -> Command {
    let mut command = Command::new("python/run");
    command.arg("test").current_dir(tree::root());
    command.env("CARGO_PROFILE_WHEEL_LTO", "off").env("CARGO_PROFILE_WHEEL_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_WHEEL_OPT_LEVEL", "1");
    command
}

/// Debian packages of what the tests have compiled.
fn debian() -> Result<Command> {
    let mut command = xtask(&["debian", "--unpacked"])?;
    for_once(&mut command);
    Ok(command)
}

/// Cargo, for a fresh clone.
fn cargo(args: &[&str]) -> Command {
    let mut command = tree::cargo();
    for_once(command.args(args));
    command
}

/// Lets cargo compile for one run: not incrementally, which makes the next build faster and this one slower; and
/// without the tables of lines, which are a seventh of the compiling. (A panic names its line without them.) And what
/// builds libraries for its tests, or for packages, builds them with the features that all tests together ask for.
fn for_once(command: &mut Command) {
    command.env("CARGO_INCREMENTAL", "0").env("MANGROVE_TEST_WHOLE", "1");
    command.env("SELECTION", "--lib --bin mangrove --tests");
    command.env("CARGO_PROFILE_TEST_DEBUG", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
}

/// This program again, so that a chore that dies takes only its own step with it.
fn xtask(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.args(args).current_dir(tree::root());
    Ok(command)
}

/// Runs a step's command, and shows its output when it has ended: another lane writes, too.
fn one(name: &str, mut command: Command) -> Result<Ran> {
    let (mut reader, writer) = std::io::pipe().context("no pipe")?;
    command.stdout(writer.try_clone().context("no pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    // The pipe ends when the last process that writes to it does, and this one writes nothing.
    let shown = format!("{command:?}");
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("cannot read a step's output")?;
    let (status, cpu) = wait(&mut child)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "== {name}")?;
    out.write_all(&output)?;
    if status.success() {
        return Ok(Ran { good: 1, bad: 0, cpu });
    }
    writeln!(out, "{shown} ended with {status}")?;
    Ok(Ran { good: 0, bad: 1, cpu })
}

/// Runs `cargo test`, shows its output test program by test program, and counts. A command that fails without a failed
/// test (it did not compile) counts as one failure.
fn tests(mut command: Command) -> Result<Ran> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let (mut good, mut bad) = (0, 0);
    let mut shown = Vec::new();
    for line in BufReader::new(child.stdout.take().context("no pipe")?).lines() {
        let line = line?;
        let result = line.strip_prefix("test result: ");
        if let Some(rest) = result {
            let count = |word: &str| -> u64 {
                let before = rest.split(word).next().unwrap_or_default();
                before.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
            };
            good += count(" passed");
            bad += count(" failed");
        }
        // One line a passed test is noise; the rest is news.
        if !line.ends_with(" ... ok") && !line.is_empty() {
            writeln!(shown, "{line}")?;
        }
        if result.is_some() {
            std::io::stdout().write_all(&std::mem::take(&mut shown))?;
        }
    }
    std::io::stdout().write_all(&shown)?;
    let (status, cpu) = wait(&mut child)?;
    if !status.success() && bad == 0 {
        bad = 1;
    }
    Ok(Ran { good, bad, cpu })
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
