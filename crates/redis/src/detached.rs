//! This program once more, as a process that is no child of the caller's and has a session of its own.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// Starts it with what `ask` adds: arguments at the least. Without more it reads and writes nothing.
pub(crate) fn start(ask: impl FnOnce(&mut Command)) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut process = Command::new("setsid");
    process.arg("--fork").arg(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    ask(&mut process);
    let status = process.status().context("cannot start setsid")?;
    if !status.success() {
        bail!("setsid ended with {status}");
    }
    Ok(())
}
