//! Records to load, from a file or from standard input.

use super::source::InputSource;
use crate::terminal::exit::Usage;
use crate::terminal::text;
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
    /// Key, tab, value, in hexadecimal; the first line of an export may stand before them, and then the last one
    /// has its newline
    Hex,
}

/// One record and the line it stood on (counted from 1).
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) line: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What reading comes to.
pub(crate) enum NextInput {
    Record,
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
    /// As [`NextInput::Pause`].
    Pause,
    End,
}

/// A file, read line by line.
pub(crate) struct Lines {
    reader: BufReader<InputSource>,
    /// Bytes of the file; 0 when not known.
    len: u64,
    /// Bytes read so far.
    at: u64,
    line: u64,
    /// The line that was read last, or what has come of one.
    buffer: Vec<u8>,
    is_whole: bool,
    /// The line that was read last has no newline: the file ends in it.
    is_cut: bool,
}

/// What [`Lines::read`] comes to.
enum Reading {
    /// The buffer holds a line, without its newline.
    Line,
    Pause,
    End,
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
        let reader = BufReader::with_capacity(1 << 16, InputSource::new(file).with_context(sentence)?);
        Ok(Self { reader, len, at: 0, line: 0, buffer: Vec::new(), is_whole: false, is_cut: false })
    }

    /// The number of the line that was read last, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.line
    }

    pub(crate) fn next(&mut self) -> anyhow::Result<NextLine> {
        Ok(match self.read()? {
            Reading::Line => NextLine::Line(std::mem::take(&mut self.buffer)),
            Reading::Pause => NextLine::Pause,
            Reading::End => NextLine::End,
        })
    }

    /// Reads the next line into the buffer.
    fn read(&mut self) -> anyhow::Result<Reading> {
        if std::mem::take(&mut self.is_whole) {
            self.buffer.clear();
        }
        // The buffer holds what came of the line before a pause.
        let room = LINE_BYTES_MAX - self.buffer.len() as u64;
        match self.reader.by_ref().take(room).read_until(b'\n', &mut self.buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Reading::Pause),
            read => read.with_context(|| format!("cannot read line {}", self.line + 1))?,
        };
        if self.buffer.is_empty() {
            return Ok(Reading::End);
        }
        let read = self.buffer.len() as u64;
        self.line += 1;
        self.at += read;
        self.is_cut = self.buffer.last() != Some(&b'\n');
        if !self.is_cut {
            self.buffer.pop();
        } else if read == LINE_BYTES_MAX {
            return Err(Usage(format!("line {} is longer than any record can be", self.line)).into());
        }
        self.is_whole = true;
        Ok(Reading::Line)
    }
}

/// A file of records.
pub(crate) struct Input {
    lines: Lines,
    format: Format,
    /// The first line was [`HEX_HEADER`].
    is_export: bool,
}

impl Input {
    /// Opens `path` (`-` is standard input).
    pub(crate) fn open(path: &Path, format: Format) -> anyhow::Result<Self> {
        Ok(Self { lines: Lines::open(path)?, format, is_export: false })
    }

    /// Bytes of the file; 0 when not known.
    pub(crate) fn len(&self) -> u64 {
        self.lines.len
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> u64 {
        self.lines.at
    }

    /// The number of the last line, where that was read and may be a part of one: it has no newline, and is no key
    /// alone.
    pub(crate) fn cut_line(&self) -> Option<u64> {
        let is_cut = self.lines.is_cut && self.format != Format::Lines;
        is_cut.then(|| self.lines.number())
    }

    /// Reads the next record into `record`, whose memory is used again.
    pub(crate) fn next(&mut self, record: &mut Record) -> anyhow::Result<NextInput> {
        loop {
            match self.lines.read()? {
                Reading::Line => {}
                Reading::Pause => return Ok(NextInput::Pause),
                Reading::End => return Ok(NextInput::End),
            }
            let (line, number) = (&self.lines.buffer[..], self.lines.number());
            if number == 1 && line == HEX_HEADER && matches!(self.format, Format::Auto | Format::Hex) {
                (self.format, self.is_export) = (Format::Hex, true);
                continue;
            }
            // What is there of the value would be taken for all of it.
            if self.is_export && self.lines.is_cut {
                let sentence = "the file ends inside of this line: it is not all that was exported";
                return Err(Usage(sentence.into())).with_context(|| format!("line {number}"));
            }
            if self.format == Format::Auto {
                self.format = if line.contains(&b'\t') { Format::Tsv } else { Format::Lines };
            }
            parse(self.format, number, line, record).with_context(|| format!("line {number}"))?;
            return Ok(NextInput::Record);
        }
    }
}

fn parse(format: Format, line: u64, text: &[u8], record: &mut Record) -> anyhow::Result<()> {
    record.line = line;
    record.key.clear();
    record.value.clear();
    if format == Format::Lines {
        record.key.extend_from_slice(text);
        record.value.extend_from_slice(line.to_string().as_bytes());
        return Ok(());
    }
    let tab = text.iter().position(|&b| b == b'\t').ok_or_else(|| {
        Usage("no tab between key and value; load keys alone with --format lines".to_owned())
    })?;
    let (key, value) = (&text[..tab], &text[tab + 1..]);
    if format == Format::Hex {
        (record.key, record.value) = (text::from_hex(key)?, text::from_hex(value)?);
        return Ok(());
    }
    text::unescape_to(key, &mut record.key)?;
    text::unescape_to(value, &mut record.value)
}
