//! Ordered iteration from both ends, over one instant.
//!
//! As long as no record has changed since the instant, a cursor of the index reads one record after the other. A
//! visitor gets each in the cursor's memory. So does the first step of a walk; further ones copy some small records
//! ahead into the buffer of their end, since to begin and to end a stream costs as much as to read a record. Once a
//! record has changed, an end fetches some hundred records at a time into its buffer: live ones, then corrected by the
//! pre-images of the instant. There may be more pre-images than live records, so a fetch bounds them too, and ends at
//! the last one that it took. `lower` and `upper` bound what neither end has taken yet.

use crate::bounds::{as_slices, is_before, is_beyond, is_ordered};
use crate::format::leaf::{INLINE_BYTES_MAX, KIND_BLOCK, KIND_SLOT};
use crate::format::space::{LeafKeys, LeafRecord};
use crate::hart::Hart;
use crate::index::{Direction, IndexCursor, Streamed, VisitOutcome};
use crate::operations::read::Read;
use crate::snapshot::fetch::{FETCH_COUNT_MAX, RangeEnd, correct, fetch_live};
use crate::snapshot::pin::Pin;
use crate::{Error, Result};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The records that the second step of a walk copies ahead.
const AHEAD_COUNT_MIN: usize = 4;
/// The most that a step copies ahead: an eighth of those before it, since a walk that ends has read them for nothing.
const AHEAD_COUNT_MAX: usize = 16;
/// Mean bytes of the records that are copied ahead. Larger ones would be copied twice for little.
const AHEAD_BYTES_MAX: usize = 512;

/// Records in key order, as they were when the range (or its snapshot) was made.
pub struct Range<'a> {
    pin: Arc<Pin<'a>>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    exhausted: bool,
    front: RangeEnd<'a>,
    back: RangeEnd<'a>,
    /// What the last step lends. Boxed: most ranges are visited without it, and it is large.
    lent: Option<Box<Lent>>,
}

/// What a step took.
enum Stepped {
    /// One record: its index in `lent`.
    Lent(usize),
    /// Records that are in the buffer of the end now.
    Ahead,
    /// None: there is no record, or it must be fetched.
    Nothing,
}

/// The records of a cursor's stream, and the value of the last one if that lies in a block.
struct Lent {
    records: [LeafRecord; 2],
    block: Vec<u8>,
}

impl Lent {
    const EMPTY: Self = Self { records: [LeafRecord::EMPTY; 2], block: Vec::new() };
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range")
            .field("lower", &self.lower)
            .field("upper", &self.upper)
            .finish_non_exhaustive()
    }
}

impl Hart {
    /// The records between the bounds, in order and from both ends, as they are at this instant.
    ///
    /// # Errors
    /// None yet; the range itself reports errors of reading.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Range<'_>> {
        Ok(Range::new(Arc::new(self.pin()), start, end))
    }
}

