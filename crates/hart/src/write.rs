//! Changing one record (paper, Algorithms 1, 3 and 5).
//!
//! Deviations from the paper, with the holes of its text that they close (docs/decisions/hart-holes.md):
//!
//! - The bit of the leaf is the only commit record. Value blocks have no durable bit: which are live is derived
//!   from live leaves at recovery. So an insert needs two fences, not six, and nothing leaks (1, 8, 11).
//! - An update swaps one line of two words; there is no update log to replay (2, 3, 4).
//! - A record is published in the index after its bit is durable (or, on a medium with a log, in the log, and
//!   readers wait for the log); a delete is hidden before its bit is cleared (12).
//!
//! Durable orders:
//!
//! 1. Insert: value and leaf, fence, bit, fence, publish. Else recovery finds a bit with no leaf behind it.
//! 2. Update out of line: value, fence, leaf line, fence, old block free. Else a leaf refers to a value that is
//!    not there, or to a block that is somebody else's.
//! 3. Delete: bit, fence, slot and block free. Else a live bit refers to somebody else's leaf.

use crate::hart::Hart;
use crate::index::{Change, Intent, Leaf};
use crate::layout::{LEAF_KEY, LEAF_META, LEAF_WORD, VALUE_HEADER_BYTES};
use crate::leaf::{INLINE_BYTES_MAX, Meta, Value};
use crate::read::{Read, check_key, check_value};
use crate::space::value_crc;
use crate::{Error, Result, WriteMode};
use mangrove_pmem::Lsn;
use std::sync::atomic::Ordering;

/// A value is handed to the medium in pieces of this many bytes, so that none outgrows a log.
const FLUSH_BYTES_MAX: usize = 256 << 10;

/// What must be there for a change to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect<'a> {
    /// Anything or nothing.
    Any,
    /// No record.
    Absent,
    /// A record.
    Present,
    /// A record with this value.
    Value(&'a [u8]),
}

/// What a change did.
enum Done {
    Inserted,
    /// The value before.
    Updated(Value),
    /// The slot and the value of the leaf before.
    Removed(u64, Value),
    /// Something else was there than expected.
    Unchanged,
    /// Boxed, so that the usual answers fit registers.
    Failed(Box<Error>),
}

