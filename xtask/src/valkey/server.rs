//! A server as a process: the durable one, or a stock one for comparison and as a peer.

use super::resp::{Address, RespConnection};
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer so long after its start never will.
const START_MAX: Duration = Duration::from_secs(300);
/// How long a server may take to end after SHUTDOWN.
const END_MAX: Duration = Duration::from_secs(300);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(5);

/// Where the programs are.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Programs {
    /// The durable server [default: $MANGROVE_REDIS_SERVER, else what `make redis` has built]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Valkey's own source directory, built [default: $MANGROVE_VALKEY, else where `make redis` has built it]
    #[arg(long, value_name = "DIR")]
    valkey: Option<PathBuf>,
}

/// Where `make redis` builds.
const BUILDS: &str = "data/valkey";

impl Programs {
    /// The durable server.
    pub(crate) fn durable(&self) -> Result<PathBuf> {
        let named =
            self.server.clone().or_else(|| std::env::var_os("MANGROVE_REDIS_SERVER").map(PathBuf::from));
        let found = named.unwrap_or_else(|| tree::root().join(BUILDS).join("current/valkey-server"));
        ensure!(
            found.is_file(),
            "the durable server is not built: there is no {}; `make redis` builds it, and --server or \
             MANGROVE_REDIS_SERVER names another",
            found.display()
        );
        absolute(&found)
    }

    /// A directory with `src/valkey-server`, which is a stock server, and `tests`.
    pub(super) fn valkey(&self) -> Result<PathBuf> {
        let named = self.valkey.clone().or_else(|| std::env::var_os("MANGROVE_VALKEY").map(PathBuf::from));
        let found = named.unwrap_or_else(|| tree::root().join(BUILDS).join("source"));
        ensure!(
            found.join("src/valkey-server").is_file(),
            "Valkey is not built: there is no {}/src/valkey-server; `make redis` fetches and builds it, and \
             --valkey or MANGROVE_VALKEY names another",
            found.display()
        );
        absolute(&found)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// What keeps the data of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerKind {
    /// The durable server
    Durable,
    /// A stock server with appendonly yes, appendfsync always: what the durable one is compared with
    AofAlways,
    /// A stock server with appendonly yes, appendfsync everysec
    AofEverysec,
    /// A stock server that keeps nothing
    Nothing,
}

/// How to start a server.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) kind: ServerKind,
    pub(super) program: PathBuf,
    /// Its working directory, with its state and its log.
    pub(super) dir: PathBuf,
    pub(super) address: Address,
    /// Of a durable server: what the state lies on, as MANGROVE_REDIS_MEDIUM takes it.
    pub(super) medium: String,
    /// Of a durable server: the hook that is left out.
    pub(super) plant: Option<String>,
    /// Of a durable server: its log, in bytes; the usual one without it.
    pub(super) log_bytes: Option<u64>,
    /// Directives on the command line.
    pub(super) directives: Vec<String>,
}

impl Setup {
    pub(super) fn new(kind: ServerKind, programs: &Programs, dir: PathBuf, address: Address) -> Result<Self> {
        let program = match kind {
            ServerKind::Durable => programs.durable()?,
            _ => programs.valkey()?.join("src/valkey-server"),
        };
        let (medium, directives) = ("file".to_owned(), Vec::new());
        Ok(Self { kind, program, dir, address, medium, plant: None, log_bytes: None, directives })
    }

    /// Adds a directive.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.directives.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Removes everything that servers have left in the directory.
    pub(super) fn forget(&self) -> Result<()> {
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        Ok(())
    }

    /// Where the server writes its log.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Starts the server and does not wait for it.
    pub(super) fn spawn(&self) -> Result<ValkeyServer> {
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        let log =
            OpenOptions::new().append(true).create(true).open(self.log()).context("cannot open the log")?;
        let mut command = Command::new(&self.program);
        match &self.address {
            Address::Unix(path) => {
                let _ = std::fs::remove_file(path);
                command.args(["--port", "0", "--unixsocket"]).arg(path);
            }
            Address::Port(port) => {
                command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
            }
        }
        command.arg("--dir").arg(&self.dir).args(["--save", "", "--enable-debug-command", "yes"]);
        command.args(match self.kind {
            ServerKind::Durable | ServerKind::Nothing => &[][..],
            ServerKind::AofAlways => &["--appendonly", "yes", "--appendfsync", "always"],
            ServerKind::AofEverysec => &["--appendonly", "yes", "--appendfsync", "everysec"],
        });
        command.args(&self.directives);
        if self.kind == ServerKind::Durable {
            self.environment(&mut command);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot open the log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(ValkeyServer { child, address: self.address.clone(), log: self.log() })
    }

    /// Starts the server, waits until it serves, and connects.
    pub(super) fn start(&self) -> Result<(ValkeyServer, RespConnection)> {
        let mut server = self.spawn()?;
        let connection = server.connect()?;
        Ok((server, connection))
    }

    /// What the durable server is told by its environment.
    fn environment(&self, command: &mut Command) {
        command.env("MANGROVE_REDIS_STATE", self.dir.join("mangrove"));
        command.env("MANGROVE_REDIS_MEDIUM", &self.medium);
        if let Some(plant) = &self.plant {
            command.env("MANGROVE_REDIS_WITHOUT", plant);
        }
        if let Some(bytes) = self.log_bytes {
            command.env("MANGROVE_REDIS_LOG_BYTES", bytes.to_string());
        }
    }
}

/// A running server; killed when dropped.
pub(super) struct ValkeyServer {
    child: Child,
    address: Address,
    log: PathBuf,
}

impl ValkeyServer {
    /// Connects as soon as the server serves.
    pub(super) fn connect(&mut self) -> Result<RespConnection> {
        let since = Instant::now();
        loop {
            if let Ok(mut connection) = RespConnection::open(&self.address)
                // While it loads, it refuses.
                && connection.ask(&["PING"]).is_ok()
            {
                return Ok(connection);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}; its log ends:\n{}", self.last_words());
            }
            ensure!(since.elapsed() < START_MAX, "no answer in {START_MAX:?}:\n{}", self.last_words());
            std::thread::sleep(PAUSE);
        }
    }

