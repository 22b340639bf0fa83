//! Batches and range deletes: many records change together or not at all.
//!
//! The caller's values and new leaves are written first, the leaves where possible into slots whose bit is clear, so
//! that one entry of the list commits all leaves of a chunk. Then, alone in the gate:
//!
//! Durable-order:
//! 1. values, leaves and the redo list, fence;
//! 2. the batch word, which names the list: the commit, fence. Before it a crash keeps nothing, after it recovery
//!    applies the list;
//! 3. the list is applied, flushed, fence;
//! 4. the batch word is cleared, fence, before anybody writes again: a list applied after a later write would undo
//!    it.
//!
//! From before the values are written until the end `check` waits ([`Hart::preparing`]): what a batch has taken is in
//! no leaf before 3.
//!
//! Between 2 and 4 the index is changed, while readers of these keys wait at their buckets ([`crate::visible`]).

use crate::batch::Op;
use crate::gate::{Exclusive, Lane};
use crate::hart::Hart;
use crate::index::{Change, Direction, Intent};
use crate::layout::{
    LEAF_KEY, LEAF_META, LEAF_WORD, REDO_ENTRY_BYTES, ROOT_BATCH, ROOT_BATCH_AREA, ROOT_BATCH_AREA_BYTES,
    Tag, seal,
};
use crate::leaf::{INLINE_BYTES_MAX, Meta, Value, key_crc};
use crate::read::{check_key, check_value};
use crate::redo::{self, Entry};
use crate::write::Expect;
use crate::{Batch, Error, Result, WriteMode};
use mangrove_pmem::{Lsn, Region};
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

/// A flush of a batch is at most this long.
const FLUSH_BYTES_MAX: u64 = 256 << 10;
/// Ranges so near to each other are flushed in one: less than a flush of its own costs in a log.
const FLUSH_GAP_BYTES_MAX: u64 = 8;
/// Keys that are looked up together.
const LOOKUPS: usize = 64;

/// One key of a batch.
struct Step<'a> {
    key: &'a [u8],
    effect: Effect,
}

/// What is to happen to it.
#[derive(Clone, Copy)]
enum Effect {
    /// A leaf at this slot becomes live: by these words, or, where it has them already, by its bit.
    Insert { slot: u64, meta: u64, value: Value, by_bit: bool },
    /// The leaf at this slot gets these words; its value was `old`.
    Update { slot: u64, meta: u64, word: u64, old: Value },
    /// The leaf at this slot, with this value, dies.
    Remove(u64, Value),
}

/// Flushes ranges, neighbours together. What was added is flushed by `finish`, not before.
struct Flusher<'a> {
    region: &'a Region,
    start: u64,
    end: u64,
}

impl<'a> Flusher<'a> {
    fn new(region: &'a Region) -> Self {
        Self { region, start: 0, end: 0 }
    }

    fn add(&mut self, offset: u64, len: u64) {
        let follows = offset >= self.end && offset - self.end <= FLUSH_GAP_BYTES_MAX;
        if !follows || offset + len - self.start > FLUSH_BYTES_MAX {
            self.finish();
            self.start = offset;
        }
        self.end = offset + len;
    }

    fn finish(&mut self) {
        while self.start < self.end {
            let piece = (self.end - self.start).min(FLUSH_BYTES_MAX);
            self.region.flush(self.start, piece as usize);
            self.start += piece;
        }
    }
}

