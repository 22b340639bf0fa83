//! Where to listen: `HOST:PORT` or `unix:PATH`.

use super::stream::Stream;
use crate::{Error, Result};
use mio::net::{TcpListener, UnixListener};
use std::net::ToSocketAddrs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    /// With the path to remove at the end.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Opens the socket that `address` says.
    pub(super) fn bind(address: &str) -> Result<Self> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Self::bind_unix(Path::new(path), address);
        }
        let doing = || format!("listen on {address}");
        let resolved = address.to_socket_addrs().map_err(|e| Error::io(doing(), &e))?;
        let mut last = None;
        for one in resolved {
            match TcpListener::bind(one) {
                Ok(listener) => return Ok(Self::Tcp(listener)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(
            || Error::Invalid { what: format!("{address} names no address to listen on") },
            |e| Error::io(doing(), &e),
        ))
    }

    fn bind_unix(path: &Path, address: &str) -> Result<Self> {
        let bind = || UnixListener::bind(path);
        let listener = match bind() {
            // A socket file that nobody answers at was left behind by a crash.
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && is_stale(path) => {
                let _ = std::fs::remove_file(path);
                bind()
            }
            other => other,
        };
        let listener = listener.map_err(|e| Error::io(format!("listen on {address}"), &e))?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// The address as clients need it: with the port that the system chose.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(|_| "?".into(), |a| a.to_string()),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    pub(super) fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Neither is worth refusing a client for.
                let _ = stream.set_nodelay(true);
                let _ = socket2::SockRef::from(&stream).set_keepalive(true);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    pub(super) fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener, _) => listener,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}
