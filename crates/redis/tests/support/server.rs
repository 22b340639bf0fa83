//! A durable server of its own for each test, in a directory of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Polls at most, five minutes of them; an event that never comes fails the test.
pub(crate) const POLLS: u32 = 15_000;
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// A node of a cluster that listens at no port: no machine has this address, and the server may do without it.
pub(crate) const CLUSTER: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--databases",
    "1",
    "--bind",
    "-192.0.2.1",
    "--cluster-node-timeout",
    "600000",
];

/// A line of `nodes.conf`: a primary on this machine, whose bus is at this port, with these slots.
pub(crate) fn cluster_node(digit: &str, flags: &str, port: u16, slots: &str) -> String {
    let id = digit.repeat(40);
    format!("{id} 127.0.0.1:{port}@{port} {flags} - 0 0 {digit} connected {slots}\n")
}

/// Whether there is a server to test.
///
/// # Panics
/// Without one where all tests run: `make test` has built it before.
pub(crate) fn is_built() -> bool {
    let is_named = std::env::var_os("MANGROVE_REDIS_BUILDS").is_some();
    let is_built = is_named || builds().join("current/valkey-server").exists();
    let is_due = std::env::var_os("MANGROVE_TEST_WHOLE").is_some();
    assert!(is_built || !is_due, "there is no server in {}", builds().display());
    is_built
}

/// Whether it is so once within five minutes, however often it is tried: for what a thread may be too late for.
pub(crate) fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > POLL * POLLS {
            return false;
        }
    }
    true
}

/// Where the builds are.
pub(crate) fn builds() -> PathBuf {
    let builds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/valkey");
    std::env::var_os("MANGROVE_REDIS_BUILDS").map_or(builds, PathBuf::from)
}

/// A server on a socket in its directory; killed at the end.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) dir: PathBuf,
}

impl Server {
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        Self::start_with(dir, more, &[])
    }

    /// Started, and serving.
    pub(crate) fn serving(dir: &Path, more: &[&str]) -> Self {
        Self::serving_with(dir, more, &[])
    }

    /// As `serving`, with these variables in its environment.
    pub(crate) fn serving_with(dir: &Path, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut server = Self::start_with(dir, more, environment);
        assert!(server.is_up(), "{}", server.log());
        server
    }

    pub(crate) fn start_with(dir: &Path, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mangrove-redis"))
            .args(["--port", "0", "--unixsocket", "s", "--dir"])
            .arg(dir)
            .arg("--builds")
            .arg(builds())
            .args(more)
            .envs(environment.iter().copied())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, dir: dir.to_owned() }
    }

    /// Until it serves; false when it ended instead.
    pub(crate) fn is_up(&mut self) -> bool {
        for _ in 0..POLLS {
            if self
                .ask(&[b"PING"])
                .is_some_and(|answer| answer.starts_with('+') || answer.starts_with("-NOAUTH"))
            {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(POLL);
        }
        panic!("the server does not come up: {}", self.log());
    }

    /// Waits until the cluster, as this node sees it, takes writes: some seconds after the start.
    pub(crate) fn awaits_cluster(&self) {
        let takes_writes = (0..POLLS).any(|_| {
            std::thread::sleep(POLL);
            self.ask(&[b"SET", b"key:0", b"v"]).as_deref() == Some("+OK\r\n")
        });
        assert!(takes_writes, "{}", self.log());
    }

    /// A client that has sent a line, and whose answer is not read yet.
    pub(crate) fn send(&self, line: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.dir.join("s")).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        stream
    }

    /// The answer's first line, and the second of a bulk.
    pub(crate) fn ask(&self, words: &[&[u8]]) -> Option<String> {
        let mut stream = UnixStream::connect(self.dir.join("s")).ok()?;
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        stream.write_all(&command).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(len) = line.strip_prefix('$') {
            let mut bulk = vec![0; len.trim().parse().ok()?];
            reader.read_exact(&mut bulk).ok()?;
            return String::from_utf8(bulk).ok();
        }
        Some(line)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
