//! One measurement, in a child process where its subject wants an environment of its own.

use super::load::TxnWork;
use super::measure::verified_rate;
use super::peer::{TxnDomain, TxnKind};
use crate::report::say;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) subject: String,
    pub(super) domain: TxnDomain,
    pub(super) work: TxnWork,
    pub(super) threads: usize,
    pub(super) words: usize,
    pub(super) seconds: f64,
    pub(super) dir: PathBuf,
}

/// Transactions per second.
pub(super) fn measure(kind: &dyn TxnKind, task: &Task) -> anyhow::Result<f64> {
    let environment = kind.environment(task.domain);
    if environment.is_empty() {
        return measure_here(kind, task);
    }
    let exe = std::env::current_exe().context("cannot find this program's file")?;
    let output = Command::new(exe)
        .args(["txn", "--child", &serde_json::to_string(task)?])
        .envs(environment)
        .output()
        .context("cannot start this program again")?;
    if !output.status.success() {
        bail!("{}: {}", kind.name(), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("{} answered '{}'", kind.name(), text.trim()))
}

/// The work of a child process.
pub(super) fn run(kinds: &[&dyn TxnKind], task: &str) -> anyhow::Result<()> {
    let task: Task = serde_json::from_str(task).context("no task of this bench")?;
    let Some(kind) = kinds.iter().find(|kind| kind.name() == task.subject) else {
        bail!("there is no subject '{}'", task.subject);
    };
    say::answer(&format!("{}\n", measure_here(*kind, &task)?))
}

fn measure_here(kind: &dyn TxnKind, task: &Task) -> anyhow::Result<f64> {
    let mut heap = kind.open(&task.dir, task.domain, task.work, &task.work.initial(task.words))?;
    verified_rate(&mut *heap, task.work, task.threads, Duration::from_secs_f64(task.seconds))
}
