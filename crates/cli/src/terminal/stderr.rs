//! Standard error: what is said there is for people. Where it cannot be written, nothing else changes.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Says one line, in one write, so that lines of different processes do not mix.
pub(crate) fn line(line: Arguments<'_>) {
    // A command that has done its work succeeds, even if its message cannot be written.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
