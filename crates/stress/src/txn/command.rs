//! The two roles.

use super::{check, write};

/// The words after `txn`; options and exit codes are those of the map's two roles.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Transfer between --keys accounts until killed, or until --seconds are over
    Write(crate::write::Args),
    /// Print the last transfer of each thread, and what contradicts the rules of the bank
    Check(crate::check::Args),
}

/// Runs a role; whether the bank is sound as far as the exit code tells it.
pub(crate) fn run(command: &Command) -> anyhow::Result<bool> {
    match command {
        Command::Write(args) => write::run(args).map(|()| true),
        Command::Check(args) => check::run(args),
    }
}
