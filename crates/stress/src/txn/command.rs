//! The two roles.

use super::bank::Bank;
use super::register::Register;
use super::{check, write};

/// The words after `txn`; options and exit codes are those of the map's two roles.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Transfer between --keys accounts until killed, or until --seconds are over
    Write(crate::write::Args),
    /// Print the last transfer of each thread, and what contradicts the rules of the bank
    Check(crate::check::Args),
    /// The same two roles on the collections of a heap
    #[command(subcommand)]
    Collections(Collections),
}

/// The words after `txn collections`.
#[derive(clap::Subcommand)]
pub(crate) enum Collections {
    /// Enter operations into a register until killed, or until --seconds are over
    Write(crate::write::Args),
    /// Print the last operation of each thread, and what contradicts the rules of the register
    Check(crate::check::Args),
}

/// Runs a role; whether the ledger is sound as far as the exit code tells it.
pub(crate) fn run(command: &Command) -> anyhow::Result<bool> {
    match command {
        Command::Write(args) => write::run::<Bank>(args).map(|()| true),
        Command::Check(args) => check::run::<Bank>(args),
        Command::Collections(Collections::Write(args)) => write::run::<Register>(args).map(|()| true),
        Command::Collections(Collections::Check(args)) => check::run::<Register>(args),
    }
}
