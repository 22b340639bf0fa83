//! `--from`, `--after`, `--to`, `--prefix`: which part of a map a command means.

use crate::terminal::text::Spelling;
use clap::Args;
use mangrove::{Map, Range, prefix_end};
use std::ffi::OsString;
use std::ops::Bound;

/// A part of the key order; all of it when nothing is given.
#[derive(Args, Debug)]
pub(crate) struct Bounds {
    /// First key (included)
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys that come after this one
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    after: Option<OsString>,
    /// End key (not included)
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys that begin with this; with --after, those of them that come after that key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
}

type Keys = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Bounds {
    /// True when no bound was given.
    pub(crate) fn is_all(&self) -> bool {
        self.from.is_none() && self.after.is_none() && self.to.is_none() && self.prefix.is_none()
    }

    /// The name of a bound that was given empty, and so bounds nothing. Mostly it came from a variable without a value.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        let bounds = [("--from", &self.from), ("--after", &self.after), ("--prefix", &self.prefix)];
        bounds.iter().find(|(_, key)| key.as_ref().is_some_and(|key| key.is_empty())).map(|(name, _)| *name)
    }

    /// The records between the bounds.
    pub(crate) fn walk<'map>(&self, map: &'map Map, spelling: Spelling) -> anyhow::Result<Range<'map>> {
        Ok(map.range(self.keys(spelling)?)?)
    }

    /// Deletes the records between the bounds.
    pub(crate) fn delete(&self, map: &Map, spelling: Spelling) -> anyhow::Result<u64> {
        Ok(map.delete_range(self.keys(spelling)?)?)
    }

    fn keys(&self, spelling: Spelling) -> anyhow::Result<Keys> {
        let after = self.after.as_ref().map(|k| spelling.read(k)).transpose()?;
        if let Some(prefix) = &self.prefix {
            let first = spelling.read(prefix)?;
            let end = prefix_end(&first).map_or(Bound::Unbounded, Bound::Excluded);
            return Ok(match after {
                Some(after) if after >= first => (Bound::Excluded(after), end),
                _ => (Bound::Included(first), end),
            });
        }
        let from = self.from.as_ref().map(|k| spelling.read(k)).transpose()?;
        let to = self.to.as_ref().map(|k| spelling.read(k)).transpose()?;
        let first = after.map_or(from.map_or(Bound::Unbounded, Bound::Included), Bound::Excluded);
        Ok((first, to.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}
