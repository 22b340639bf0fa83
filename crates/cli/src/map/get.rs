//! `mangrove map get`.

use crate::open_args::{self, Wait};
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::text::Spelling;
use crate::terminal::{output, stderr, text};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Print the value of a key and a newline; of several keys, one line each: key, tab, value, both with
/// escapes (\t \n \r \\ \xHH). Exit code 1 when a key is not there.
///
/// On a terminal a value with control characters is printed with escapes, unless --raw is given.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map get words.pool mangrove
  mangrove map get words.pool mangrove baobab --json
  mangrove map get blobs.pool logo.png --raw > logo.png
  mangrove map get ids.pool --hex 00ff17")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The keys
    #[arg(required = true)]
    keys: Vec<OsString>,
    /// Print the value's bytes and nothing else
    #[arg(long, conflicts_with_all = ["hex", "escape", "json"])]
    raw: bool,
    /// Print a JSON object, one a line for several keys
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let keys = args.keys.iter().map(|key| args.spelling.read(key)).collect::<anyhow::Result<Vec<_>>>()?;
    if args.raw && keys.len() > 1 {
        return Err(
            Usage("--raw prints the value of one key; it does not separate several values".into()).into()
        );
    }
    // One opening: the values are those of one instant.
    let map = open_args::read_only(&args.pool, args.wait)?;
    let mut is_missing = false;
    for key in &keys {
        let value = map.get(key)?;
        is_missing |= value.is_none();
        let mut line = match &value {
            _ if args.json => {
                let object = object(key, value.as_deref());
                if keys.len() > 1 { object.to_string() } else { serde_json::to_string_pretty(&object)? }
                    .into_bytes()
            }
            Some(value) => args.line(key, value),
            None => {
                stderr::line(format_args!(
                    "mangrove: no key {} in {}",
                    text::quote(key),
                    args.pool.display()
                ));
                continue;
            }
        };
        if !args.raw {
            line.push(b'\n');
        }
        output::bytes(&line)?;
    }
    Ok(if is_missing { Exit::No } else { Exit::Ok })
}

fn object(key: &[u8], value: Option<&[u8]>) -> Value {
    json!({ "key": text::json(key), "found": value.is_some(), "value": value.map(text::json) })
}

impl Args {
    /// The line for a record, without its newline.
    fn line(&self, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        let mut spelling = self.spelling;
        if self.keys.len() > 1 {
            spelling.escape = !spelling.hex;
            spelling.write(key, &mut line);
            line.push(b'\t');
        } else if !self.raw && !spelling.hex && std::io::stdout().is_terminal() {
            spelling.escape |= text::commands_terminals(value);
        }
        spelling.write(value, &mut line);
        line
    }
}
