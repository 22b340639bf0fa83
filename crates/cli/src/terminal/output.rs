//! Standard output, buffered, with errors told instead of panics.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

/// Standard output, whose errors say that it is.
pub(crate) struct Stdout(StdoutLock<'static>);

/// Inside the errors of [`Stdout`]: why it cannot be written.
#[derive(Debug)]
struct OutputError(io::Error);

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write standard output: {}", self.0)
    }
}

impl std::error::Error for OutputError {}

fn named(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), OutputError(e))
}

/// True for the error of a standard output whose reader is gone; not for that of another pipe.
pub(crate) fn is_unread(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::BrokenPipe && e.get_ref().is_some_and(|inner| inner.is::<OutputError>())
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

/// Makes what was written to standard output durable.
pub(crate) fn sync() -> io::Result<()> {
    sync_where_kept(&File::from(io::stdout().as_fd().try_clone_to_owned()?)).map_err(named)
}

/// Makes what was written durable, in a file or on a disk. Some file systems (NFS) take the bytes first, and tell only
/// then that they have no space for them.
pub(crate) fn sync_where_kept(out: &File) -> io::Result<()> {
    let kind = out.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(());
    }
    match out.sync_all() {
        // A file system whose files cannot be synced.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

/// Prints what `write` writes. When the reader has seen enough of it, the command goes on to its own exit code.
fn print(write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = stdout();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints lines.
pub(crate) fn lines<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> anyhow::Result<()> {
    print(|out| lines.into_iter().try_for_each(|line| writeln!(out, "{}", line.as_ref())))
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    print(|out| out.write_all(bytes))
}

/// Prints one JSON value and a newline.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// Prints a two-column table.
pub(crate) fn table<K: AsRef<str>>(rows: &[(K, String)]) -> anyhow::Result<()> {
    let width = rows.iter().map(|(k, _)| k.as_ref().chars().count()).max().unwrap_or(0);
    print(|out| rows.iter().try_for_each(|(name, value)| writeln!(out, "{:<width$}  {value}", name.as_ref())))
}
