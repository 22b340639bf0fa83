//! Changing one record (paper, Algorithms 1, 3 and 5).
//!
//! Deviations from the paper, with the holes of its text that they close (docs/decisions/hart-paper-gaps.md):
//!
//! - The leaf's meta word is the commit record of its record, and lies in a line with key and value where the key
//!   is short. Value blocks have no durable bit: which are live is derived from live leaves at recovery. So an insert
//!   needs one fence, not six, and nothing leaks (1, 8, 11). How bits come into it: `alloc/leafbit.rs`.
//! - An update swaps one line of two words; there is no update log to replay (2, 3, 4).
//! - A record is published in the index, and a delete hidden, under a lock that is held until the change is durable
//!   (or, on a medium with a log, in the log, and readers wait for the log) (12).
//!
//! Durable orders:
//!
//! 1. Insert: value and lines behind the leaf's first, fence (when there are any); in the first line the value word,
//!    key and, last, meta; fence, readers. Else recovery finds a live leaf with a wrong key or no value behind it.
//! 2. Update out of line: value, fence, leaf line, fence, old block free. Else a leaf refers to a value that is
//!    not there, or to a block that is somebody else's.
//! 3. Delete: meta word, fence, slot and block free. Else a live leaf lies in a slot that is somebody else's.

use crate::gate::Lane;
use crate::hart::Hart;
use crate::index::{Change, Edit, Intent, Leaf};
use crate::layout::{LEAF_KEY, LEAF_META, LEAF_WORD, VALUE_HEADER_BYTES};
use crate::leaf::{self, INLINE_BYTES_MAX, KIND_BLOCK, Meta, Value};
use crate::read::{Read, check_key, check_value};
use crate::space::value_crc;
use crate::{Error, Result, WriteMode};
use mangrove_pmem::Lsn;
use std::sync::atomic::Ordering;

/// A value is handed to the medium in pieces of this many bytes, so that none outgrows a log.
const FLUSH_BYTES_MAX: u64 = 256 << 10;
/// What a medium keeps stores in order within.
const LINE_BYTES: u64 = mangrove_sys::CACHE_LINE_BYTES as u64;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Done {
    Inserted,
    Updated,
    Removed,
    /// Something else was there than expected.
    Unchanged,
    Failed,
}

