//! `mangrove pool check`.

use crate::terminal::exit::Exit;
use crate::terminal::output;
use serde_json::json;
use std::path::PathBuf;

/// Read every byte of a pool against its checksums, without recovering what is in it. Of a heap, also
/// its roots, what they point to, and its allocator. Exit code 1 when something is damaged.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove pool check words.pool")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let problems = match mangrove::pool_check(&args.pool) {
        Ok(problems) => problems,
        Err(error @ mangrove::Error::Corrupt { .. }) => vec![error.to_string()],
        Err(error) => return Err(error.into()),
    };
    if args.json {
        output::json(&json!({ "sound": problems.is_empty(), "problems": problems }))?;
    } else {
        output::lines(problems.iter().chain([&verdict(&problems)]))?;
    }
    Ok(if problems.is_empty() { Exit::Ok } else { Exit::No })
}

/// What the problems found come to.
pub(crate) fn verdict(problems: &[String]) -> String {
    match problems.len() {
        0 => "sound".into(),
        1 => "1 problem".into(),
        n => format!("{n} problems"),
    }
}
