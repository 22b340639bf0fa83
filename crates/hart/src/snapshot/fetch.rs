//! One fetch of a range: some hundred records, copied into the buffer of one end of the range.
//!
//! A second pass copies the values that lie in blocks, so that their cache misses overlap. That pass does not look at
//! the leaves again, and need not: a writer that changed a key since the instant saved its pre-image first. The
//! pre-image replaces whatever the pass copied for that key, even a value half overwritten or damaged.

use crate::Result;
use crate::bounds::{FETCH_BYTES_MAX, as_slices, is_before, is_beyond};
use crate::format::leaf::{KIND_SLOT, LeafValue};
use crate::format::space::LeafKeys;
use crate::hart::Hart;
use crate::index::{Direction, IndexCursor, Leaf};
use crate::operations::read::Read;
use crate::snapshot::pin::Pin;
use crate::snapshot::pre_images::PreImages;
use std::cell::Cell;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Records of the first two fetches; each further two fetch twice as many. (Twice as many each time, a walk of a few
/// records would fetch half as many again for nothing.)
const FETCH_COUNT_MIN: usize = 16;
/// The most records of one fetch.
pub(super) const FETCH_COUNT_MAX: usize = 512;

/// Where a fetched record lies in the buffer of its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchedItem {
    key: usize,
    key_len: usize,
    value: usize,
    /// Or [`BLOCK`]: the value is still in the block at offset `value`. Or [`DAMAGED`]: the record cannot be
    /// returned, and `value` is the index of the reason in the end's `damage`.
    value_len: usize,
}

/// See [`FetchedItem::value_len`].
const BLOCK: usize = usize::MAX;
/// See [`FetchedItem::value_len`].
const DAMAGED: usize = usize::MAX - 1;

/// No kind of a value: what lies behind the key cannot be returned.
const BAD: u8 = u8::MAX;

/// What one end has fetched and not returned yet, in the direction of that end.
pub(super) struct RangeEnd<'a> {
    direction: Direction,
    /// Boxed: most ranges are visited without it, and it is large.
    pub(super) cursor: Option<Box<IndexCursor<'a, LeafKeys>>>,
    bytes: Vec<u8>,
    pub(super) items: Vec<FetchedItem>,
    /// Items before this one have been returned.
    pub(super) first: usize,
    damage: Vec<Read>,
    fetch_count: usize,
    /// Whether `fetch_count` is that of the fetch before.
    is_again: bool,
    /// The most pre-images of the next fetch.
    pub(super) state_count: usize,
    /// Records that the next step takes. One is lent, more are copied into the buffer.
    pub(super) ahead: usize,
    /// Records that steps have taken.
    pub(super) stepped: usize,
}

impl RangeEnd<'_> {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            cursor: None,
            bytes: Vec::new(),
            items: Vec::new(),
            first: 0,
            damage: Vec::new(),
            fetch_count: FETCH_COUNT_MIN,
            is_again: false,
            state_count: FETCH_COUNT_MIN,
            ahead: 1,
            stepped: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.damage.clear();
        self.first = 0;
    }

    /// Drops the items after `last`; the next fetch continues there.
    pub(super) fn cut_behind(&mut self, last: &[u8]) {
        let kept = self.items.partition_point(|item| !self.direction.is_before(last, self.key(*item)));
        self.items.truncate(kept);
        self.cursor = None;
        self.fetch_count = kept.max(FETCH_COUNT_MIN);
    }

    /// True when all that was fetched has been returned.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first >= self.items.len()
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<FetchedItem> {
        let item = self.items.get(self.first).copied()?;
        self.first += 1;
        Some(item)
    }

    #[inline]
    pub(super) fn pop_back(&mut self) -> Option<FetchedItem> {
        if self.is_empty() { None } else { self.items.pop() }
    }

    /// Whether the buffer has a next record that can be returned.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.items.get(self.first).is_some_and(|item| item.value_len < DAMAGED)
    }

    /// The next record of the buffer, unless it cannot be returned. Inlined, so that it comes in registers.
    #[inline(always)]
    pub(super) fn pop_sound(&mut self) -> Option<(&[u8], &[u8])> {
        let FetchedItem { key, key_len, value, value_len } = *self.items.get(self.first)?;
        if value_len >= DAMAGED {
            return None;
        }
        self.first += 1;
        Some((&self.bytes[key..][..key_len], &self.bytes[value..][..value_len]))
    }

    /// Key and value of an item of this end.
    #[inline]
    pub(super) fn record(&self, item: FetchedItem) -> Result<(&[u8], &[u8])> {
        if item.value_len >= DAMAGED {
            return Err(self.damage[item.value].error());
        }
        Ok((self.key(item), &self.bytes[item.value..][..item.value_len]))
    }

    #[inline]
    pub(super) fn key(&self, item: FetchedItem) -> &[u8] {
        &self.bytes[item.key..][..item.key_len]
    }

    #[inline]
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let middle = start + key.len();
        self.items.push(FetchedItem {
            key: start,
            key_len: key.len(),
            value: middle,
            value_len: value.len(),
        });
    }

    fn push_damaged(&mut self, key: &[u8], damage: Read) {
        self.push(key, &[]);
        if let Some(item) = self.items.last_mut() {
            (item.value, item.value_len) = (self.damage.len(), DAMAGED);
        }
        self.damage.push(damage);
    }
}