impl Hart {
    /// Applies the batch: after a crash all of it is there or nothing, and so for readers.
    ///
    /// # Errors
    /// As [`Hart::put`], and nothing of the batch happened where nothing would have happened there.
    pub fn write(&self, batch: Batch, mode: WriteMode) -> Result<()> {
        self.check_writable()?;
        for op in batch.ops() {
            check_key(op.key)?;
            check_value(op.value.unwrap_or_default())?;
        }
        let ops = batch.sorted();
        if let [Op { key, value }] = ops[..] {
            let expect = if value.is_some() { Expect::Any } else { Expect::Present };
            return self.change(key, value, expect, mode).map(|_| ());
        }
        let preparing = self.preparing.read();
        let prepared = match self.prepare_all(&ops) {
            Err(e) if e.is_full() => {
                self.alloc.reclaim_idle(&self.gate.close().lane());
                self.prepare_all(&ops)?
            }
            answer => answer?,
        };
        let fate = self.visible.begin();
        let lsn = {
            let alone = self.gate.close();
            let steps = self.plan(&alone.lane(), &ops, &prepared)?;
            self.commit(&alone, &steps)?
        };
        drop(preparing);
        self.acknowledge(fate, ops.iter().map(|op| op.key), lsn, mode)
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were.
    ///
    /// # Errors
    /// As [`Hart::write`].
    pub fn delete_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, mode: WriteMode) -> Result<u64> {
        self.check_writable()?;
        let (mut keys, mut found) = (Vec::new(), Vec::new());
        let fate = self.visible.begin();
        let lsn = {
            let alone = self.gate.close();
            let mut cursor = self.index.cursor(start, Direction::Forward);
            while let Some(leaf) = cursor.advance(|leaf| leaf) {
                if is_beyond(cursor.key(), end) {
                    break;
                }
                let slot = self.space.offset(leaf);
                let (meta, word) = self.space.leaf_words(slot);
                let from = keys.len();
                keys.extend_from_slice(cursor.key());
                found.push((from..keys.len(), Effect::Remove(slot, Value { kind: meta.kind(), word })));
            }
            let step = |(key, effect): &(Range<usize>, _)| Step { key: &keys[key.clone()], effect: *effect };
            let steps: Vec<Step<'_>> = found.iter().map(step).collect();
            self.commit(&alone, &steps)?
        };
        self.acknowledge(fate, found.iter().map(|(key, _)| &keys[key.clone()]), lsn, mode)?;
        Ok(found.len() as u64)
    }

    /// Writes the values, before the gate is closed. The caller fences.
    fn prepare_all(&self, ops: &[Op<'_>]) -> Result<Vec<Option<Value>>> {
        let ticket = self.gate.enter();
        let lane = &ticket.lane();
        let mut flusher = Flusher::new(self.region());
        let mut prepared = Vec::with_capacity(ops.len());
        for op in ops {
            let value = op.value.map(|bytes| {
                if bytes.len() <= INLINE_BYTES_MAX {
                    return Ok(Value::inline(bytes));
                }
                let (block, len) = self.place_block(lane, bytes)?;
                flusher.add(block, len);
                Ok(Value::block(block))
            });
            match value.transpose() {
                Ok(value) => prepared.push(value),
                Err(e) => {
                    prepared.iter().for_each(|value| self.give_value(lane, *value));
                    return Err(e);
                }
            }
        }
        flusher.finish();
        Ok(prepared)
    }

    fn give_value(&self, lane: &Lane<'_>, value: Option<Value>) {
        if let Some(block) = value.and_then(Value::block_offset) {
            self.alloc.give(lane, block);
        }
    }

    /// Finds out what each operation means, and writes new leaves. The gate is closed.
    fn plan<'a>(
        &self,
        alone: &Lane<'_>,
        ops: &[Op<'a>],
        prepared: &[Option<Value>],
    ) -> Result<Vec<Step<'a>>> {
        let mut steps: Vec<Step<'a>> = Vec::with_capacity(ops.len());
        let mut flusher = Flusher::new(self.region());
        for (number, (op, value)) in ops.iter().zip(prepared).enumerate() {
            if number % LOOKUPS == 0 {
                self.index.warm(ops[number..].iter().take(LOOKUPS).map(|op| op.key));
            }
            match self.effect(alone, op, *value, &mut flusher) {
                Ok(Some(effect)) => steps.push(Step { key: op.key, effect }),
                Ok(None) => {}
                Err(e) => {
                    prepared[number..].iter().for_each(|value| self.give_value(alone, *value));
                    self.give_new(alone, &steps);
                    return Err(e);
                }
            }
        }
        flusher.finish();
        Ok(steps)
    }

    fn effect(
        &self,
        alone: &Lane<'_>,
        op: &Op<'_>,
        value: Option<Value>,
        flusher: &mut Flusher<'_>,
    ) -> Result<Option<Effect>> {
        let slot = self.index.get(op.key, |leaf| self.space.offset(leaf));
        Ok(match (slot, value) {
            (None, None) => None,
            (None, Some(value)) => Some(self.prepare_leaf(alone, op.key, value, flusher)?),
            (Some(slot), None) => {
                let (meta, word) = self.space.leaf_words(slot);
                Some(Effect::Remove(slot, Value { kind: meta.kind(), word }))
            }
            (Some(slot), Some(value)) => {
                let (meta, word) = self.space.leaf_words(slot);
                let old = Value { kind: meta.kind(), word };
                let key_crc = key_crc(op.key);
                let (meta, value) = match meta.updated(key_crc, old, value) {
                    Some(meta) => (meta, value),
                    None => {
                        self.other_word(alone, key_crc, meta, old, value, op.value.unwrap_or_default())?
                    }
                };
                Some(Effect::Update { slot, meta: meta.0, word: value.word, old })
            }
        })
    }

