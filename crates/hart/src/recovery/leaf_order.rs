//! The order of the leaves, which a map leaves when it is closed: the offset of each leaf in units of 16 bytes, 5 bytes
//! each, in the order of their keys. docs/format/map.md has the same in prose.

use crate::format::layout::LEAF_KEY;
use crate::hart::Hart;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 5;
/// Leaves are aligned to so many bytes.
pub(crate) const LEAF_UNIT_BYTES: u64 = LEAF_KEY;

impl Hart {
    /// The order of the leaves, by which [`ClosedMap`](crate::ClosedMap) finds records before the map is recovered.
    /// None where there is no memory for it, or where offsets are too great (beyond 16 TiB). No thread may write
    /// meanwhile. Time: a walk over the index, which reads no leaf.
    #[must_use]
    pub fn leaf_order(&self) -> Option<Vec<u8>> {
        let fits = self.space.usable_offset() / LEAF_UNIT_BYTES <= 1 << (8 * ENTRY_BYTES);
        let mut order = Vec::new();
        if !fits || order.try_reserve_exact(self.len() as usize * ENTRY_BYTES).is_err() {
            return None;
        }
        self.index.in_order(|leaf| {
            let unit = self.space.offset(leaf) / LEAF_UNIT_BYTES;
            order.extend_from_slice(&unit.to_le_bytes()[..ENTRY_BYTES]);
        });
        Some(order)
    }
}
