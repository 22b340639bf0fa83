//! `cargo xtask instructions`: instructions per transaction against the golden table. The body is
//! `mangrove-instructions`, in the package of `mangrove-stress`: as an example of `mangrove-txn` it would compile that
//! one's test libraries, for a minute.

use crate::tree;
use anyhow::Result;

/// Runs the chore; `BLESS=1` renews the table.
pub(crate) fn run() -> Result<()> {
    let mut command = tree::cargo();
    // As published, whatever CI saves elsewhere: the counts depend on it.
    for setting in ["LTO", "CODEGEN_UNITS", "DEBUG"] {
        command.env_remove(format!("CARGO_PROFILE_RELEASE_{setting}"));
    }
    command.args(["run", "--quiet", "--release", "-p", "mangrove-stress", "--bin", "mangrove-instructions"]);
    tree::run(&mut command)
}
