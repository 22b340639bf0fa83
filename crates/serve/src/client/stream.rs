//! A client's socket, of either kind.

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(buffer))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => stream.flush())
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        either!(self, stream => stream.register(registry, token, interests))
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        either!(self, stream => stream.reregister(registry, token, interests))
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        either!(self, stream => stream.deregister(registry))
    }
}
