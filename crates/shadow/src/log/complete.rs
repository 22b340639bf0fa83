//! Atomic groups that their callers number by time stamps: how far they are complete, and the durable marker.
//!
//! The replayer applies atomic groups in the order of numbers, so it must know that none with a smaller number will
//! follow. With dense numbers it sees that by itself. With time stamps only the caller knows, and tells it: by the
//! marker (`Order::Marker`), or by a function that the replayer calls when it has work (`Order::Gaps`).
//!
//! Durable-order: whatever the marker covers, before the marker; the marker before the durable copy changes. Otherwise
//! a crash could leave a durable copy with parts of atomic groups that recovery then drops.

use crate::Result;
use crate::layout::AT_MARKER;
use crate::log::stamps::Watermark;
use crate::order::Order;
use crate::recovery::scan::NUMBER_MAX;
use crate::ring::Rings;
use std::sync::atomic::Ordering;

impl Rings {
    pub(crate) fn set_watermark(&self, watermark: Watermark) {
        let stamps = self.stamps.as_ref().filter(|stamps| stamps.order == Order::Gaps);
        let stamps = stamps.expect("a watermark is for time stamps with gaps");
        assert!(stamps.watermark.set(watermark).is_ok(), "a shadow has one watermark");
    }

    /// Asks how far the callers' numbers are complete, where they have to be asked.
    pub(crate) fn ask_watermark(&self) {
        let Some(watermark) = self.stamps.as_ref().and_then(|stamps| stamps.watermark.get()) else { return };
        // Not beyond what was given: a number given later is larger than the function's answer, but not than any
        // number. The answer first: what it covers has been given.
        let complete = watermark();
        self.handover.complete(complete.min(self.handover.given()));
    }

    /// Makes the marker durable. A crash in between leaves the old marker or the new one: what lies between them is
    /// durable, and not acknowledged yet.
    pub(crate) fn mark(&self, number: u64) -> Result<()> {
        let stamps = self.stamps.as_ref().filter(|stamps| stamps.order == Order::Marker);
        let stamps = stamps.expect("a marker is for Order::Marker");
        assert!(number <= NUMBER_MAX, "a number that cannot be");
        self.refuse_child()?;
        let mut marker = stamps.marker.lock();
        if *marker >= number {
            return Ok(());
        }
        self.alive()?;
        self.region.store(AT_MARKER, number, Ordering::Release);
        self.region.flush(AT_MARKER, 8);
        self.region.fence();
        self.region.drain()?;
        *marker = number;
        self.handover.complete(number);
        Ok(())
    }

    /// The number of the last atomic group that any thread began.
    pub(crate) fn begun(&self) -> u64 {
        if self.stamps.is_some() { self.handover.given() } else { self.handover.begun() }
    }

    /// Before the shadow is closed. Where no lease is out, everything that was published is complete.
    pub(crate) fn complete_all(&self) -> Result<()> {
        let Some(stamps) = &self.stamps else { return Ok(()) };
        if !self.writers.are_all_back() {
            return Ok(());
        }
        let number = self.handover.given();
        match stamps.order {
            Order::Marker => self.mark(number),
            Order::Dense | Order::Gaps => {
                self.handover.complete(number);
                Ok(())
            }
        }
    }
}
