//! One instant of a map, to read from while writers continue.

use crate::convert::engine;
use crate::reading::bounds::{bounds, prefix_bounds};
use crate::reading::range::Share;
use crate::{Range, Result};
use mangrove_sys::LeftInChild;
use std::ops::RangeBounds;
use std::path::Path;

/// A map as it was at one instant. Costs DRAM for each record changed since, bounded by
/// [`crate::MapOptions::snapshot_bytes_max`]; beyond the bound reads return [`crate::Error::SnapshotExpired`].
/// One of [`crate::Map::snapshot_owned`] also owns a share of its map.
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
    /// A child of fork leaves it alone: writers of the parent may hold its lock, and save their pre-images only there.
    inner: LeftInChild<mangrove_hart::Snapshot<'map>>,
    path: &'map Path,
    /// Keeps the map open, where the snapshot owns a share of it. Below what borrows from it.
    owner: Option<Share>,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl<'map> Snapshot<'map> {
    pub(crate) fn new(inner: mangrove_hart::Snapshot<'map>, path: &'map Path) -> Self {
        Self { inner: LeftInChild::new(inner), path, owner: None }
    }

    /// Fails in a child of the process that made it, as every use does.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`].
    #[doc(hidden)]
    pub fn must_be_here(&self) -> Result<()> {
        self.here().map(drop)
    }

    /// The snapshot, unless this is a child of the process that made it.
    fn here(&self) -> Result<&mangrove_hart::Snapshot<'map>> {
        if self.inner.is_here() {
            Ok(&self.inner)
        } else {
            Err(mangrove_pool::Error::forked(self.path).into())
        }
    }

    /// This snapshot with a share of its map.
    pub(crate) fn owning(self, owner: Share) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// The value of `key` at the snapshot's instant.
    ///
    /// # Errors
    /// [`crate::Error::KeyTooLong`], [`crate::Error::Corrupt`], [`crate::Error::SnapshotExpired`],
    /// [`crate::Error::NoMemory`]; [`crate::Error::Poisoned`] when what was there was never made durable.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.here()?.get(key.as_ref()).map_err(|e| engine(self.path, e))
    }

    /// Replaces the contents of `value` by the value of `key` and returns whether there was one; an absent key leaves
    /// `value` empty.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.here()?.get_into(key.as_ref(), value).map_err(|e| engine(self.path, e))
    }

    /// Calls `read` with the value of `key`, once, and returns its result; `None` when there was no value.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then(|| read(&value)))
    }

    /// The values of many keys, in their order, `None` where there was none.
    ///
    /// # Errors
    /// As [`Snapshot::get`], at the first key that fails.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// As [`Snapshot::get_many`], without a list: calls `read` for each key, in their order, with its index in `keys`
    /// and its value.
    ///
    /// # Errors
    /// As [`Snapshot::get`], at the first key that fails; `read` may have been called for those before it.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut value = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let found = self.get_into(key, &mut value)?;
            read(number, found.then_some(&value[..]));
        }
        Ok(())
    }

    /// True when `key` was there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.here()?.contains(key.as_ref()).map_err(|e| engine(self.path, e))
    }

    /// Records between the bounds, in order. See [`crate::Map::range`]. The walk may outlive the snapshot.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] in a child of fork. That the snapshot has expired, the walk reports.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'map>> {
        let (start, end) = bounds(&range);
        let inner = self.here()?.range(start, end).map_err(|e| engine(self.path, e))?;
        Ok(Range::new(inner, self.path).owning(self.owner.clone()))
    }

    /// The records whose key begins with `prefix`, in order.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'map>> {
        self.range::<Vec<u8>>(prefix_bounds(prefix.as_ref()))
    }

    /// All records, in order.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn iter(&self) -> Result<Range<'map>> {
        self.range::<&[u8]>(..)
    }

    /// Records at the snapshot's instant.
    ///
    /// # Errors
    /// As [`crate::Map::len`].
    pub fn len(&self) -> Result<u64> {
        self.here()?.len().map_err(|e| engine(self.path, e))
    }

    /// True when there were none.
    ///
    /// # Errors
    /// As [`crate::Map::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}
