//! The subcommands of `mangrove pool`.

use super::{check, info};
use crate::exit::Exit;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print what a pool says about itself
    Info(info::Args),
    /// Read every byte of a pool against its checksums
    Check(check::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Check(args) => check::run(&args),
    }
}
