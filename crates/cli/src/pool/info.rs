//! `mangrove pool info`.

use crate::terminal::exit::Exit;
use crate::terminal::output;
use crate::terminal::size::{count, human};
use mangrove::heap::{Heap, HeapInfo};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Print what a pool records about itself. Writes nothing; a busy pool answers too. A heap that no process has open
/// is read, and tells its roots.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove pool info words.pool
  mangrove pool info words.pool --json | jq -r .uuid")]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let info = mangrove::pool_info(&args.pool)?;
    let heap = (info.kind == "heap" && !info.busy).then(|| Heap::inspect(&args.pool));
    if args.json {
        output::json(&json!({
            "heap": heap.as_ref().and_then(|heap| heap.as_ref().ok()).map(heap_json),
            "heap_error": heap.as_ref().and_then(|heap| heap.as_ref().err()).map(ToString::to_string),
            "path": info.path.display().to_string(),
            "version": info.version,
            "uuid": info.uuid,
            "kind": info.kind,
            "medium": info.medium.to_string(),
            "capacity": info.capacity,
            "image_bytes": info.image_bytes,
            "log_bytes": info.log_bytes,
            "log_bytes_max": info.log_bytes_max,
            "clean": info.clean,
            "busy": info.busy,
        }))?;
        return Ok(Exit::Ok);
    }
    let state = match (info.busy, info.clean) {
        (true, _) => "in use",
        (false, true) => "closed in order",
        (false, false) => "not closed in order; the next opening recovers it",
    };
    let mut rows = vec![
        ("path", info.path.display().to_string()),
        ("holds", info.kind),
        ("uuid", info.uuid),
        ("format", format!("version {}", info.version)),
        ("medium", info.medium.to_string()),
        ("image", format!("{} of at most {}", human(info.image_bytes), human(info.capacity))),
        ("redo log", format!("{} of at most {}", human(info.log_bytes), human(info.log_bytes_max))),
        ("state", state.to_owned()),
    ];
    match &heap {
        Some(Ok(heap)) => rows.extend(heap_rows(heap)),
        Some(Err(error)) => rows.push(("heap", format!("cannot be read: {error}"))),
        None => {}
    }
    output::table(&rows)?;
    Ok(Exit::Ok)
}

fn heap_json(heap: &HeapInfo) -> Value {
    let roots = heap.roots.iter();
    let roots: Value =
        roots.map(|r| json!({ "name": r.name, "address": r.address, "bytes": r.bytes })).collect();
    json!({
        "base": heap.base,
        "capacity": heap.capacity,
        "bytes": heap.bytes,
        "used_bytes": heap.used_bytes,
        "blocks": heap.blocks,
        "roots": roots,
        "protocol": heap.protocol,
        "next_executor": heap.plan.executor,
        "next_protocol": heap.plan.protocol,
        "order": heap.last.map(|last| last.order.to_string()),
        "generation": heap.last.map(|last| last.generation),
    })
}

fn heap_rows(heap: &HeapInfo) -> Vec<(&'static str, String)> {
    let used = format!(
        "{} in {} blocks, of {} that it has grown to and {} that it may",
        human(heap.used_bytes),
        count(heap.blocks),
        human(heap.bytes),
        human(heap.capacity)
    );
    let mut rows =
        vec![("address", format!("{:#x}", heap.base)), ("used", used), ("commits", heap.protocol.to_owned())];
    if let Some(last) = heap.last {
        rows.push(("last opening", format!("generation {}, order {}", last.generation, last.order)));
    }
    rows.push(("next opening", heap.plan.to_string()));
    rows.push(("roots", heap.roots.len().to_string()));
    let at = |address: usize| if address == 0 { "nothing".into() } else { format!("{address:#x}") };
    rows.extend(
        heap.roots.iter().map(|r| ("", format!("{:?}: {} bytes at {}", r.name, r.bytes, at(r.address)))),
    );
    rows
}
