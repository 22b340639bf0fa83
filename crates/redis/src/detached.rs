//! This program once more, as a process that has a session of its own.

use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};

/// Starts it, as no child of the caller's, with what `ask` adds: arguments at the least. Without more it reads and
/// writes nothing.
pub(crate) fn start(ask: impl FnOnce(&mut Command)) -> Result<()> {
    let status = process(Some("--fork"), ask)?.status().context("cannot start setsid")?;
    if !status.success() {
        bail!("setsid ended with {status}");
    }
    Ok(())
}

/// As `start`, as a child that outlives the caller.
pub(crate) fn child(ask: impl FnOnce(&mut Command)) -> Result<Child> {
    process(None, ask)?.spawn().context("cannot start setsid")
}

fn process(option: Option<&str>, ask: impl FnOnce(&mut Command)) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut process = Command::new("setsid");
    process.args(option).arg(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    ask(&mut process);
    Ok(process)
}
