//! Changing one record (paper, Algorithms 1, 3 and 5).
//!
//! Deviations from the paper, with the gaps of its text that they close (docs/decisions/hart-paper-gaps.md):
//!
//! - The leaf's meta word is the commit record of its record, and shares a cache line with key and value where the
//!   key is short. Value blocks have no durable bit: recovery derives from the live leaves which blocks are live. So
//!   an insert needs one fence, not six, and nothing leaks (1, 8, 11). `alloc/leafbit.rs` describes what the leaf's
//!   bit means.
//! - An update replaces two words of one line; there is no update log to replay (2, 3, 4).
//! - The index publishes a record, and hides a deleted one, under a lock that the writer holds until the change is
//!   durable (or, on a medium with a log, until the change is in the log, and readers wait for the log) (12).
//!
//! Durable orders:
//!
//! 1. Insert: the leaf's lines after its first, and the value's block, fence (if there are any); then the leaf's first
//!    line, meta last; fence; readers. Otherwise recovery finds a live leaf with a wrong key or without a value.
//! 2. Update by a value in a block: the block, fence, the leaf's line, fence, free the old block. Otherwise a leaf
//!    refers to a value that is not there, or to a block that belongs to another leaf.
//! 3. Delete: the meta word, fence, free slot and block. Otherwise a live leaf lies in a slot that belongs to another
//!    record.
//! 4. Update by a value behind the key: a leaf in another slot as in 1, fence; then 3 for the old leaf. Otherwise there
//!    is neither the old record nor the new one. Where a crash leaves both, recovery frees the old one.

use crate::concurrency::writer_gate::LaneToken;
use crate::format::layout::{LEAF_KEY, LEAF_META, LEAF_WORD, VALUE_HEADER_BYTES};
use crate::format::leaf;
use crate::format::leaf::{INLINE_BYTES_MAX, KIND_BLOCK, KIND_SLOT, LeafValue, Meta, value_at};
use crate::format::space::value_crc;
use crate::hart::Hart;
use crate::index::{Edit, Intent, Leaf, LeafChange};
use crate::operations::read::{Read, check_key, check_value};
use crate::{Error, Result, WriteMode};
use mangrove_pool::Lsn;
use std::sync::atomic::Ordering;

/// The medium gets a value in pieces of at most this many bytes, so that no piece is larger than a log.
const FLUSH_BYTES_MAX: u64 = 256 << 10;
/// A medium keeps stores in order within a line of this many bytes.
const LINE_BYTES: u64 = mangrove_sys::CACHE_LINE_BYTES as u64;

/// The condition under which a change happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    /// The key is present or absent.
    Any,
    /// There is no record.
    Absent,
    /// There is a record.
    Present,
    /// There is a record with this value.
    Value(&'a [u8]),
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Done {
    Inserted,
    Updated,
    /// Updated, in another slot.
    Replaced,
    Removed,
    /// The record was not as expected.
    Unchanged,
    Failed,
}

/// One change in progress. Every field is a word: see [`Edit`].
struct WriteEdit<'a> {
    hart: &'a Hart,
    lane: &'a LaneToken<'a>,
    key: &'a [u8],
    /// The new value; none removes the record.
    new: Option<&'a [u8]>,
    expect: &'a Expected<'a>,
    key_crc: u64,
    /// Kind and word of the new value.
    kind: u64,
    word: u64,
    /// The slot of the leaf that is there, or that was replaced, and the one allocated for a new leaf (0: none yet).
    slot: u64,
    allocated: u64,
    /// The leaf's words before the change, and its meta word with the new value (0: none fits).
    old_meta: u64,
    old_word: u64,
    meta: u64,
    done: Done,
    error: Option<Box<Error>>,
    lsn: Lsn,
}

