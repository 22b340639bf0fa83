//! `mangrove map put`.

use crate::open_args::OpenArgs;
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::stderr;
use crate::terminal::text::{self, Spelling};
use anyhow::Context;
use std::ffi::OsString;
use std::fs::File;
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
    /// Only when the key has this value; makes no pool
    #[arg(long, value_name = "VALUE", conflicts_with = "if_absent")]
    expect: Option<OsString>,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    opening: OpenArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let key = args.spelling.read(&args.key)?;
    let expected = args.expect.as_ref().map(|v| args.spelling.read(v)).transpose()?;
    // Before the pool is created for nothing, or memory filled with what is no value.
    refuse_too_long(&key)?;
    let value = value(args)?;
    let opening = &args.opening;
    // A pool that is not there has no such value.
    let map = if expected.is_some() { opening.open(&args.pool)? } else { opening.create(&args.pool)? };
    let done = if args.if_absent {
        map.insert_new(&key, &value)?
    } else if expected.is_some() {
        map.compare_and_set(&key, expected.as_deref(), Some(&value))?
    } else {
        map.put(&key, &value)?;
        true
    };
    let why = match done || args.if_absent {
        true => "is there already",
        false if map.contains(&key)? => "has another value",
        false => "is not there",
    };
    map.close()?;
    if !done {
        stderr::line(format_args!("mangrove: {} {why}; nothing was changed", text::quote(&key)));
    }
    Ok(if done { Exit::Ok } else { Exit::No })
}

/// The error of a key that no map takes.
pub(super) fn refuse_too_long(key: &[u8]) -> mangrove::Result<()> {
    let (len, max) = (key.len() as u64, mangrove::KEY_BYTES_MAX as u64);
    if len > max { Err(mangrove::Error::KeyTooLong { len, max }) } else { Ok(()) }
}

fn value(args: &Args) -> anyhow::Result<Vec<u8>> {
    match (&args.value, &args.file) {
        (Some(value), _) => args.spelling.read(value),
        (None, Some(file)) if file.as_os_str() == "-" => read(std::io::stdin().lock(), 0, "standard input"),
        (None, Some(file)) => {
            let name = file.display().to_string();
            let sentence = || format!("cannot read {name}");
            let opened = File::open(file).with_context(sentence)?;
            let len = opened.metadata().with_context(sentence)?.len();
            read(opened, len, &name)
        }
        (None, None) => Err(Usage("a value is missing; give it as an argument or with --file".into()).into()),
    }
}

/// The bytes of a value, of which `len` are known to come; no more than a value can have.
fn read(from: impl Read, len: u64, name: &str) -> anyhow::Result<Vec<u8>> {
    let max = mangrove::VALUE_BYTES_MAX as u64;
    let mut bytes = Vec::new();
    if len <= max {
        from.take(max + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    }
    let len = len.max(bytes.len() as u64);
    if len > max {
        return Err(mangrove::Error::ValueTooLong { len, max }.into());
    }
    Ok(bytes)
}
