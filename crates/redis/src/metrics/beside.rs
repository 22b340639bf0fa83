//! The process beside the server that answers scrapes. The launcher makes it before it becomes the server; it is no
//! child of the server's, and ends when the server does.

use super::http::{MetricsSource, serve};
use super::info::ListenPlace;
use crate::request::{Request, Usage};
use crate::{address, detached};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The password goes to the process by its environment, which other users cannot read.
const PASSWORD: &str = "MANGROVE_REDIS_METRICS_PASSWORD";

/// What the launcher runs itself as.
pub(crate) const COMMAND: &str = "serve-metrics";

/// Makes the process, if a port was asked for. The calling process becomes the server.
pub(crate) fn start(request: &Request, dir: &Path) -> Result<()> {
    let Some(port) = request.metrics_port else { return Ok(()) };
    let place = place(request)?;
    let host = request.metrics_bind.as_deref().unwrap_or("127.0.0.1");
    let listener = TcpListener::bind((host, port))
        .with_context(|| format!("cannot listen for scrapes at {host}:{port}"))?;
    let password = request.last("requirepass").map(str::to_owned).filter(|password| !password.is_empty());
    let password = password.or_else(|| std::env::var("REDISCLI_AUTH").ok());
    // The server would wonder about a child that it did not make.
    detached::start(|process| {
        process.args([COMMAND, &std::process::id().to_string()]).stdin(OwnedFd::from(listener));
        match &place {
            ListenPlace::Socket(path) => process.arg("socket").arg(path).current_dir(dir),
            ListenPlace::Port(host, port) => process.args(["port", host, &port.to_string()]),
        };
        if let Some(password) = password {
            process.env(PASSWORD, password);
        }
    })
}

/// How the process reaches the server.
fn place(request: &Request) -> Result<ListenPlace> {
    if let Some(socket) = request.last("unixsocket").filter(|socket| !socket.is_empty()) {
        // The server goes to its directory, and so does the process: a path of a socket must be short.
        return Ok(ListenPlace::Socket(socket.into()));
    }
    let port = request.last("port").unwrap_or("6379");
    let port: u16 = port.parse().with_context(|| format!("{port} is no port"))?;
    if port == 0 {
        let sentence = "--metrics-port needs a way to ask the server: a port without TLS, or --unixsocket";
        return Err(Usage(sentence.to_owned()).into());
    }
    let host = request.last("bind").and_then(address::host).unwrap_or("127.0.0.1");
    if (host, port).to_socket_addrs().is_err() {
        bail!("{host} is no address of this machine");
    }
    Ok(ListenPlace::Port(host.to_owned(), port))
}

/// The process itself. Its standard input is the socket that it listens at.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (server, place) = match words[..] {
        [server, "socket", path] => (server, ListenPlace::Socket(path.into())),
        [server, "port", host, port] => (server, ListenPlace::Port(host.to_owned(), port.parse()?)),
        _ => bail!("{COMMAND} is for the launcher alone"),
    };
    let server = server.parse().ok().and_then(Pid::from_raw).context("a server without a number")?;
    let server = pidfd_open(server, PidfdFlags::empty()).context("the server has ended already")?;
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let source = MetricsSource { place, password: std::env::var(PASSWORD).ok() };
    std::thread::spawn(move || serve(&listener, source));
    let mut ended = [rustix::event::PollFd::new(&server, rustix::event::PollFlags::IN)];
    while rustix::event::poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
    Ok(())
}
