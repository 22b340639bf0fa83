//! Runs the sections that were asked for and writes the report.

use crate::MapArgs;

/// `mangrove bench map`, with Mangrove and the baselines only.
///
/// # Errors
/// Missing input data, a bad argument, or the first error of a store that is measured.
pub fn run(args: MapArgs) -> anyhow::Result<()> {
    let _ = args;
    anyhow::bail!("the bench is not built yet")
}