    /// Writes a leaf that the batch will commit.
    fn prepare_leaf(
        &self,
        alone: &Lane<'_>,
        key: &[u8],
        value: Value,
        flusher: &mut Flusher<'_>,
    ) -> Result<Effect> {
        let slot = match self.alloc.take_leaf(alone, key.len()) {
            Err(e) if e.is_full() => {
                self.alloc.reclaim_idle(alone);
                self.alloc.take_leaf(alone, key.len())?
            }
            answer => answer?,
        };
        let region = self.region();
        let meta = Meta::new(key.len(), key_crc(key), value).0;
        let by_bit = !self.alloc.leaf_bit(slot);
        // Where the bit is set already, the list brings meta and word.
        let from = if by_bit {
            region.store(slot + LEAF_META, meta, Ordering::Release);
            region.store(slot + LEAF_WORD, value.word, Ordering::Release);
            slot
        } else {
            slot + LEAF_KEY
        };
        if !key.is_empty() {
            region.write(slot + LEAF_KEY, key);
        }
        let end = slot + LEAF_KEY + key.len() as u64;
        if end > from {
            flusher.add(from, end - from);
        }
        Ok(Effect::Insert { slot, meta, value, by_bit })
    }

    /// Gives back what a plan that is not carried out has written.
    fn give_new(&self, alone: &Lane<'_>, steps: &[Step<'_>]) {
        for step in steps {
            match step.effect {
                Effect::Insert { slot, value, .. } => {
                    self.give_value(alone, Some(value));
                    self.alloc.give(alone, slot);
                }
                Effect::Update { meta, word, .. } => {
                    self.give_value(alone, Some(Value { kind: Meta(meta).kind(), word }));
                }
                Effect::Remove(..) => {}
            }
        }
    }

    fn commit(&self, alone: &Exclusive<'_>, steps: &[Step<'_>]) -> Result<Lsn> {
        let lane = &alone.lane();
        if steps.is_empty() {
            return Ok(self.region().appended());
        }
        let entries = self.entries(steps);
        let (area, segments) = match self.write_list(lane, &entries) {
            Ok(place) => place,
            Err(e) => {
                self.give_new(lane, steps);
                return Err(e);
            }
        };
        for step in steps {
            match step.effect {
                Effect::Insert { .. } if self.overlays.any() => self.overlays.save(step.key, |_| Some(None)),
                Effect::Insert { .. } => {}
                Effect::Update { slot, .. } | Effect::Remove(slot, _) => self.save_image(step.key, slot),
            }
        }
        let region = self.region();
        // Durable-order 1: everything that the list refers to, and the list.
        region.fence();
        region.store(ROOT_BATCH, seal(Tag::Batch, area / 64), Ordering::Release);
        region.flush(ROOT_BATCH, 8);
        // Durable-order 2: the commit before its first effect.
        region.fence();
        let lsn = region.appended();
        self.visible.mark(steps.iter().map(|s| s.key), self.flushed(lsn));
        self.publish(steps, &entries);
        // Durable-order 3: the effects before the list is forgotten.
        region.fence();
        region.store(ROOT_BATCH, 0, Ordering::Release);
        region.flush(ROOT_BATCH, 8);
        // Durable-order 4: the list is forgotten before the next write.
        region.fence();
        self.visible.unmark(steps.iter().map(|s| s.key));
        if let Some((first, count)) = segments {
            self.alloc.pool.release(first, count);
        }
        self.settle_batch(lane, steps);
        Ok(lsn)
    }

    /// The redo list: bitmap changes by chunk, then leaf lines.
    fn entries(&self, steps: &[Step<'_>]) -> Vec<Entry> {
        // Slots come chunk after chunk, so that most changes of a bitmap meet in the last entry.
        let mut bits: Vec<(u64, u64, u64)> = Vec::new();
        let mut change = |slot: u64, is_set: bool| {
            let (header, number) = self.alloc.leaf_place(slot);
            if bits.last().is_none_or(|last| last.0 != header) {
                bits.push((header, 0, 0));
            }
            if let Some((_, set, clear)) = bits.last_mut() {
                *if is_set { set } else { clear } |= 1 << number;
            }
        };
        let mut entries = Vec::new();
        for step in steps {
            match step.effect {
                Effect::Insert { slot, by_bit: true, .. } => change(slot, true),
                Effect::Insert { slot, meta, value, .. } => {
                    entries.push(Entry::Leaf { slot, meta, word: value.word });
                }
                Effect::Remove(slot, _) => change(slot, false),
                Effect::Update { slot, meta, word, .. } => entries.push(Entry::Leaf { slot, meta, word }),
            }
        }
        bits.sort_unstable_by_key(|bits| bits.0);
        bits.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                (kept.1, kept.2) = (kept.1 | next.1, kept.2 | next.2);
            }
            same
        });
        entries.extend(bits.into_iter().map(|(header, set, clear)| Entry::Bits { header, set, clear }));
        entries
    }

    /// Writes and flushes the list, and says where it is and which segments it borrowed. Borrowed segments have
    /// no directory entry: the batch word alone names the list, and recovery applies it before it allocates.
    fn write_list(&self, alone: &Lane<'_>, entries: &[Entry]) -> Result<(u64, Option<(u32, u32)>)> {
        let bytes = redo::list_bytes(entries.len());
        let (area, segments) = if bytes <= ROOT_BATCH_AREA_BYTES {
            (ROOT_BATCH_AREA, None)
        } else {
            if entries.len() as u64 > u64::from(u32::MAX) / REDO_ENTRY_BYTES {
                return Err(Error::Unsupported { what: "the batch is too large; write it in parts".into() });
            }
            let count = bytes.div_ceil(self.space.geometry.segment_bytes()) as u32;
            let first = match self.alloc.take_segments(count) {
                Err(e) if e.is_full() => {
                    self.alloc.reclaim_idle(alone);
                    self.alloc.take_segments(count)?
                }
                answer => answer?,
            };
            (self.space.geometry.start(first), Some((first, count)))
        };
        let list = redo::encode(area, entries);
        let region = self.region();
        region.write(area, &list);
        let mut flusher = Flusher::new(region);
        flusher.add(area, list.len() as u64);
        flusher.finish();
        Ok((area, segments))
    }

    /// Applies the list and changes the index.
    fn publish(&self, steps: &[Step<'_>], entries: &[Entry]) {
        let region = self.region();
        for entry in entries {
            if let Entry::Bits { header, set, clear } = *entry {
                self.alloc.change_bitmap(header, clear, set);
                region.flush(header, 8);
            }
        }
        for step in steps {
            let _tree = self.lock_tree(step.key);
            match step.effect {
                Effect::Insert { slot, meta, value, by_bit } => {
                    if !by_bit {
                        redo::apply(&self.space, Entry::Leaf { slot, meta, word: value.word }, 0);
                        region.flush(slot, 16);
                    }
                    let leaf = self.space.leaf(slot);
                    self.index.modify(step.key, Intent::Upsert, |_| (Change::Insert(leaf), ()));
                }
                Effect::Update { slot, meta, word, .. } => {
                    // Under the leaf's lock, so that readers never see one word of two.
                    self.index.modify(step.key, Intent::Existing, |_| {
                        redo::apply(&self.space, Entry::Leaf { slot, meta, word }, 0);
                        (Change::Keep, ())
                    });
                    region.flush(slot, 16);
                }
                Effect::Remove(..) => {
                    self.index.modify(step.key, Intent::Existing, |_| (Change::Remove, ()));
                }
            }
        }
    }

    fn settle_batch(&self, alone: &Lane<'_>, steps: &[Step<'_>]) {
        for step in steps {
            match step.effect {
                Effect::Insert { .. } => self.gate.add_records(alone, 1),
                Effect::Update { old, .. } => self.give_value(alone, Some(old)),
                Effect::Remove(slot, old) => {
                    self.gate.add_records(alone, -1);
                    self.give_value(alone, Some(old));
                    self.alloc.give(alone, slot);
                }
            }
        }
    }
}

/// True when `key` lies behind an upper bound.
#[inline]
pub(crate) fn is_beyond(key: &[u8], end: Bound<&[u8]>) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(end) => key > end,
        Bound::Excluded(end) => key >= end,
    }
}

/// True when `key` lies before a lower bound.
#[inline]
pub(crate) fn is_before(key: &[u8], start: Bound<&[u8]>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
    }
}
