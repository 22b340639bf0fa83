//! `mangrove map del`.

use super::bounds::Bounds;
use super::put::refuse_too_long;
use crate::open_args::OpenArgs;
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::text::Spelling;
use crate::terminal::{output, stderr};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

/// Delete keys one by one, or a range all or nothing. Exit code 1 when there was nothing to delete.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map del words.pool mangrove baobab
  mangrove map del words.pool --prefix tmp/
  mangrove map del words.pool --from a --to b")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The keys
    #[arg(conflicts_with_all = ["from", "after", "to", "prefix"])]
    keys: Vec<OsString>,
    #[command(flatten)]
    bounds: Bounds,
    /// All keys
    #[arg(long, conflicts_with_all = ["keys", "from", "after", "to", "prefix"])]
    all: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    opening: OpenArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.keys.is_empty() && args.bounds.is_all() && !args.all {
        let sentence = "which keys? Name them, or give --prefix, --from, --after, --to or --all";
        return Err(Usage(sentence.into()).into());
    }
    if let Some(name) = args.bounds.without_effect() {
        let sentence = format!(
            "{name} is empty, and would bound nothing; leave it out, or give --all to delete all keys"
        );
        return Err(Usage(sentence).into());
    }
    let keys = args.keys.iter().map(|k| args.spelling.read(k)).collect::<anyhow::Result<Vec<_>>>()?;
    // Before the first one is deleted.
    keys.iter().try_for_each(|key| refuse_too_long(key))?;
    let map = args.opening.open(&args.pool)?;
    let mut deleted = 0;
    if keys.is_empty() {
        deleted = args.bounds.delete(&map, args.spelling)?;
    }
    for key in keys {
        deleted += u64::from(map.delete(key)?);
    }
    map.close()?;
    if args.json {
        output::json(&json!({ "deleted": deleted }))?;
    } else {
        stderr::line(format_args!("{deleted} deleted"));
    }
    Ok(if deleted > 0 { Exit::Ok } else { Exit::No })
}
