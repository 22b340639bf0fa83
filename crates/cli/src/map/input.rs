//! Records to load, from a file or from standard input.

use super::source::Source;
use crate::exit::Usage;
use crate::text;
use anyhow::Context;
use clap::ValueEnum;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, stdin};
use std::os::fd::AsFd;
use std::path::Path;

/// How records stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// tsv when the first line holds a tab, else lines
    Auto,
    /// One key a line, any bytes but newline; its value is the number of the line
    Lines,
    /// Key, tab, value, with escapes (\t \n \r \\ \xHH)
    Tsv,
    /// Key, tab, value, in hexadecimal
    Hex,
}

/// One record and the line it stood on (counted from 1).
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) line: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What reading comes to.
pub(crate) enum Next {
    Record(Record),
    /// There is nothing to read now. What was asked of the command meanwhile should be seen to.
    Pause,
    End,
}

/// The longest line that is read; a longer one is an error, not memory without bound.
const LINE_BYTES_MAX: u64 = 4 * (mangrove::VALUE_BYTES_MAX as u64 + mangrove::KEY_BYTES_MAX as u64) + 2;

/// A file of records, read line by line.
pub(crate) struct Input {
    reader: BufReader<Source>,
    /// Bytes of the file; 0 when not known.
    pub(crate) len: u64,
    /// Bytes read so far.
    pub(crate) at: u64,
    format: Format,
    line: u64,
    buffer: Vec<u8>,
}

impl Input {
    /// Opens `path` (`-` is standard input).
    pub(crate) fn open(path: &Path, format: Format) -> anyhow::Result<Self> {
        let is_stdin = path.as_os_str() == "-";
        let sentence = || {
            if is_stdin {
                "cannot read standard input".into()
            } else {
                format!("cannot read {}", path.display())
            }
        };
        let opened =
            if is_stdin { stdin().as_fd().try_clone_to_owned().map(File::from) } else { File::open(path) };
        let file = opened.with_context(sentence)?;
        let metadata = file.metadata().with_context(sentence)?;
        if metadata.is_dir() {
            return Err(Usage(format!("{} is a directory, not a file of records", path.display())).into());
        }
        // Standard input may begin anywhere in its file.
        let len = if is_stdin { 0 } else { metadata.len() };
        let reader = BufReader::with_capacity(1 << 16, Source::new(file).with_context(sentence)?);
        Ok(Self { reader, len, at: 0, format, line: 0, buffer: Vec::new() })
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> anyhow::Result<Next> {
        // The buffer holds what came of the line before a pause.
        let room = LINE_BYTES_MAX - self.buffer.len() as u64;
        match self.reader.by_ref().take(room).read_until(b'\n', &mut self.buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Next::Pause),
            read => read.with_context(|| format!("cannot read line {}", self.line + 1))?,
        };
        if self.buffer.is_empty() {
            return Ok(Next::End);
        }
        let read = self.buffer.len() as u64;
        self.line += 1;
        self.at += read;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read == LINE_BYTES_MAX {
            return Err(Usage(format!("line {} is longer than any record can be", self.line)).into());
        }
        if self.format == Format::Auto {
            self.format = if self.buffer.contains(&b'\t') { Format::Tsv } else { Format::Lines };
        }
        let record = self.parse().with_context(|| format!("line {}", self.line))?;
        self.buffer.clear();
        Ok(Next::Record(record))
    }

    fn parse(&self) -> anyhow::Result<Record> {
        let line = self.line;
        if self.format == Format::Lines {
            return Ok(Record { line, key: self.buffer.clone(), value: line.to_string().into_bytes() });
        }
        let tab = self.buffer.iter().position(|&b| b == b'\t').ok_or_else(|| {
            Usage("no tab between key and value; load keys alone with --format lines".to_owned())
        })?;
        let (key, value) = (&self.buffer[..tab], &self.buffer[tab + 1..]);
        let (key, value) = if self.format == Format::Hex {
            (text::from_hex(key)?, text::from_hex(value)?)
        } else {
            (text::unescape(key)?, text::unescape(value)?)
        };
        Ok(Record { line, key, value })
    }
}
