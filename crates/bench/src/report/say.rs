//! Words to whoever runs a benchmark: the only place that writes to the standard streams.

use anyhow::Context as _;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Says one line on standard error, for people: where it cannot be written, nothing else changes.
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
