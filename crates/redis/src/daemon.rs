//! `daemonize yes`: the server must not fork once its state is open, so the daemon is this program again. The caller
//! gets control back when the server serves, or learns why it does not.

use crate::request::Request;
use crate::said::{Said, last_lines};
use crate::{address, detached};
use anyhow::{Context, Result, bail};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// The environment tells the server that it is a daemon, though it is not to make itself one.
const DAEMON: &str = "MANGROVE_REDIS_DAEMON";
/// Where a daemon without a log file says why it does not start.
const SAID: &str = "state.stderr";

/// Returns when the server serves; fails with what the daemon said if it ended before.
pub(crate) fn start(arguments: &[String], request: &Request, dir: &Path) -> Result<()> {
    let name = address::name_of_start();
    let said = match request.last("logfile").filter(|file| !file.is_empty()) {
        Some(file) => dir.join(file),
        None => dir.join(SAID),
    };
    let mut options = std::fs::OpenOptions::new();
    let log = options.create(true).append(true).open(&said);
    let mut log = log.with_context(|| format!("cannot write {}", said.display()))?;
    let begin = log.metadata()?.len();
    let stderr = log.try_clone()?;
    let mut daemon = detached::child(|process| {
        // Without a log file the server logs to its standard output. When this process is gone nobody reads that.
        process.args(arguments).args(["--daemonize", "no"]);
        process.env(address::START, &name).env(DAEMON, "1");
        process.stderr(stderr).stdout(std::process::Stdio::piped());
    })?;
    let mut written = Said::of(daemon.stdout.take());
    loop {
        if address::serves(dir, &name) {
            return Ok(());
        }
        if let Some(status) = daemon.try_wait()? {
            log.write_all(&written.end()).with_context(|| format!("cannot write {}", said.display()))?;
            let text = last_lines(&behind(&said, begin));
            bail!("the server ended with {status}: {text} (also in {})", said.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the file has from there on.
fn behind(file: &Path, begin: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(file)
        && file.seek(SeekFrom::Start(begin)).is_ok()
    {
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}
