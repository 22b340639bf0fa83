//! The subcommands of `mangrove pool`.

use super::{backup, check, info};
use crate::terminal::exit::Exit;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print what a pool records about itself
    Info(info::Args),
    /// Read every byte of a pool against its checksums
    Check(check::Args),
    /// Copy a map or a heap, as it is at one instant, into a new pool
    Backup(backup::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Backup(args) => backup::run(&args),
    }
}
