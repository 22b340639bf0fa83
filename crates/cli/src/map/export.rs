//! `mangrove map export`.

use super::input::Format;
use crate::exit::{Exit, Usage};
use crate::text::Spelling;
use crate::{interrupt, opening, output, progress};
use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Write all records, as they are at this instant, to a file that `mangrove map load` reads.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map export words.pool words.tsv
  mangrove map export words.pool | mangrove map load copy.pool - --format tsv")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The file; standard output when it is left out. Appears whole or not at all
    file: Option<PathBuf>,
    /// tsv (key, tab, value, with escapes) or hex
    #[arg(long, default_value = "tsv")]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let spelling = match args.format {
        Format::Tsv => Spelling { escape: true, hex: false },
        Format::Hex => Spelling { escape: false, hex: true },
        Format::Auto | Format::Lines => {
            return Err(Usage("export writes --format tsv or hex; lines would drop the values".into()).into());
        }
    };
    interrupt::catch()?;
    let Some(file) = &args.file else {
        return write_all(args, spelling, output::stdout()).map(|_| end());
    };
    let mut part = file.clone().into_os_string();
    part.push(".part");
    let part = Path::new(&part);
    let out = File::create(part).with_context(|| format!("cannot create {}", part.display()))?;
    let finished = write_all(args, spelling, BufWriter::new(&out)).and_then(|records| {
        out.sync_all().with_context(|| format!("cannot write {}", part.display()))?;
        Ok(records)
    });
    match finished {
        Ok(records) if !interrupt::asked() => {
            std::fs::rename(part, file).with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("{records} records written to {}", file.display());
            Ok(Exit::Ok)
        }
        other => {
            let _ = std::fs::remove_file(part);
            other.map(|_| end())
        }
    }
}

fn end() -> Exit {
    if interrupt::asked() { Exit::Interrupted } else { Exit::Ok }
}

fn write_all(args: &Args, spelling: Spelling, mut out: impl Write) -> anyhow::Result<u64> {
    let map = opening::read_only(&args.pool)?;
    let bar = progress::records("export", map.len());
    let mut line = Vec::new();
    let mut records = 0;
    for record in map.iter()? {
        if interrupt::asked() {
            break;
        }
        let (key, value) = record?;
        line.clear();
        spelling.write(&key, &mut line);
        line.push(b'\t');
        spelling.write(&value, &mut line);
        line.push(b'\n');
        out.write_all(&line)?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_position(records);
        }
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(records)
}
