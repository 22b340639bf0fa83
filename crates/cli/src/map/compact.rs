//! `mangrove map compact`.

use crate::open_args::Wait;
use crate::terminal::exit::Exit;
use crate::terminal::output;
use crate::terminal::size::{count, human};
use mangrove::{Create, Map};
use serde_json::json;
use std::path::PathBuf;

/// Give the disk space of deleted records back: move what is left together, and make holes of the rest.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map compact words.pool")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let options = Map::options().create(Create::Never).busy_wait(args.wait.duration());
    let map = options.open(&args.pool)?;
    let report = map.compact()?;
    map.close()?;
    if args.json {
        output::json(&json!({ "moved": report.moved, "bytes_given_back": report.bytes_given_back }))?;
    } else {
        let (moved, bytes) = (count(report.moved), human(report.bytes_given_back));
        output::lines([format!("{moved} keys and values moved, {bytes} given back")])?;
    }
    Ok(Exit::Ok)
}
