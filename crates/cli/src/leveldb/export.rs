//! `mangrove leveldb export`.

use super::transfer::{TransferArgs, run as transfer};
use crate::terminal::exit::Exit;
use std::path::PathBuf;

/// Copy a database of Mangrove's LevelDB library into a new LevelDB database. The new one appears whole and durable,
/// or not at all; no program may have the old one open.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove leveldb export world/map.db world/map.leveldb")]
pub(crate) struct Args {
    /// The directory of the database
    source: PathBuf,
    /// The new directory
    new: PathBuf,
    #[command(flatten)]
    shared: TransferArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    transfer("export", &args.new, &args.shared, |options, watch| {
        mangrove_leveldb::export(&args.source, &args.new, options, watch)
    })
}
