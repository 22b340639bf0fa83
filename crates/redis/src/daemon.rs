//! `daemonize yes`: the server must not fork once its state is open, so the daemon is this program again. The caller
//! gets control back when the server serves, or learns why it does not.

use crate::request::Request;
use crate::{address, detached};
use anyhow::{Context, Result, bail};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ChildStdout;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where a daemon without a log file says why it does not start.
const SAID: &str = "state.stderr";
/// Of what the daemon said a message has so many lines, the last ones.
const LINES_MAX: usize = 8;
/// Of the log of a start so much is kept.
const LOG_BYTES_MAX: usize = 64 << 10;

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
        process.args(arguments).args(["--daemonize", "no"]).env(address::START, &name);
        process.stderr(stderr).stdout(std::process::Stdio::piped());
    })?;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let reader = daemon.stdout.take().map(|stdout| {
        let kept = kept.clone();
        std::thread::spawn(move || keep_end(stdout, &kept))
    });
    loop {
        if address::serves(dir, &name) {
            return Ok(());
        }
        if let Some(status) = daemon.try_wait()? {
            if let Some(reader) = reader {
                let _ = reader.join();
            }
            let written = kept.lock().map(|kept| kept.clone()).unwrap_or_default();
            log.write_all(&written).with_context(|| format!("cannot write {}", said.display()))?;
            let text = last_lines(&said, begin);
            bail!("the server ended with {status}: {text} (also in {})", said.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn keep_end(mut stdout: ChildStdout, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stdout.read(&mut piece) {
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&piece[..len]);
        let over = kept.len().saturating_sub(LOG_BYTES_MAX);
        kept.drain(..over);
    }
}

fn last_lines(file: &Path, begin: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(file)
        && file.seek(SeekFrom::Start(begin)).is_ok()
    {
        let _ = file.read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}
