//! Standard output, buffered, with errors told instead of panics.

use std::io::{self, BufWriter, StdoutLock, Write};

/// The buffered standard output of this process.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Prints one JSON value and a newline.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Prints a two-column table.
pub(crate) fn table<K: AsRef<str>>(rows: &[(K, String)]) -> anyhow::Result<()> {
    let width = rows.iter().map(|(k, _)| k.as_ref().chars().count()).max().unwrap_or(0);
    let mut out = stdout();
    for (name, value) in rows {
        writeln!(out, "{:<width$}  {value}", name.as_ref())?;
    }
    out.flush()?;
    Ok(())
}
