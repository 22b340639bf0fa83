//! Where to listen: `HOST:PORT` or `unix:PATH`.

use crate::client::stream::Stream;
use crate::io_error::io_error;
use mangrove_durable::{Error, Result};
use mangrove_sys::make_above_standard;
use mio::net::{TcpListener, UnixListener};
use std::net::ToSocketAddrs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A listening socket.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketName),
}

/// The name of a socket, removed at the end.
#[derive(Debug)]
pub(crate) struct SocketName {
    /// As it was given.
    path: PathBuf,
    /// Where that is: the process may change its working directory.
    place: Option<PathBuf>,
    /// Device and number of the socket.
    id: Option<(u64, u64)>,
}

impl ListeningSocket {
    /// Opens the socket that `address` names.
    pub(crate) fn bind(address: &str) -> Result<Self> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Self::bind_unix(Path::new(path), address);
        }
        let doing = || format!("listen on {address}");
        let resolved = address.to_socket_addrs().map_err(|e| io_error(doing(), &e))?;
        let mut last = None;
        for one in resolved {
            match make_above_standard(|| TcpListener::bind(one)) {
                Ok(listener) => return Ok(Self::Tcp(listener)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(
            || Error::Invalid { what: format!("{address} names no address to listen on") },
            |e| io_error(doing(), &e),
        ))
    }

    fn bind_unix(path: &Path, address: &str) -> Result<Self> {
        let bind = || make_above_standard(|| UnixListener::bind(path));
        let listener = match bind() {
            // A socket file that no process listens at is left from a crash.
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && is_stale(path) => {
                let _ = std::fs::remove_file(path);
                bind()
            }
            other => other,
        };
        let listener = listener.map_err(|e| io_error(format!("listen on {address}"), &e))?;
        Ok(Self::Unix(listener, SocketName::new(path)))
    }

    /// The address for clients: with the port that the system chose.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(|_| "?".into(), |a| a.to_string()),
            Self::Unix(_, name) => format!("unix:{}", name.path.display()),
        }
    }

    /// What the program prints with its standard output closed must not go to a client.
    pub(crate) fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = make_above_standard(|| listener.accept())?;
                // A client is served also where the system refuses one of these.
                let _ = stream.set_nodelay(true);
                let _ = socket2::SockRef::from(&stream).set_keepalive(true);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener, _) => {
                make_above_standard(|| listener.accept()).map(|(stream, _)| Stream::Unix(stream))
            }
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener, _) => listener,
        }
    }
}

impl SocketName {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), place: std::path::absolute(path).ok(), id: id(path) }
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        // Another file may have the name by now.
        if let Some(place) = self.place.as_deref().filter(|place| id(place) == self.id) {
            let _ = std::fs::remove_file(place);
        }
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}
