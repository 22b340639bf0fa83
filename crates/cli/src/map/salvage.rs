//! `mangrove map salvage`.

use crate::terminal::exit::Exit;
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output, progress};
use serde_json::json;
use std::path::PathBuf;

/// Copy every sound record of a damaged map into a new pool; the damaged one stays as it is. The copy
/// appears whole and durable, or not at all. Exit code 1 when something is damaged.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map salvage words.pool words-salvaged.pool")]
pub(crate) struct Args {
    /// The damaged pool
    bad: PathBuf,
    /// The new pool
    new: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    interrupt::catch()?;
    // How many records are sound shows in the end.
    let bar = progress::records("salvage", 0);
    let result = mangrove::Map::salvage(&args.bad, &args.new, |progress| {
        bar.set_position(progress.records);
        interrupt::go_on()
    });
    bar.finish_and_clear();
    let is_stop = |e: &mangrove::Error| matches!(e, mangrove::Error::Stopped);
    let Some(report) = interrupt::unless_stopped(result, is_stop, &args.new)? else {
        return Ok(Exit::Interrupted);
    };
    if args.json {
        output::json(&json!({ "records": report.records, "bytes": report.bytes, "damage": report.damage }))?;
    } else {
        let copied = format!(
            "{} records, {} copied to {}; {} damaged places",
            count(report.records),
            human(report.bytes),
            args.new.display(),
            report.damage.len()
        );
        output::lines(report.damage.iter().chain([&copied]))?;
    }
    Ok(if report.damage.is_empty() { Exit::Ok } else { Exit::No })
}
