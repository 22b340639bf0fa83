//! `mangrove map backup`.

use crate::open_args::{self, Wait};
use crate::terminal::exit::Exit;
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output, progress};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Copy a map, as it is at one instant, into a new pool, also while another process writes to the
/// map. The copy appears whole and durable, or not at all.
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
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    copy(&args.pool, &args.to, args.json, args.wait)
}

/// Copies the map in `pool` to a new pool at `to`.
pub(crate) fn copy(pool: &Path, to: &Path, is_json: bool, wait: Wait) -> anyhow::Result<Exit> {
    let map = open_args::read_only(pool, wait)?;
    interrupt::catch()?;
    let bar = progress::records("backup", map.len()?);
    let result = map.backup(to, |progress| {
        bar.set_position(progress.records);
        interrupt::go_on()
    });
    bar.finish_and_clear();
    let is_stop = |e: &mangrove::Error| matches!(e, mangrove::Error::Stopped);
    let Some(report) = interrupt::unless_stopped(result, is_stop, to)? else { return Ok(Exit::Interrupted) };
    if is_json {
        output::json(&json!({ "records": report.records, "bytes": report.bytes }))?;
    } else {
        output::lines([format!(
            "{} records, {} copied to {}",
            count(report.records),
            human(report.bytes),
            to.display()
        )])?;
    }
    Ok(Exit::Ok)
}
