//! `mangrove pool info`.

use crate::exit::Exit;
use crate::output;
use crate::size::human;
use serde_json::json;
use std::path::PathBuf;

/// Print what a pool says about itself. Takes no lock and writes nothing: a busy pool answers too.
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
    if args.json {
        output::json(&json!({
            "path": info.path.display().to_string(),
            "version": info.version,
            "uuid": info.uuid,
            "kind": info.kind,
            "medium": info.medium.to_string(),
            "capacity": info.capacity,
            "image_bytes": info.image_bytes,
            "log_bytes": info.log_bytes,
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
    output::table(&[
        ("path", info.path.display().to_string()),
        ("holds", info.kind),
        ("uuid", info.uuid),
        ("format", format!("version {}", info.version)),
        ("medium", info.medium.to_string()),
        ("image", format!("{} of at most {}", human(info.image_bytes), human(info.capacity))),
        ("redo log", human(info.log_bytes)),
        ("state", state.to_owned()),
    ])?;
    Ok(Exit::Ok)
}
