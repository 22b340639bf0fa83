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
//! Between 2 and 4 the index is changed, while readers of these keys wait at their buckets ([`crate::visible`]).

use crate::gate::{Exclusive, Lane};
use crate::hart::Hart;
use crate::index::{Change, Direction, Intent};
use crate::layout::{
    LEAF_KEY, LEAF_META, LEAF_WORD, REDO_ENTRY_BYTES, ROOT_BATCH, ROOT_BATCH_AREA, ROOT_BATCH_AREA_BYTES,
    Tag, seal,
};
use crate::leaf::{Meta, Value, key_crc};
use crate::read::{check_key, check_value};
use crate::redo::{self, Entry};
use crate::write::Expect;
use crate::{Batch, Error, Result, WriteMode};
use mangrove_pmem::Lsn;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// Pieces in which a redo list is handed to the medium.
const FLUSH_BYTES_MAX: usize = 256 << 10;

/// One key of a batch.
struct Step {
    key: Vec<u8>,
    effect: Effect,
}

/// What is to happen to it.
enum Effect {
    /// A leaf at this slot becomes live: by these words, or, where it has them already, by its bit.
    Insert { slot: u64, meta: u64, value: Value, by_bit: bool },
    /// The leaf at this slot gets these words; its value was `old`.
    Update { slot: u64, meta: u64, word: u64, old: Value },
    /// The leaf at this slot, with this value, dies.
    Remove(u64, Value),
}

/// A value to write, before the gate is closed.
type Prepared = (Vec<u8>, Option<(Value, Vec<u8>)>);

impl Hart {
    /// Applies the batch: after a crash all of it is there or nothing, and so for readers.
    ///
    /// # Errors
    /// As [`Hart::put`], and nothing of the batch happened where nothing would have happened there.
    pub fn write(&self, batch: Batch, mode: WriteMode) -> Result<()> {
        self.check_writable()?;
        for (key, value) in &batch.ops {
            check_key(key)?;
            check_value(value.as_deref().unwrap_or_default())?;
        }
        let mut ops = batch.ops;
        if ops.len() == 1 {
            let (key, value) = ops.swap_remove(0);
            let expect = if value.is_some() { Expect::Any } else { Expect::Present };
            return self.change(&key, value.as_deref(), expect, mode).map(|_| ());
        }
        // Of several operations on one key the last counts: the sort is stable.
        ops.sort_by(|a, b| a.0.cmp(&b.0));
        let mut last: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::with_capacity(ops.len());
        for op in ops {
            match last.last_mut() {
                Some(before) if before.0 == op.0 => *before = op,
                _ => last.push(op),
            }
        }
        let prepared = match self.prepare_all(&last) {
            Err(Error::Full { .. }) => {
                self.alloc.reclaim_idle(&self.gate.close().lane());
                self.prepare_all(&last)?
            }
            answer => answer?,
        };
        let prepared: Vec<Prepared> =
            last.into_iter().zip(prepared).map(|((key, bytes), value)| (key, value.zip(bytes))).collect();
        let lsn = {
            let alone = self.gate.close();
            let steps = self.plan(&alone.lane(), prepared)?;
            self.commit(&alone, steps)?
        };
        self.acknowledge(lsn, mode)
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were.
    ///
    /// # Errors
    /// As [`Hart::write`].
    pub fn delete_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, mode: WriteMode) -> Result<u64> {
        self.check_writable()?;
        let (count, lsn) = {
            let alone = self.gate.close();
            let mut steps = Vec::new();
            let mut cursor = self.index.cursor(start, Direction::Forward);
            while let Some(leaf) = cursor.advance(|leaf| leaf) {
                if is_beyond(cursor.key(), end) {
                    break;
                }
                let slot = self.space.offset(leaf);
                let (meta, word) = self.space.leaf_words(slot);
                let effect = Effect::Remove(slot, Value { kind: meta.kind(), word });
                steps.push(Step { key: cursor.key().to_vec(), effect });
            }
            (steps.len() as u64, self.commit(&alone, steps)?)
        };
        self.acknowledge(lsn, mode)?;
        Ok(count)
    }

