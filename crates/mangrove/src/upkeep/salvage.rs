//! Salvage: copies what is sound of a damaged map into a new pool.

use crate::upkeep::copy::{CopyPurpose, Progress, copy_files};
use crate::{Map, Result};
use std::ops::ControlFlow;
use std::path::Path;

/// What [`crate::Map::salvage`] copied, and what it left out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Records copied. Each was compared with its checksums.
    pub records: u64,
    /// Bytes of keys and values copied.
    pub bytes: u64,
    /// One message for each damaged place (at most 2,000): a record that was left out, or bytes that no sound record
    /// needs. Empty when nothing is damaged.
    pub damage: Vec<String>,
}

impl Map {
    /// Copies every sound record of the map in `bad`, which may be damaged, into a new pool at `new`; `bad` stays as
    /// it is. The new pool appears whole and durable, or not at all. Records whose bytes do not have their checksum are
    /// left out, and so are the writes of a log from its first damaged place on. What the medium cannot read counts as
    /// damaged. `progress` is as in [`Map::backup`].
    ///
    /// ```
    /// # fn main() -> mangrove::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("mangrove-doc-salvage-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// use mangrove::Map;
    /// use std::ops::ControlFlow;
    ///
    /// # Map::open(dir.join("bad"))?.put("k", "v")?;
    /// let report = Map::salvage(dir.join("bad"), dir.join("new"), |_| ControlFlow::Continue(()))?;
    /// for place in &report.damage {
    ///     eprintln!("damaged: {place}");
    /// }
    /// assert_eq!(report.records, 1);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Map::backup`] about `new`. About `bad`: [`crate::Error::NotFound`], [`crate::Error::Busy`],
    /// [`crate::Error::WrongKind`], [`crate::Error::Foreign`]; [`crate::Error::Corrupt`] where its file `pool` is
    /// damaged, or another of its files is missing.
    pub fn salvage(
        bad: impl AsRef<Path>,
        new: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<SalvageReport> {
        let (copied, damage) = copy_files(bad.as_ref(), new.as_ref(), CopyPurpose::Salvage, &mut progress)?;
        Ok(SalvageReport { records: copied.records, bytes: copied.bytes, damage })
    }
}
