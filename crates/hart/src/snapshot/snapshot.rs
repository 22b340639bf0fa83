//! An instant to read from while writers go on.

use crate::hart::Hart;
use crate::overlay::Overlay;
use crate::read::check_key;
use crate::{Error, Range, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Keeps the pre-images of an instant.
pub(crate) struct Pin<'a> {
    pub(crate) hart: &'a Hart,
    pub(crate) overlay: Arc<Overlay>,
    /// The medium failed before the instant was durable: each answer is to be looked at.
    pub(crate) unsettled: bool,
    /// Records at the instant.
    pub(crate) records: u64,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.hart.overlays.end(&self.overlay);
    }
}

/// The map as it was at one instant. Costs the pre-images of what changes while it lives.
pub struct Snapshot<'a> {
    pin: Arc<Pin<'a>>,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Hart {
    /// This instant, to read from while writers go on. Waits for the writes in progress.
    ///
    /// # Errors
    /// None today; the medium's may come.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot { pin: Arc::new(self.pin()) })
    }

    pub(crate) fn pin(&self) -> Pin<'_> {
        let (overlay, lsn, records) = {
            let _alone = self.gate.close();
            (self.overlays.begin(), self.region().appended(), self.len())
        };
        // What the instant shows must not be undone by a crash.
        let unsettled = self.visible.is_gated() && self.region().wait(lsn).is_err();
        Pin { hart: self, overlay, unsettled, records }
    }
}

impl<'a> Snapshot<'a> {
    /// Records at the instant.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pin.records
    }

    /// True when there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value that `key` had.
    ///
    /// # Errors
    /// `SnapshotExpired`, and as [`Hart::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let hart = self.pin.hart;
        let mut value = Vec::new();
        // The live state first, then the pre-images: see `overlay`, invariant 2.
        let live = {
            let _tree = hart.share_tree(key);
            hart.index.get(key, |leaf| {
                value.clear();
                hart.append_value(hart.space.offset(leaf), &mut value)
            })
        };
        // Saved states too: what was there at the instant may never have become durable.
        while self.pin.unsettled && !hart.visible.settled(hart.region(), key)? {}
        match hart.overlays.state(&self.pin.overlay, key) {
            Err(_) => return Err(Error::SnapshotExpired),
            Ok(Some(saved)) => return Ok(saved),
            Ok(None) => {}
        }
        let Some(read) = live else { return Ok(None) };
        read.append_inline(&mut value)?;
        Ok(Some(value))
    }

    /// The records between the bounds, in order and from both ends.
    ///
    /// # Errors
    /// None today; errors of reading come from the range itself.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Range<'a>> {
        Ok(Range::new(Arc::clone(&self.pin), start, end))
    }
}
