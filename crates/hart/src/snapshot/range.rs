//! Ordered iteration from both ends, over one instant.
//!
//! Records are fetched some hundred at a time into one buffer: live ones by a cursor of the index, then corrected
//! by the pre-images of the instant, of which there may be more than live ones: they are bounded as those are, and a
//! fetch ends at the last of them.
//! `lower` and `upper` bound what neither end has fetched yet.
//!
//! Values in blocks are copied in a second pass, so that their cache misses overlap. That pass looks at leaves no
//! more, and needs not: whoever changed a key since the instant has saved its pre-image before, which replaces
//! whatever the pass has copied for it, a value half overwritten or damaged included.

use crate::commit::{is_before, is_beyond};
use crate::hart::Hart;
use crate::index::{Cursor, Direction, Streamed, Verdict};
use crate::leaf::{KIND_BLOCK, Value};
use crate::overlay::is_ordered;
use crate::read::Read;
use crate::snapshot::Pin;
use crate::space::{Leaves, Record};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// The first fetch; each further one takes twice as many.
const FETCH_COUNT_MIN: usize = 16;
/// The most records of one fetch.
const FETCH_COUNT_MAX: usize = 512;
/// A fetch ends behind the record that passes this many bytes.
pub(crate) const FETCH_BYTES_MAX: usize = 256 << 10;

/// Where a fetched record lies in its end's buffer.
#[derive(Clone, Copy, Debug)]
struct Item {
    key: usize,
    key_len: usize,
    value: usize,
    /// Or [`BLOCK`]: the value is still in the block at offset `value`. Or [`DAMAGED`]: the record cannot be handed
    /// out; `value` is the place of the reason among the end's damage.
    value_len: usize,
}

/// See [`Item::value_len`].
const BLOCK: usize = usize::MAX;
/// See [`Item::value_len`].
const DAMAGED: usize = usize::MAX - 1;

/// What one end has fetched and not yet handed out, in the direction of that end.
struct End<'a> {
    direction: Direction,
    cursor: Option<Cursor<'a, Leaves>>,
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Items before this one have been handed out.
    first: usize,
    damage: Vec<Read>,
    fetch_count: usize,
    /// The most pre-images of the next fetch.
    state_count: usize,
}

/// Records in key order, as they were when the range (or its snapshot) was made.
pub struct Range<'a> {
    pin: Arc<Pin<'a>>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    exhausted: bool,
    front: End<'a>,
    back: End<'a>,
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
    /// None today; errors of reading come from the range itself.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Range<'_>> {
        Ok(Range::new(Arc::new(self.pin()), start, end))
    }
}

impl End<'_> {
    fn new(direction: Direction) -> Self {
        Self {
            direction,
            cursor: None,
            bytes: Vec::new(),
            items: Vec::new(),
            first: 0,
            damage: Vec::new(),
            fetch_count: FETCH_COUNT_MIN,
            state_count: FETCH_COUNT_MIN,
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.damage.clear();
        self.first = 0;
    }

    /// Forgets the items behind `last`, from which the next fetch goes on.
    fn cut_behind(&mut self, last: &[u8]) {
        let kept = self.items.partition_point(|item| !self.direction.is_before(last, self.key(*item)));
        self.items.truncate(kept);
        self.cursor = None;
        self.fetch_count = kept.max(FETCH_COUNT_MIN);
    }

    #[inline]
    fn pop_front(&mut self) -> Option<Item> {
        let item = self.items.get(self.first).copied()?;
        self.first += 1;
        Some(item)
    }

    #[inline]
    fn pop_back(&mut self) -> Option<Item> {
        if self.first < self.items.len() { self.items.pop() } else { None }
    }

    /// Key and value of an item of this end.
    #[inline]
    fn record(&self, item: Item) -> Result<(&[u8], &[u8])> {
        if item.value_len >= DAMAGED {
            return Err(self.damage[item.value].error());
        }
        Ok((self.key(item), &self.bytes[item.value..][..item.value_len]))
    }

    #[inline]
    fn key(&self, item: Item) -> &[u8] {
        &self.bytes[item.key..][..item.key_len]
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let middle = start + key.len();
        self.items.push(Item { key: start, key_len: key.len(), value: middle, value_len: value.len() });
    }

    fn push_damaged(&mut self, key: &[u8], damage: Read) {
        self.push(key, &[]);
        if let Some(item) = self.items.last_mut() {
            (item.value, item.value_len) = (self.damage.len(), DAMAGED);
        }
        self.damage.push(damage);
    }
}