impl<'a> Range<'a> {
    pub(crate) fn new(pin: Arc<Pin<'a>>, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        Self {
            exhausted: !is_ordered(start, end),
            pin,
            lower: start.map(<[u8]>::to_vec),
            upper: end.map(<[u8]>::to_vec),
            front: RangeEnd::new(Direction::Forward),
            back: RangeEnd::new(Direction::Backward),
            lent: None,
        }
    }

    /// Calls `visit` for each remaining record, in order and without a copy of each, until it returns false.
    ///
    /// # Errors
    /// `SnapshotExpired`, `Corrupt`, or the medium's error, at the record that has it.
    pub fn for_each_ref(&mut self, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.visit(Direction::Forward, visit)
    }

    /// As [`Range::for_each_ref`], from the far end.
    ///
    /// # Errors
    /// As there.
    pub fn for_each_ref_back(&mut self, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.visit(Direction::Backward, visit)
    }

    fn visit(&mut self, direction: Direction, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut has_streamed = false;
        loop {
            let near = self.end_mut(direction);
            while let Some(item) = near.pop_front() {
                let (key, value) = near.record(item)?;
                if !visit(key, value) {
                    return Ok(());
                }
            }
            if self.exhausted {
                break;
            }
            if has_streamed {
                self.fetch(direction)?;
            } else if !self.stream(direction, &mut visit) {
                return Ok(());
            }
            has_streamed = true;
        }
        let far = self.end_mut(direction.opposite());
        while let Some(item) = far.pop_back() {
            let (key, value) = far.record(item)?;
            if !visit(key, value) {
                return Ok(());
            }
        }
        Ok(())
    }

    #[inline]
    fn end_mut(&mut self, direction: Direction) -> &mut RangeEnd<'a> {
        match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        }
    }

    /// Visits records without fetching them first, as long as no record has changed since the instant. False when
    /// `visit` wants no more.
    fn stream(&mut self, direction: Direction, visit: &mut impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let pin = Arc::clone(&self.pin);
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        if pin.medium_failed {
            return true;
        }
        let bounds = (as_slices(&self.lower), as_slices(&self.upper));
        let mut cursor = cursor_from(pin.hart, bounds, direction);
        let mut lent = Lent::EMPTY;
        let streamed = stream_unchanged(&pin, &mut cursor, &mut lent, bounds, direction, visit);
        // The end continues from here, with a cursor of its own.
        end.cursor = None;
        match streamed {
            Streamed::Complete(_) => self.exhausted = true,
            Streamed::Stopped(last) | Streamed::Interrupted(Some(last)) => {
                let near = match direction {
                    Direction::Forward => &mut self.lower,
                    Direction::Backward => &mut self.upper,
                };
                exclude(near, lent.records[last].key());
            }
            Streamed::Interrupted(None) => {}
        }
        !matches!(streamed, Streamed::Stopped(_))
    }

    /// Takes records without fetching them, as long as none has changed since the instant; the buffer of the end is
    /// empty.
    fn step(&mut self, direction: Direction) -> Stepped {
        let Self { pin, lower, upper, exhausted, front, back, lent } = self;
        if pin.medium_failed || !pin.hart.snapshots.is_blank(&pin.overlay) {
            return Stepped::Nothing;
        }
        let bounds = (as_slices(lower), as_slices(upper));
        let end = match direction {
            Direction::Forward => front,
            Direction::Backward => back,
        };
        end.clear();
        let hart = pin.hart;
        let mut cursor = end.cursor.take().unwrap_or_else(|| Box::new(cursor_from(hart, bounds, direction)));
        let lent = lent.get_or_insert_with(|| Box::new(Lent::EMPTY));
        let wanted = end.ahead;
        // One record is lent where it is, more are copied.
        let is_lent = wanted == 1;
        let (mut taken, mut bytes) = (0, 0);
        let streamed = stream_unchanged(pin, &mut cursor, lent, bounds, direction, &mut |key, value| {
            (taken, bytes) = (taken + 1, bytes + key.len() + value.len());
            if !is_lent {
                end.push(key, value);
            }
            taken < wanted && bytes < AHEAD_COUNT_MAX * AHEAD_BYTES_MAX
        });
        let last = match streamed {
            Streamed::Complete(last) | Streamed::Interrupted(last) => last,
            Streamed::Stopped(last) => Some(last),
        };
        if let Some(last) = last {
            let near = match direction {
                Direction::Forward => lower,
                Direction::Backward => upper,
            };
            exclude(near, lent.records[last].key());
        }
        *exhausted = matches!(streamed, Streamed::Complete(_));
        if !matches!(streamed, Streamed::Interrupted(_)) {
            // Otherwise it is past the record that must be fetched.
            end.cursor = Some(cursor);
        }
        end.stepped += taken;
        end.ahead = if bytes > taken * AHEAD_BYTES_MAX {
            1
        } else {
            (end.stepped / 8).clamp(AHEAD_COUNT_MIN, AHEAD_COUNT_MAX)
        };
        match last {
            None => Stepped::Nothing,
            Some(last) if is_lent => Stepped::Lent(last),
            Some(_) => Stepped::Ahead,
        }
    }

    /// The next record in this direction, borrowed until the next step. Inlined, so that one that has been read comes
    /// in registers: what is stored in parts and loaded wider makes the processor wait.
    #[inline(always)]
    fn take(&mut self, direction: Direction) -> Option<Result<(&[u8], &[u8])>> {
        if self.end_mut(direction).is_sound() {
            return self.end_mut(direction).pop_sound().map(Ok);
        }
        self.take_further(direction)
    }

    /// As [`Range::take`], where the buffer of the end is empty.
    fn take_further(&mut self, direction: Direction) -> Option<Result<(&[u8], &[u8])>> {
        loop {
            if !self.end_mut(direction).is_empty() {
                let near = self.end_mut(direction);
                return near.pop_front().map(|item| near.record(item));
            }
            if self.exhausted {
                let far = self.end_mut(direction.opposite());
                return far.pop_back().map(|item| far.record(item));
            }
            match self.step(direction) {
                Stepped::Lent(last) => {
                    let Lent { records, block } = self.lent.as_deref()?;
                    return Some(Ok((records[last].key(), value_of(&records[last], block))));
                }
                Stepped::Ahead => {}
                Stepped::Nothing if self.exhausted => {}
                Stepped::Nothing => {
                    if let Err(e) = self.fetch(direction) {
                        return Some(Err(e));
                    }
                }
            }
        }
    }

    /// As the iterator's `next`, without a copy of the record.
    #[inline]
    pub fn next_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.take(Direction::Forward)
    }

    /// As the iterator's `next_back`, without a copy of the record.
    #[inline]
    pub fn next_back_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.take(Direction::Backward)
    }

    /// Fetches the next records of one end, whose buffer is empty. An error ends the range.
    fn fetch(&mut self, direction: Direction) -> Result<()> {
        let answer = self.try_fetch(direction);
        if answer.is_err() {
            self.exhausted = true;
            self.front.clear();
            self.back.clear();
        }
        answer
    }

    fn try_fetch(&mut self, direction: Direction) -> Result<()> {
        let pin = Arc::clone(&self.pin);
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        end.clear();
        if pin.medium_failed {
            // Absent keys count too: the deletion of one may have failed to become durable.
            let (lower, upper) = (as_slices(&self.lower), as_slices(&self.upper));
            let is_meant = |key: &[u8]| !is_before(key, lower) && !is_beyond(key, upper);
            pin.hart.read_gate.wait_all_durable(pin.hart.region(), is_meant)?;
        }
        let complete = fetch_live(&pin, end, &self.lower, &self.upper);
        // This fetch covers the keys up to its last live one, or up to the far bound.
        let reached = match (complete, end.items.last()) {
            (false, Some(item)) => Some(end.key(*item).to_vec()),
            _ => None,
        };
        let near = match (&reached, direction) {
            (None, _) => (as_slices(&self.lower), as_slices(&self.upper)),
            (Some(key), Direction::Forward) => (as_slices(&self.lower), Bound::Included(key.as_slice())),
            (Some(key), Direction::Backward) => (Bound::Included(key.as_slice()), as_slices(&self.upper)),
        };
        let states = pin.hart.snapshots.states(&pin.overlay, near.0, near.1, direction, end.state_count);
        end.state_count = (end.state_count * 2).min(FETCH_COUNT_MAX);
        let (states, cut) = states.map_err(|_| Error::SnapshotExpired)?;
        if let Some(cut) = &cut {
            end.cut_behind(cut);
        }
        let reached = cut.or(reached);
        if !states.is_empty() {
            correct(end, states);
        }
        match (reached, direction) {
            (None, _) => self.exhausted = true,
            (Some(key), Direction::Forward) => self.lower = Bound::Excluded(key),
            (Some(key), Direction::Backward) => self.upper = Bound::Excluded(key),
        }
        Ok(())
    }
}

