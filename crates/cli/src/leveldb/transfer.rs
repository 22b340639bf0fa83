//! What import and export share: their options, their progress, and how they end.

use crate::terminal::exit::Exit;
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output, progress};
use mangrove_leveldb::{TransferError, TransferOptions, TransferProgress, Transferred};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of both.
#[derive(clap::Args)]
pub(super) struct TransferArgs {
    /// LevelDB's own library (default: the installed one)
    #[arg(long, value_name = "PATH")]
    pub(super) library: Option<PathBuf>,
    /// Begin even if there is probably not enough memory or space on the disk
    #[arg(long)]
    pub(super) force: bool,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Is told how far a transfer has come; stops it.
type Watch<'a> = &'a mut dyn FnMut(TransferProgress) -> ControlFlow<()>;

/// Runs a transfer into `target`.
pub(super) fn run(
    what: &'static str,
    target: &Path,
    args: &TransferArgs,
    transfer: impl FnOnce(&TransferOptions, Watch<'_>) -> Result<Transferred, TransferError>,
) -> anyhow::Result<Exit> {
    interrupt::catch()?;
    let mut options = TransferOptions::default();
    (options.library, options.force) = (args.library.clone(), args.force);
    let begun = Instant::now();
    let mut bar = None;
    let result = transfer(&options, &mut |now| {
        let bar = bar.get_or_insert_with(|| progress::bytes(what, now.bytes_expected));
        // The expected bytes are an estimate.
        if bar.length().is_some_and(|length| length < now.bytes) {
            bar.set_length(now.bytes);
        }
        bar.set_position(now.bytes);
        interrupt::go_on()
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let is_stop = |e: &TransferError| matches!(e, TransferError::Stopped);
    let Some(done) = interrupt::unless_stopped(result, is_stop, target)? else {
        return Ok(Exit::Interrupted);
    };
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        output::json(&json!({ "records": done.records, "bytes": done.bytes, "seconds": seconds }))?;
    } else {
        output::lines([format!(
            "{} records, {} copied to {} in {seconds:.1} s",
            count(done.records),
            human(done.bytes),
            target.display()
        )])?;
    }
    Ok(Exit::Ok)
}