impl Hart {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, `ReadOnly`, `Full`, and the medium's `NoSpace`: nothing changed. Other
    /// errors of the medium: not acknowledged; whether the write survives a restart is open.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8], mode: WriteMode) -> Result<()> {
        self.change(key, Some(value), Expected::Any, mode).map(|_| ())
    }

    /// Sets `key` to `value` if `key` is absent. Returns whether it did.
    ///
    /// # Errors
    /// As [`Hart::put`].
    pub fn insert_new(&self, key: &[u8], value: &[u8], mode: WriteMode) -> Result<bool> {
        self.change_expected(key, Some(value), Expected::Absent, mode)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Hart::put`].
    #[inline]
    pub fn delete(&self, key: &[u8], mode: WriteMode) -> Result<bool> {
        self.change(key, None, Expected::Present, mode)
    }

    /// Changes `key` from `expected` to `new`, where `None` means absent. Returns whether `expected` was right.
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
            (None, new) => self.change_expected(key, new, Expected::Absent, mode),
            (Some(value), new) => self.change_expected(key, new, Expected::Value(value), mode),
        }
    }

    /// As [`Hart::change`], but writes no value into a block when the record is not as expected already.
    fn change_expected(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: Expected<'_>,
        mode: WriteMode,
    ) -> Result<bool> {
        if new.is_some_and(|value| value.len() > INLINE_BYTES_MAX) {
            check_key(key)?;
            check_value(new.unwrap_or_default())?;
            self.check_writable()?;
            if !self.is_as_expected(key, &expect)? {
                return self.unchanged(key);
            }
        }
        self.change(key, new, expect, mode)
    }

    /// True when `key` is as expected at this moment.
    pub(crate) fn is_as_expected(&self, key: &[u8], expect: &Expected<'_>) -> Result<bool> {
        let _tree = self.share_tree(key);
        let wanted = match expect {
            Expected::Any => return Ok(true),
            Expected::Absent => return Ok(self.index.get(key, |_| ()).is_none()),
            Expected::Present => return Ok(self.index.get(key, |_| ()).is_some()),
            Expected::Value(wanted) => *wanted,
        };
        let mut value = Vec::new();
        let read = self.index.get(key, |leaf| {
            value.clear();
            self.append_value(self.space.offset(leaf), &mut value)
        });
        let Some(read) = read else { return Ok(false) };
        read.append_inline(&mut value)?;
        Ok(value == wanted)
    }

    /// Returns that nothing was changed. That reveals what is there, so it must be durable as for a read.
    pub(crate) fn unchanged(&self, key: &[u8]) -> Result<bool> {
        while !self.read_gate.wait_durable(self.region(), key)? {}
        Ok(false)
    }

    pub(crate) fn change(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: Expected<'_>,
        mode: WriteMode,
    ) -> Result<bool> {
        check_key(key)?;
        check_value(new.unwrap_or_default())?;
        self.check_writable()?;
        let mut reclaimed = 0;
        loop {
            let full = match self.change_once(key, new, &expect, mode) {
                Ok(Done::Unchanged) => return self.unchanged(key),
                Ok(_) => return Ok(true),
                Err(e) if e.is_full() && reclaimed < 2 => e,
                Err(e) => return Err(*e),
            };
            // Lanes have reserved slots, and each class keeps an empty segment; a compaction has set slots aside.
            let exclusive = self.writer_gate.close();
            if reclaimed == 0 {
                self.alloc.reclaim_idle(&exclusive.lane());
            } else if !self.alloc.reclaim_all(&exclusive.lane()) {
                return Err(*full);
            }
            reclaimed += 1;
        }
    }

    #[inline]
    fn change_once(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: &Expected<'_>,
        mode: WriteMode,
    ) -> std::result::Result<Done, Box<Error>> {
        let permit = self.writer_gate.enter();
        let lane = &permit.lane();
        let (kind, word) = match new {
            Some(value) if self.fits_slot(key.len(), value.len()) => {
                (u64::from(KIND_SLOT), LeafValue::in_slot(value.len(), value_crc(value)).word)
            }
            Some(value) if value.len() > INLINE_BYTES_MAX => {
                (u64::from(KIND_BLOCK), self.prepare_block(lane, value)?.word)
            }
            Some(value) => (value.len() as u64, leaf::word_of(value)),
            None => (0, 0),
        };
        let mut write = WriteEdit {
            hart: self,
            lane,
            key,
            new,
            expect,
            key_crc: u64::from(leaf::key_crc(key)),
            kind,
            word,
            slot: 0,
            allocated: 0,
            old_meta: 0,
            old_word: 0,
            meta: 0,
            done: Done::Unchanged,
            error: None,
            lsn: 0,
        };
        let pending = self.read_gate.begin_write();
        let intent = if write.may_insert() { Intent::Upsert } else { Intent::Existing };
        {
            let _tree = self.lock_tree(key);
            self.index.edit(key, intent, &mut write);
        }
        write.settle_slots();
        let (done, lsn) = (write.done, write.lsn);
        if let Some(e) = write.error.take() {
            return Err(e);
        }
        drop(permit);
        if done != Done::Unchanged {
            self.acknowledge(pending, std::iter::once(key), lsn, mode)?;
        }
        Ok(done)
    }

    /// Writes a value to a new block and flushes it. The caller fences.
    #[inline]
    pub(crate) fn prepare_block(&self, lane: &LaneToken<'_>, value: &[u8]) -> Result<LeafValue> {
        let (block, bytes) = self.place_block(lane, value)?;
        let (region, mut at) = (self.region(), 0);
        while at < bytes {
            let piece = (bytes - at).min(FLUSH_BYTES_MAX);
            region.flush(block + at, piece as usize);
            at += piece;
        }
        Ok(LeafValue::block(block))
    }

    /// Writes a value to a new block, which the caller flushes. Returns the block's offset and the bytes written.
    #[inline]
    pub(crate) fn place_block(&self, lane: &LaneToken<'_>, value: &[u8]) -> Result<(u64, u64)> {
        let block = self.alloc.alloc_value(lane, value.len())?;
        let region = self.region();
        let head = value.len() as u64 | u64::from(value_crc(value)) << 32;
        region.store(block, head, Ordering::Release);
        if !value.is_empty() {
            region.write(block + VALUE_HEADER_BYTES, value);
        }
        Ok((block, VALUE_HEADER_BYTES + value.len() as u64))
    }

    /// Once in 2^44 updates the old word would verify as the new one. Then the value goes to another block, whose
    /// offset is a different word.
    #[cold]
    pub(crate) fn avoid_meta_collision(
        &self,
        lane: &LaneToken<'_>,
        key_crc: u32,
        meta: Meta,
        old: LeafValue,
        value: LeafValue,
        bytes: &[u8],
    ) -> Result<(Meta, LeafValue)> {
        let other = self.prepare_block(lane, bytes)?;
        match (meta.updated(key_crc, old, other), value.block_offset()) {
            (Some(meta), block) => {
                if let Some(block) = block {
                    self.alloc.free(lane, block);
                }
                Ok((meta, other))
            }
            (None, _) => {
                self.alloc.free(lane, other.word);
                let what = "the value's checksum collides with the old value's four times; write another value first";
                Err(Error::Unsupported { what: what.into() })
            }
        }
    }

    /// Saves the state of `key` for live snapshots. Its leaf, at `slot`, is locked.
    #[inline]
    pub(crate) fn save_pre_image(&self, key: &[u8], slot: u64) {
        if self.snapshots.any() {
            self.save_pre_image_slow(key, slot);
        }
    }

    #[cold]
    fn save_pre_image_slow(&self, key: &[u8], slot: u64) {
        self.snapshots.save(key, |bytes_max| {
            // A value that is too long is not copied first: readers and other writers wait meanwhile.
            let is_too_long = |block| self.block_head(block).is_some_and(|(_, len)| len > bytes_max);
            if self.live_value(slot).block_offset().is_some_and(is_too_long) {
                return None;
            }
            let mut value = Vec::new();
            let read: Read = self.append_value(slot, &mut value);
            // A damaged value cannot be saved: the snapshot expires, as if the value were too large.
            read.append_inline(&mut value).ok()?;
            (value.len() as u64 <= bytes_max).then_some(Some(value))
        });
    }
}

impl WriteEdit<'_> {
    #[inline]
    fn may_insert(&self) -> bool {
        self.new.is_some() && matches!(self.expect, Expected::Any | Expected::Absent)
    }

    /// True if the change of a record that is there writes it to another slot.
    #[inline]
    fn replaces(&self) -> bool {
        self.value().is_in_slot() && !matches!(self.expect, Expected::Absent)
    }

    /// Computes the meta word of a new leaf, which replaces one with the meta word `before`, and allocates its slot.
    #[inline]
    fn prepare_leaf(&mut self, before: Option<Meta>) {
        self.meta = Meta::fresh(self.key.len(), self.key_crc as u32, before, self.value()).0;
        if self.allocated == 0 {
            let bytes = self.value().leaf_bytes(self.key.len());
            match self.hart.alloc.alloc_leaf(self.lane, bytes) {
                Ok(slot) => (self.allocated, self.error) = (slot, None),
                Err(e) => self.error = Some(e.into()),
            }
        }
    }

    #[inline]
    fn value(&self) -> LeafValue {
        LeafValue { kind: self.kind as u8, word: self.word }
    }

    #[inline]
    fn old(&self) -> LeafValue {
        LeafValue { kind: Meta(self.old_meta).kind(), word: self.old_word }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> LeafChange {
        self.error = Some(error.into());
        self.done = Done::Failed;
        LeafChange::Keep
    }

    /// True when the leaf that is there, which is locked, has the expected value.
    #[cold]
    fn is_expected(&self, wanted: &[u8]) -> Result<bool> {
        let mut value = Vec::new();
        self.hart.append_value(self.slot, &mut value).append_inline(&mut value)?;
        Ok(value == wanted)
    }

    /// Writes and flushes the leaf of a new record.
    #[inline]
    fn insert(&mut self) -> LeafChange {
        if self.allocated == 0 {
            // `prepare` has stored the error.
            self.done = Done::Failed;
            return LeafChange::Keep;
        }
        if self.hart.snapshots.any() {
            self.hart.snapshots.save(self.key, |_| Some(None));
        }
        self.write_leaf();
        self.done = Done::Inserted;
        LeafChange::Insert(self.leaf())
    }

    /// Writes and flushes the leaf into the slot that was allocated for it, which is in service.
    #[inline]
    fn write_leaf(&mut self) {
        let (hart, key, slot, value) = (self.hart, self.key, self.allocated, self.value());
        let region = hart.region();
        region.store(slot + LEAF_WORD, self.word, Ordering::Release);
        if !key.is_empty() {
            region.write(slot + LEAF_KEY, key);
        }
        if value.is_in_slot() {
            region.write(slot + value_at(key.len()) as u64, self.new.unwrap_or_default());
        }
        let bytes = value.leaf_bytes(key.len());
        let first = (LINE_BYTES - slot % LINE_BYTES) as usize;
        if bytes > first {
            region.flush(slot + first as u64, bytes - first);
        }
        if bytes > first || value.block_offset().is_some() {
            // Durable-order 1: what lies in other lines, before the word that commits it.
            region.fence();
        }
        // The last store into the line: a crash keeps a prefix of the stores, and without this one there is no leaf.
        region.store(slot + LEAF_META, self.meta, Ordering::Release);
        region.flush(slot, bytes.min(first));
        (self.slot, self.allocated) = (slot, 0);
    }

    /// The leaf in its slot, for the index.
    #[inline]
    fn leaf(&self) -> Leaf {
        self.hart.space.leaf(self.slot, self.key.len(), self.value())
    }

    /// Writes the record to another slot, and frees the one where it is.
    #[inline]
    fn replace(&mut self) -> LeafChange {
        let left = self.slot;
        self.write_leaf();
        let region = self.hart.region();
        // Durable-order 4: the new leaf before the old one is given up.
        region.fence();
        region.store(left + LEAF_META, Meta::FREE.0, Ordering::Release);
        region.flush(left + LEAF_META, 8);
        let leaf = self.leaf();
        (self.slot, self.done) = (left, Done::Replaced);
        LeafChange::Insert(leaf)
    }

    /// Stores and flushes the two words of the leaf that is there.
    #[inline]
    fn update(&mut self) -> LeafChange {
        if self.meta == 0 {
            let (meta, old, value) = (Meta(self.old_meta), self.old(), self.value());
            let bytes = self.new.unwrap_or_default();
            match self.hart.avoid_meta_collision(self.lane, self.key_crc as u32, meta, old, value, bytes) {
                Ok((meta, value)) => {
                    (self.meta, self.kind, self.word) = (meta.0, u64::from(value.kind), value.word);
                }
                Err(e) => return self.fail(e),
            }
        }
        let region = self.hart.region();
        if self.value().block_offset().is_some() {
            // Durable-order 2: the value before the leaf that refers to it.
            region.fence();
        }
        // One line, meta first: a crash keeps a prefix of the two stores, and each prefix reads as the old or the new
        // value.
        region.store(self.slot + LEAF_META, self.meta, Ordering::Release);
        region.store(self.slot + LEAF_WORD, self.word, Ordering::Release);
        region.flush(self.slot, 16);
        self.done = Done::Updated;
        if self.old().kind.max(self.value().kind) <= INLINE_BYTES_MAX as u8 {
            LeafChange::Keep
        } else {
            // Readers need other lines now.
            LeafChange::Insert(self.leaf())
        }
    }

    /// Frees what the change no longer needs, now that nothing durable refers to it.
    #[inline]
    fn settle_slots(&mut self) {
        let (hart, lane) = (self.hart, self.lane);
        if self.allocated != 0 {
            // Another writer of the key was faster. Durable-order: the bit of the slot, before another thread gets
            // the slot.
            hart.region().fence();
            hart.alloc.free(lane, self.allocated);
        }
        let unused = match self.done {
            Done::Inserted => {
                hart.writer_gate.add_records(lane, 1);
                return;
            }
            Done::Updated => self.old(),
            Done::Replaced => {
                hart.alloc.free(lane, self.slot);
                self.old()
            }
            Done::Removed => {
                hart.writer_gate.add_records(lane, -1);
                hart.alloc.free(lane, self.slot);
                self.old()
            }
            Done::Unchanged | Done::Failed => self.value(),
        };
        if let Some(block) = unused.block_offset() {
            hart.alloc.free(lane, block);
        }
    }
}

impl Edit for WriteEdit<'_> {
    #[inline]
    fn prepare(&mut self, leaf: Option<Leaf>) {
        match leaf {
            Some(leaf) => {
                self.slot = self.hart.space.offset(leaf);
                let (meta, word) = self.hart.space.leaf_words(self.slot);
                (self.old_meta, self.old_word) = (meta.0, word);
                if self.replaces() {
                    self.prepare_leaf(Some(meta));
                } else if self.new.is_some() {
                    let updated = meta.updated(self.key_crc as u32, self.old(), self.value());
                    self.meta = updated.map_or(0, |meta| meta.0);
                }
            }
            None if self.may_insert() => self.prepare_leaf(None),
            None => {}
        }
    }

    #[inline]
    fn change(&mut self, leaf: Option<Leaf>) -> LeafChange {
        if leaf.is_none() {
            return if self.may_insert() { self.insert() } else { LeafChange::Keep };
        }
        // `prepare` may have found no slot while the key was absent, or before this record was compared.
        let no_slot = self.error.take();
        match self.expect {
            Expected::Any | Expected::Present => {}
            Expected::Absent => return LeafChange::Keep,
            Expected::Value(wanted) => match self.is_expected(wanted) {
                Ok(true) => {}
                Ok(false) => return LeafChange::Keep,
                Err(e) => return self.fail(e),
            },
        }
        if self.replaces() && self.allocated == 0 {
            (self.error, self.done) = (no_slot, Done::Failed);
            return LeafChange::Keep;
        }
        self.hart.save_pre_image(self.key, self.slot);
        if self.replaces() {
            return self.replace();
        }
        if self.new.is_some() {
            return self.update();
        }
        // Flushed first: while the line is on its way to the medium, the index removes the leaf.
        let region = self.hart.region();
        region.store(self.slot + LEAF_META, Meta::FREE.0, Ordering::Release);
        region.flush(self.slot + LEAF_META, 8);
        self.done = Done::Removed;
        LeafChange::Remove
    }

    #[inline]
    fn settle(&mut self) {
        if matches!(self.done, Done::Unchanged | Done::Failed) {
            return;
        }
        let region = self.hart.region();
        // Durable-order 1, 2, 3: the change, before readers see it and before what it freed is used.
        region.fence();
        self.lsn = region.appended();
        self.hart.read_gate.note_write(self.key, self.hart.flushed(self.lsn));
    }
}
