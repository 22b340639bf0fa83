//! `cargo xtask instructions`: instructions per transaction against the golden table. The body is
//! `mangrove-instructions`, in the package of `mangrove-stress`: as an example of `mangrove-txn` it would compile that
//! one's test libraries, for a minute.

use crate::tree;
use anyhow::Result;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Count only transactions of few accesses, in an eighth of the time
    #[arg(long)]
    sparse: bool,
}

/// Runs the chore; `BLESS=1` renews the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = tree::cargo();
    // As published: the counts depend on it.
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "mangrove-stress",
        "--bin",
        "mangrove-instructions",
        "--",
    ]);
    tree::run(command.args(args.sparse.then_some("--sparse")))
}
