//! The servers that are compared, as processes of this bench.

use super::args::RedisArgs;
use super::processor::{Pinning, Used};
use crate::report::report::OURS;
use anyhow::{Context as _, bail, ensure};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer so long after its start never will.
const START_MAX: Duration = Duration::from_secs(120);
/// Between two attempts to connect: the section on restarts counts it.
const PAUSE: Duration = Duration::from_millis(1);

/// How a server keeps its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// Its name in the report.
    pub(super) name: &'static str,
    is_durable: bool,
    /// Of a durable server, by the environment; of a stock one, directives.
    settings: &'static [(&'static str, &'static str)],
}

/// All of them; the first is what the others are compared with.
pub(super) const SUBJECTS: [Subject; 7] = [
    Subject { name: OURS, is_durable: true, settings: &[("MANGROVE_REDIS_MEDIUM", "file")] },
    Subject {
        name: "Mangrove (interval 1 s)",
        is_durable: true,
        settings: &[("MANGROVE_REDIS_MEDIUM", "file"), ("MANGROVE_REDIS_INTERVAL_MS", "1000")],
    },
    Subject {
        name: "Mangrove (emulated 0/0)",
        is_durable: true,
        settings: &[("MANGROVE_REDIS_MEDIUM", "emulated=0/0")],
    },
    Subject {
        name: "Mangrove (emulated 300/100)",
        is_durable: true,
        // What is added to the 100 ns that DRAM is taken to have.
        settings: &[("MANGROVE_REDIS_MEDIUM", "emulated=200/0")],
    },
    Subject { name: "Valkey", is_durable: false, settings: &[("--appendonly", "no")] },
    Subject {
        name: EVERYSEC,
        is_durable: false,
        settings: &[("--appendonly", "yes"), ("--appendfsync", "everysec")],
    },
    Subject {
        name: ALWAYS,
        is_durable: false,
        settings: &[("--appendonly", "yes"), ("--appendfsync", "always")],
    },
];

pub(super) const EVERYSEC: &str = "AOF everysec";
/// The rival that the goals name.
pub(super) const ALWAYS: &str = "AOF always";

impl Subject {
    /// Whether its data survives the process.
    pub(super) fn survives(&self) -> bool {
        self.name != "Valkey"
    }

    /// The program.
    pub(super) fn program<'a>(&self, args: &'a RedisArgs) -> &'a Path {
        if self.is_durable { &args.server } else { &args.stock }
    }

    /// Its directory.
    pub(super) fn dir(&self, args: &RedisArgs) -> PathBuf {
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        args.dir.join(format!("redis-{name}"))
    }

    /// Starts it over what its directory holds, and waits until it serves.
    pub(super) fn start(&self, args: &RedisArgs, pinning: &Pinning) -> anyhow::Result<Running> {
        let dir = self.dir(args);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        // A path of a socket has at most 107 bytes.
        let own = SUBJECTS.iter().position(|subject| subject.name == self.name).unwrap_or(0);
        let socket = std::env::temp_dir().join(format!("mangrove-bench-{}-{own}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
        let mut command = Command::new(self.program(args));
        command.args(["--port", "0", "--unixsocket"]).arg(&socket).arg("--dir").arg(&dir);
        command.args(["--save", "", "--io-threads", &args.io_threads.to_string()]);
        if self.is_durable {
            command.env("MANGROVE_REDIS_STATE", dir.join("mangrove")).envs(self.settings.iter().copied());
        } else {
            command.args(self.settings.iter().flat_map(|(name, value)| [name, value]));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = pinning.on_servers(|| {
            command.spawn().with_context(|| format!("cannot start {}", self.program(args).display()))
        })?;
        let mut running = Running { child, socket, dir };
        running.wait_until_it_serves()?;
        Ok(running)
    }
}

/// A server that serves; killed when dropped.
pub(super) struct Running {
    child: Child,
    pub(super) socket: PathBuf,
    dir: PathBuf,
}

impl Running {
    fn wait_until_it_serves(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while !self.answers() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}; see {}", self.dir.join("log").display());
            }
            ensure!(since.elapsed() < START_MAX, "no answer: see {}", self.dir.join("log").display());
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// While it loads its data it refuses.
    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(&self.socket) else { return false };
        let mut reply = [0; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && &reply == b"+PONG\r\n"
    }

    /// The processor time that it has used.
    pub(super) fn used(&self) -> anyhow::Result<Used> {
        Used::of(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
