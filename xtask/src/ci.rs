//! `cargo xtask ci`: what `make test` runs: three lanes of steps, side by side. Every step runs even if an earlier one
//! failed; the last line counts. In `make test` all of them share one compilation, that of the tests; by hand the
//! campaigns run release builds.

mod lanes;
mod step;

use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;
use std::time::Instant;
use step::Step;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the steps whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let steps: [Vec<Step>; 3] = [checks()?, simulations()?, processes()?]
        .map(|steps| steps.into_iter().filter(|step| step.name.starts_with(&args.only)).collect());
    ensure!(steps.iter().any(|steps| !steps.is_empty()), "no step's name begins with {:?}", args.only);
    let total = lanes::run(steps)?;
    if !total.failures.is_empty() {
        println!("failed: {}", total.failures.join(", "));
    }
    println!("{:.0} s in all", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 {
        bail!("{} failed", total.failed);
    }
    Ok(())
}

/// What reads the sources, and the tests. The examples are compiled by the lints only.
fn checks() -> Result<Vec<Step>> {
    Ok(vec![
        Step::command("format", cargo(&["fmt", "--all", "--check"])),
        Step::command("tidy", xtask(&["tidy"])?),
        // `cargo test --example` would build its tests, and not the program that a test runs.
        Step::command("example", cargo(&["build", "--quiet", "--profile", "test", "--example", "phonebook"])),
        Step::test_programs("tests", tests(), |package| package != REDIS),
    ])
}

/// A short slice of each campaign that simulates what becomes of memory and disks; and what reads the sources.
fn simulations() -> Result<Vec<Step>> {
    Ok(vec![
        Step::command("crash", xtask(&["crash", "--engine", "map", "--images", "5000"])?),
        // A twelfth of the call sites, and a third of those of the other engines: all of them take minutes, by hand.
        Step::command(
            "crash, planted",
            xtask(&["crash", "--engine", "map", "--planted", "--own", "--every", "12"])?,
        ),
        Step::command("crash, shadow", xtask(&["crash", "--engine", "shadow", "--images", "5000"])?),
        Step::command(
            "crash, shadow, planted",
            xtask(&["crash", "--engine", "shadow", "--planted", "--every", "3"])?,
        ),
        Step::command("crash, durable", xtask(&["crash", "--engine", "durable", "--images", "1000"])?),
        Step::command(
            "crash, durable, planted",
            xtask(&["crash", "--engine", "durable", "--planted", "--own", "--every", "3"])?,
        ),
        Step::command("crash, txn", xtask(&["crash", "--engine", "txn", "--images", "4000"])?),
        Step::command(
            "crash, txn, planted",
            xtask(&["crash", "--engine", "txn", "--planted", "--own", "--every", "3"])?,
        ),
        Step::command("fuzz", xtask(&["fuzz", "--runs", "400"])?),
        Step::command("fuzz, planted", xtask(&["fuzz", "--planted", "--sparse"])?),
        Step::command("powercut", xtask(&["powercut", "--rounds", "1", "--medium", "ext4"])?),
        // The map's and Redis's power cuts meet ext4.
        Step::command(
            "powercut, txn",
            xtask(&["powercut", "--app", "txn", "--rounds", "1", "--medium", "dax"])?,
        ),
        // The smallest of five models: `cargo xtask tla` runs them all, which takes minutes.
        Step::command("tla, SPHT-eADR", xtask(&["tla", "--model", "SphtEadr"])?),
        // The lints know which names of the standard library the oldest Rust lacks; `cargo xtask oldest-rust` compiles.
        Step::command("docs", docs()),
        // They share the debug builds: these must not wait for each other's.
        Step::tests("tests, documentation", cargo(&["test", "--no-fail-fast", "--doc"])),
        Step::command("lints", cargo(&["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"])),
        Step::command("packages, Debian", as_tested(xtask(&["debian", "--unpacked"])?)),
    ])
}

