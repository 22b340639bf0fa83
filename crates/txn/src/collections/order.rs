//! The order of a node's entries, in one word: inserting or removing an entry moves no other.
//!
//! (The permutation of Masstree: Mao, Kohler, Morris, EuroSys 2012, section 4.6.2.)

/// Entries of a node.
pub(super) const WIDTH: usize = 15;

/// The lowest four bits hold the number of entries; each of the following fours holds where the next entry lies, in
/// order, and behind them, which places are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryOrder(pub(super) u64);

impl EntryOrder {
    /// No entries; the places are given out from 0 on.
    pub(super) const EMPTY: Self = Self(0xEDCB_A987_6543_2100);

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.0 as usize & 15
    }

    /// Where the entry with this position lies.
    #[inline(always)]
    pub(super) fn place(self, position: usize) -> usize {
        (self.0 >> (4 * position + 4)) as usize & 15
    }

    /// The bits before a position.
    fn before(position: usize) -> u64 {
        if position >= WIDTH { u64::MAX } else { (1 << (4 * position + 4)) - 1 }
    }

    /// With a new entry at `position`, of less than [`WIDTH`], and the place where it goes.
    pub(super) fn insert(self, position: usize) -> (Self, usize) {
        let len = self.len();
        let place = self.place(len);
        let kept = self.0 & (Self::before(position) | !Self::before(len + 1));
        let moved = self.0 & Self::before(len) & !Self::before(position);
        (Self((kept | moved << 4 | (place as u64) << (4 * position + 4)) + 1), place)
    }

    /// Without the entry at `position`.
    pub(super) fn remove(self, position: usize) -> Self {
        let len = self.len();
        let place = self.place(position) as u64;
        let kept = self.0 & (Self::before(position) | !Self::before(len));
        let moved = self.0 & Self::before(len) & !Self::before(position + 1);
        Self((kept | moved >> 4 | place << (4 * len)) - 1)
    }

    /// With the first `len` entries only.
    pub(super) fn truncate(self, len: usize) -> Self {
        Self(self.0 & !15 | len as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every position at every length, against a list of places.
    #[test]
    fn entries_keep_their_order_and_places_are_given_once() {
        let mut random = 7u64;
        let mut below = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % bound
        };
        let (mut order, mut list) = (EntryOrder::EMPTY, Vec::new());
        for step in 0..20_000 {
            if list.len() < WIDTH && (list.is_empty() || below(2) == 0) {
                let position = below(list.len() + 1);
                let (next, place) = order.insert(position);
                assert!(!list.contains(&place), "{order:?} gave {place} twice");
                order = next;
                list.insert(position, place);
            } else if step % 97 == 0 {
                let len = below(list.len() + 1);
                order = order.truncate(len);
                list.truncate(len);
            } else {
                let position = below(list.len());
                order = order.remove(position);
                list.remove(position);
            }
            let places: Vec<_> = (0..order.len()).map(|position| order.place(position)).collect();
            assert_eq!(places, list, "step {step}");
        }
        assert_eq!(EntryOrder(EntryOrder::EMPTY.0 | 3).insert(1), (EntryOrder(0xEDCB_A987_6542_1304), 3));
    }
}