impl Hart {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, `ReadOnly`, `Full`, and the medium's `NoSpace`: nothing changed. Other
    /// errors of the medium: not acknowledged; whether the write survives a restart is open.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8], mode: WriteMode) -> Result<()> {
        self.change(key, Some(value), Expect::Any, mode).map(|_| ())
    }

    /// Sets `key` to `value` if `key` is absent; says whether it did.
    ///
    /// # Errors
    /// As [`Hart::put`].
    pub fn insert_new(&self, key: &[u8], value: &[u8], mode: WriteMode) -> Result<bool> {
        self.change(key, Some(value), Expect::Absent, mode)
    }

    /// Removes `key`; says whether it was there.
    ///
    /// # Errors
    /// As [`Hart::put`].
    #[inline]
    pub fn delete(&self, key: &[u8], mode: WriteMode) -> Result<bool> {
        self.change(key, None, Expect::Present, mode)
    }

    /// Changes `key` from `expected` to `new`, where `None` is absent; says whether `expected` was right.
    ///
    /// # Errors
    /// As [`Hart::put`].
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        mode: WriteMode,
    ) -> Result<bool> {
        match (expected, new) {
            (None, None) => self.contains(key).map(|there| !there),
            (None, new) => self.change(key, new, Expect::Absent, mode),
            (Some(value), new) => self.change(key, new, Expect::Value(value), mode),
        }
    }

    pub(crate) fn change(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: Expect<'_>,
        mode: WriteMode,
    ) -> Result<bool> {
        check_key(key)?;
        check_value(new.unwrap_or_default())?;
        self.check_writable()?;
        let (done, lsn) = {
            let _ticket = self.gate.enter();
            let prepared = new.map(|value| self.prepare(value)).transpose()?;
            let (done, lsn) = self.change_index(key, new, prepared, expect);
            self.settle_slots(&done, prepared);
            (done, lsn)
        };
        match done {
            Done::Failed(e) => return Err(*e),
            Done::Unchanged => {
                // The answer tells what is there: it must be durable as a read's must.
                while !self.visible.settled(self.region(), key)? {}
                return Ok(false);
            }
            Done::Inserted | Done::Updated(_) | Done::Removed(..) => {}
        }
        if mode == WriteMode::Durable {
            self.wait(lsn)?;
        }
        Ok(true)
    }

    #[inline]
    fn change_index(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        prepared: Option<Value>,
        expect: Expect<'_>,
    ) -> (Done, Lsn) {
        let _tree = self.lock_tree(key);
        let may_insert = new.is_some() && matches!(expect, Expect::Any | Expect::Absent);
        let intent = if may_insert { Intent::Upsert } else { Intent::Existing };
        let mut lsn = 0;
        let mut done = Done::Unchanged;
        self.index.modify(key, intent, |leaf| {
            let change;
            (change, done) = match (leaf, prepared) {
                (Some(_), _) if matches!(expect, Expect::Absent) => (Change::Keep, Done::Unchanged),
                (Some(leaf), None) => self.remove(key, leaf, expect),
                (Some(leaf), Some(value)) => self.replace(key, leaf, value, expect, new.unwrap_or_default()),
                (None, Some(value)) if may_insert => self.insert(key, value),
                (None, _) => (Change::Keep, Done::Unchanged),
            };
            if !matches!(done, Done::Unchanged | Done::Failed(_)) {
                lsn = self.region().appended();
                self.visible.raise(key, lsn);
            }
            (change, ())
        });
        (done, lsn)
    }

    /// Gives back what the change made free, now that nothing durable refers to it.
    #[inline]
    fn settle_slots(&self, done: &Done, prepared: Option<Value>) {
        let mut old = None;
        match done {
            Done::Inserted => self.gate.add_records(1),
            Done::Updated(value) => old = Some(*value),
            Done::Removed(slot, value) => {
                self.gate.add_records(-1);
                self.alloc.give(*slot);
                old = Some(*value);
            }
            Done::Unchanged | Done::Failed(_) => old = prepared,
        }
        if let Some(block) = old.and_then(Value::block_offset) {
            self.alloc.give(block);
        }
    }

    /// Writes and flushes the value's block, if it needs one. The caller fences.
    #[inline]
    pub(crate) fn prepare(&self, value: &[u8]) -> Result<Value> {
        if value.len() <= INLINE_BYTES_MAX { Ok(Value::inline(value)) } else { self.prepare_block(value) }
    }

    pub(crate) fn prepare_block(&self, value: &[u8]) -> Result<Value> {
        let block = self.alloc.take_value(value.len())?;
        let region = self.region();
        let head = value.len() as u64 | u64::from(value_crc(value)) << 32;
        region.store(block, head, Ordering::Release);
        if !value.is_empty() {
            region.write(block + VALUE_HEADER_BYTES, value);
        }
        let mut at = 0;
        let bytes = VALUE_HEADER_BYTES as usize + value.len();
        while at < bytes {
            let piece = (bytes - at).min(FLUSH_BYTES_MAX);
            region.flush(block + at as u64, piece);
            at += piece;
        }
        Ok(Value::block(block))
    }

    /// Writes and flushes a leaf whose bit is clear. The caller fences.
    #[inline]
    pub(crate) fn prepare_leaf(&self, key: &[u8], value: Value) -> Result<u64> {
        let slot = self.alloc.take_leaf(key.len())?;
        let region = self.region();
        region.store(slot + LEAF_META, Meta::new(key, value).0, Ordering::Release);
        region.store(slot + LEAF_WORD, value.word, Ordering::Release);
        if !key.is_empty() {
            region.write(slot + LEAF_KEY, key);
        }
        region.flush(slot, LEAF_KEY as usize + key.len());
        Ok(slot)
    }

    #[inline]
    fn insert(&self, key: &[u8], value: Value) -> (Change, Done) {
        let slot = match self.prepare_leaf(key, value) {
            Ok(slot) => slot,
            Err(e) => return (Change::Keep, Done::Failed(e.into())),
        };
        if self.overlays.any() {
            self.overlays.save(key, |_| Some(None));
        }
        // Durable-order 1: value and leaf before the bit.
        self.region().fence();
        self.alloc.set_leaf_bit(slot, true);
        // Durable-order 1: the bit before the record is seen.
        self.region().fence();
        (Change::Insert(self.space.leaf(slot)), Done::Inserted)
    }

    #[inline]
    fn replace(
        &self,
        key: &[u8],
        leaf: Leaf,
        mut value: Value,
        expect: Expect<'_>,
        bytes: &[u8],
    ) -> (Change, Done) {
        let slot = self.space.offset(leaf);
        let (meta, word) = self.space.leaf_words(slot);
        let old = Value { kind: meta.kind(), word };
        match self.is_expected(slot, expect) {
            Ok(true) => {}
            Ok(false) => return (Change::Keep, Done::Unchanged),
            Err(e) => return (Change::Keep, Done::Failed(e.into())),
        }
        let meta = match meta.updated(key, old, value) {
            Some(meta) => meta,
            None => match self.other_word(key, meta, old, value, bytes) {
                Ok((meta, other)) => {
                    value = other;
                    meta
                }
                Err(e) => return (Change::Keep, Done::Failed(e.into())),
            },
        };
        self.save_image(key, slot);
        let region = self.region();
        if value.block_offset().is_some() {
            // Durable-order 2: the value before the leaf that refers to it.
            region.fence();
        }
        // One line, meta first: a crash leaves a prefix of the two stores, and each prefix reads as old or new.
        region.store(slot + LEAF_META, meta.0, Ordering::Release);
        region.store(slot + LEAF_WORD, value.word, Ordering::Release);
        region.flush(slot, 16);
        // Durable-order 2: the leaf before its old block is free.
        region.fence();
        (Change::Keep, Done::Updated(old))
    }

    /// Once in 2^44 updates the old word would pass for the new one: then the value goes to another block, whose
    /// offset is another word.
    #[cold]
    pub(crate) fn other_word(
        &self,
        key: &[u8],
        meta: Meta,
        old: Value,
        value: Value,
        bytes: &[u8],
    ) -> Result<(Meta, Value)> {
        let other = self.prepare_block(bytes)?;
        match (meta.updated(key, old, other), value.block_offset()) {
            (Some(meta), block) => {
                if let Some(block) = block {
                    self.alloc.give(block);
                }
                Ok((meta, other))
            }
            (None, _) => {
                self.alloc.give(other.word);
                Err(Error::Unsupported {
                    what: "the value's checksum collides with the old value's four times; write another value first".into(),
                })
            }
        }
    }

    #[inline]
    fn remove(&self, key: &[u8], leaf: Leaf, expect: Expect<'_>) -> (Change, Done) {
        let slot = self.space.offset(leaf);
        match self.is_expected(slot, expect) {
            Ok(true) => {}
            Ok(false) => return (Change::Keep, Done::Unchanged),
            Err(e) => return (Change::Keep, Done::Failed(e.into())),
        }
        self.save_image(key, slot);
        let (meta, word) = self.space.leaf_words(slot);
        self.alloc.set_leaf_bit(slot, false);
        // Durable-order 3: the bit before the slot is free. Readers wait at the index's lock meanwhile.
        self.region().fence();
        (Change::Remove, Done::Removed(slot, Value { kind: meta.kind(), word }))
    }

    /// Whether the record at `slot`, which is locked, has the expected value.
    #[inline]
    fn is_expected(&self, slot: u64, expect: Expect<'_>) -> Result<bool> {
        let Expect::Value(wanted) = expect else { return Ok(true) };
        let mut value = Vec::new();
        self.append_value(slot, &mut value).append_inline(&mut value)?;
        Ok(value == wanted)
    }

    /// Saves the state of `key`, whose leaf is at `slot` and locked, for live snapshots.
    #[inline]
    pub(crate) fn save_image(&self, key: &[u8], slot: u64) {
        if self.overlays.any() {
            self.save_image_slow(key, slot);
        }
    }

    #[cold]
    fn save_image_slow(&self, key: &[u8], slot: u64) {
        self.overlays.save(key, |bytes_max| {
            let mut value = Vec::new();
            let read: Read = self.append_value(slot, &mut value);
            // A damaged value cannot be kept for the snapshot: it expires, as if the value were too large.
            read.append_inline(&mut value).ok()?;
            (value.len() as u64 <= bytes_max).then_some(Some(value))
        });
    }
}