/// One change on its way. Every field is a word: see [`Edit`].
struct Write<'a> {
    hart: &'a Hart,
    lane: &'a Lane<'a>,
    key: &'a [u8],
    /// The new value; none removes.
    new: Option<&'a [u8]>,
    expect: &'a Expect<'a>,
    key_crc: u64,
    /// Kind and word of the new value.
    kind: u64,
    word: u64,
    /// The slot of the leaf that is there, or the one taken for the new leaf (0: none yet).
    slot: u64,
    taken: u64,
    /// The leaf's words before, and its meta word with the new value (0: none fits).
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
        self.change(key, Some(value), Expect::Any, mode).map(|_| ())
    }

    /// Sets `key` to `value` if `key` is absent; says whether it did.
    ///
    /// # Errors
    /// As [`Hart::put`].
    pub fn insert_new(&self, key: &[u8], value: &[u8], mode: WriteMode) -> Result<bool> {
        self.change_expected(key, Some(value), Expect::Absent, mode)
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
            (None, new) => self.change_expected(key, new, Expect::Absent, mode),
            (Some(value), new) => self.change_expected(key, new, Expect::Value(value), mode),
        }
    }

    /// As [`Hart::change`], but a value in a block is not written where the answer is no already.
    fn change_expected(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: Expect<'_>,
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

    /// Whether `key` is as expected at this moment.
    fn is_as_expected(&self, key: &[u8], expect: &Expect<'_>) -> Result<bool> {
        let _tree = self.share_tree(key);
        let wanted = match expect {
            Expect::Any => return Ok(true),
            Expect::Absent => return Ok(self.index.get(key, |_| ()).is_none()),
            Expect::Present => return Ok(self.index.get(key, |_| ()).is_some()),
            Expect::Value(wanted) => *wanted,
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

    /// The answer that nothing was changed: it tells what is there, which must be durable as a read's must.
    fn unchanged(&self, key: &[u8]) -> Result<bool> {
        while !self.visible.settled(self.region(), key)? {}
        Ok(false)
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
        let mut reclaimed = false;
        loop {
            let full = match self.change_once(key, new, &expect, mode) {
                Ok(Done::Unchanged) => return self.unchanged(key),
                Ok(_) => return Ok(true),
                Err(e) if e.is_full() && !reclaimed => e,
                Err(e) => return Err(*e),
            };
            drop(full);
            // Lanes have set slots aside, and each class an empty segment.
            self.alloc.reclaim_idle(&self.gate.close().lane());
            reclaimed = true;
        }
    }

    #[inline]
    fn change_once(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        expect: &Expect<'_>,
        mode: WriteMode,
    ) -> std::result::Result<Done, Box<Error>> {
        let ticket = self.gate.enter();
        let lane = &ticket.lane();
        let (kind, word) = match new {
            Some(value) if value.len() > INLINE_BYTES_MAX => {
                (u64::from(KIND_BLOCK), self.prepare_block(lane, value)?.word)
            }
            Some(value) => (value.len() as u64, leaf::word_of(value)),
            None => (0, 0),
        };
        let mut write = Write {
            hart: self,
            lane,
            key,
            new,
            expect,
            key_crc: u64::from(leaf::key_crc(key)),
            kind,
            word,
            slot: 0,
            taken: 0,
            old_meta: 0,
            old_word: 0,
            meta: 0,
            done: Done::Unchanged,
            error: None,
            lsn: 0,
        };
        let fate = self.visible.begin();
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
        drop(ticket);
        if done != Done::Unchanged {
            self.acknowledge(fate, std::iter::once(key), lsn, mode)?;
        }
        Ok(done)
    }

    /// Writes a value to a new block and flushes it. The caller fences.
    #[inline]
    pub(crate) fn prepare_block(&self, lane: &Lane<'_>, value: &[u8]) -> Result<Value> {
        let (block, bytes) = self.place_block(lane, value)?;
        let (region, mut at) = (self.region(), 0);
        while at < bytes {
            let piece = (bytes - at).min(FLUSH_BYTES_MAX);
            region.flush(block + at, piece as usize);
            at += piece;
        }
        Ok(Value::block(block))
    }

    /// Writes a value to a new block, which the caller flushes; its offset, and the bytes written.
    #[inline]
    pub(crate) fn place_block(&self, lane: &Lane<'_>, value: &[u8]) -> Result<(u64, u64)> {
        let block = self.alloc.take_value(lane, value.len())?;
        let region = self.region();
        let head = value.len() as u64 | u64::from(value_crc(value)) << 32;
        region.store(block, head, Ordering::Release);
        if !value.is_empty() {
            region.write(block + VALUE_HEADER_BYTES, value);
        }
        Ok((block, VALUE_HEADER_BYTES + value.len() as u64))
    }

    /// Once in 2^44 updates the old word would pass for the new one: then the value goes to another block, whose
    /// offset is another word.
    #[cold]
    pub(crate) fn other_word(
        &self,
        lane: &Lane<'_>,
        key_crc: u32,
        meta: Meta,
        old: Value,
        value: Value,
        bytes: &[u8],
    ) -> Result<(Meta, Value)> {
        let other = self.prepare_block(lane, bytes)?;
        match (meta.updated(key_crc, old, other), value.block_offset()) {
            (Some(meta), block) => {
                if let Some(block) = block {
                    self.alloc.give(lane, block);
                }
                Ok((meta, other))
            }
            (None, _) => {
                self.alloc.give(lane, other.word);
                Err(Error::Unsupported {
                    what: "the value's checksum collides with the old value's four times; write another value first".into(),
                })
            }
        }
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

impl Write<'_> {
    #[inline]
    fn may_insert(&self) -> bool {
        self.new.is_some() && matches!(self.expect, Expect::Any | Expect::Absent)
    }

    #[inline]
    fn value(&self) -> Value {
        Value { kind: self.kind as u8, word: self.word }
    }

    #[inline]
    fn old(&self) -> Value {
        Value { kind: Meta(self.old_meta).kind(), word: self.old_word }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Change {
        self.error = Some(error.into());
        self.done = Done::Failed;
        Change::Keep
    }

    /// Whether the leaf that is there, which is locked, has the expected value.
    #[cold]
    fn is_expected(&self, wanted: &[u8]) -> Result<bool> {
        let mut value = Vec::new();
        self.hart.append_value(self.slot, &mut value).append_inline(&mut value)?;
        Ok(value == wanted)
    }

    /// Writes and flushes the leaf into the slot taken for it, which is in service.
    #[inline]
    fn insert(&mut self) -> Change {
        let (hart, key, slot) = (self.hart, self.key, self.taken);
        if slot == 0 {
            // The error is there already.
            self.done = Done::Failed;
            return Change::Keep;
        }
        if hart.overlays.any() {
            hart.overlays.save(key, |_| Some(None));
        }
        let region = hart.region();
        region.store(slot + LEAF_WORD, self.word, Ordering::Release);
        if !key.is_empty() {
            region.write(slot + LEAF_KEY, key);
        }
        let bytes = LEAF_KEY as usize + key.len();
        let beyond = (slot % LINE_BYTES) as usize + bytes > LINE_BYTES as usize;
        if beyond {
            region.flush(slot + LEAF_WORD, bytes - LEAF_WORD as usize);
        }
        if beyond || self.value().block_offset().is_some() {
            // Durable-order 1: what lies in other lines, before the word that makes it count.
            region.fence();
        }
        // The last store into the line: a crash leaves a prefix of them, and without this one there is no leaf.
        region.store(slot + LEAF_META, self.meta, Ordering::Release);
        region.flush(slot, if beyond { LEAF_WORD as usize } else { bytes });
        (self.slot, self.taken, self.done) = (slot, 0, Done::Inserted);
        Change::Insert(hart.space.leaf(slot))
    }

    /// Stores and flushes the words of the leaf that is there.
    #[inline]
    fn update(&mut self) -> Change {
        if self.meta == 0 {
            let (meta, old, value) = (Meta(self.old_meta), self.old(), self.value());
            let bytes = self.new.unwrap_or_default();
            match self.hart.other_word(self.lane, self.key_crc as u32, meta, old, value, bytes) {
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
        // One line, meta first: a crash leaves a prefix of the two stores, and each prefix reads as old or new.
        region.store(self.slot + LEAF_META, self.meta, Ordering::Release);
        region.store(self.slot + LEAF_WORD, self.word, Ordering::Release);
        region.flush(self.slot, 16);
        self.done = Done::Updated;
        Change::Keep
    }

    /// Gives back what the change made free, now that nothing durable refers to it.
    #[inline]
    fn settle_slots(&mut self) {
        let (hart, lane) = (self.hart, self.lane);
        if self.taken != 0 {
            // Another writer of the key was faster. Durable-order: the bit of the slot, before others get it.
            hart.region().fence();
            hart.alloc.give(lane, self.taken);
        }
        let unused = match self.done {
            Done::Inserted => {
                hart.gate.add_records(lane, 1);
                return;
            }
            Done::Updated => self.old(),
            Done::Removed => {
                hart.gate.add_records(lane, -1);
                hart.alloc.give(lane, self.slot);
                self.old()
            }
            Done::Unchanged | Done::Failed => self.value(),
        };
        if let Some(block) = unused.block_offset() {
            hart.alloc.give(lane, block);
        }
    }
}

impl Edit for Write<'_> {
    #[inline]
    fn prepare(&mut self, leaf: Option<Leaf>) {
        match leaf {
            Some(leaf) => {
                self.slot = self.hart.space.offset(leaf);
                let (meta, word) = self.hart.space.leaf_words(self.slot);
                (self.old_meta, self.old_word) = (meta.0, word);
                if self.new.is_some() {
                    let updated = meta.updated(self.key_crc as u32, self.old(), self.value());
                    self.meta = updated.map_or(0, |meta| meta.0);
                }
            }
            None if self.may_insert() => {
                self.meta = Meta::new(self.key.len(), self.key_crc as u32, self.value()).0;
                if self.taken == 0 {
                    match self.hart.alloc.take_leaf(self.lane, self.key.len()) {
                        Ok(slot) => (self.taken, self.error) = (slot, None),
                        Err(e) => self.error = Some(e.into()),
                    }
                }
            }
            None => {}
        }
    }

    #[inline]
    fn change(&mut self, leaf: Option<Leaf>) -> Change {
        if leaf.is_none() {
            return if self.may_insert() { self.insert() } else { Change::Keep };
        }
        // A slot was not to be had when the key was not there yet; now it is not needed.
        self.error = None;
        match self.expect {
            Expect::Any | Expect::Present => {}
            Expect::Absent => return Change::Keep,
            Expect::Value(wanted) => match self.is_expected(wanted) {
                Ok(true) => {}
                Ok(false) => return Change::Keep,
                Err(e) => return self.fail(e),
            },
        }
        self.hart.save_image(self.key, self.slot);
        if self.new.is_some() {
            return self.update();
        }
        // Flushed first: while the line is on its way the index lets go of the leaf.
        let region = self.hart.region();
        region.store(self.slot + LEAF_META, Meta::NONE.0, Ordering::Release);
        region.flush(self.slot + LEAF_META, 8);
        self.done = Done::Removed;
        Change::Remove
    }

    #[inline]
    fn settle(&mut self) {
        if matches!(self.done, Done::Unchanged | Done::Failed) {
            return;
        }
        let region = self.hart.region();
        // Durable-order 1, 2, 3: the change before it is seen, and before what it made free is used.
        region.fence();
        self.lsn = region.appended();
        self.hart.visible.raise(self.key, self.hart.flushed(self.lsn));
    }
}
