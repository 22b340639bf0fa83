//! Byte strings of any length.

use super::hash::{self, Hash};
use super::key::HeapKey;
use super::reads::Reads;
use crate::heap::{HeapError, Ptr, Stop, Tx};
use bytemuck::{Pod, Zeroable};
use std::cmp::Ordering;

/// Bytes that lie in the handle itself.
pub(super) const INLINE_BYTES_MAX: usize = 12;
/// Of these, the bytes before the word that holds the others, or the block's address.
const PREFIX_BYTES: usize = 4;
/// Long strings are compared in pieces of this size.
const PIECE_BYTES: usize = 4 * Hash::PIECE;

/// A byte string in the heap: a key or a value of any collection, or a field of a struct.
///
/// Up to 12 bytes lie in the handle itself, longer ones in a block. The string does not change once it is made. The
/// caller that makes one frees it; keys that a map makes of what a caller passes belong to the map.
///
/// ```
/// use mangrove_txn::{Heap, HeapBytes, HeapMap};
///
/// # fn main() -> mangrove_txn::HeapResult<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let heap = Heap::open(folder.path().join("words"))?;
/// heap.transaction(|tx| {
///     let words = HeapMap::<HeapBytes, HeapBytes>::at_root(tx, "words")?;
///     let text = HeapBytes::new(tx, b"a tree that lives in two elements")?;
///     if let Some(old) = words.insert(tx, b"mangrove", text)? {
///         old.free(tx)?;
///     }
///     let found = words.get(tx, b"mangrove")?.expect("inserted above");
///     assert_eq!(found.to_vec(tx)?, b"a tree that lives in two elements");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct HeapBytes {
    len: u32,
    prefix: [u8; PREFIX_BYTES],
    /// The next 8 bytes of a string that lies in the handle; otherwise the address of a block with all bytes.
    rest: u64,
}

impl HeapBytes {
    /// A string of these bytes. O(bytes).
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::Full`] if there is no space, and with
    /// [`HeapError::Invalid`] for 4 GiB and more.
    pub fn new(tx: &mut Tx<'_>, bytes: &[u8]) -> Result<Self, Stop> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            let what = format!("a byte string in a heap has less than 4 GiB, and this one {}", bytes.len());
            return Err(HeapError::Invalid { what }.into());
        };
        let mut prefix = [0; PREFIX_BYTES];
        let split = bytes.len().min(PREFIX_BYTES);
        prefix[..split].copy_from_slice(&bytes[..split]);
        if bytes.len() <= INLINE_BYTES_MAX {
            let mut rest = [0; 8];
            rest[..bytes.len() - split].copy_from_slice(&bytes[split..]);
            return Ok(Self { len, prefix, rest: u64::from_le_bytes(rest) });
        }
        let block = tx.alloc_bytes(bytes.len(), 1)?;
        tx.write_bytes(block, bytes)?;
        Ok(Self { len, prefix, rest: block as u64 })
    }

    /// The number of bytes. O(1).
    #[must_use]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it has no bytes. O(1).
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    fn is_inline(self) -> bool {
        self.len() <= INLINE_BYTES_MAX
    }

    /// The bytes of a string that lies in its handle, and as many more zeros.
    fn inline(self) -> [u8; INLINE_BYTES_MAX] {
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        bytes[PREFIX_BYTES..].copy_from_slice(&self.rest.to_le_bytes());
        bytes
    }

    /// Passes the bytes to `each` in order, in pieces of up to 64, until it returns false.
    fn pieces<R: Reads>(self, reads: &mut R, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), R::Stop> {
        if self.is_inline() {
            each(&self.inline()[..self.len()]);
            return Ok(());
        }
        let mut piece = [0; PIECE_BYTES];
        for from in (0..self.len()).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min(self.len() - from)];
            reads.read_bytes(self.rest as usize + from, piece)?;
            if !each(piece) {
                break;
            }
        }
        Ok(())
    }

    /// A copy of the bytes. O(bytes).
    ///
    /// # Errors
    /// [`Reads::Stop`].
    pub fn to_vec<R: Reads>(self, reads: &mut R) -> Result<Vec<u8>, R::Stop> {
        if self.is_inline() {
            return Ok(self.inline()[..self.len()].to_vec());
        }
        let mut bytes = vec![0; self.len()];
        reads.read_bytes(self.rest as usize, &mut bytes)?;
        Ok(bytes)
    }

    /// How its bytes compare with `other`. O(bytes that are equal).
    ///
    /// # Errors
    /// [`Reads::Stop`].
    pub fn compare<R: Reads>(self, reads: &mut R, other: &[u8]) -> Result<Ordering, R::Stop> {
        let known = self.len().min(PREFIX_BYTES).min(other.len());
        let by_prefix = self.prefix[..known].cmp(&other[..known]);
        if by_prefix.is_ne() {
            return Ok(by_prefix);
        }
        let (mut order, mut left) = (Ordering::Equal, other);
        self.pieces(reads, |piece| {
            let (now, later) = left.split_at(piece.len().min(left.len()));
            order = piece.cmp(now);
            left = later;
            order.is_eq()
        })?;
        Ok(order.then(self.len().cmp(&other.len())))
    }

    /// Frees its block, if it has one. The handle and its copies must not be used any more. O(1) up to 16 KiB.
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::BadFree`] if it was freed before.
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        if self.is_inline() { Ok(()) } else { tx.free(Ptr::<u8>::at(self.rest as usize)) }
    }
}

impl HeapKey for HeapBytes {
    type Query = [u8];

    fn hash_query(seed: u64, query: &[u8]) -> u64 {
        hash::hash(seed, query)
    }

    fn hash<R: Reads>(self, reads: &mut R, seed: u64) -> Result<u64, R::Stop> {
        let mut hash = Hash::new(seed);
        self.pieces(reads, |piece| {
            piece.chunks(Hash::PIECE).for_each(|piece| hash.take(piece));
            true
        })?;
        Ok(hash.end(self.len()))
    }

    fn is<R: Reads>(self, reads: &mut R, query: &[u8]) -> Result<bool, R::Stop> {
        Ok(self.len() == query.len() && self.compare(reads, query)?.is_eq())
    }

    fn order<R: Reads>(self, reads: &mut R, query: &[u8]) -> Result<Ordering, R::Stop> {
        self.compare(reads, query)
    }

    fn make(tx: &mut Tx<'_>, query: &[u8]) -> Result<Self, Stop> {
        Self::new(tx, query)
    }

    fn copy(self, tx: &mut Tx<'_>) -> Result<Self, Stop> {
        if self.is_inline() {
            return Ok(self);
        }
        let bytes = self.to_vec(tx)?;
        Self::new(tx, &bytes)
    }

    fn discard(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.free(tx)
    }
}
