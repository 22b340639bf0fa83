//! The `mangrove` command.
//!
//! Exit codes: 0 ok; 1 not found, or a check failed; 2 usage; 3 pool or I/O error; 130 interrupted.

#![forbid(unsafe_code)]
// They panic where nobody can be told; `note` and `output` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod demo;
mod doctor;
mod exit;
#[path = "disk_floor.rs"]
mod floor;
mod interrupt;
mod map;
#[path = "stderr.rs"]
mod note;
#[path = "open_args.rs"]
mod opening;
mod output;
mod pool;
mod progress;
mod size;
mod stress;
mod text;

use clap::{Parser, Subcommand};
use exit::Exit;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Examples:
  mangrove demo                                 load a dictionary, kill the loader, lose nothing
  mangrove map load words.pool words.txt        one key a line
  mangrove map get words.pool mangrove
  mangrove map scan words.pool --prefix mang
  mangrove doctor .                             what this machine can promise

Exit codes: 0 ok; 1 not found, or a check failed; 2 usage; 3 pool or I/O error; 130 interrupted.";

#[derive(Parser)]
#[command(name = "mangrove", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(about = "Durable in-memory data at close to memory speed")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Work with a durable ordered map
    #[command(subcommand)]
    Map(map::Command),
    /// Look at a pool without opening what is in it
    #[command(subcommand)]
    Pool(pool::Command),
    /// Say what this machine can promise, and what Mangrove would choose and why
    Doctor(doctor::Args),
    /// Load a dictionary, kill the loader at a random point, and show that nothing is lost
    Demo(demo::Args),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Write and check for the kill and power-cut tests
    #[command(subcommand, hide = true)]
    Stress(stress::Command),
}

#[derive(Subcommand)]
enum Bench {
    /// The durable map against the structures of the literature, or against the floor of the disk
    Map(mangrove_bench::MapArgs),
    /// What durability costs an in-memory program: calls, throughput, the log, SQLite, recovery
    Durable(mangrove_bench::DurableArgs),
    /// LevelDB's API over Mangrove against LevelDB and RocksDB, with LevelDB's own workloads
    Leveldb(mangrove_bench::LeveldbArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    exit::code(interrupt::outlive_size_limit().and_then(|()| run(command)))
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Map(command) => map::run(command),
        Command::Pool(command) => pool::run(command),
        Command::Doctor(args) => doctor::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(Bench::Map(args)) => bench_map(args).map(|()| Exit::Ok),
        Command::Bench(Bench::Durable(args)) => mangrove_bench::run_durable(args).map(|()| Exit::Ok),
        Command::Bench(Bench::Leveldb(args)) => mangrove_bench::run_leveldb(args).map(|()| Exit::Ok),
        Command::Stress(command) => stress::run(command),
    }
}

#[cfg(feature = "peers")]
fn bench_map(args: mangrove_bench::MapArgs) -> anyhow::Result<()> {
    mangrove_bench::run_with(args, &mangrove_peers::all())
}

#[cfg(not(feature = "peers"))]
fn bench_map(args: mangrove_bench::MapArgs) -> anyhow::Result<()> {
    mangrove_bench::run(args)
}
