//! Output to the user who runs a benchmark: the only place that writes to the standard streams.

use anyhow::Context as _;
use std::fmt::Arguments;
use std::io::{self, Write};

/// The reader of standard output has gone (`mangrove bench map --only list | head -1`).
#[derive(Debug)]
pub struct OutputUnread;

impl std::fmt::Display for OutputUnread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output has gone")
    }
}

impl std::error::Error for OutputUnread {}

/// Writes one line to standard error, for people. If that fails, the run continues.
pub(crate) fn note(line: Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes `text` to standard output.
///
/// # Errors
/// It cannot be written; [`OutputUnread`] where its reader is gone.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(OutputUnread.into()),
        done => done.context("cannot write standard output"),
    }
}
