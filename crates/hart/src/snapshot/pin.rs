//! A pinned instant: while the pin lives, writers save the pre-images that keep the instant readable.

use crate::hart::Hart;
use crate::snapshot::pre_images::Overlay;
use std::sync::Arc;

/// Keeps the pre-images of an instant.
pub(crate) struct Pin<'a> {
    pub(crate) hart: &'a Hart,
    pub(crate) overlay: Arc<Overlay>,
    /// The medium failed before the instant was durable, so every read must check that what it read is durable.
    pub(crate) medium_failed: bool,
    /// Records at the instant.
    pub(crate) records: u64,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.hart.snapshots.end(&self.overlay);
    }
}

impl Hart {
    pub(crate) fn pin(&self) -> Pin<'_> {
        let (overlay, lsn, records) = {
            let _exclusive = self.writer_gate.close();
            (self.snapshots.begin(), self.region().appended(), self.len())
        };
        // A crash must not undo what the instant shows.
        let medium_failed = self.read_gate.is_gated() && self.region().wait(lsn).is_err();
        Pin { hart: self, overlay, medium_failed, records }
    }
}
