//! Keys and values on the command line, in files and on the terminal. Both are any bytes.
//!
//! Three spellings: *raw* (the bytes themselves), *escaped* (`\t \n \r \\ \xHH`, everything else
//! itself; what scan and export print and TSV files hold) and *hex*.

use crate::terminal::exit::Usage;
use clap::Args;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How keys and values on the command line are spelt.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Spelling {
    /// Keys and values are written in hexadecimal, here and in the output
    #[arg(long, conflicts_with = "escape")]
    pub(crate) hex: bool,
    /// Keys and values are written with escapes (\t \n \r \\ \xHH), here and in the output
    #[arg(long)]
    pub(crate) escape: bool,
}

impl Spelling {
    /// The bytes that an argument stands for.
    pub(crate) fn read(self, argument: &OsStr) -> anyhow::Result<Vec<u8>> {
        self.bytes(argument.as_bytes())
    }

    /// As [`Spelling::read`].
    pub(crate) fn bytes(self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        if self.hex {
            from_hex(bytes)
        } else if self.escape {
            unescape(bytes)
        } else {
            Ok(bytes.to_vec())
        }
    }

    /// Appends `bytes` as this spelling writes them.
    pub(crate) fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.hex {
            hex(bytes, out);
        } else if self.escape {
            escape(bytes, out);
        } else {
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends `bytes` with everything that would not stand alone in a line of text escaped.
pub(crate) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\\' => out.extend_from_slice(b"\\\\"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|b| escape_byte(b, out));
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|&b| escape_byte(b, out));
    }
}

/// Whether a terminal would do something else with `bytes` than show them: they have control characters, or are no
/// text.
pub(crate) fn commands_terminals(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or(true, |text| text.chars().any(char::is_control))
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    hex(&[byte], out);
}

/// The bytes that an escaped text stands for.
pub(crate) fn unescape(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    unescape_to(text, &mut bytes)?;
    Ok(bytes)
}

/// Appends the bytes that an escaped text stands for.
pub(crate) fn unescape_to(text: &[u8], bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    // Most texts have no escape, and finding none is many times as fast as a look at each byte.
    if !text.contains(&b'\\') {
        bytes.extend_from_slice(text);
        return Ok(());
    }
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&kind, tail) = rest.split_first().ok_or_else(|| bad_escape(text))?;
        rest = tail;
        match kind {
            b't' => bytes.push(b'\t'),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b'\\' => bytes.push(b'\\'),
            b'x' if rest.len() >= 2 => {
                bytes.extend(from_hex(&rest[..2])?);
                rest = &rest[2..];
            }
            _ => return Err(bad_escape(text)),
        }
    }
    Ok(())
}

fn bad_escape(text: &[u8]) -> anyhow::Error {
    // Each backslash stands there as it was written.
    let shown = quote(text).replace(r"\\", r"\");
    Usage(format!(r"{shown} has an escape other than \t \n \r \\ \xHH; write a backslash as \\")).into()
}

/// Appends `bytes` in hexadecimal.
pub(crate) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.push(DIGITS[usize::from(b >> 4)]);
        out.push(DIGITS[usize::from(b & 15)]);
    }
}

/// The bytes that a hexadecimal text stands for.
pub(crate) fn from_hex(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16).map(|d| d as u8);
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| Usage(format!("{} is not hexadecimal (an even number of digits)", quote(text))).into())
}

/// `bytes` for a message: escaped, and cut when long.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    escape(&bytes[..bytes.len().min(60)], &mut out);
    let dots = if bytes.len() > 60 { "..." } else { "" };
    format!("'{}{dots}'", String::from_utf8_lossy(&out))
}

/// `bytes` for JSON: a string when they are text, else `{"hex": "..."}`.
pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut out = Vec::new();
            hex(bytes, &mut out);
            serde_json::json!({ "hex": String::from_utf8_lossy(&out) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_from_each_spelling() {
        let all: Vec<u8> = (0..=255).chain("Änd \u{85} \\x41 𝄞".bytes()).collect();
        for spelling in [
            Spelling { hex: true, escape: false },
            Spelling { hex: false, escape: true },
            Spelling::default(),
        ] {
            let mut written = Vec::new();
            spelling.write(&all, &mut written);
            if spelling.hex || spelling.escape {
                assert!(!written.contains(&b'\n') && !written.contains(&b'\t'));
            }
            assert_eq!(spelling.read(OsStr::from_bytes(&written)).unwrap(), all, "{spelling:?}");
        }
    }

    #[test]
    fn bad_spellings_are_refused() {
        for bad in ["\\", "\\q", "\\x", "\\x4", "\\xgg"] {
            assert!(unescape(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in ["4", "4g", "0x41"] {
            assert!(from_hex(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