    fn acknowledge(&self, lsn: Lsn, mode: WriteMode) -> Result<()> {
        if mode == WriteMode::Durable { self.wait(lsn) } else { Ok(()) }
    }

    /// Writes the values, before the gate is closed.
    fn prepare_all(&self, ops: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<Vec<Option<Value>>> {
        let ticket = self.gate.enter();
        let lane = &ticket.lane();
        let mut prepared = Vec::with_capacity(ops.len());
        for (_, bytes) in ops {
            match bytes.as_deref().map(|bytes| self.prepare(lane, bytes)).transpose() {
                Ok(value) => prepared.push(value),
                Err(e) => {
                    prepared.iter().for_each(|value| self.give_value(lane, *value));
                    return Err(e);
                }
            }
        }
        Ok(prepared)
    }

    fn give_value(&self, lane: &Lane<'_>, value: Option<Value>) {
        if let Some(block) = value.and_then(Value::block_offset) {
            self.alloc.give(lane, block);
        }
    }

    /// Finds out what each operation means, and writes new leaves. The gate is closed.
    fn plan(&self, alone: &Lane<'_>, prepared: Vec<Prepared>) -> Result<Vec<Step>> {
        let mut steps = Vec::with_capacity(prepared.len());
        let mut prepared = prepared.into_iter();
        while let Some((key, value)) = prepared.next() {
            match self.effect(alone, &key, value.as_ref()) {
                Ok(Some(effect)) => steps.push(Step { key, effect }),
                Ok(None) => {}
                Err(e) => {
                    self.give_value(alone, value.map(|v| v.0));
                    prepared.for_each(|(_, v)| self.give_value(alone, v.map(|v| v.0)));
                    self.give_new(alone, &steps);
                    return Err(e);
                }
            }
        }
        Ok(steps)
    }

    fn effect(
        &self,
        alone: &Lane<'_>,
        key: &[u8],
        value: Option<&(Value, Vec<u8>)>,
    ) -> Result<Option<Effect>> {
        let slot = self.index.get(key, |leaf| self.space.offset(leaf));
        Ok(match (slot, value) {
            (None, None) => None,
            (None, Some((value, _))) => Some(self.prepare_leaf(alone, key, *value)?),
            (Some(slot), None) => {
                let (meta, word) = self.space.leaf_words(slot);
                Some(Effect::Remove(slot, Value { kind: meta.kind(), word }))
            }
            (Some(slot), Some((value, bytes))) => {
                let (meta, word) = self.space.leaf_words(slot);
                let old = Value { kind: meta.kind(), word };
                let key_crc = key_crc(key);
                let (meta, value) = match meta.updated(key_crc, old, *value) {
                    Some(meta) => (meta, *value),
                    None => self.other_word(alone, key_crc, meta, old, *value, bytes)?,
                };
                Some(Effect::Update { slot, meta: meta.0, word: value.word, old })
            }
        })
    }

    /// Writes and flushes a leaf that the batch will commit. The caller fences.
    fn prepare_leaf(&self, alone: &Lane<'_>, key: &[u8], value: Value) -> Result<Effect> {
        let slot = match self.alloc.take_leaf(alone, key.len()) {
            Err(Error::Full { .. }) => {
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
        region.flush(from, (slot + LEAF_KEY - from) as usize + key.len());
        Ok(Effect::Insert { slot, meta, value, by_bit })
    }

    /// Gives back what a plan that is not carried out has written.
    fn give_new(&self, alone: &Lane<'_>, steps: &[Step]) {
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

    fn commit(&self, alone: &Exclusive<'_>, steps: Vec<Step>) -> Result<Lsn> {
        let lane = &alone.lane();
        if steps.is_empty() {
            return Ok(self.region().appended());
        }
        let entries = self.entries(&steps);
        let (area, segments) = match self.write_list(lane, &entries) {
            Ok(place) => place,
            Err(e) => {
                self.give_new(lane, &steps);
                return Err(e);
            }
        };
        for step in &steps {
            match step.effect {
                Effect::Insert { .. } if self.overlays.any() => self.overlays.save(&step.key, |_| Some(None)),
                Effect::Insert { .. } => {}
                Effect::Update { slot, .. } | Effect::Remove(slot, _) => self.save_image(&step.key, slot),
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
        self.visible.mark(steps.iter().map(|s| s.key.as_slice()), lsn);
        self.publish(&steps, &entries);
        // Durable-order 3: the effects before the list is forgotten.
        region.fence();
        region.store(ROOT_BATCH, 0, Ordering::Release);
        region.flush(ROOT_BATCH, 8);
        // Durable-order 4: the list is forgotten before the next write.
        region.fence();
        self.visible.unmark(steps.iter().map(|s| s.key.as_slice()));
        if let Some((first, count)) = segments {
            self.alloc.pool.release(first, count);
        }
        self.settle_batch(lane, &steps);
        Ok(lsn)
    }

    /// The redo list: bitmap changes by chunk, then leaf lines.
    fn entries(&self, steps: &[Step]) -> Vec<Entry> {
        let mut bits: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut entries = Vec::new();
        for step in steps {
            match step.effect {
                Effect::Insert { slot, by_bit: true, .. } => {
                    let (header, number) = self.alloc.leaf_place(slot);
                    bits.entry(header).or_default().0 |= 1 << number;
                }
                Effect::Insert { slot, meta, value, .. } => {
                    entries.push(Entry::Leaf { slot, meta, word: value.word });
                }
                Effect::Remove(slot, _) => {
                    let (header, number) = self.alloc.leaf_place(slot);
                    bits.entry(header).or_default().1 |= 1 << number;
                }
                Effect::Update { slot, meta, word, .. } => entries.push(Entry::Leaf { slot, meta, word }),
            }
        }
        entries.extend(bits.into_iter().map(|(header, (set, clear))| Entry::Bits { header, set, clear }));
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
                Err(Error::Full { .. }) => {
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
        let mut at = 0;
        while at < list.len() {
            let piece = (list.len() - at).min(FLUSH_BYTES_MAX);
            region.flush(area + at as u64, piece);
            at += piece;
        }
        Ok((area, segments))
    }

    /// Applies the list and changes the index.
    fn publish(&self, steps: &[Step], entries: &[Entry]) {
        let region = self.region();
        for entry in entries {
            if let Entry::Bits { header, set, clear } = *entry {
                self.alloc.change_bitmap(header, clear, set);
                region.flush(header, 8);
            }
        }
        for step in steps {
            let _tree = self.lock_tree(&step.key);
            match step.effect {
                Effect::Insert { slot, meta, value, by_bit } => {
                    if !by_bit {
                        redo::apply(&self.space, Entry::Leaf { slot, meta, word: value.word }, 0);
                        region.flush(slot, 16);
                    }
                    let leaf = self.space.leaf(slot);
                    self.index.modify(&step.key, Intent::Upsert, |_| (Change::Insert(leaf), ()));
                }
                Effect::Update { slot, meta, word, .. } => {
                    // Under the leaf's lock, so that readers never see one word of two.
                    self.index.modify(&step.key, Intent::Existing, |_| {
                        redo::apply(&self.space, Entry::Leaf { slot, meta, word }, 0);
                        (Change::Keep, ())
                    });
                    region.flush(slot, 16);
                }
                Effect::Remove(..) => {
                    self.index.modify(&step.key, Intent::Existing, |_| (Change::Remove, ()));
                }
            }
        }
    }

    fn settle_batch(&self, alone: &Lane<'_>, steps: &[Step]) {
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
