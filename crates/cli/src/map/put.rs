//! `mangrove map put`.

use crate::exit::{Exit, Usage};
use crate::note;
use crate::opening::Opening;
use crate::text::{self, Spelling};
use anyhow::Context;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

/// Set a key to a value. When the command returns 0 the record is durable.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map put words.pool mangrove 'a tree that lives in two elements'
  mangrove map put blobs.pool logo.png --file logo.png
  mangrove map put jobs.pool lock me --if-absent          exit code 1 when it was there
  mangrove map put jobs.pool lock you --expect me         exit code 1 when it was not 'me'")]
pub(crate) struct Args {
    /// The pool; created when it is not there
    pool: PathBuf,
    /// The key
    key: OsString,
    /// The value
    #[arg(required_unless_present = "file")]
    value: Option<OsString>,
    /// Take the value from a file (- is standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Only when the key is not there
    #[arg(long)]
    if_absent: bool,
    /// Only when the key has this value
    #[arg(long, value_name = "VALUE", conflicts_with = "if_absent")]
    expect: Option<OsString>,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    opening: Opening,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let key = args.spelling.read(&args.key)?;
    let expected = args.expect.as_ref().map(|v| args.spelling.read(v)).transpose()?;
    let value = value(args)?;
    if key.len() > mangrove::KEY_BYTES_MAX {
        // Before the pool is created for nothing.
        return Err(mangrove::Error::KeyTooLong {
            len: key.len() as u64,
            max: mangrove::KEY_BYTES_MAX as u64,
        }
        .into());
    }
    let map = args.opening.create(&args.pool)?;
    let done = if args.if_absent {
        map.insert_new(&key, &value)?
    } else if expected.is_some() {
        map.compare_and_set(&key, expected.as_deref(), Some(&value))?
    } else {
        map.put(&key, &value)?;
        true
    };
    map.close()?;
    if !done {
        let why = if args.if_absent { "is there already" } else { "has another value" };
        note::line(format_args!("mangrove: {} {why}; nothing was changed", text::quote(&key)));
    }
    Ok(if done { Exit::Ok } else { Exit::No })
}

fn value(args: &Args) -> anyhow::Result<Vec<u8>> {
    match (&args.value, &args.file) {
        (Some(value), _) => args.spelling.read(value),
        (None, Some(file)) if file.as_os_str() == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            Ok(bytes)
        }
        (None, Some(file)) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display())),
        (None, None) => Err(Usage("a value is missing; give it as an argument or with --file".into()).into()),
    }
}
