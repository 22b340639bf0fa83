//! The `mangrove` command.
//!
//! Exit codes: 0 ok; 1 not found, or a check failed; 2 usage; 3 pool or I/O error; 130 interrupted.

#![forbid(unsafe_code)]
// `println!` and `eprintln!` panic where the stream cannot be written; `stderr` and `output` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod bench;
mod beside;
mod demo;
mod generated;
mod leveldb;
mod machine;
mod map;
mod open_args;
mod pool;
mod redis;
mod terminal;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use terminal::exit::{self, Exit};
use terminal::interrupt;

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
    /// Report what this machine can promise, and what Mangrove would choose and why
    Doctor(machine::doctor::Args),
    /// Load a dictionary, kill the loader at a random point, and show that nothing is lost
    Demo(demo::Args),
    /// The process that the demo kills
    #[command(hide = true)]
    DemoTransfers(demo::BankArgs),
    /// Move LevelDB databases in and out
    #[command(subcommand)]
    Leveldb(leveldb::Command),
    /// Print the completions of a shell
    Completions(generated::CompletionsArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(generated::ManArgs),
    /// Measure
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// Serve Redis clients: Valkey with a durable state
    #[command(disable_help_flag = true)]
    Redis(redis::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let ready = interrupt::outlive_size_limit().and_then(|()| interrupt::end_at_once());
    exit::code(ready.and_then(|()| run(command)))
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Map(command) => map::run(command),
        Command::Pool(command) => pool::run(command),
        Command::Doctor(args) => machine::doctor::run(args),
        Command::Demo(args) => demo::run(args),
        Command::DemoTransfers(args) => demo::transfer(&args),
        Command::Leveldb(command) => leveldb::run(command),
        Command::Completions(args) => generated::completions(&args, Cli::command()),
        Command::Man(args) => generated::man(&args, Cli::command()),
        Command::Bench(args) => bench::run(&args),
        Command::Redis(args) => redis::run(&args),
    }
}
