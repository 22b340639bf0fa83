//! `mangrove leveldb import`.

use super::transfer::{TransferArgs, run as transfer};
use crate::terminal::exit::Exit;
use std::path::PathBuf;

/// Copy a LevelDB database into a new one that Mangrove's LevelDB library opens. The new one appears whole and
/// durable, or not at all; the LevelDB database stays as it is, and no program may have it open. Every record is
/// verified against its checksum.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove leveldb import world/map.db world/map.new
  mangrove leveldb import old new --library /usr/lib/x86_64-linux-gnu/libleveldb.so.1d

MANGROVE_LEVELDB_ENGINE=durable|map chooses the engine of the new database.")]
pub(crate) struct Args {
    /// The directory of the LevelDB database
    source: PathBuf,
    /// The new directory
    new: PathBuf,
    #[command(flatten)]
    shared: TransferArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    transfer("import", &args.new, &args.shared, |options, watch| {
        mangrove_leveldb::import(&args.source, &args.new, options, watch)
    })
}
