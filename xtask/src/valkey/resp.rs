//! A client of the server's protocol, RESP2: commands go out in pipelines, replies come back one by one.

use anyhow::{Context, Result, bail};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A server that is silent for this long hangs; a busy machine is not so slow.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// A command: its name and its arguments.
pub(super) type Words = Vec<Vec<u8>>;

/// A command of text.
pub(super) fn words(text: &[&str]) -> Words {
    text.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Appends `command` to `to` as it goes over the wire.
pub(super) fn encode(command: &[Vec<u8>], to: &mut Vec<u8>) {
    to.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Integer(i64),
    /// A status or a string.
    Text(Vec<u8>),
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    /// The bytes of a string or a status; an error is an error.
    pub(super) fn text(self) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Integer(number) => Ok(number.to_string().into_bytes()),
            other => bail!("the server answers {other:?} where a string was due"),
        }
    }

    /// A string as text.
    pub(crate) fn string(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.text()?).into_owned())
    }

    pub(super) fn integer(self) -> Result<i64> {
        match self {
            Self::Integer(number) => Ok(number),
            other => bail!("the server answers {other:?} where a number was due"),
        }
    }

    pub(super) fn list(self) -> Result<Vec<Reply>> {
        match self {
            Self::List(list) => Ok(list),
            other => bail!("the server answers {other:?} where a list was due"),
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// A port of the loopback interface.
    Port(u16),
}

trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A connection.
pub(crate) struct RespConnection {
    reader: BufReader<Box<dyn Stream>>,
    unsent: Vec<u8>,
}

impl RespConnection {
    /// # Errors
    /// Nothing listens there.
    pub(crate) fn open(address: &Address) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                Box::new(stream)
            }
            Address::Port(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                Box::new(stream)
            }
        };
        Ok(Self { reader: BufReader::with_capacity(1 << 16, stream), unsent: Vec::new() })
    }

    /// Adds a command to the pipeline.
    pub(super) fn add(&mut self, command: &[Vec<u8>]) {
        encode(command, &mut self.unsent);
    }

    /// Sends the pipeline.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.reader.get_mut().write_all(&unsent)
    }

    /// Reads one reply. A connection that the server's end has closed is [`ErrorKind::UnexpectedEof`].
    pub(super) fn read(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else { return Err(ErrorKind::UnexpectedEof.into()) };
        let Some((kind, rest)) = line.split_first() else { return Err(ErrorKind::InvalidData.into()) };
        let number = || -> io::Result<i64> {
            let text = std::str::from_utf8(rest).map_err(|_| ErrorKind::InvalidData)?;
            text.parse().map_err(|_| ErrorKind::InvalidData.into())
        };
        match kind {
            b'+' => Ok(Reply::Text(rest.to_vec())),
            b'-' => Ok(Reply::Error(String::from_utf8_lossy(rest).into_owned())),
            b':' => Ok(Reply::Integer(number()?)),
            b'$' => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Nil),
                Ok(len) => {
                    let mut text = vec![0; len + 2];
                    self.reader.read_exact(&mut text)?;
                    text.truncate(len);
                    Ok(Reply::Text(text))
                }
            },
            b'*' => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Nil),
                Ok(len) => Ok(Reply::List((0..len).map(|_| self.read()).collect::<io::Result<_>>()?)),
            },
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// One command and its reply.
    pub(super) fn ask_words(&mut self, command: &[Vec<u8>]) -> Result<Reply> {
        let name = || String::from_utf8_lossy(&command[0]).into_owned();
        self.add(command);
        self.send().with_context(|| format!("cannot send {}", name()))?;
        match self.read().with_context(|| format!("no answer to {}", name()))? {
            Reply::Error(why) => bail!("the server refuses {}: {why}", name()),
            reply => Ok(reply),
        }
    }

    /// The same with a command of text.
    pub(crate) fn ask(&mut self, command: &[&str]) -> Result<Reply> {
        self.ask_words(&words(command))
    }

    /// Sends all commands at once and reads as many replies; an error among them is one of this call.
    pub(super) fn ask_all(&mut self, commands: &[Words]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(commands.len());
        // A server that is not read stops reading at some point.
        for some in commands.chunks(500) {
            some.iter().for_each(|command| self.add(command));
            self.send().context("cannot send a pipeline")?;
            for command in some {
                match self.read().context("no answer to a pipeline")? {
                    Reply::Error(why) => {
                        bail!("the server refuses {}: {why}", String::from_utf8_lossy(&command[0]))
                    }
                    reply => replies.push(reply),
                }
            }
        }
        Ok(replies)
    }

    /// A line `name:value` of INFO.
    pub(super) fn info(&mut self, section: &str, name: &str) -> Result<String> {
        let text = self.ask(&["INFO", section])?.string()?;
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(found.with_context(|| format!("INFO {section} has no {name}"))?.to_owned())
    }
}