/// Copies live records into the buffer; true when there are no more between the bounds.
pub(super) fn fetch_live<'a>(
    pin: &Arc<Pin<'a>>,
    end: &mut RangeEnd<'a>,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> bool {
    let hart: &'a Hart = pin.hart;
    let (lower, upper) = (as_slices(lower), as_slices(upper));
    let direction = end.direction;
    let cursor = end.cursor.get_or_insert_with(|| {
        Box::new(hart.index.cursor(if direction == Direction::Forward { lower } else { upper }, direction))
    });
    let count = end.fetch_count;
    let items = &mut end.items;
    let damage = &mut end.damage;
    let bad = Cell::new(None);
    let mut blocks = false;
    let mut beyond = false;
    let read = |leaf: Leaf, bytes: &mut Vec<u8>| {
        let offset = hart.space.offset(leaf);
        let (meta, word) = hart.space.leaf_words(offset);
        let value = LeafValue { kind: meta.kind(), word };
        if value.is_in_slot() {
            let behind = hart.append_slot(offset, meta.key_len(), word, bytes);
            if !matches!(behind, Read::Copied) {
                bad.set(Some(behind));
                return LeafValue { kind: BAD, word };
            }
        } else if value.kind > KIND_SLOT {
            bad.set(Some(Read::Damaged { offset, what: "the leaf's value is of no kind" }));
            return LeafValue { kind: BAD, word };
        }
        value
    };
    let take = |bytes: &mut Vec<u8>, place: Range<usize>, value: LeafValue| {
        let middle = place.end;
        let key = &bytes[place.clone()];
        beyond = match direction {
            Direction::Forward => is_beyond(key, upper),
            Direction::Backward => is_before(key, lower),
        };
        if beyond {
            return false;
        }
        let (value, value_len) = if value.is_in_slot() {
            (middle, bytes.len() - middle)
        } else if value.kind == BAD {
            bytes.truncate(middle);
            damage.extend(bad.get());
            (damage.len() - 1, DAMAGED)
        } else if let Some(block) = value.block_offset() {
            hart.prefetch_block(block);
            blocks = true;
            (block as usize, BLOCK)
        } else {
            // Appending the whole word and truncating it is faster than appending its first bytes.
            bytes.extend_from_slice(&value.word.to_le_bytes());
            let len = usize::from(value.kind).min(8);
            bytes.truncate(middle + len);
            (middle, len)
        };
        items.push(FetchedItem { key: place.start, key_len: place.len(), value, value_len });
        true
    };
    let complete =
        cursor.advance_many(count, &mut end.bytes, |leaf| leaf.prefetch_further(), read, take) || beyond;
    let whole = !blocks || copy_blocks(hart, end);
    // Next time no more leaves than fit with their values: the rest would be read for nothing.
    let enough = end.bytes.len() > FETCH_BYTES_MAX;
    end.is_again = !end.is_again;
    end.fetch_count = match enough {
        true => end.items.len().max(1),
        false if end.is_again => count,
        false => (count * 2).min(FETCH_COUNT_MAX),
    };
    if !whole {
        // The cursor is ahead of the values, so the next fetch seeks again.
        end.cursor = None;
        return false;
    }
    complete
}

/// The second pass. False when it dropped records because their values are too many bytes for one fetch.
fn copy_blocks(hart: &Hart, end: &mut RangeEnd<'_>) -> bool {
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
            if bytes.len() > FETCH_BYTES_MAX {
                taken = number + 1;
                break;
            }
        }
    }
    let whole = taken == end.items.len();
    end.items.truncate(taken);
    whole
}

/// Replaces live records by the states that their keys had at the instant, where those were saved.
pub(super) fn correct(end: &mut RangeEnd<'_>, states: PreImages) {
    let mut fixed = RangeEnd::new(end.direction);
    fixed.bytes.reserve(end.bytes.len());
    // The next state is the last.
    let mut states: Vec<(Vec<u8>, Option<Vec<u8>>)> = match end.direction {
        Direction::Forward => states.into_iter().rev().collect(),
        Direction::Backward => states.into_iter().collect(),
    };
    for item in &end.items {
        let key = end.key(*item);
        while let Some((saved_key, saved)) = states.pop_if(|(k, _)| end.direction.is_before(k, key)) {
            if let Some(saved) = saved {
                fixed.push(&saved_key, &saved);
            }
        }
        match states.pop_if(|(k, _)| k.as_slice() == key) {
            Some((_, Some(saved))) => fixed.push(key, &saved),
            Some((_, None)) => {}
            None => match end.record(*item) {
                Ok((key, value)) => fixed.push(key, value),
                Err(_) => fixed.push_damaged(key, end.damage[item.value]),
            },
        }
    }
    for (key, saved) in states.into_iter().rev() {
        if let Some(saved) = saved {
            fixed.push(&key, &saved);
        }
    }
    (end.bytes, end.items, end.damage) = (fixed.bytes, fixed.items, fixed.damage);
}
