//! `mangrove pool backup`.

use crate::map;
use crate::open_args::Wait;
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::size::human;
use crate::terminal::{interrupt, output, progress};
use mangrove::heap::{Heap, HeapError};
use serde_json::json;
use std::path::PathBuf;

/// Copy the map or the heap in a pool, as it is at one instant, into a new pool, also while another
/// process writes to it. The copy appears whole and durable, or not at all.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove pool backup bank.pool /mnt/backup/bank.pool")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// The new pool
    to: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    match &*mangrove::pool_info(&args.pool)?.kind {
        "map" => map::backup(&args.pool, &args.to, args.json, args.wait),
        "heap" => heap(args),
        other => {
            let holds = match other {
                "durable" => "the state of a durable application, or a LevelDB database".to_owned(),
                other => format!("a {other}"),
            };
            let pool = args.pool.display();
            let message = format!("{pool} holds {holds}; copy its directory while no process has it open");
            Err(Usage(message).into())
        }
    }
}

fn heap(args: &Args) -> anyhow::Result<Exit> {
    let heap = Heap::options().read_only(true).busy_wait(args.wait.duration()).open(&args.pool)?;
    interrupt::catch()?;
    let bar = progress::bytes("backup", heap.shadow().len());
    let result = heap.backup(&args.to, |progress| {
        bar.set_position(progress.bytes);
        interrupt::go_on()
    });
    bar.finish_and_clear();
    let is_stop = |e: &HeapError| matches!(e, HeapError::Stopped);
    let Some(report) = interrupt::unless_stopped(result, is_stop, &args.to)? else {
        return Ok(Exit::Interrupted);
    };
    if args.json {
        output::json(&json!({ "bytes": report.bytes }))?;
    } else {
        output::lines([format!("{} copied to {}", human(report.bytes), args.to.display())])?;
    }
    Ok(Exit::Ok)
}
