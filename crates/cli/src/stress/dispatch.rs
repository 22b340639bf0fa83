//! The two roles: one process writes until it is killed, another reads what survived.
//!
//! What they say is one stream of lines, told in `xtask/src/history.rs`: `> T N p KEY` before a put,
//! `> T N d KEY` before a delete, `< T N` after it returned; `= KEY T N` for a record found whole,
//! `! KEY WHY` for a damaged one, `. COUNT` at the end.

use super::{check, write};
use crate::exit::Exit;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write until killed, or until --seconds are over
    Write(write::Args),
    /// Say what is in the map
    Check(check::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Write(args) => write::run(&args),
        Command::Check(args) => check::run(&args),
    }
}
