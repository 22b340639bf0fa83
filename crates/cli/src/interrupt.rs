//! Ctrl-C and SIGTERM: long work looks here between two records and stops in order.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C and SIGTERM only set the flag; a second one ends the process at once.
pub(crate) fn catch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        // Relaxed: the flag carries no data with it.
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .context("cannot catch Ctrl-C")
}

/// True when the work should stop.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
