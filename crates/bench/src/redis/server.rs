//! A server that runs, as a process of this bench.

use super::processor::Used;
use super::server_dir::last_words;
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server that does not answer so long after its start never will.
const START_MAX: Duration = Duration::from_secs(120);
/// Between two attempts to connect: the section on restarts counts it.
const PAUSE: Duration = Duration::from_millis(1);

/// A server that serves; killed when dropped.
pub(super) struct RunningServer {
    child: Child,
    pub(super) socket: PathBuf,
    dir: PathBuf,
}

impl RunningServer {
    /// A name for a socket, which may have 107 bytes at most.
    pub(super) fn new_socket() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("mangrove-bench-{}-{own}.sock", std::process::id()))
    }

    /// Waits until the process serves at `socket`.
    pub(super) fn wait_for(child: Child, socket: PathBuf, dir: PathBuf) -> anyhow::Result<Self> {
        let mut running = Self { child, socket, dir };
        let since = Instant::now();
        while !running.answers() {
            if let Some(status) = running.child.try_wait()? {
                bail!("the server ended with {status}; its log ends: {}", last_words(&running.dir));
            }
            ensure!(since.elapsed() < START_MAX, "no answer; the log ends: {}", last_words(&running.dir));
            std::thread::sleep(PAUSE);
        }
        Ok(running)
    }

    /// While it loads its data it refuses.
    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(&self.socket) else { return false };
        let mut reply = [0; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && &reply == b"+PONG\r\n"
    }

    /// The answer to a command of plain words: one line, or the text of a bulk.
    pub(super) fn ask(&self, words: &str) -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(&self.socket).context("cannot connect to the server")?;
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        ensure!(!line.starts_with('-') && !line.is_empty(), "{words}: the server answers '{line}'");
        let Some(len) = line.strip_prefix('$') else { return Ok(line[1..].to_owned()) };
        let mut text = vec![0; len.parse().with_context(|| format!("{words}: a bulk of {len} bytes"))?];
        reader.read_exact(&mut text)?;
        Ok(String::from_utf8(text)?)
    }

    /// A field of INFO that is a number.
    pub(super) fn info(&self, section: &str, field: &str) -> anyhow::Result<f64> {
        let text = self.ask(&format!("INFO {section}"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|v| v.trim().parse().ok()).with_context(|| format!("INFO {section} has no {field}"))
    }

    /// Lets it do nothing until `go_on`: what it has to do in the background does not disturb another's measurement.
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process without a number")?;
        kill_process(pid, signal).context("cannot stop or continue a server")
    }

    /// The processor time that it has used.
    pub(super) fn used(&self) -> anyhow::Result<Used> {
        Used::of(self.child.id())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
