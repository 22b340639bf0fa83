//! `mangrove redis`: runs `mangrove-redis`, which starts a durable Valkey.

use crate::beside;
use crate::terminal::exit::Exit;
use std::ffi::OsString;

/// What `mangrove-redis` is given, `--help` included.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Becomes `mangrove-redis`; returns only where it cannot be started.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    beside::become_program("mangrove-redis", &args.args, "build it with `make redis` and put it there")
}
