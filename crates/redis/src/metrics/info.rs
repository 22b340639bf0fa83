//! Asks the server for INFO, as any client does.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A server that is silent for so long is taken for one that hangs.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// INFO of a server with many commands in use is some 20 KiB.
const INFO_BYTES_MAX: usize = 16 << 20;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenPlace {
    Socket(PathBuf),
    Port(String, u16),
}

/// A connection's reading and writing.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The text of INFO. `password` is that of the default user, if it has one.
pub(super) fn ask(place: &ListenPlace, password: Option<&str>) -> Result<String> {
    let stream: Box<dyn Stream> = match place {
        ListenPlace::Socket(path) => {
            let stream =
                UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            Box::new(stream)
        }
        ListenPlace::Port(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port))
                .with_context(|| format!("cannot connect to {host}:{port}"))?;
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            Box::new(stream)
        }
    };
    let mut stream = BufReader::new(stream);
    if let Some(password) = password {
        let auth = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len());
        stream.get_mut().write_all(auth.as_bytes())?;
        let answer = line(&mut stream)?;
        if answer != "+OK" {
            bail!("the server refuses the password: {answer}");
        }
    }
    stream.get_mut().write_all(b"*1\r\n$4\r\nINFO\r\n")?;
    let head = line(&mut stream)?;
    let Some(len) = head.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
        bail!("the server refuses INFO: {head}");
    };
    if len > INFO_BYTES_MAX {
        bail!("INFO of {len} bytes");
    }
    let mut text = vec![0; len];
    stream.read_exact(&mut text).context("INFO ends early")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).context("no answer of the server")?;
    Ok(line.trim_end().to_owned())
}
