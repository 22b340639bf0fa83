//! Batches and range deletes: many records change together or not at all.
//!
//! First the writer stores the caller's values and the new leaves. Where possible a new leaf goes into a slot whose
//! bit is clear, so that one entry of the redo list commits all leaves of a chunk. Then, with the gate closed:
//!
//! Durable-order:
//! 1. values, leaves, removals in the headers of chunks, and the redo list, fence;
//! 2. the batch word, which refers to the list, fence: this is the commit. Before it a crash keeps nothing; after it
//!    recovery applies the list;
//! 3. the effects of the list, flushed, fence;
//! 4. the cleared batch word, fence, before any other write: a list that recovery applied after a later write would
//!    undo that write.
//!
//! [`Hart::preparing`] keeps `check` out from before the values are written until the end, because what a batch has
//! allocated is in no leaf before step 3.
//!
//! The index changes between steps 2 and 4. Meanwhile readers of these keys wait at their buckets
//! ([`crate::concurrency::read_gate`]).

use crate::batch::Op;
use crate::bounds::is_beyond;
use crate::concurrency::writer_gate::{ExclusivePermit, LaneToken};
use crate::error::twice_if_full;
use crate::format::layout::{LEAF_KEY, LEAF_META, LEAF_WORD, ROOT_BATCH, Tag, seal};
use crate::format::leaf::{INLINE_BYTES_MAX, LeafValue, Meta, key_crc, value_at};
use crate::format::redo_list;
use crate::format::redo_list::RedoEntry;
use crate::format::space::value_crc;
use crate::hart::Hart;
use crate::index::{Direction, Intent, LeafChange};
use crate::operations::batch_redo::BatchRedo;
use crate::operations::flusher::RangeFlusher;
use crate::operations::read::{check_key, check_value};
use crate::operations::write::Expected;
use crate::{Batch, Error, Result, WriteMode};
use mangrove_pool::Lsn;
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

/// Keys that the index looks up together.
const LOOKUPS: usize = 64;

/// One key of a batch.
pub(super) struct BatchStep<'a> {
    pub(super) key: &'a [u8],
    pub(super) effect: Effect,
}

/// What happens to the key.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    /// The leaf in this slot becomes live: by these words or, if the slot has them already, by its bit.
    Insert { slot: u64, meta: u64, value: LeafValue, by_bit: bool },
    /// The leaf in this slot gets these words; its value was `old`.
    Update { slot: u64, meta: u64, word: u64, old: LeafValue },
    /// The leaf in this slot, which has this value, is removed.
    Remove(u64, LeafValue),
    /// The leaf in `from`, whose value was `old`, gives way to the one in `slot`, which becomes live as with an
    /// insertion.
    Replace { from: u64, old: LeafValue, slot: u64, meta: u64, value: LeafValue, by_bit: bool },
    /// Compaction: the leaf in `from`, whose value was `old`, gets the slot `slot`, as with an insertion.
    MoveLeaf { from: u64, old: LeafValue, slot: u64, meta: u64, value: LeafValue, by_bit: bool },
    /// Compaction: the leaf in this slot gets these words, which name another block with the same value.
    MoveValue { slot: u64, meta: u64, word: u64, old: LeafValue },
}

impl Effect {
    /// An insertion as the second half of an update.
    fn replacing(self, from: u64, old: LeafValue) -> Self {
        match self {
            Self::Insert { slot, meta, value, by_bit } => {
                Self::Replace { from, old, slot, meta, value, by_bit }
            }
            other => other,
        }
    }

    /// An insertion as the second half of a move.
    pub(super) fn moving_from(self, from: u64, old: LeafValue) -> Option<Self> {
        match self {
            Self::Insert { slot, meta, value, by_bit } => {
                Some(Self::MoveLeaf { from, old, slot, meta, value, by_bit })
            }
            _ => None,
        }
    }

    /// Slots and blocks that nothing refers to when the move is done.
    pub(super) fn moved_from(&self) -> impl Iterator<Item = u64> + use<> {
        let (leaf, block) = match *self {
            Self::MoveLeaf { from, old, value, .. } => {
                (Some(from), old.block_offset().filter(|_| old.word != value.word))
            }
            Self::MoveValue { old, .. } => (None, old.block_offset()),
            _ => (None, None),
        };
        leaf.into_iter().chain(block)
    }

