//! One instant of a map, to read from while writers go on.

use crate::map::bounds;
use crate::{Range, Result};
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// A map as it was at one instant. Costs DRAM for each record changed since, bounded by
/// [`crate::MapOptions::snapshot_bytes_max`]; beyond it reads say [`crate::Error::SnapshotExpired`].
pub struct Snapshot<'map> {
    pub(crate) inner: crate::temporary::Frozen,
    pub(crate) _map: PhantomData<&'map ()>,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot<'_> {
    /// The value of `key` at the snapshot's instant.
    ///
    /// # Errors
    /// [`crate::Error::KeyTooLong`], [`crate::Error::Corrupt`], [`crate::Error::SnapshotExpired`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.inner.get(key.as_ref()))
    }

    /// Records between the bounds, in order. See [`crate::Map::range`].
    ///
    /// # Errors
    /// [`crate::Error::SnapshotExpired`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'_>> {
        Ok(Range { inner: self.inner.walk(bounds(&range)), _map: PhantomData })
    }

    /// All records, in order.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn iter(&self) -> Result<Range<'_>> {
        self.range::<&[u8]>(..)
    }

    /// Records at the snapshot's instant.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// True when there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
