//! `cargo xtask instructions`: instructions per transaction against the golden table. The body is the example
//! `instructions` of `mangrove-txn`.

use crate::tree;
use anyhow::Result;

/// Runs the chore; `BLESS=1` renews the table.
pub(crate) fn run() -> Result<()> {
    let mut command = tree::cargo();
    command.args(["run", "--quiet", "--release", "-p", "mangrove-txn", "--example", "instructions"]);
    tree::run(&mut command)
}
