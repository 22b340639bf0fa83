//! `cargo xtask ci`: what `make test` runs. Every step runs even if an earlier one failed; the last
//! line counts.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    let mut failures = Vec::new();
    for step in steps()? {
        let (Step::One(name, _) | Step::Tests(name, _)) = &step;
        let name = *name;
        if !name.starts_with(&args.only) {
            continue;
        }
        println!("== {name}");
        let begin = Instant::now();
        let (good, bad) = match step {
            Step::One(_, mut command) => match tree::run(&mut command) {
                Ok(()) => (1, 0),
                Err(error) => {
                    println!("{error:#}");
                    (0, 1)
                }
            },
            Step::Tests(_, mut command) => tests(&mut command)?,
        };
        if bad > 0 {
            failures.push(name);
        }
        println!("== {name}: {good} passed, {bad} failed, {:.0} s", begin.elapsed().as_secs_f64());
        passed += good;
        failed += bad;
    }
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

fn steps() -> Result<Vec<Step>> {
    let mut docs = cargo(&["doc", "--quiet", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    Ok(vec![
        Step::One("format", cargo(&["fmt", "--all", "--check"])),
        Step::One("lints", cargo(&["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"])),
        Step::One("tidy", xtask(&["tidy"])?),
        Step::Tests("tests", cargo(&["test", "--no-fail-fast"])),
        Step::One("docs", docs),
        Step::One("crash", xtask(&["crash", "--engine", "map", "--images", "5000"])?),
        Step::One("crash, planted", xtask(&["crash", "--engine", "map", "--planted"])?),
        Step::One("crash, shadow", xtask(&["crash", "--engine", "shadow", "--images", "5000"])?),
        Step::One("crash, shadow, planted", xtask(&["crash", "--engine", "shadow", "--planted"])?),
        Step::One("crash, durable", xtask(&["crash", "--engine", "durable", "--images", "1000"])?),
        Step::One("crash, durable, planted", xtask(&["crash", "--engine", "durable", "--planted", "--own"])?),
        Step::One("crash, txn", xtask(&["crash", "--engine", "txn", "--images", "4000"])?),
        Step::One("crash, txn, planted", xtask(&["crash", "--engine", "txn", "--planted", "--own"])?),
        Step::One("fuzz", xtask(&["fuzz", "--runs", "800"])?),
        Step::One("fuzz, planted", xtask(&["fuzz", "--planted"])?),
        Step::One("kill9", xtask(&["kill9", "--rounds", "12"])?),
        Step::One("kill9, planted", xtask(&["kill9", "--rounds", "5", "--planted"])?),
        Step::One(
            "kill9, sqlite, planted",
            xtask(&["kill9", "--app", "sqlite", "--rounds", "5", "--planted"])?,
        ),
        Step::One("kill9, rpc, planted", xtask(&["kill9", "--app", "rpc", "--rounds", "5", "--planted"])?),
        Step::One("kill9, sqlite", xtask(&["kill9", "--app", "sqlite", "--rounds", "10"])?),
        Step::One("kill9, rpc", xtask(&["kill9", "--app", "rpc", "--rounds", "10"])?),
        Step::One("kill9, txn", xtask(&["kill9", "--app", "txn", "--rounds", "5"])?),
        Step::One("kill9, txn, planted", xtask(&["kill9", "--app", "txn", "--rounds", "5", "--planted"])?),
        Step::One(
            "kill9, txn, emulated",
            xtask(&["kill9", "--app", "txn", "--medium", "emulated", "--rounds", "5"])?,
        ),
        Step::One("powercut", xtask(&["powercut", "--rounds", "1"])?),
        Step::One("powercut, sqlite", xtask(&["powercut", "--app", "sqlite", "--rounds", "1"])?),
        Step::One("powercut, txn", xtask(&["powercut", "--app", "txn", "--rounds", "1"])?),
        // Two of five models: `cargo xtask tla` runs them all, which takes minutes.
        Step::One("tla, file medium", xtask(&["tla", "--model", "FileMedium"])?),
        Step::One("tla, SPHT-eADR", xtask(&["tla", "--model", "SphtEadr"])?),
    ])
}

fn cargo(args: &[&str]) -> Command {
    let mut command = tree::cargo();
    command.args(args);
    command
}

/// This program again, so that a chore that dies takes only its own step with it.
fn xtask(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.args(args).current_dir(tree::root());
    Ok(command)
}

/// Runs `cargo test`, shows its output, and counts. A command that fails without a failed test (it
/// did not compile) counts as one failure.
fn tests(command: &mut Command) -> Result<(u64, u64)> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(child.stdout.take().context("no pipe")?).lines() {
        let line = line?;
        if let Some(rest) = line.strip_prefix("test result: ") {
            let count = |word: &str| -> u64 {
                let before = rest.split(word).next().unwrap_or_default();
                before.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
            };
            passed += count(" passed");
            failed += count(" failed");
        }
        // One line a passed test is noise; the rest is news.
        if !line.ends_with(" ... ok") && !line.is_empty() {
            println!("{line}");
        }
    }
    if !child.wait()?.success() && failed == 0 {
        failed = 1;
    }
    Ok((passed, failed))
}
