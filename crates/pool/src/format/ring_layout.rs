//! Where the bytes of the endless log stand in its ring.

use crate::Lsn;

/// A ring of the log, in memory or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingLayout {
    pub(crate) bytes: u64,
    /// Added to each position. A ring that has grown has another one, so that what it held keeps its place.
    pub(crate) shift: u64,
}

impl RingLayout {
    /// The place of the byte at a position; of any number, too, that may be none.
    #[inline]
    pub(crate) fn place(self, lsn: Lsn) -> u64 {
        lsn.wrapping_add(self.shift) % self.bytes
    }

    /// The position at which this ring ends when `lsn` is the position of a byte in it.
    pub(crate) fn end_after(self, lsn: Lsn) -> Lsn {
        lsn + self.bytes - self.place(lsn)
    }

    /// A longer ring, in which everything from `kept` on that lies before this ring's end keeps its place.
    pub(crate) fn grown(self, bytes: u64, kept: Lsn) -> Self {
        Self { bytes, shift: (self.place(kept) + bytes - kept % bytes) % bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ring_holds_keeps_its_place_when_it_grows() {
        for shift in [0, 512, 15872] {
            let ring = RingLayout { bytes: 16384, shift };
            for kept in [0, 512, 5120, 16384, 1 << 40, (1 << 40) - 512] {
                let grown = ring.grown(65536, kept);
                let end = ring.end_after(kept);
                for lsn in (kept..end).step_by(512) {
                    assert_eq!(grown.place(lsn), ring.place(lsn), "{lsn} of {kept} with {shift}");
                }
                assert_eq!((grown.place(end), ring.place(end)), (16384, 0));
                assert!(grown.shift < 65536);
            }
        }
    }
}
