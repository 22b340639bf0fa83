//! `mangrove map scan`.

use super::bounds::Bounds;
use crate::open_args::{self, Wait};
use crate::terminal::exit::Exit;
use crate::terminal::text::Spelling;
use crate::terminal::{interrupt, output, text};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Print records in key order, one a line: key, tab, value, both with escapes (\t \n \r \\ \xHH).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map scan words.pool --prefix mang
  mangrove map scan words.pool --from m --to n --limit 10
  mangrove map scan words.pool --after mango --limit 10       the next ten
  mangrove map scan words.pool --reverse --keys | head -3
  mangrove map scan words.pool --json | jq .key")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    #[command(flatten)]
    bounds: Bounds,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print keys only
    #[arg(long)]
    keys: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let map = open_args::read_only(&args.pool, args.wait)?;
    let mut walk = args.bounds.walk(&map, args.spelling)?;
    interrupt::catch()?;
    let mut out = output::stdout();
    let mut line = Vec::new();
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 && !interrupt::asked() {
        let Some(record) = (if args.reverse { walk.next_back() } else { walk.next() }) else { break };
        let (key, value) = record?;
        line.clear();
        if args.json {
            let object = if args.keys {
                json!({ "key": text::json(&key) })
            } else {
                json!({ "key": text::json(&key), "value": text::json(&value) })
            };
            line.extend_from_slice(object.to_string().as_bytes());
        } else {
            let spelling = Spelling { escape: !args.spelling.hex, ..args.spelling };
            spelling.write(&key, &mut line);
            if !args.keys {
                line.push(b'\t');
                spelling.write(&value, &mut line);
            }
        }
        line.push(b'\n');
        out.write_all(&line)?;
        left -= 1;
    }
    out.flush()?;
    Ok(if interrupt::asked() { Exit::Interrupted } else { Exit::Ok })
}