impl<'a> Range<'a> {
    pub(crate) fn new(pin: Arc<Pin<'a>>, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        Self {
            exhausted: !is_ordered(start, end),
            pin,
            lower: start.map(<[u8]>::to_vec),
            upper: end.map(<[u8]>::to_vec),
            front: End::new(Direction::Forward),
            back: End::new(Direction::Backward),
        }
    }

    /// Calls `visit` for each record left, in order and without a copy for each, until it answers false.
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
        if !self.stream(direction, &mut visit) {
            return Ok(());
        }
        loop {
            let near = match direction {
                Direction::Forward => &mut self.front,
                Direction::Backward => &mut self.back,
            };
            while let Some(item) = near.pop_front() {
                let (key, value) = near.record(item)?;
                if !visit(key, value) {
                    return Ok(());
                }
            }
            if self.exhausted {
                break;
            }
            self.fetch(direction)?;
        }
        let far = match direction {
            Direction::Forward => &mut self.back,
            Direction::Backward => &mut self.front,
        };
        while let Some(item) = far.pop_back() {
            let (key, value) = far.record(item)?;
            if !visit(key, value) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Visits records without gathering them first, as long as they have their values in their leaves and nobody has
    /// changed any record since the instant. False when `visit` wants no more.
    fn stream(&mut self, direction: Direction, visit: &mut impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let pin = Arc::clone(&self.pin);
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        if self.exhausted || pin.unsettled || end.first < end.items.len() {
            return true;
        }
        let hart = pin.hart;
        let (lower, upper) = (as_slices(&self.lower), as_slices(&self.upper));
        let mut cursor =
            hart.index.cursor(if direction == Direction::Forward { lower } else { upper }, direction);
        let mut records = [Record::EMPTY; 2];
        let mut beyond = false;
        let streamed = cursor.stream(
            &mut records,
            |leaf, record| hart.space.read_leaf(leaf, record),
            Record::key,
            |record| {
                if record.kind >= KIND_BLOCK || !hart.overlays.is_blank(&pin.overlay) {
                    return Verdict::Refused;
                }
                beyond = match direction {
                    Direction::Forward => is_beyond(record.key(), upper),
                    Direction::Backward => is_before(record.key(), lower),
                };
                if beyond {
                    Verdict::Refused
                } else if visit(record.key(), record.inline_value()) {
                    Verdict::Next
                } else {
                    Verdict::Last
                }
            },
        );
        // The end goes on from here, with a cursor of its own.
        end.cursor = None;
        let last = match streamed {
            Streamed::Stopped(last) => Some(last),
            Streamed::Interrupted(last) if !beyond => last,
            // Records taken out behind the last one since it was read are still to come.
            Streamed::Complete(last) if !hart.overlays.is_blank(&pin.overlay) => last,
            Streamed::Complete(_) | Streamed::Interrupted(_) => {
                self.exhausted = true;
                None
            }
        };
        if let Some(last) = last {
            let reached = Bound::Excluded(records[last].key().to_vec());
            match direction {
                Direction::Forward => self.lower = reached,
                Direction::Backward => self.upper = reached,
            }
        }
        !matches!(streamed, Streamed::Stopped(_))
    }

    fn take(&mut self, direction: Direction) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        loop {
            let (near, far) = match direction {
                Direction::Forward => (&mut self.front, &mut self.back),
                Direction::Backward => (&mut self.back, &mut self.front),
            };
            let found = match near.pop_front() {
                Some(item) => Some((item, &*near)),
                None if self.exhausted => far.pop_back().map(|item| (item, &*far)),
                None => None,
            };
            if let Some((item, end)) = found {
                return Some(end.record(item).map(|(key, value)| (key.to_vec(), value.to_vec())));
            }
            if self.exhausted {
                return None;
            }
            if let Err(e) = self.fetch(direction) {
                return Some(Err(e));
            }
        }
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
        if pin.unsettled {
            // Also those that are not there: whoever took them out was not told that it is durable.
            let (lower, upper) = (as_slices(&self.lower), as_slices(&self.upper));
            let is_meant = |key: &[u8]| !is_before(key, lower) && !is_beyond(key, upper);
            pin.hart.visible.all_settled(pin.hart.region(), is_meant)?;
        }
        let complete = fetch_live(&pin, end, &self.lower, &self.upper);
        // What this fetch covers ends at its last live key, or at the far bound.
        let reached = match (complete, end.items.last()) {
            (false, Some(item)) => Some(end.key(*item).to_vec()),
            _ => None,
        };
        let near = match (&reached, direction) {
            (None, _) => (as_slices(&self.lower), as_slices(&self.upper)),
            (Some(key), Direction::Forward) => (as_slices(&self.lower), Bound::Included(key.as_slice())),
            (Some(key), Direction::Backward) => (Bound::Included(key.as_slice()), as_slices(&self.upper)),
        };
        let states = pin.hart.overlays.states(&pin.overlay, near.0, near.1, direction, end.state_count);
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

/// Copies live records into the buffer; true when there are no more between the bounds.
fn fetch_live<'a>(
    pin: &Arc<Pin<'a>>,
    end: &mut End<'a>,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> bool {
    let hart: &'a Hart = pin.hart;
    let (lower, upper) = (as_slices(lower), as_slices(upper));
    let direction = end.direction;
    let cursor = end.cursor.get_or_insert_with(|| {
        hart.index.cursor(if direction == Direction::Forward { lower } else { upper }, direction)
    });
    let count = end.fetch_count;
    let items = &mut end.items;
    let mut blocks = false;
    let mut beyond = false;
    let read = |leaf| hart.live_value(hart.space.offset(leaf));
    let take = |bytes: &mut Vec<u8>, start: usize, value: Value| {
        let middle = bytes.len();
        let key = &bytes[start..];
        beyond = match direction {
            Direction::Forward => is_beyond(key, upper),
            Direction::Backward => is_before(key, lower),
        };
        if beyond {
            return false;
        }
        let (value, value_len) = if let Some(block) = value.block_offset() {
            hart.prefetch_block(block);
            blocks = true;
            (block as usize, BLOCK)
        } else {
            // The whole word at once, which is faster than its first bytes.
            bytes.extend_from_slice(&value.word.to_le_bytes());
            let len = usize::from(value.kind).min(8);
            bytes.truncate(middle + len);
            (middle, len)
        };
        items.push(Item { key: start, key_len: middle - start, value, value_len });
        true
    };
    let complete = cursor.advance_many(count, &mut end.bytes, read, take) || beyond;
    let whole = !blocks || copy_blocks(hart, end);
    // No more leaves next time than their values may be bytes: the rest would be read in vain.
    let enough = end.bytes.len() > FETCH_BYTES_MAX;
    end.fetch_count = if enough { end.items.len().max(1) } else { (count * 2).min(FETCH_COUNT_MAX) };
    if !whole {
        // The cursor has gone further than the values; the next fetch seeks again.
        end.cursor = None;
        return false;
    }
    complete
}

