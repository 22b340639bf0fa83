//! A pinned instant: while the pin lives, writers save the pre-images that keep the instant readable.

use crate::hart::Hart;
use crate::snapshot::pre_images::{Instant, Overlay};
use std::sync::Arc;

/// Keeps the pre-images of an instant.
pub(crate) struct Pin<'a> {
    pub(crate) hart: &'a Hart,
    pub(crate) overlay: Arc<Overlay>,
    /// The medium failed before the instant was durable, so every read must check that what it read is durable.
    pub(crate) medium_failed: bool,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.hart.snapshots.end(&self.overlay);
    }
}

impl Hart {
    /// Pins an instant of now: that of the newest snapshot if no key has changed since, otherwise a new one, for which
    /// this closes the gate.
    pub(crate) fn pin(&self) -> Pin<'_> {
        let overlay = self.snapshots.share().unwrap_or_else(|| {
            let _exclusive = self.writer_gate.close();
            self.snapshots.begin(Instant { lsn: self.region().appended(), records: self.len() })
        });
        // A crash must not undo what the instant shows.
        let is_gated = self.read_gate.is_gated();
        let medium_failed = is_gated && self.region().wait(overlay.instant.lsn).is_err();
        Pin { hart: self, overlay, medium_failed }
    }
}
