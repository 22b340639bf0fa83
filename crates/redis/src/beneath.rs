//! A server that ends when the process that started it does, however that ends: an update must leave nobody behind that
//! holds the state.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What this program runs itself as.
pub(crate) const COMMAND: &str = "serve-beneath";

/// The command as one that ends with this process.
pub(crate) fn beneath(server: &Command) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut command = Command::new(program);
    command.args([COMMAND, &std::process::id().to_string()]);
    command.arg(server.get_program()).args(server.get_args());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ok(command)
}

/// The process itself, which becomes the server.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [parent, program, rest @ ..] = arguments else { bail!("{COMMAND} is for the update alone") };
    // A state survives SIGKILL, and a server that writes a dump would only see a milder signal when that is whole.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be tied to the update")?;
    if getppid() != parent.parse().ok().and_then(Pid::from_raw) {
        bail!("the update has ended already");
    }
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}
