//! x
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: Args) -> anyhow::Result<crate::exit::Exit> {
    anyhow::bail!("soon")
}