    /// The end of the log.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(1500)..]).into_owned()
    }

    /// Whether it has ended by itself, and how.
    pub(super) fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// SIGKILL, and waits until the process is gone. That it ended by itself before is an error.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the server")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        ensure!(
            status.signal() == Some(libc::SIGKILL),
            "the server ended by itself with {status}; its log ends:\n{}",
            self.last_words()
        );
        Ok(())
    }

    /// SHUTDOWN, and waits until the process is gone. That it ends with an error is one.
    pub(super) fn shut_down(mut self, connection: &mut RespConnection) -> Result<()> {
        connection.add(&super::resp::words(&["SHUTDOWN", "NOSAVE"]));
        connection.send().context("cannot send SHUTDOWN")?;
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.ended()? {
                break status;
            }
            ensure!(since.elapsed() < END_MAX, "SHUTDOWN does not end the server:\n{}", self.last_words());
            std::thread::sleep(PAUSE);
        };
        ensure!(
            status.success(),
            "the server ended with {status} at SHUTDOWN; its log ends:\n{}",
            self.last_words()
        );
        Ok(())
    }
}

impl Drop for ValkeyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Directives that make much of little data: collections leave their compact encodings early, and small ones keep them;
/// lists are compressed if they are `packed`.
pub(crate) fn small_limits(packed: bool, threads: bool) -> Vec<String> {
    let mut directives = Vec::new();
    let mut add = |name: &str, value: &str| directives.extend([format!("--{name}"), value.to_owned()]);
    for kind in ["hash", "zset", "set"] {
        add(&format!("{kind}-max-listpack-entries"), "8");
    }
    add("list-max-listpack-size", if packed { "5" } else { "-2" });
    add("list-compress-depth", if packed { "1" } else { "0" });
    add("io-threads", if threads { "3" } else { "1" });
    add("databases", "32");
    add("hz", "100");
    directives
}

/// The socket of servers of this process.
pub(super) fn socket(name: &str) -> Address {
    Address::Unix(std::env::temp_dir().join(format!("mangrove-{}-{name}.sock", std::process::id())))
}

/// A port on which nothing listens now, with a free one `beyond` it where that is not 0.
pub(crate) fn free_port(beyond: u16) -> Result<u16> {
    for _ in 0..100 {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
        let port = listener.local_addr()?.port();
        let Some(second) = port.checked_add(beyond) else { continue };
        if beyond == 0 || std::net::TcpListener::bind(("127.0.0.1", second)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}

/// A medium as MANGROVE_REDIS_MEDIUM takes it; `emulated` alone adds no latency.
pub(super) fn medium(name: &str) -> Result<String> {
    match name {
        "emulated" => Ok("emulated=0/0".into()),
        "file" | "dax" => Ok(name.to_owned()),
        _ if name.starts_with("emulated=") => Ok(name.to_owned()),
        _ => bail!("the server's medium is file, dax, emulated or emulated=WRITE/READ, not {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in the place of a server.
    fn server(script: &str) -> Result<ValkeyServer> {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn()?;
        Ok(ValkeyServer { child, address: socket("none"), log: PathBuf::from("none") })
    }

    #[test]
    fn a_server_that_had_ended_was_not_killed() -> Result<()> {
        server("exec sleep 600")?.kill()?;
        let mut failed = server("exit 1")?;
        failed.child.wait()?;
        let error = failed.kill().expect_err("it ended by itself");
        assert!(error.to_string().contains("exit status: 1"), "{error}");
        Ok(())
    }

    #[test]
    fn a_server_that_dies_of_its_shutdown_is_found() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let address = Address::Unix(dir.path().join("s"));
        let Address::Unix(path) = &address else { unreachable!("see above") };
        let _listener = std::os::unix::net::UnixListener::bind(path)?;
        server("exit 0")?.shut_down(&mut RespConnection::open(&address)?)?;
        let died = server("kill -SEGV $$")?.shut_down(&mut RespConnection::open(&address)?);
        assert!(died.is_err_and(|error| error.to_string().contains("at SHUTDOWN")));
        Ok(())
    }
}
