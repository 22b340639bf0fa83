//! `mangrove map count`.

use super::bounds::Bounds;
use crate::open_args::{self, Wait};
use crate::terminal::exit::Exit;
use crate::terminal::output;
use crate::terminal::text::Spelling;
use serde_json::json;
use std::path::PathBuf;

/// Print the number of records, or of those between bounds.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map count words.pool
  mangrove map count words.pool --prefix un")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    #[command(flatten)]
    bounds: Bounds,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let map = open_args::read_only(&args.pool, args.wait)?;
    let mut records = map.len()?;
    if !args.bounds.is_all() {
        records = 0;
        for record in args.bounds.walk(&map, args.spelling)? {
            record?;
            records += 1;
        }
    }
    if args.json {
        output::json(&json!({ "records": records }))?;
    } else {
        output::lines([records.to_string()])?;
    }
    Ok(Exit::Ok)
}
