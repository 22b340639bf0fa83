//! `mangrove map export`.

use super::input::{Format, HEX_HEADER};
use crate::open_args::{self, Wait};
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::text::Spelling;
use crate::terminal::{interrupt, output, progress, stderr};
use anyhow::Context;
use mangrove::{Error, Map};
use mangrove_sys::file::{open_itself, sync_dir, try_lock};
use rustix::io::Errno;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The beginning of the name that an export's file has until it is whole.
const PREFIX: &str = ".mangrove-export-";
/// Links that are followed, one to the next: as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Write all records, as they are at this instant, to a file that `mangrove map load` reads.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map export words.pool words.tsv
  mangrove map export words.pool | mangrove map load copy.pool - --format tsv")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The file; standard output when it is left out, - or /dev/stdout. Appears whole or not at all, with the
    /// permissions of the file it replaces; a device or a pipe is written to as it is
    file: Option<PathBuf>,
    /// tsv (key, tab, value, with escapes), or hex, whose first line says so to `load`
    #[arg(long, default_value = "tsv")]
    format: Format,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let spelling = match args.format {
        Format::Tsv => Spelling { escape: true, hex: false },
        Format::Hex => Spelling { escape: false, hex: true },
        Format::Auto | Format::Lines => {
            return Err(Usage("export writes --format tsv or hex; lines would drop the values".into()).into());
        }
    };
    match args.file.as_deref().filter(|file| !is_output(file)) {
        None => {
            let map = open(args)?;
            write_all(&map, args, spelling, output::stdout(), None)?;
            if interrupt::asked() {
                return Ok(Exit::Interrupted);
            }
            output::sync()?;
            Ok(Exit::Ok)
        }
        Some(file) if is_written_in_place(file) => write_in_place(args, spelling, file),
        Some(file) => renew(args, spelling, file),
    }
}

/// True for the names of standard output. Where that is a file, /dev/stdout leads to it: renewed, or opened anew, it
/// would lose what others have written to it.
fn is_output(file: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| file.as_os_str() == *name)
}

/// Opens the pool. A signal until then ends the command at once, also where it waits for another process.
fn open(args: &Args) -> anyhow::Result<Map> {
    let map = open_args::read_only(&args.pool, args.wait)?;
    interrupt::catch()?;
    Ok(map)
}

fn write_in_place(args: &Args, spelling: Spelling, file: &Path) -> anyhow::Result<Exit> {
    let out = OpenOptions::new().write(true).create(true).truncate(true).open(file);
    let sentence = || format!("cannot write {}", file.display());
    let out = out.with_context(sentence)?;
    // Not before: a pipe may have no reader for long.
    let map = open(args)?;
    let records = write_all(&map, args, spelling, BufWriter::new(&out), Some(file))?;
    if interrupt::asked() {
        return Ok(Exit::Interrupted);
    }
    output::sync_where_kept(&out).with_context(sentence)?;
    stderr::line(format_args!("{records} records written to {}", file.display()));
    Ok(Exit::Ok)
}

/// Writes a new file beside `file`, and gives it the name once it is whole and durable. Until then it has a
/// name that no other process uses: of two exports to one file at a time, the one that ends last stays.
fn renew(args: &Args, spelling: Spelling, file: &Path) -> anyhow::Result<Exit> {
    let map = open(args)?;
    let sentence = || format!("cannot write {}", file.display());
    // A link stays a link: the file behind it is renewed.
    let target = behind_links(file).with_context(sentence)?;
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    refuse_pools_directory(file, folder)?;
    let new = create_like(&target, folder).with_context(sentence)?;
    let records = write_all(&map, args, spelling, BufWriter::new(new.as_file()), Some(file))?;
    if interrupt::asked() {
        return Ok(Exit::Interrupted);
    }
    // Durable-order: the bytes before the name, the name before the answer.
    new.as_file().sync_all().with_context(sentence)?;
    new.persist(&target).map_err(|e| e.error).with_context(sentence)?;
    sync_dir(folder).with_context(sentence)?;
    stderr::line(format_args!("{records} records written to {}", file.display()));
    Ok(Exit::Ok)
}

/// The file that `file` leads to. Where that is not there yet: its name, behind links to nothing.
fn behind_links(file: &Path) -> std::io::Result<PathBuf> {
    if let Ok(target) = fs::canonicalize(file) {
        return Ok(target);
    }
    let mut target = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&target) else { return Ok(target) };
        // A name in the directory of the link, unless it begins at the root.
        target = target.parent().unwrap_or(Path::new("")).join(to);
    }
    Err(Errno::LOOP.into())
}

/// Refuses a directory that holds a pool, sound or not: its files have names that an export would replace.
fn refuse_pools_directory(file: &Path, folder: &Path) -> anyhow::Result<()> {
    match mangrove::pool_info(folder) {
        Ok(_) | Err(Error::Corrupt { .. } | Error::Newer { .. }) => {
            let sentence =
                format!("{} lies in a pool's directory; choose a place outside of it", file.display());
            Err(Usage(sentence).into())
        }
        Err(_) => Ok(()),
    }
}

/// Removes what killed exports left in the directory: files with the name of an export's, that no process has locked.
/// What cannot be removed stays.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && let Ok(file) = open_itself(&entry.path())
            && file.metadata().is_ok_and(|meta| meta.is_file())
            && try_lock(&file, true).unwrap_or(false)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A new file in `folder`, locked as long as it is open, which goes away unless it gets another name, with the
/// permissions of `old` if that is there.
fn create_like(old: &Path, folder: &Path) -> std::io::Result<NamedTempFile> {
    let old = fs::metadata(old).ok();
    let mode = old.as_ref().map_or(0o666, |old| old.mode() & 0o777);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).permissions(Permissions::from_mode(mode));
    remove_leftovers(folder);
    let new = loop {
        let new = builder.tempfile_in(folder)?;
        // Another export may have taken it for a leftover before it was locked.
        if try_lock(new.as_file(), true).unwrap_or(true) && new.as_file().metadata()?.nlink() > 0 {
            break new;
        }
    };
    if let Some(old) = old {
        // Only root may give a file to another user.
        let _ = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
        new.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(new)
}

/// True for what a new file must not replace: a device, a pipe.
fn is_written_in_place(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

fn write_all(
    map: &Map,
    args: &Args,
    spelling: Spelling,
    mut out: impl Write,
    file: Option<&Path>,
) -> anyhow::Result<u64> {
    let failed = |e: std::io::Error| match file {
        Some(file) => anyhow::Error::new(e).context(format!("cannot write {}", file.display())),
        None => e.into(),
    };
    let bar = progress::records("export", map.len()?);
    if args.format == Format::Hex {
        out.write_all(HEX_HEADER).and_then(|()| out.write_all(b"\n")).map_err(failed)?;
    }
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
        out.write_all(&line).map_err(failed)?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_position(records);
        }
    }
    out.flush().map_err(failed)?;
    bar.finish_and_clear();
    Ok(records)
}
