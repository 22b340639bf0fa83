//! `mangrove map get`.

use crate::exit::Exit;
use crate::open_args::Wait;
use crate::text::Spelling;
use crate::{open_args, output, stderr, text};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Print the value of a key and a newline. Exit code 1 when the key is not there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map get words.pool mangrove
  mangrove map get blobs.pool logo.png --raw > logo.png
  mangrove map get ids.pool --hex 00ff17")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The key
    key: OsString,
    /// Print the value's bytes and nothing else
    #[arg(long, conflicts_with_all = ["hex", "escape", "json"])]
    raw: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let key = args.spelling.read(&args.key)?;
    let value = open_args::read_only(&args.pool, args.wait)?.get(&key)?;
    if args.json {
        let shown = value.as_deref().map(text::json);
        output::json(&json!({ "key": text::json(&key), "found": value.is_some(), "value": shown }))?;
    }
    let Some(value) = value else {
        if !args.json {
            stderr::line(format_args!("mangrove: no key {} in {}", text::quote(&key), args.pool.display()));
        }
        return Ok(Exit::No);
    };
    if !args.json {
        let mut line = Vec::new();
        args.spelling.write(&value, &mut line);
        if !args.raw {
            line.push(b'\n');
        }
        let mut out = output::stdout();
        out.write_all(&line)?;
        out.flush()?;
    }
    Ok(Exit::Ok)
}
