//! `mangrove map check`.

use crate::open_args::{self, Wait};
use crate::pool::verdict;
use crate::terminal::exit::Exit;
use crate::terminal::output;
use crate::terminal::size::{count, human};
use serde_json::json;
use std::path::PathBuf;

/// Read every record and structure against its checksums and rules. Exit code 1 when something is
/// wrong, 3 when the pool cannot be opened at all (with --json, where that is damage, also as an object).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map check words.pool
  mangrove map check words.pool --json")]
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
    let map = match open_args::read_only(&args.pool, args.wait) {
        Err(error @ mangrove::Error::Corrupt { .. }) if args.json => {
            let problems = [error.to_string()];
            output::json(
                &json!({ "sound": false, "records": null, "value_bytes": null, "problems": problems }),
            )?;
            return Err(error.into());
        }
        opened => opened?,
    };
    let report = map.check()?;
    if args.json {
        output::json(&json!({
            "sound": report.is_sound(),
            "records": report.records,
            "value_bytes": report.value_bytes,
            "problems": report.problems,
        }))?;
    } else {
        let verdict = format!(
            "{}: {} records with {} of values",
            verdict(&report.problems),
            count(report.records),
            human(report.value_bytes)
        );
        output::lines(report.problems.iter().chain([&verdict]))?;
    }
    Ok(if report.is_sound() { Exit::Ok } else { Exit::No })
}
