//! Standard output, buffered, with errors told instead of panics.

use std::io::{self, BufWriter, StdoutLock, Write};

/// Standard output, whose errors say that it is.
pub(crate) struct Stdout(StdoutLock<'static>);

fn named(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot write standard output: {e}"))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// The buffered standard output of this process.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::with_capacity(64 << 10, Stdout(io::stdout().lock()))
}

/// Prints lines. When the reader has seen enough of them, the command goes on to its own exit code.
pub(crate) fn lines<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> anyhow::Result<()> {
    let mut out = stdout();
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{}", line.as_ref()));
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
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
