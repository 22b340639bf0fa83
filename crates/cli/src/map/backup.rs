//! `mangrove map backup`.

use crate::exit::Exit;
use crate::size::{count, human};
use crate::{interrupt, open_args, output, progress, stderr};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Copy a map, as it is at this instant, into a new pool. The copy appears whole and durable, or
/// not at all. (A program that holds the map open makes backups with `Map::backup`.)
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map backup words.pool /mnt/backup/words.pool")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The new pool
    to: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let map = open_args::read_only(&args.pool)?;
    interrupt::catch()?;
    let bar = progress::records("backup", map.len()?);
    let result = map.backup(&args.to, |progress| {
        bar.set_position(progress.records);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let report = match result {
        Err(mangrove::Error::Stopped) => {
            stderr::line(format_args!("mangrove: interrupted; nothing was left at {}", args.to.display()));
            return Ok(Exit::Interrupted);
        }
        other => other?,
    };
    if args.json {
        output::json(&json!({ "records": report.records, "bytes": report.bytes }))?;
    } else {
        output::lines([format!(
            "{} records, {} copied to {}",
            count(report.records),
            human(report.bytes),
            args.to.display()
        )])?;
    }
    Ok(Exit::Ok)
}
