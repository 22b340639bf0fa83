//! A count that many transactions change at once.

use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};

/// Parts of a count. Two transactions meet only if they change the same part.
pub(super) const PART_COUNT: usize = 32;
/// Bytes from one part to the next: what one ownership record covers by default.
const PART_BYTES: usize = 32;
/// Bytes of a count.
pub(super) const BYTES: usize = PART_COUNT * PART_BYTES;

/// The sum of its parts, each of which may be below zero: additions and subtractions may use different parts.
#[derive(Clone, Copy)]
pub(super) struct Counter(pub(super) usize);

impl Counter {
    /// Adds `delta` to the part that `choice` chooses, and returns that part.
    pub(super) fn add(self, tx: &mut Tx<'_>, choice: u64, delta: i64) -> Result<i64, Stop> {
        let at = Ptr::<i64>::at(self.0 + choice as usize % PART_COUNT * PART_BYTES);
        let part = tx.read(at)?.wrapping_add(delta);
        tx.write(at, part)?;
        Ok(part)
    }

    /// The count. O(parts).
    pub(super) fn sum<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        (0..PART_COUNT)
            .try_fold(0u64, |sum, part| Ok(sum.wrapping_add(reads.word(self.0 + part * PART_BYTES)?)))
    }

    /// Makes the count zero.
    pub(super) fn clear(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        (0..PART_COUNT).try_for_each(|part| tx.write(Ptr::at(self.0 + part * PART_BYTES), 0u64))
    }
}
