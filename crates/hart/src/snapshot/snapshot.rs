//! An instant of the map, to read from while writers continue.

use crate::hart::Hart;
use crate::operations::read::{Read, check_key};
use crate::snapshot::pin::Pin;
use crate::{Error, Range, Result};
use std::ops::Bound;
use std::sync::Arc;

/// The map as it was at one instant. It costs the pre-images of what changes while it lives.
pub struct Snapshot<'a> {
    pin: Arc<Pin<'a>>,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Hart {
    /// This instant, to read from while writers continue. Waits for the writes in progress if a key has changed since
    /// the last snapshot or range.
    ///
    /// # Errors
    /// None yet; errors of the medium may come.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot { pin: Arc::new(self.pin()) })
    }
}

impl<'a> Snapshot<'a> {
    /// Records at the instant.
    ///
    /// # Errors
    /// As [`Hart::count`].
    pub fn len(&self) -> Result<u64> {
        if self.pin.medium_failed {
            self.pin.hart.wait_for_all()?;
        }
        Ok(self.pin.overlay.instant.records)
    }

    /// True when there were none.
    ///
    /// # Errors
    /// As [`Hart::count`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The value that `key` had.
    ///
    /// # Errors
    /// `SnapshotExpired`, and as [`Hart::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the contents of `value` by the value that `key` had. Returns false, and leaves `value` empty, when
    /// there was none.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_key(key)?;
        let hart = self.pin.hart;
        // The live state first, then the pre-images: see `pre_images.rs`, invariant 2.
        let live = {
            let _tree = hart.share_tree(key);
            hart.index.get(key, |leaf| {
                value.clear();
                hart.append_value(hart.space.offset(leaf), value)
            })
        };
        let saved = self.saved(key, |saved| {
            value.clear();
            let Some(saved) = saved else { return Ok(false) };
            value.try_reserve(saved.len()).map_err(|_| Error::NoMemory { wanted: saved.len() as u64 })?;
            value.extend_from_slice(saved);
            Ok(true)
        })?;
        if let Some(was_there) = saved {
            return was_there;
        }
        let Some(read) = live else {
            value.clear();
            return Ok(false);
        };
        if !matches!(read, Read::Copied) {
            value.clear();
        }
        read.append_inline(value)?;
        Ok(true)
    }

    /// True when `key` was there.
    ///
    /// # Errors
    /// `KeyTooLong`, `SnapshotExpired`, and the medium's error when what was there never became durable.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let hart = self.pin.hart;
        let live = {
            let _tree = hart.share_tree(key);
            hart.index.get(key, |_| ()).is_some()
        };
        Ok(self.saved(key, |saved| saved.is_some())?.unwrap_or(live))
    }

    /// Calls `look` with the state of `key` that a writer saved since the instant; none when the live state, read
    /// before this call, is that of the instant.
    fn saved<T>(&self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> T) -> Result<Option<T>> {
        let hart = self.pin.hart;
        // Saved states too: what was there at the instant may never have become durable.
        while self.pin.medium_failed && !hart.read_gate.wait_durable(hart.region(), key)? {}
        hart.snapshots.state(&self.pin.overlay, key, look).map_err(|_| Error::SnapshotExpired)
    }

    /// The records between the bounds, in order and from both ends.
    ///
    /// # Errors
    /// None yet; the range itself reports errors of reading.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Range<'a>> {
        Ok(Range::new(Arc::clone(&self.pin), start, end))
    }
}
