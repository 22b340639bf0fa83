//! `mangrove-stress`: the writer and the checker that `cargo xtask kill9` and `powercut` run. One process writes a
//! map until it is killed; another reads what survived. `mangrove-stress txn` does the same with transactions.
//!
//! Both print one stream of lines, which `crates/crashlab/src/verdict/history.rs` describes: `> T N p KEY` before a
//! put, `> T N d KEY` before a delete, `< T N` after it returned; `= KEY T N` for a record found whole,
//! `! KEY WHY` for a damaged one, `. COUNT` at the end.
//!
//! Exit codes: 0 ok; 1 the map is not sound; 2 usage; 3 pool or I/O error. A writer whose thread fails, or sees what
//! never was, dies of SIGABRT.

#![forbid(unsafe_code)]

mod check;
mod space;
mod txn;
mod value;
mod write;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "mangrove-stress", version, about = "Write and check for the kill and power-cut tests")]
enum Command {
    /// Write until killed, or until --seconds are over
    Write(write::Args),
    /// Print what is in the map
    Check(check::Args),
    /// Fill, delete and compact, for `cargo xtask space`
    Space(space::Args),
    /// The same with durable transactions in a heap
    #[command(subcommand)]
    Txn(txn::Command),
}

fn main() -> ExitCode {
    // A thread that panics ends the process, as one that fails does (`write::or_end`).
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
    let sound = match Command::parse() {
        Command::Write(args) => write::run(&args).map(|()| true),
        Command::Check(args) => check::run(&args),
        Command::Space(args) => space::run(&args).map(|()| true),
        Command::Txn(command) => txn::run(&command),
    };
    match sound {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("mangrove: {error:#}");
            ExitCode::from(3)
        }
    }
}
