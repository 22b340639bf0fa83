//! `cargo xtask instructions`: instructions per transaction against the golden table. The body is
//! `mangrove-instructions`, in the package of `mangrove-stress`: as an example of `mangrove-txn` it would compile that
//! one's test libraries, for a minute.

use crate::tree;
use anyhow::Result;

/// Runs the chore; `BLESS=1` renews the table.
pub(crate) fn run() -> Result<()> {
    let mut command = tree::cargo();
    // As published: the counts depend on it.
    command.args(["run", "--quiet", "--release", "-p", "mangrove-stress", "--bin", "mangrove-instructions"]);
    tree::run(&mut command)
}
