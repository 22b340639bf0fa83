//! Reading one record (paper, Algorithm 4).
//!
//! Deviation: the paper returns a pointer, which outlives its lock (gap 13). Here the reader copies the value while
//! the index watches the leaf, and drops the copy when leaf or value changed meanwhile. Readers do not look at the
//! leaf's bit: a leaf is in the index only while its bit is durable, or while readers of the key wait until it is.

use crate::format::layout::VALUE_HEADER_BYTES;
use crate::format::leaf::{INLINE_BYTES_MAX, KIND_BLOCK, KIND_SLOT, LeafValue};
use crate::hart::Hart;
use crate::index::{Leaf, LeafHint};
use crate::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use std::mem::MaybeUninit;

/// A value, read optimistically and not validated yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// The leaf's word holds the value's bytes.
    Inline(LeafValue),
    /// The value's bytes were appended to the caller's buffer.
    Copied,
    /// What was read is no value. If the read validates, the record is damaged.
    Damaged {
        /// Where in the region.
        offset: u64,
        what: &'static str,
    },
    /// There is no memory for the copy, if the read validates.
    NoMemory {
        /// Bytes of the value.
        wanted: u64,
    },
}

/// Stands in place of an inline value's length: there is no record.
const ABSENT: u64 = u64::MAX;
/// The value is in the space that was asked for; its length is in place of the word.
const COPIED: u64 = u64::MAX - 1;
/// The value is damaged.
const DAMAGED: u64 = u64::MAX - 2;
/// There is no memory for the value; its length is in place of the word.
const NO_MEMORY: u64 = u64::MAX - 3;
/// The value does not fit the caller's memory.
const TOO_LONG: u64 = u64::MAX - 4;

/// Bytes of a value that [`Hart::get_with`] reads without an allocation.
const NEAR_BYTES: usize = 512;

/// Where a lookup puts a value that does not lie in the leaf. A lookup may ask several times, and for a length that
/// no value has.
trait ValueSpace {
    /// Memory for `len` bytes, or one of the codes above.
    fn for_bytes(&mut self, len: usize) -> std::result::Result<*mut u8, u64>;
}

impl ValueSpace for Vec<u8> {
    #[inline]
    fn for_bytes(&mut self, len: usize) -> std::result::Result<*mut u8, u64> {
        self.clear();
        match self.try_reserve(len) {
            Ok(()) => Ok(self.as_mut_ptr()),
            Err(_) => Err(NO_MEMORY),
        }
    }
}

impl ValueSpace for &mut [MaybeUninit<u8>] {
    #[inline]
    fn for_bytes(&mut self, len: usize) -> std::result::Result<*mut u8, u64> {
        if len <= self.len() { Ok(self.as_mut_ptr().cast()) } else { Err(TOO_LONG) }
    }
}

/// The bytes of an inline value of `len` bytes.
#[inline]
fn inline_bytes(word: &[u8; 8], len: u64) -> &[u8] {
    &word[..(len as usize).min(INLINE_BYTES_MAX)]
}

impl Read {
    /// Why no value can be returned.
    #[cold]
    pub(crate) fn error(self) -> Error {
        match self {
            Self::Damaged { offset, what } => Error::Corrupt { offset, what: what.into() },
            Self::NoMemory { wanted } => Error::NoMemory { wanted },
            Self::Inline(_) | Self::Copied => Error::Corrupt {
                offset: 0,
                what: "a value did not have its checksum, and then was changed".into(),
            },
        }
    }

    /// Appends an inline value, so that `out` holds the value in either case.
    #[inline]
    pub(crate) fn append_inline(self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Inline(value) => {
                out.extend_from_slice(&value.word.to_le_bytes()[..usize::from(value.kind)])
            }
            Self::Copied => {}
            Self::Damaged { .. } | Self::NoMemory { .. } => return Err(self.error()),
        }
        Ok(())
    }
}