/// A cursor from the bound at which a walk in this direction begins.
fn cursor_from<'a>(
    hart: &'a Hart,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> IndexCursor<'a, LeafKeys> {
    hart.index.cursor(if direction == Direction::Forward { lower } else { upper }, direction)
}

/// Visits records as long as none has changed since the instant and `visit` wants more. `Complete`: there are no more
/// between the bounds. `Interrupted`: the next one must be fetched.
#[inline]
fn stream_unchanged(
    pin: &Pin<'_>,
    cursor: &mut IndexCursor<'_, LeafKeys>,
    Lent { records, block }: &mut Lent,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Streamed {
    let hart = pin.hart;
    let mut beyond = false;
    let streamed = cursor.stream(
        records,
        |leaf| hart.prefetch_value(leaf),
        |leaf, record| hart.space.read_leaf(leaf, record),
        LeafRecord::key,
        |record| {
            if !is_unchanged(pin, record, block) {
                return VisitOutcome::Refused;
            }
            beyond = match direction {
                Direction::Forward => is_beyond(record.key(), upper),
                Direction::Backward => is_before(record.key(), lower),
            };
            if beyond {
                VisitOutcome::Refused
            } else if visit(record.key(), value_of(record, block)) {
                VisitOutcome::Next
            } else {
                VisitOutcome::Last
            }
        },
    );
    match streamed {
        Streamed::Interrupted(last) if beyond => Streamed::Complete(last),
        // Records that were removed after the last one since it was read are still to come.
        Streamed::Complete(last) if !hart.snapshots.is_blank(&pin.overlay) => Streamed::Interrupted(last),
        streamed => streamed,
    }
}

/// Whether a record that was just validated can be returned as it is: no key has changed since the instant, and its
/// value is whole. A value in a block is copied to `block`.
#[inline]
fn is_unchanged(pin: &Pin<'_>, record: &LeafRecord, block: &mut Vec<u8>) -> bool {
    if record.kind == KIND_BLOCK {
        block.clear();
        if !matches!(pin.hart.append_block(record.word(), block), Read::Copied) {
            return false;
        }
        // Acquire: what was copied comes before the look at the pre-images. A writer that gave the block another use
        // saved the record's pre-image first.
        fence(Ordering::Acquire);
    } else if record.kind != KIND_SLOT && usize::from(record.kind) > INLINE_BYTES_MAX {
        return false;
    }
    pin.hart.snapshots.is_blank(&pin.overlay)
}

/// The value of a record that [`is_unchanged`] took.
#[inline]
fn value_of<'v>(record: &'v LeafRecord, block: &'v [u8]) -> &'v [u8] {
    match record.kind {
        KIND_SLOT => record.slot_value(),
        KIND_BLOCK => block,
        _ => record.inline_value(),
    }
}

/// Bounds by this key, which is not within.
fn exclude(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    if let Bound::Excluded(bytes) = bound {
        bytes.clear();
        bytes.extend_from_slice(key);
    } else {
        *bound = Bound::Excluded(key.to_vec());
    }
}

fn owned((key, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.take(Direction::Forward)?.map(owned))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.take(Direction::Backward)?.map(owned))
    }
}