/// A short slice of each campaign that kills processes; and what is built for others.
fn processes() -> Result<Vec<Step>> {
    Ok(vec![
        Step::command("kill9", xtask(&["kill9", "--rounds", "8"])?),
        Step::command("kill9, planted", xtask(&["kill9", "--rounds", "5", "--planted"])?),
        Step::command(
            "kill9, sqlite, planted",
            xtask(&["kill9", "--app", "sqlite", "--rounds", "5", "--planted"])?,
        ),
        Step::command(
            "kill9, rpc, planted",
            xtask(&["kill9", "--app", "rpc", "--rounds", "5", "--planted"])?,
        ),
        Step::command("kill9, sqlite", xtask(&["kill9", "--app", "sqlite", "--rounds", "10"])?),
        Step::command("kill9, lua", xtask(&["kill9", "--app", "lua", "--rounds", "10"])?),
        Step::command(
            "kill9, lua, planted",
            xtask(&["kill9", "--app", "lua", "--rounds", "5", "--planted"])?,
        ),
        Step::command("kill9, rpc", xtask(&["kill9", "--app", "rpc", "--rounds", "10"])?),
        Step::command("kill9, txn", xtask(&["kill9", "--app", "txn", "--rounds", "5"])?),
        Step::command(
            "kill9, txn, planted",
            xtask(&["kill9", "--app", "txn", "--rounds", "5", "--planted"])?,
        ),
        Step::command(
            "kill9, txn, emulated",
            xtask(&["kill9", "--app", "txn", "--medium", "emulated", "--rounds", "5"])?,
        ),
        Step::command("kill9, collections", xtask(&["kill9", "--app", "collections", "--rounds", "5"])?),
        Step::command("redis, build", redis_build()),
        Step::test_programs("tests", tests(), |package| package == REDIS),
        Step::command("kill9, redis", xtask(&["kill9", "--app", "redis", "--rounds", "10"])?),
        Step::command(
            "kill9, redis, planted",
            xtask(&["kill9", "--app", "redis", "--rounds", "40", "--planted", "--plant", "gate"])?,
        ),
        Step::command("redis-memory", xtask(&["redis-memory"])?),
        Step::command("redis-suite", xtask(&[&["redis-suite"][..], &SUITE_FILES].concat())?),
        Step::command(
            "powercut, redis",
            xtask(&["powercut", "--app", "redis", "--rounds", "1", "--medium", "ext4"])?,
        ),
        Step::command("python", python()),
    ])
}

/// The package whose tests need the server that is built before them.
const REDIS: &str = "redis";

/// Files of Valkey's own tests that are short and meet many types.
const SUITE_FILES: [&str; 5] =
    ["unit/type/string", "unit/type/hash", "unit/type/zset", "unit/multi", "unit/functions"];

/// Compiles and runs the tests.
fn tests() -> Command {
    cargo(&["test", "--lib", "--bins", "--tests"])
}

/// Builds the documentation of all that others compile against, in which no link is broken.
fn docs() -> Command {
    let mut command = cargo(&["doc", "--quiet", "--no-deps", "--workspace"]);
    for package in PROGRAMS {
        command.args(["--exclude", package]);
    }
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Packages that are no dependency of a user's program: cargo would compile their own dependencies only for this step.
const PROGRAMS: [&str; 9] = [
    "mangrove-bench",
    "mangrove-bench-cli",
    "mangrove-db-cli",
    "notes",
    "mangrove-peers",
    "mangrove-python",
    "mangrove-stress",
    "mangrove-testkit",
    "xtask",
];

/// Fetches and builds the Redis-compatible server, of the present library and glue.
fn redis_build() -> Command {
    let mut command = Command::new("crates/redis/scripts/ready");
    command.args(["data/valkey", "--newest"]).current_dir(tree::root());
    as_tested(command)
}

/// Builds the Python wheel, installs it in an environment of its own, and runs its tests. Not optimised as what is
/// published is, which takes a quarter of the time.
fn python() -> Command {
    let mut command = Command::new("python/run");
    command.arg("test").current_dir(tree::root());
    command.env("CARGO_PROFILE_WHEEL_LTO", "off").env("CARGO_PROFILE_WHEEL_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_WHEEL_OPT_LEVEL", "0");
    command
}

/// Lets what runs `make build`, or builds as that does, take what the tests are built from.
fn as_tested(mut command: Command) -> Command {
    command.env("PROFILE", "test").env("SELECTION", tree::AS_TESTED.join(" "));
    command
}

/// Cargo, in the root of the checkout.
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
