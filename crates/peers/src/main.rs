//! `mangrove bench map` with every peer.

use clap::Parser;
use mangrove_bench::{MapArgs, run_with};

/// The map against its peers, on this machine.
#[derive(Parser)]
#[command(name = "mangrove-bench-peers")]
struct Cli {
    #[command(flatten)]
    args: MapArgs,
}

fn main() -> anyhow::Result<()> {
    run_with(Cli::parse().args, &mangrove_peers::all())
}
