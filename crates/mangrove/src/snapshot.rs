//! One instant of a map, to read from while writers continue.

use crate::bounds::bounds;
use crate::convert::engine;
use crate::{Range, Result};
use std::ops::RangeBounds;
use std::path::Path;

/// A map as it was at one instant. Costs DRAM for each record changed since, bounded by
/// [`crate::MapOptions::snapshot_bytes_max`]; beyond the bound reads return [`crate::Error::SnapshotExpired`].
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-snapshot-{}", std::process::id()));
/// use mangrove::Map;
///
/// let map = Map::open(&dir)?;
/// map.put("tide", "low")?;
/// let before = map.snapshot()?;
/// map.put("tide", "high")?;
/// assert_eq!(before.get("tide")?.as_deref(), Some(&b"low"[..]));
/// # drop(before);
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Snapshot<'map> {
    inner: mangrove_hart::Snapshot<'map>,
    path: &'map Path,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl<'map> Snapshot<'map> {
    pub(crate) fn new(inner: mangrove_hart::Snapshot<'map>, path: &'map Path) -> Self {
        Self { inner, path }
    }

    /// The value of `key` at the snapshot's instant.
    ///
    /// # Errors
    /// [`crate::Error::KeyTooLong`], [`crate::Error::Corrupt`], [`crate::Error::SnapshotExpired`],
    /// [`crate::Error::NoMemory`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.inner.get(key.as_ref()).map_err(|e| engine(self.path, e))
    }

    /// Records between the bounds, in order. See [`crate::Map::range`].
    ///
    /// # Errors
    /// [`crate::Error::SnapshotExpired`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'_>> {
        let (start, end) = bounds(&range);
        let inner = self.inner.range(start, end).map_err(|e| engine(self.path, e))?;
        Ok(Range::new(inner, self.path))
    }

    /// All records, in order.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn iter(&self) -> Result<Range<'_>> {
        self.range::<&[u8]>(..)
    }

    /// Records at the snapshot's instant.
    ///
    /// # Errors
    /// As [`crate::Map::len`].
    pub fn len(&self) -> Result<u64> {
        self.inner.len().map_err(|e| engine(self.path, e))
    }

    /// True when there were none.
    ///
    /// # Errors
    /// As [`crate::Map::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}
