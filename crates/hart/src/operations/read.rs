//! Reading one record (paper, Algorithm 4).
//!
//! Deviation: the paper returns a pointer, which outlives its lock (gap 13). Here the reader copies the value while
//! the index watches the leaf, and drops the copy when leaf or value changed meanwhile. Readers do not look at the
//! leaf's bit: a leaf is in the index only while its bit is durable, or while readers of the key wait until it is.

use crate::format::layout::VALUE_HEADER_BYTES;
use crate::format::leaf::{INLINE_BYTES_MAX, KIND_BLOCK, Value};
use crate::hart::Hart;
use crate::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};

/// A value, read optimistically and not validated yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// The leaf's word holds the value's bytes.
    Inline(Value),
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
/// The value is in the buffer.
const COPIED: u64 = u64::MAX - 1;
/// The value is damaged.
const DAMAGED: u64 = u64::MAX - 2;
/// There is no memory for the value; its length is in place of the word.
const NO_MEMORY: u64 = u64::MAX - 3;

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
        let (kind, word) = self.read(key, value)?;
        match kind {
            ABSENT => {
                value.clear();
                return Ok(false);
            }
            COPIED => {}
            DAMAGED => return Err(self.damaged(key)),
            NO_MEMORY => return Err(Error::NoMemory { wanted: word }),
            len => {
                value.clear();
                value.extend_from_slice(&word.to_le_bytes()[..(len as usize).min(INLINE_BYTES_MAX)]);
            }
        }
        Ok(true)
    }

    /// Calls `read` once with the value of `key`, if there is one.
    ///
    /// # Errors
    /// As [`Hart::get`].
    #[inline]
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let mut buffer = Vec::new();
        let (kind, word) = self.read(key, &mut buffer)?;
        match kind {
            ABSENT => Ok(None),
            COPIED => Ok(Some(read(&buffer))),
            DAMAGED => Err(self.damaged(key)),
            NO_MEMORY => Err(Error::NoMemory { wanted: word }),
            len => Ok(Some(read(&word.to_le_bytes()[..(len as usize).min(INLINE_BYTES_MAX)]))),
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
    fn read(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<(u64, u64)> {
        check_key(key)?;
        loop {
            let tree = self.share_tree(key);
            let found = self.index.get(key, |leaf| {
                let offset = self.space.offset(leaf);
                let (meta, word) = self.space.leaf_words(offset);
                let kind = u64::from(meta.kind());
                if kind <= INLINE_BYTES_MAX as u64 {
                    return (kind, word);
                }
                self.prefetch_block(word);
                buffer.clear();
                match self.append_value(offset, buffer) {
                    Read::Inline(value) => (u64::from(value.kind), value.word),
                    Read::Copied => (COPIED, 0),
                    Read::Damaged { .. } => (DAMAGED, 0),
                    Read::NoMemory { wanted } => (NO_MEMORY, wanted),
                }
            });
            drop(tree);
            if self.read_gate.wait_durable(self.region(), key)? {
                return Ok(found.unwrap_or((ABSENT, 0)));
            }
        }
    }

    /// The error that describes what is wrong with the value of `key`.
    #[cold]
    fn damaged(&self, key: &[u8]) -> Error {
        let read = self.index.get(key, |leaf| self.append_value(self.space.offset(leaf), &mut Vec::new()));
        read.unwrap_or(Read::Copied).error()
    }

    /// Reads the value of the leaf at `offset`, and appends a value in a block to `buffer`. What is read may be
    /// garbage until the caller validates it, but it is never longer than the block's class allows.
    #[inline]
    pub(crate) fn append_value(&self, offset: u64, buffer: &mut Vec<u8>) -> Read {
        let (meta, word) = self.space.leaf_words(offset);
        let value = Value { kind: meta.kind(), word };
        if usize::from(value.kind) <= INLINE_BYTES_MAX {
            return Read::Inline(value);
        }
        if value.kind != KIND_BLOCK {
            return Read::Damaged { offset, what: "the leaf's kind is none" };
        }
        self.append_block(word, buffer)
    }

    /// The value of the leaf at `offset` as its two words have it.
    #[inline]
    pub(crate) fn live_value(&self, offset: u64) -> Value {
        let (meta, word) = self.space.leaf_words(offset);
        Value { kind: meta.kind(), word }
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

    /// Appends the value in the block at `block` to `buffer`, bounded and verified as above.
    #[inline]
    pub(crate) fn append_block(&self, block: u64, buffer: &mut Vec<u8>) -> Read {
        if !block.is_multiple_of(16) {
            return Read::Damaged { offset: block, what: "no value block begins here" };
        }
        let Some(capacity) = self.alloc.block_bytes(block) else {
            return Read::Damaged { offset: block, what: "no value block is here" };
        };
        let head = self.space.region.word(block).load(std::sync::atomic::Ordering::Acquire);
        let len = head & 0xffff_ffff;
        if len + VALUE_HEADER_BYTES > capacity || len > VALUE_BYTES_MAX as u64 {
            return Read::Damaged { offset: block, what: "the value is longer than its block" };
        }
        let start = buffer.len();
        if !self.space.try_append_out(block + VALUE_HEADER_BYTES, len as usize, buffer) {
            return Read::NoMemory { wanted: len };
        }
        if u64::from(crate::format::space::value_crc(&buffer[start..])) != head >> 32 {
            return Read::Damaged { offset: block, what: "the value does not have its checksum" };
        }
        Read::Copied
    }
}