#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { len: key.len() as u64, max: KEY_BYTES_MAX as u64 });
    }
    Ok(())
}

#[inline]
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { len: value.len() as u64, max: VALUE_BYTES_MAX as u64 });
    }
    Ok(())
}

impl Hart {
    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// `KeyTooLong`; `Corrupt` when the value is not what was written; the medium's error when what is there never
    /// became durable; `NoMemory`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the contents of `value` by the value of `key`. Returns false, and leaves `value` empty, when there is
    /// none.
    ///
    /// # Errors
    /// As [`Hart::get`].
    #[inline]
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (code, word) = self.read(key, value)?;
        value.clear();
        match code {
            // SAFETY: the lookup has reserved and written so many bytes.
            COPIED => unsafe { value.set_len(word as usize) },
            ABSENT => return Ok(false),
            DAMAGED | NO_MEMORY | TOO_LONG => return Err(self.read_error(key, code, word)),
            len => value.extend_from_slice(inline_bytes(&word.to_le_bytes(), len)),
        }
        Ok(true)
    }

    /// Copies the value of `key` into `buffer` and returns its length, or `None` when there is none. When the length is
    /// more than the buffer's, or after an error, the buffer may hold anything.
    ///
    /// # Errors
    /// As [`Hart::get`].
    #[inline]
    pub fn get_to(&self, key: &[u8], mut buffer: &mut [MaybeUninit<u8>]) -> Result<Option<usize>> {
        let (code, word) = self.read(key, &mut buffer)?;
        match code {
            COPIED => Ok(Some(word as usize)),
            ABSENT => Ok(None),
            TOO_LONG => self.get_long_to(key, buffer),
            DAMAGED | NO_MEMORY => Err(self.read_error(key, code, word)),
            len => {
                let word = word.to_le_bytes();
                let bytes = inline_bytes(&word, len);
                if let Some(target) = buffer.get_mut(..bytes.len()) {
                    // SAFETY: the target has the length of the bytes, and is not part of them.
                    unsafe { bytes.as_ptr().copy_to_nonoverlapping(target.as_mut_ptr().cast(), bytes.len()) };
                }
                Ok(Some(bytes.len()))
            }
        }
    }

    /// As [`Hart::get_to`], for a value that did not fit: reads and verifies it elsewhere. Another thread may have
    /// replaced it by one that fits, so that is copied.
    #[cold]
    fn get_long_to(&self, key: &[u8], buffer: &mut [MaybeUninit<u8>]) -> Result<Option<usize>> {
        let mut value = Vec::new();
        if !self.get_into(key, &mut value)? {
            return Ok(None);
        }
        if let Some(target) = buffer.get_mut(..value.len()) {
            // SAFETY: the target has the length of the value, and is not part of it.
            unsafe { value.as_ptr().copy_to_nonoverlapping(target.as_mut_ptr().cast(), value.len()) };
        }
        Ok(Some(value.len()))
    }

    /// Calls `read` once with the value of `key`, if there is one.
    ///
    /// # Errors
    /// As [`Hart::get`].
    #[inline]
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let mut near = [MaybeUninit::uninit(); NEAR_BYTES];
        let (code, word) = self.read(key, &mut near.as_mut_slice())?;
        match code {
            ABSENT => Ok(None),
            COPIED => {
                let written = &near[..word as usize];
                // SAFETY: the lookup has written so many bytes.
                Ok(Some(read(unsafe { std::slice::from_raw_parts(written.as_ptr().cast(), written.len()) })))
            }
            TOO_LONG => {
                let mut value = Vec::new();
                Ok(self.get_into(key, &mut value)?.then(|| read(&value)))
            }
            DAMAGED | NO_MEMORY => Err(self.read_error(key, code, word)),
            len => Ok(Some(read(inline_bytes(&word.to_le_bytes(), len)))),
        }
    }

    /// True when `key` is there.
    ///
    /// # Errors
    /// `KeyTooLong`, and the medium's error when what was read never became durable.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        loop {
            let tree = self.share_tree(key);
            let found = self.index.get(key, |_| ()).is_some();
            drop(tree);
            if self.read_gate.wait_durable(self.region(), key)? {
                return Ok(found);
            }
        }
    }

    /// The length of an inline value with the leaf's word, or one of the codes above. Two words, so that they stay in
    /// registers.
    #[inline]
    fn read(&self, key: &[u8], space: &mut impl ValueSpace) -> Result<(u64, u64)> {
        check_key(key)?;
        loop {
            let tree = self.share_tree(key);
            let found = self.index.get(key, |leaf| {
                let (meta, word) = self.space.leaf_words(self.space.offset(leaf));
                match meta.kind() {
                    KIND_SLOT => self.read_slot(self.space.offset(leaf), key.len(), word, space),
                    KIND_BLOCK => self.read_block(word, space),
                    kind if usize::from(kind) <= INLINE_BYTES_MAX => (u64::from(kind), word),
                    _ => (DAMAGED, 0),
                }
            });
            drop(tree);
            if self.read_gate.wait_durable(self.region(), key)? {
                return Ok(found.unwrap_or((ABSENT, 0)));
            }
        }
    }

    /// Copies the value behind the key of the leaf at `offset`; the answer is [`Hart::read`]'s.
    #[inline]
    fn read_slot(&self, offset: u64, key_len: usize, word: u64, space: &mut impl ValueSpace) -> (u64, u64) {
        let Some((at, len)) = self.space.slot_value(offset, key_len, word) else { return (DAMAGED, 0) };
        let to = match space.for_bytes(len) {
            Ok(to) => to,
            Err(code) => return (code, len as u64),
        };
        // SAFETY: the space has given `len` bytes.
        let crc = unsafe { self.space.copy_value(at, len, to) };
        if u64::from(crc) == word >> 32 { (COPIED, len as u64) } else { (DAMAGED, 0) }
    }

    /// Copies the value in the block at `block`; the answer is [`Hart::read`]'s.
    #[inline]
    fn read_block(&self, block: u64, space: &mut impl ValueSpace) -> (u64, u64) {
        self.prefetch_block(block);
        let Some((head, len)) = self.block_head(block) else { return (DAMAGED, 0) };
        let to = match space.for_bytes(len as usize) {
            Ok(to) => to,
            Err(code) => return (code, len),
        };
        // SAFETY: the space has given `len` bytes.
        let crc = unsafe { self.space.copy_value(block + VALUE_HEADER_BYTES, len as usize, to) };
        if u64::from(crc) == head >> 32 { (COPIED, len) } else { (DAMAGED, 0) }
    }

    /// Why there is no value, where a lookup returned this code.
    #[cold]
    fn read_error(&self, key: &[u8], code: u64, word: u64) -> Error {
        if code == NO_MEMORY {
            return Error::NoMemory { wanted: word };
        }
        let read = self.index.get(key, |leaf| self.append_value(self.space.offset(leaf), &mut Vec::new()));
        read.unwrap_or(Read::Copied).error()
    }

    /// Reads the value of the leaf at `offset`, and appends a value in a block to `buffer`. What is read may be
    /// garbage until the caller validates it, but it is never longer than the block's class allows.
    #[inline]
    pub(crate) fn append_value(&self, offset: u64, buffer: &mut Vec<u8>) -> Read {
        let (meta, word) = self.space.leaf_words(offset);
        let value = LeafValue { kind: meta.kind(), word };
        match value.kind {
            kind if usize::from(kind) <= INLINE_BYTES_MAX => Read::Inline(value),
            KIND_BLOCK => self.append_block(word, buffer),
            KIND_SLOT => self.append_slot(offset, meta.key_len(), word, buffer),
            _ => Read::Damaged { offset, what: "the leaf's kind is none" },
        }
    }

    /// Appends the value behind the key of the leaf at `offset` to `buffer`, bounded and verified as above.
    #[inline]
    pub(crate) fn append_slot(&self, offset: u64, key_len: usize, word: u64, buffer: &mut Vec<u8>) -> Read {
        let Some((at, len)) = self.space.slot_value(offset, key_len, word) else {
            return Read::Damaged { offset, what: "the value is longer than its slot" };
        };
        self.append_copy(at, len, (word >> 32) as u32, offset, buffer)
    }

    /// Appends the value of `len` bytes at `at`, which must have this checksum; the record lies at `offset`.
    #[inline]
    fn append_copy(&self, at: u64, len: usize, wanted: u32, offset: u64, buffer: &mut Vec<u8>) -> Read {
        let start = buffer.len();
        if buffer.try_reserve(len).is_err() {
            return Read::NoMemory { wanted: len as u64 };
        }
        // SAFETY: `len` bytes were reserved after `start`, and the copy writes them.
        let crc = unsafe {
            let crc = self.space.copy_value(at, len, buffer.as_mut_ptr().add(start));
            buffer.set_len(start + len);
            crc
        };
        if crc != wanted {
            return Read::Damaged { offset, what: "the value does not have its checksum" };
        }
        Read::Copied
    }

    /// The value of the leaf at `offset` as its two words have it.
    #[inline]
    pub(crate) fn live_value(&self, offset: u64) -> LeafValue {
        let (meta, word) = self.space.leaf_words(offset);
        LeafValue { kind: meta.kind(), word }
    }

    /// Prefetches the first lines of a value block. Any offset is allowed.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: u64) {
        if block < self.space.usable_offset() {
            let line = self.region().at(block).cast_const();
            mangrove_sys::prefetch_read(line);
            mangrove_sys::prefetch_read(line.wrapping_add(64));
            mangrove_sys::prefetch_read(line.wrapping_add(111));
        }
    }

    /// Prefetches the rest of a record whose leaf's first line is in the cache. What this reads only chooses what to
    /// prefetch.
    #[inline]
    pub(crate) fn prefetch_value(&self, leaf: Leaf) {
        if leaf.hint() == LeafHint::Reference {
            let (meta, word) = self.space.leaf_words(self.space.offset(leaf));
            if meta.kind() == KIND_BLOCK {
                self.prefetch_block(word);
            }
        } else {
            leaf.prefetch_further();
        }
    }

    /// The head of the block at `block`, and the length in it, if a value of that length can be there.
    #[inline]
    pub(crate) fn block_head(&self, block: u64) -> Option<(u64, u64)> {
        if !block.is_multiple_of(16) {
            return None;
        }
        let capacity = self.alloc.block_bytes(block)?;
        let head = self.space.region.word(block).load(std::sync::atomic::Ordering::Acquire);
        let len = head & 0xffff_ffff;
        (len + VALUE_HEADER_BYTES <= capacity && len <= VALUE_BYTES_MAX as u64).then_some((head, len))
    }

    /// Appends the value in the block at `block` to `buffer`, bounded and verified as above.
    #[inline]
    pub(crate) fn append_block(&self, block: u64, buffer: &mut Vec<u8>) -> Read {
        let Some((head, len)) = self.block_head(block) else { return self.no_block(block) };
        self.append_copy(block + VALUE_HEADER_BYTES, len as usize, (head >> 32) as u32, block, buffer)
    }

    /// What is wrong where [`Hart::block_head`] finds none.
    #[cold]
    fn no_block(&self, block: u64) -> Read {
        let what = if !block.is_multiple_of(16) {
            "no value block begins here"
        } else if self.alloc.block_bytes(block).is_none() {
            "no value block is here"
        } else {
            "the value is longer than its block"
        };
        Read::Damaged { offset: block, what }
    }
}
