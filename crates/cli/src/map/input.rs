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
    /// hex when the first line says that `export` wrote it so, tsv when it holds a tab, else lines
    Auto,
    /// One key a line, any bytes but newline; its value is the number of the line
    Lines,
    /// Key, tab, value, with escapes (\t \n \r \\ \xHH)
    Tsv,
    /// Key, tab, value, in hexadecimal; the first line of an export may stand before them
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

/// The first line of what `export --format hex` writes.
pub(crate) const HEX_HEADER: &[u8] = b"#mangrove hex";

/// What reading a line comes to.
pub(crate) enum NextLine {
    /// The line, without its newline.
    Line(Vec<u8>),
    /// As [`Next::Pause`].
    Pause,
    End,
}

/// A file, read line by line.
pub(crate) struct Lines {
    reader: BufReader<Source>,
    /// Bytes of the file; 0 when not known.
    len: u64,
    /// Bytes read so far.
    at: u64,
    line: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// Opens `path` (`-` is standard input).
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
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
        Ok(Self { reader, len, at: 0, line: 0, buffer: Vec::new() })
    }

    /// The number of the line that was read last, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.line
    }

    pub(crate) fn next(&mut self) -> anyhow::Result<NextLine> {
        // The buffer holds what came of the line before a pause.
        let room = LINE_BYTES_MAX - self.buffer.len() as u64;
        match self.reader.by_ref().take(room).read_until(b'\n', &mut self.buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(NextLine::Pause),
            read => read.with_context(|| format!("cannot read line {}", self.line + 1))?,
        };
        if self.buffer.is_empty() {
            return Ok(NextLine::End);
        }
        let read = self.buffer.len() as u64;
        self.line += 1;
        self.at += read;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read == LINE_BYTES_MAX {
            return Err(Usage(format!("line {} is longer than any record can be", self.line)).into());
        }
        Ok(NextLine::Line(std::mem::take(&mut self.buffer)))
    }
}

/// A file of records.
pub(crate) struct Input {
    lines: Lines,
    format: Format,
}

impl Input {
    /// Opens `path` (`-` is standard input).
    pub(crate) fn open(path: &Path, format: Format) -> anyhow::Result<Self> {
        Ok(Self { lines: Lines::open(path)?, format })
    }

    /// Bytes of the file; 0 when not known.
    pub(crate) fn len(&self) -> u64 {
        self.lines.len
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> u64 {
        self.lines.at
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> anyhow::Result<Next> {
        loop {
            let line = match self.lines.next()? {
                NextLine::Line(line) => line,
                NextLine::Pause => return Ok(Next::Pause),
                NextLine::End => return Ok(Next::End),
            };
            let number = self.lines.number();
            if number == 1 && line == HEX_HEADER && matches!(self.format, Format::Auto | Format::Hex) {
                self.format = Format::Hex;
                continue;
            }
            if self.format == Format::Auto {
                self.format = if line.contains(&b'\t') { Format::Tsv } else { Format::Lines };
            }
            let record = self.parse(number, line).with_context(|| format!("line {number}"))?;
            return Ok(Next::Record(record));
        }
    }

    fn parse(&self, line: u64, text: Vec<u8>) -> anyhow::Result<Record> {
        if self.format == Format::Lines {
            return Ok(Record { line, key: text, value: line.to_string().into_bytes() });
        }
        let tab = text.iter().position(|&b| b == b'\t').ok_or_else(|| {
            Usage("no tab between key and value; load keys alone with --format lines".to_owned())
        })?;
        let (key, value) = (&text[..tab], &text[tab + 1..]);
        let (key, value) = if self.format == Format::Hex {
            (text::from_hex(key)?, text::from_hex(value)?)
        } else {
            (text::unescape(key)?, text::unescape(value)?)
        };
        Ok(Record { line, key, value })
    }
}
