//! `mangrove bench`: runs `mangrove-bench`, a program of its own, so that this one links neither the baselines
//! nor the stores that Mangrove is measured against.

use crate::exit::Exit;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program that measures, in the directory of this one.
const PROGRAM: &str = "mangrove-bench";

/// What `mangrove-bench` is given, `--help` included.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Becomes `mangrove-bench`; returns only where it cannot be started.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let own = std::env::current_exe().context("cannot find the file of this program")?;
    let program = own.with_file_name(PROGRAM);
    if !program.exists() {
        bail!(
            "there is no {}; build it with `cargo build --release --package mangrove-bench-cli` \
             (with `--features peers` for a comparison with other stores) and put it there",
            program.display()
        );
    }
    let error = Command::new(&program).args(&args.args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
