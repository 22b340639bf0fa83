//! Tokens: one word that names a crash image, on every machine.
//!
//! `map:adr:1:7:123i5:12s99` consists of engine, domain, seed, run, and then each crash: the event before which it
//! comes, and the n-th (`i`), seeded (`s`) or extraordinary (`x`) choice among its images.

use crate::machine::cursor::CrashDomain;
use crate::machine::lines::ImageChoice;
use std::fmt;
use std::str::FromStr;

/// One crash: before which event, and which of its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The event before which the crash comes.
    pub cut: u64,
    /// The image.
    pub choice: ImageChoice,
}

/// Names a crash image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The subject's name.
    pub engine: String,
    /// The fault model.
    pub domain: CrashDomain,
    /// The sweep's seed.
    pub seed: u64,
    /// The run within the sweep.
    pub run: u64,
    /// Crashes, each in the recovery from the one before. Empty: the run itself failed.
    pub crashes: Vec<Crash>,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.engine, self.domain.name(), self.seed, self.run)?;
        for crash in &self.crashes {
            match crash.choice {
                ImageChoice::Index(n) => write!(f, ":{}i{n}", crash.cut)?,
                ImageChoice::Seed(n) => write!(f, ":{}s{n}", crash.cut)?,
                ImageChoice::Extra(n) => write!(f, ":{}x{n}", crash.cut)?,
            }
        }
        Ok(())
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not a replay token like map:adr:1:7:123i5");
        let number = |s: &str| s.parse::<u64>().map_err(|_| bad());
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(bad);
        let (engine, domain) = (next()?.to_owned(), next()?.parse()?);
        let (seed, run) = (number(next()?)?, number(next()?)?);
        let mut crashes = Vec::new();
        for part in parts {
            let at = part.find(['i', 's', 'x']).ok_or_else(bad)?;
            let n = number(&part[at + 1..])?;
            let choice = match part.as_bytes()[at] {
                b'i' => ImageChoice::Index(n),
                b's' => ImageChoice::Seed(n),
                _ => ImageChoice::Extra(n),
            };
            crashes.push(Crash { cut: number(&part[..at])?, choice });
        }
        Ok(Self { engine, domain, seed, run, crashes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for text in ["map:adr:1:7:123i5:12s99", "toy:file:0:0", "map:eadr:18446744073709551615:3:0x1"] {
            assert_eq!(text.parse::<Token>().map(|t| t.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "map", "map:adr", "map:adr:1", "map:adr:1:x", "map:adr:1:1:5", "map:ram:1:1"] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
