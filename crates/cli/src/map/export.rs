//! `mangrove map export`.

use super::input::Format;
use crate::exit::{Exit, Usage};
use crate::text::Spelling;
use crate::{interrupt, note, opening, output, progress};
use anyhow::Context;
use std::fs::{File, OpenOptions};
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
    /// The file; standard output when it is left out. Appears whole or not at all; a device or a pipe is
    /// written to as it is
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
        return write_all(args, spelling, output::stdout(), None).map(|_| end());
    };
    if is_written_in_place(file) {
        let out = OpenOptions::new().write(true).create(true).truncate(true).open(file);
        let out = out.with_context(|| format!("cannot write {}", file.display()))?;
        let records = write_all(args, spelling, BufWriter::new(out), Some(file))?;
        if !interrupt::asked() {
            note::line(format_args!("{records} records written to {}", file.display()));
        }
        return Ok(end());
    }
    // A link stays a link: the file behind it is renewed.
    let file = &std::fs::canonicalize(file).unwrap_or_else(|_| file.clone());
    let mut part = file.clone().into_os_string();
    part.push(".part");
    let part = Path::new(&part);
    let out = File::create(part).with_context(|| format!("cannot create {}", part.display()))?;
    let finished = write_all(args, spelling, BufWriter::new(&out), Some(part)).and_then(|records| {
        out.sync_all().with_context(|| format!("cannot write {}", part.display()))?;
        Ok(records)
    });
    match finished {
        Ok(records) if !interrupt::asked() => {
            put_in_place(part, file).with_context(|| format!("cannot write {}", file.display()))?;
            note::line(format_args!("{records} records written to {}", file.display()));
            Ok(Exit::Ok)
        }
        other => {
            let _ = std::fs::remove_file(part);
            other.map(|_| end())
        }
    }
}

/// True for what a new file must not replace: a device, a pipe, a link to nothing.
fn is_written_in_place(file: &Path) -> bool {
    match std::fs::metadata(file) {
        Ok(meta) => !meta.is_file() && !meta.is_dir(),
        Err(_) => file.is_symlink(),
    }
}

/// Gives the finished file its name, durably.
fn put_in_place(part: &Path, file: &Path) -> std::io::Result<()> {
    std::fs::rename(part, file).inspect_err(|_| {
        let _ = std::fs::remove_file(part);
    })?;
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn end() -> Exit {
    if interrupt::asked() { Exit::Interrupted } else { Exit::Ok }
}

fn write_all(
    args: &Args,
    spelling: Spelling,
    mut out: impl Write,
    file: Option<&Path>,
) -> anyhow::Result<u64> {
    let told = |e: std::io::Error| match file {
        Some(file) => anyhow::Error::new(e).context(format!("cannot write {}", file.display())),
        None => e.into(),
    };
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
        out.write_all(&line).map_err(told)?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_position(records);
        }
    }
    out.flush().map_err(told)?;
    bar.finish_and_clear();
    Ok(records)
}
