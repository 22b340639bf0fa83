//! The segments that compaction empties, and their free slots, which no writer may allocate meanwhile.
//!
//! Invariant: a slot that is set aside is in no mask and in no lane, and holds nothing live.

use std::collections::BTreeMap;

/// The segments that are being emptied.
#[derive(Debug, Default)]
pub(crate) struct MovingSegments {
    /// Their numbers; each has `is_moving` set.
    pub(super) segments: Vec<u32>,
    /// Slots set aside, by segment and chunk.
    pub(super) aside: BTreeMap<(u32, u32), u64>,
    /// Slots that have records to move, as far as is known.
    pub(crate) left: u64,
    /// A writer that needed slots has ended the last compaction.
    pub(crate) is_cut_off: bool,
}