    fn is_move(&self) -> bool {
        matches!(self, Self::MoveLeaf { .. } | Self::MoveValue { .. })
    }

    /// Slots and blocks that the move has allocated.
    pub(super) fn moved_to(&self) -> impl Iterator<Item = u64> + use<> {
        let (leaf, block) = match *self {
            Self::MoveLeaf { slot, old, value, .. } => {
                (Some(slot), value.block_offset().filter(|_| old.word != value.word))
            }
            Self::MoveValue { word, .. } => (None, Some(word)),
            _ => (None, None),
        };
        leaf.into_iter().chain(block)
    }
}

impl Hart {
    /// Applies the batch: after a crash all of it is there or nothing, and the same holds for readers.
    ///
    /// # Errors
    /// As [`Hart::put`]; `Mismatch` when a record is not as the batch expects. Where an error means that nothing
    /// changed, nothing of the batch happened.
    pub fn write(&self, batch: Batch, mode: WriteMode) -> Result<()> {
        self.check_writable()?;
        for op in batch.ops().chain(batch.expected()) {
            check_key(op.key)?;
            check_value(op.value.unwrap_or_default())?;
        }
        let ops = batch.sorted();
        let is_unconditional = batch.expected().next().is_none();
        if let [Op { key, value }] = ops[..]
            && is_unconditional
        {
            let expect = if value.is_some() { Expected::Any } else { Expected::Present };
            return self.change(key, value, expect, mode).map(|_| ());
        }
        let preparing = self.preparing.read();
        let make_room = || _ = self.alloc.reclaim_all(&self.writer_gate.close().lane());
        let prepared = twice_if_full(make_room, || self.prepare_all(&ops))?;
        let pending = self.read_gate.begin_write();
        let lsn = {
            let exclusive = self.writer_gate.close();
            let mismatch = self.first_mismatch(batch.expected());
            if !matches!(mismatch, Ok(None)) {
                prepared.iter().for_each(|value| self.free_value(&exclusive.lane(), *value));
            }
            if let Some(key) = mismatch? {
                drop((exclusive, pending));
                return Err(self.mismatch(key));
            }
            let steps = self.plan(&exclusive.lane(), &ops, &prepared)?;
            self.commit(&exclusive, &steps)?
        };
        drop(preparing);
        self.acknowledge(pending, ops.iter().map(|op| op.key), lsn, mode)
    }

