//! The subcommands of `mangrove map`.

use super::{apply, backup, check, compact, count, del, export, get, load, put, salvage, scan, stat};
use crate::terminal::exit::Exit;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Put the records of a file or of standard input into a map
    Load(load::Args),
    /// Print the values of keys
    Get(get::Args),
    /// Set a key to a value
    Put(put::Args),
    /// Delete keys, or a range of keys
    Del(del::Args),
    /// Apply puts and deletes, one a line, all or nothing
    Apply(apply::Args),
    /// Print records in key order
    Scan(scan::Args),
    /// Count records
    Count(count::Args),
    /// Write all records to a file that `load` reads
    Export(export::Args),
    /// Print the figures of a map
    Stat(stat::Args),
    /// Read every record and structure against its checksums and rules
    Check(check::Args),
    /// Give the disk space of deleted records back
    Compact(compact::Args),
    /// Copy a map, as it is at this instant, into a new pool
    Backup(backup::Args),
    /// Copy every sound record of a damaged map into a new pool
    Salvage(salvage::Args),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Load(args) => load::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Put(args) => put::run(&args),
        Command::Del(args) => del::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Count(args) => count::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Salvage(args) => salvage::run(&args),
    }
}
