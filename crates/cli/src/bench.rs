//! `mangrove bench`: runs `mangrove-bench`, a program of its own, so that this one links neither the baselines
//! nor the stores that Mangrove is measured against.

use crate::beside;
use crate::terminal::exit::Exit;
use std::ffi::OsString;

/// What `mangrove-bench` is given, `--help` included.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Becomes `mangrove-bench`; returns only where it cannot be started.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let remedy = "build it with `cargo build --release --package mangrove-bench-cli` \
                  (with `--features peers` for a comparison with other stores) and put it there";
    beside::become_program("mangrove-bench", &args.args, remedy)
}
