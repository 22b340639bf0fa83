//! The subcommands of `mangrove leveldb`.

use super::{export, import};
use crate::terminal::exit::Exit;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Copy a LevelDB database into a new one that Mangrove's LevelDB library opens
    Import(import::Args),
    /// Copy a database of Mangrove's LevelDB library into a new LevelDB database
    Export(export::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
    }
}
