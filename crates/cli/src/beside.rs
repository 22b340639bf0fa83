//! Programs of their own in the directory of this one, which some commands become.

use crate::terminal::exit::Exit;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes the program; returns only where it cannot be started. `remedy` is for where there is none.
pub(crate) fn become_program(name: &str, args: &[OsString], remedy: &str) -> anyhow::Result<Exit> {
    let own = std::env::current_exe().context("cannot find the file of this program")?;
    let program = own.with_file_name(name);
    if !program.exists() {
        bail!("there is no {}; {remedy}", program.display());
    }
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
