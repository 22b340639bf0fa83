//! `cargo xtask tracker-suite`: instruction classes, libraries and programs under the tracker, missed bytes, and
//! the slowdown of each. The body is the example `tracker_suite` of `mangrove-tracker`.

use crate::{redis, tree};
use anyhow::Result;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A sample of the instruction tests instead of all
    #[arg(long)]
    quick: bool,
    /// Only the slowdowns
    #[arg(long)]
    only_speed: bool,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Err(why) = redis::library() {
        println!("tracker-suite: Redis is left out: {why:#}");
    }
    let mut command = tree::cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "mangrove-tracker",
        "--example",
        "tracker_suite",
        "--",
    ]);
    if args.quick {
        command.arg("--quick");
    }
    if args.only_speed {
        command.arg("--only-speed");
    }
    tree::run(&mut command)
}
