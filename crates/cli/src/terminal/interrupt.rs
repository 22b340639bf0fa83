//! Signals: long work looks here between two records and stops in order.
//!
//! A signal that is ignored when the command starts stays ignored: the program that started it (`nohup`, a script's
//! `&`) wanted that.

use crate::terminal::stderr;
use anyhow::Context;
use mangrove_sys::without_signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Nothing looks at `ASKED` yet: a signal ends the process where it stands.
static AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

fn heeded() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&s| !is_ignored(s))
}

/// From now on Ctrl-C, SIGTERM and SIGHUP end the process at once, with the exit code that all commands have then.
pub(crate) fn end_at_once() -> anyhow::Result<()> {
    // signal-hook installs its handler for a signal first, and then says what that does: a signal that came in between
    // would be lost. So it waits.
    without_signals(|| {
        for signal in heeded() {
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&AT_ONCE))
                .context("cannot catch Ctrl-C")?;
        }
        Ok(())
    })
}

/// From now on Ctrl-C, SIGTERM and SIGHUP only set the flag; a second one ends the process at once.
pub(crate) fn catch() -> anyhow::Result<()> {
    for signal in heeded() {
        // In this order: the first one finds the flag not yet set.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&ASKED))
            .and_then(|_| flag::register(signal, Arc::clone(&ASKED)))
            .context("cannot catch Ctrl-C")?;
    }
    // Relaxed: the flag carries no data with it.
    AT_ONCE.store(false, Ordering::Relaxed);
    Ok(())
}

/// True when the work should stop.
pub(crate) fn asked() -> bool {
    // Relaxed: the flag carries no data with it.
    ASKED.load(Ordering::Relaxed)
}

/// The same, for work that asks whether to go on.
pub(crate) fn go_on() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What the work that makes `target` returned; `None`, after a message, where Ctrl-C has stopped it.
pub(crate) fn unless_stopped<T, E: std::error::Error + Send + Sync + 'static>(
    result: Result<T, E>,
    is_stop: impl FnOnce(&E) -> bool,
    target: &Path,
) -> anyhow::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(e) if is_stop(&e) => {
            stderr::line(format_args!("mangrove: interrupted; nothing was left at {}", target.display()));
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// From now on a write past the file size limit (`ulimit -f`) is an error like any other, not the end of the
/// process.
pub(crate) fn outlive_size_limit() -> anyhow::Result<()> {
    if !is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::default()).context("cannot catch SIGXFSZ")?;
    }
    Ok(())
}

/// True when this process ignores `signal`; where /proc does not say, none is ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
