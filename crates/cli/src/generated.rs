//! `mangrove completions` and `mangrove man`: what shells and `man` are told, from the command's own description.

use crate::terminal::exit::{Exit, Usage};
use crate::terminal::output;
use anyhow::Context;
use clap_complete::Shell;
use std::path::PathBuf;

/// Print the completions of a shell. `make install` installs them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  source <(mangrove completions bash)
  mangrove completions fish > ~/.config/fish/completions/mangrove.fish")]
pub(crate) struct CompletionsArgs {
    /// bash, zsh or fish
    shell: Shell,
}

/// Write the man pages into a directory. `make install` installs them.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The directory; it has to be there
    directory: PathBuf,
}

/// Runs `mangrove completions` for the command `of`.
pub(crate) fn completions(args: &CompletionsArgs, mut of: clap::Command) -> anyhow::Result<Exit> {
    if !matches!(args.shell, Shell::Bash | Shell::Zsh | Shell::Fish) {
        return Err(
            Usage(format!("there are completions for bash, zsh and fish, not for {}", args.shell)).into()
        );
    }
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut of, "mangrove", &mut text);
    output::lines(String::from_utf8_lossy(&text).lines())?;
    Ok(Exit::Ok)
}

/// Runs `mangrove man` for the command `of`.
pub(crate) fn man(args: &ManArgs, of: clap::Command) -> anyhow::Result<Exit> {
    clap_mangen::generate_to(of, &args.directory)
        .with_context(|| format!("cannot write man pages into {}", args.directory.display()))?;
    Ok(Exit::Ok)
}