/// The second pass. False when records were dropped again because their values are too many bytes for one fetch.
fn copy_blocks(hart: &Hart, end: &mut End<'_>) -> bool {
    let bytes = &mut end.bytes;
    let mut taken = end.items.len();
    for (number, item) in end.items.iter_mut().enumerate() {
        if item.value_len == BLOCK {
            let start = bytes.len();
            (item.value, item.value_len) = match hart.append_block(item.value as u64, bytes) {
                bad @ (Read::Damaged { .. } | Read::NoMemory { .. }) => {
                    end.damage.push(bad);
                    (end.damage.len() - 1, DAMAGED)
                }
                Read::Inline(_) | Read::Copied => (start, bytes.len() - start),
            };
        }
        if bytes.len() > FETCH_BYTES_MAX {
            taken = number + 1;
            break;
        }
    }
    let whole = taken == end.items.len();
    end.items.truncate(taken);
    whole
}

/// Replaces live states by the states that keys had, where those are known.
fn correct(end: &mut End<'_>, states: crate::overlay::Images) {
    let mut fixed = End::new(end.direction);
    fixed.bytes.reserve(end.bytes.len());
    let mut states: VecDeque<(Vec<u8>, Option<Vec<u8>>)> = match end.direction {
        Direction::Forward => states.into_iter().collect(),
        Direction::Backward => states.into_iter().rev().collect(),
    };
    for item in &end.items {
        let key = end.key(*item);
        while let Some((saved_key, saved)) = states.pop_front_if(|(k, _)| end.direction.is_before(k, key)) {
            if let Some(saved) = saved {
                fixed.push(&saved_key, &saved);
            }
        }
        match states.pop_front_if(|(k, _)| k.as_slice() == key) {
            Some((_, Some(saved))) => fixed.push(key, &saved),
            Some((_, None)) => {}
            None => match end.record(*item) {
                Ok((key, value)) => fixed.push(key, value),
                Err(_) => fixed.push_damaged(key, end.damage[item.value]),
            },
        }
    }
    for (key, saved) in states {
        if let Some(saved) = saved {
            fixed.push(&key, &saved);
        }
    }
    (end.bytes, end.items, end.damage) = (fixed.bytes, fixed.items, fixed.damage);
}

pub(crate) fn as_slices(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(Direction::Backward)
    }
}
