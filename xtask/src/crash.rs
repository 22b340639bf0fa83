//! `cargo xtask crash`.

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the chore.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("this chore is not part of this build")
}