    /// The first key that is not as expected. The gate is closed.
    fn first_mismatch<'b>(&self, expected: impl Iterator<Item = Op<'b>>) -> Result<Option<&'b [u8]>> {
        for Op { key, value } in expected {
            let wanted = value.map_or(Expected::Absent, Expected::Value);
            if !self.is_as_expected(key, &wanted)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// The error that tells of the record of `key`, which must be durable as for a read.
    fn mismatch(&self, key: &[u8]) -> Error {
        match self.unchanged(key) {
            Ok(_) => Error::Mismatch { key: key.into() },
            Err(e) => e,
        }
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were.
    ///
    /// # Errors
    /// As [`Hart::write`].
    pub fn delete_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, mode: WriteMode) -> Result<u64> {
        self.check_writable()?;
        let (mut keys, mut found) = (Vec::new(), Vec::new());
        let pending = self.read_gate.begin_write();
        let lsn = {
            let exclusive = self.writer_gate.close();
            let mut cursor = self.index.cursor(start, Direction::Forward);
            while let Some(leaf) = cursor.advance(|leaf| leaf) {
                if is_beyond(cursor.key(), end) {
                    break;
                }
                let slot = self.space.offset(leaf);
                let (meta, word) = self.space.leaf_words(slot);
                let from = keys.len();
                keys.extend_from_slice(cursor.key());
                found.push((from..keys.len(), Effect::Remove(slot, LeafValue { kind: meta.kind(), word })));
            }
            let step =
                |(key, effect): &(Range<usize>, _)| BatchStep { key: &keys[key.clone()], effect: *effect };
            let steps: Vec<BatchStep<'_>> = found.iter().map(step).collect();
            self.commit(&exclusive, &steps)?
        };
        self.acknowledge(pending, found.iter().map(|(key, _)| &keys[key.clone()]), lsn, mode)?;
        Ok(found.len() as u64)
    }

    /// Writes the values before the gate is closed. The caller fences.
    fn prepare_all(&self, ops: &[Op<'_>]) -> Result<Vec<Option<LeafValue>>> {
        let permit = self.writer_gate.enter();
        let lane = &permit.lane();
        let mut flusher = RangeFlusher::new(self.region());
        let mut prepared = Vec::with_capacity(ops.len());
        for op in ops {
            let value = op.value.map(|bytes| {
                if bytes.len() <= INLINE_BYTES_MAX {
                    return Ok(LeafValue::inline(bytes));
                }
                if self.fits_slot(op.key.len(), bytes.len()) {
                    // The leaf is not written before it is known whether a slot with a clear bit is there for it.
                    return Ok(LeafValue::in_slot(bytes.len(), value_crc(bytes)));
                }
                let (block, len) = self.place_block(lane, bytes)?;
                flusher.add(block, len);
                Ok(LeafValue::block(block))
            });
            match value.transpose() {
                Ok(value) => prepared.push(value),
                Err(e) => {
                    // Not what others may have written by then.
                    flusher.finish();
                    prepared.iter().for_each(|value| self.free_value(lane, *value));
                    return Err(e);
                }
            }
        }
        flusher.finish();
        Ok(prepared)
    }

    fn free_value(&self, lane: &LaneToken<'_>, value: Option<LeafValue>) {
        if let Some(block) = value.and_then(LeafValue::block_offset) {
            self.alloc.free(lane, block);
        }
    }

    /// Decides what each operation does, and writes new leaves. The gate is closed.
    fn plan<'a>(
        &self,
        exclusive: &LaneToken<'_>,
        ops: &[Op<'a>],
        prepared: &[Option<LeafValue>],
    ) -> Result<Vec<BatchStep<'a>>> {
        let mut steps: Vec<BatchStep<'a>> = Vec::with_capacity(ops.len());
        let mut flusher = RangeFlusher::new(self.region());
        for (number, (op, value)) in ops.iter().zip(prepared).enumerate() {
            if number % LOOKUPS == 0 {
                self.index.warm(ops[number..].iter().take(LOOKUPS).map(|op| op.key));
            }
            match self.effect(exclusive, op, *value, &mut flusher) {
                Ok(Some(effect)) => steps.push(BatchStep { key: op.key, effect }),
                Ok(None) => {}
                Err(e) => {
                    flusher.finish();
                    prepared[number..].iter().for_each(|value| self.free_value(exclusive, *value));
                    self.free_new(exclusive, &steps);
                    return Err(e);
                }
            }
        }
        flusher.finish();
        Ok(steps)
    }

    fn effect(
        &self,
        exclusive: &LaneToken<'_>,
        op: &Op<'_>,
        value: Option<LeafValue>,
        flusher: &mut RangeFlusher<'_>,
    ) -> Result<Option<Effect>> {
        let slot = self.index.get(op.key, |leaf| self.space.offset(leaf));
        let mut new_leaf = |before, value| {
            let make_room = || _ = self.alloc.reclaim_all(exclusive);
            twice_if_full(make_room, || {
                self.prepare_leaf(exclusive, op.key, before, value, op.value, flusher)
            })
        };
        Ok(match (slot, value) {
            (None, None) => None,
            (None, Some(value)) => Some(new_leaf(None, value)?),
            (Some(slot), None) => {
                let (meta, word) = self.space.leaf_words(slot);
                Some(Effect::Remove(slot, LeafValue { kind: meta.kind(), word }))
            }
            (Some(slot), Some(value)) => {
                let (meta, word) = self.space.leaf_words(slot);
                let old = LeafValue { kind: meta.kind(), word };
                if value.is_in_slot() {
                    return Ok(Some(new_leaf(Some(meta), value)?.replacing(slot, old)));
                }
                let key_crc = key_crc(op.key);
                let (meta, value) = match meta.updated(key_crc, old, value) {
                    Some(meta) => (meta, value),
                    None => self.avoid_meta_collision(
                        exclusive,
                        key_crc,
                        meta,
                        old,
                        value,
                        op.value.unwrap_or_default(),
                    )?,
                };
                Some(Effect::Update { slot, meta: meta.0, word: value.word, old })
            }
        })
    }

    /// Writes a leaf that the batch will commit, and that takes the place of one with the meta word `before`. A value
    /// behind the key is `bytes`.
    pub(super) fn prepare_leaf(
        &self,
        exclusive: &LaneToken<'_>,
        key: &[u8],
        before: Option<Meta>,
        value: LeafValue,
        bytes: Option<&[u8]>,
        flusher: &mut RangeFlusher<'_>,
    ) -> Result<Effect> {
        let len = value.leaf_bytes(key.len());
        let slot = self.alloc.alloc_leaf(exclusive, len)?;
        let region = self.region();
        let meta = Meta::fresh(key.len(), key_crc(key), before, value).0;
        let by_bit = !self.alloc.leaf_bit(slot);
        // Where the bit is set already, applying the list stores meta and word.
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
        if value.is_in_slot() {
            region.write(slot + value_at(key.len()) as u64, bytes.unwrap_or_default());
        }
        let end = slot + len as u64;
        if end > from {
            flusher.add(from, end - from);
        }
        Ok(Effect::Insert { slot, meta, value, by_bit })
    }

    /// Frees what a plan that is not carried out has allocated.
    fn free_new(&self, exclusive: &LaneToken<'_>, steps: &[BatchStep<'_>]) {
        for step in steps {
            match step.effect {
                Effect::Insert { slot, value, .. } | Effect::Replace { slot, value, .. } => {
                    self.free_value(exclusive, Some(value));
                    self.alloc.free(exclusive, slot);
                }
                Effect::Update { meta, word, .. } => {
                    self.free_value(exclusive, Some(LeafValue { kind: Meta(meta).kind(), word }));
                }
                // Compaction sees to its moves.
                Effect::Remove(..) | Effect::MoveLeaf { .. } | Effect::MoveValue { .. } => {}
            }
        }
    }

    /// Commits `steps`, all of which move records or none; returns the log position behind them.
    pub(super) fn commit(&self, exclusive: &ExclusivePermit<'_>, steps: &[BatchStep<'_>]) -> Result<Lsn> {
        let lane = &exclusive.lane();
        if steps.is_empty() {
            return Ok(self.region().appended());
        }
        let redo = BatchRedo::new(self, self.entries(steps));
        let (area, segments) = match redo.write(self, lane) {
            Ok(place) => place,
            Err(e) => {
                self.free_new(lane, steps);
                return Err(e);
            }
        };
        for step in steps {
            match step.effect {
                Effect::Insert { .. } if self.snapshots.any() => {
                    self.snapshots.save(step.key, |_| Some(None))
                }
                Effect::Insert { .. } => {}
                // A scan may copy values from their old blocks after a move.
                Effect::Update { slot, .. }
                | Effect::Remove(slot, _)
                | Effect::Replace { from: slot, .. }
                | Effect::MoveLeaf { from: slot, .. }
                | Effect::MoveValue { slot, .. } => self.save_pre_image(step.key, slot),
            }
        }
        let region = self.region();
        // Durable-order 1: everything that the list refers to, removals in chunk headers too, and the list itself.
        region.fence();
        region.store(ROOT_BATCH, seal(Tag::Batch, area / 64), Ordering::Release);
        region.flush(ROOT_BATCH, 8);
        // Durable-order 2: the commit before its first effect.
        region.fence();
        let lsn = region.appended();
        // What has moved is as durable as it was: a crash shows it at its old place or at its new one.
        let is_new = !steps[0].effect.is_move();
        let readers_wait_for = if is_new { self.flushed(lsn) } else { 0 };
        self.read_gate.begin_publish(steps.iter().map(|s| s.key), readers_wait_for);
        self.publish(steps, &redo);
        // Durable-order 3: the effects before the list is given up.
        region.fence();
        region.store(ROOT_BATCH, seal(Tag::Batch, 0), Ordering::Release);
        region.flush(ROOT_BATCH, 8);
        // Durable-order 4: the list is given up before the next write.
        region.fence();
        self.read_gate.end_publish(steps.iter().map(|s| s.key));
        if let Some((first, count)) = segments {
            self.alloc.pool.release(first, count);
        }
        self.settle_batch(lane, steps);
        Ok(lsn)
    }

    /// The entries of the redo list: bitmap changes by chunk, and leaf words.
    fn entries(&self, steps: &[BatchStep<'_>]) -> Vec<RedoEntry> {
        // Slots come chunk after chunk, so most changes of a bitmap meet in the last entry.
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
                    entries.push(RedoEntry::Leaf { slot, meta, word: value.word });
                }
                Effect::Remove(slot, _) => change(slot, false),
                Effect::Update { slot, meta, word, .. } | Effect::MoveValue { slot, meta, word, .. } => {
                    entries.push(RedoEntry::Leaf { slot, meta, word });
                }
                Effect::Replace { from, slot, meta, value, by_bit, .. } => {
                    // Not by its bit, which may be the only one that changes in its chunk: this entry is as long, and
                    // the slot stays in service.
                    entries.push(given_up(from));
                    if by_bit {
                        change(slot, true);
                    } else {
                        entries.push(RedoEntry::Leaf { slot, meta, word: value.word });
                    }
                }
                Effect::MoveLeaf { from, slot, meta, value, by_bit, .. } => {
                    change(from, false);
                    if by_bit {
                        change(slot, true);
                    } else {
                        entries.push(RedoEntry::Leaf { slot, meta, word: value.word });
                    }
                }
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
        entries.extend(bits.into_iter().map(|(header, set, clear)| RedoEntry::Bits { header, set, clear }));
        entries
    }

    /// Applies the list and changes the index.
    fn publish(&self, steps: &[BatchStep<'_>], redo: &BatchRedo) {
        let region = self.region();
        for (header, set, clear) in redo.bits() {
            self.alloc.change_bitmap(header, clear, set);
            region.flush(header, 8);
        }
        for step in steps {
            let _tree = self.lock_tree(step.key);
            match step.effect {
                Effect::Insert { slot, meta, value, by_bit }
                | Effect::Replace { slot, meta, value, by_bit, .. }
                | Effect::MoveLeaf { slot, meta, value, by_bit, .. } => {
                    if !by_bit {
                        redo_list::apply(&self.space, RedoEntry::Leaf { slot, meta, word: value.word }, 0);
                        region.flush(slot, 16);
                    }
                    let leaf = self.space.leaf(slot, step.key.len(), value);
                    self.index.modify(step.key, Intent::Upsert, |_| (LeafChange::Insert(leaf), ()));
                    if let Effect::Replace { from, .. } = step.effect {
                        redo_list::apply(&self.space, given_up(from), 0);
                        region.flush(from, 16);
                    }
                }
                Effect::Update { slot, meta, word, .. } | Effect::MoveValue { slot, meta, word, .. } => {
                    // Under the leaf's lock, so that no reader sees one new word with one old one.
                    let value = LeafValue { kind: Meta(meta).kind(), word };
                    let leaf = self.space.leaf(slot, step.key.len(), value);
                    self.index.modify(step.key, Intent::Existing, |_| {
                        redo_list::apply(&self.space, RedoEntry::Leaf { slot, meta, word }, 0);
                        (LeafChange::Insert(leaf), ())
                    });
                    region.flush(slot, 16);
                }
                Effect::Remove(..) => {
                    self.index.modify(step.key, Intent::Existing, |_| (LeafChange::Remove, ()));
                }
            }
        }
    }

    fn settle_batch(&self, exclusive: &LaneToken<'_>, steps: &[BatchStep<'_>]) {
        let mut records = 0;
        for step in steps {
            match step.effect {
                Effect::Insert { .. } => records += 1,
                Effect::Update { old, .. } => self.free_value(exclusive, Some(old)),
                Effect::Replace { from, old, .. } => {
                    self.free_value(exclusive, Some(old));
                    self.alloc.free(exclusive, from);
                }
                Effect::Remove(slot, old) => {
                    records -= 1;
                    self.free_value(exclusive, Some(old));
                    self.alloc.free(exclusive, slot);
                }
                Effect::MoveLeaf { .. } | Effect::MoveValue { .. } => {}
            }
        }
        // In one store, so that no count has a part of a batch.
        self.writer_gate.add_records(exclusive, records);
    }
}

/// Makes the slot of a leaf a free one.
fn given_up(slot: u64) -> RedoEntry {
    RedoEntry::Leaf { slot, meta: Meta::FREE.0, word: 0 }
}
