//! Output to the user who runs a benchmark: the only place that writes to the standard streams.

use anyhow::Context as _;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes one line to standard error, for people. If that fails, the run continues.
pub(crate) fn note(line: Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes `text` to standard output.
///
/// # Errors
/// It cannot be written.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write standard output")
}
