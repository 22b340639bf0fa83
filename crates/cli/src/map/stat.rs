//! `mangrove map stat`.

use crate::open_args::{self, Wait};
use crate::terminal::exit::Exit;
use crate::terminal::output;
use crate::terminal::size::{count, human};
use serde_json::json;
use std::path::PathBuf;

/// Print the figures of a map: records, bytes in DRAM and in the pool, medium, log, recovery.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map stat words.pool
  mangrove map stat words.pool --json | jq .records")]
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
    let map = open_args::read_only(&args.pool, args.wait)?;
    let stat = map.stat();
    let recovery = map.recovery();
    let (mut keys, mut values) = (0, 0);
    for record in map.iter()? {
        let (key, value) = record?;
        keys += key.len() as u64;
        values += value.len() as u64;
    }
    if args.json {
        output::json(&json!({
            "records": stat.records,
            "key_bytes": keys,
            "value_bytes": values,
            "index_bytes": stat.index_bytes,
            "allocator_bytes": stat.allocator_bytes,
            "durable_bytes": stat.durable_bytes,
            "image_bytes": stat.image_bytes,
            "capacity": stat.capacity,
            "medium": stat.medium.to_string(),
            "log_bytes": stat.log_bytes,
            "log_bytes_used": stat.log_bytes_used,
            "recovery": {
                "clean": recovery.clean,
                "image_bytes": recovery.image_bytes,
                "log_groups": recovery.log_groups,
                "pool_seconds": recovery.pool_seconds,
                "index_seconds": recovery.index_seconds,
                "seconds": recovery.seconds,
            },
        }))?;
        return Ok(Exit::Ok);
    }
    let each = |bytes: u64| {
        let share = if stat.records == 0 { 0.0 } else { bytes as f64 / stat.records as f64 };
        format!("{} ({share:.1} B a record)", human(bytes))
    };
    let closed = if recovery.clean { "closed in order" } else { "not closed in order" };
    output::table(&[
        ("records", count(stat.records)),
        ("keys", each(keys)),
        ("values", each(values)),
        ("index, DRAM", each(stat.index_bytes + stat.allocator_bytes)),
        ("records, durable", each(stat.durable_bytes)),
        ("image", format!("{} of at most {}", human(stat.image_bytes), human(stat.capacity))),
        ("medium", stat.medium.to_string()),
        ("redo log", format!("{}, {} in use", human(stat.log_bytes), human(stat.log_bytes_used))),
        (
            "opened in",
            format!(
                "{:.1} ms: {:.1} reading the pool ({closed}, {} log groups), {:.1} building the index",
                recovery.seconds * 1e3,
                recovery.pool_seconds * 1e3,
                count(recovery.log_groups),
                recovery.index_seconds * 1e3,
            ),
        ),
    ])?;
    Ok(Exit::Ok)
}
