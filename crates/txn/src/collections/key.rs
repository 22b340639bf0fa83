//! What can be a key: plain data with an order, and byte strings.

use super::hash::hash;
use super::reads::Reads;
use crate::heap::{Stop, Tx};
use bytemuck::Pod;
use std::cmp::Ordering;

/// What can be a key of a [`HeapMap`](super::HeapMap) or a [`HeapOrderedMap`](super::HeapOrderedMap): every [`Pod`]
/// type with [`Ord`], and [`HeapBytes`](super::HeapBytes). Two keys of a hash map are the same when their bytes are;
/// of an ordered map, when [`Ord`] says so.
pub trait HeapKey: Pod {
    /// What callers pass for a key: the type itself, or `[u8]` for [`HeapBytes`](super::HeapBytes).
    type Query: ?Sized;

    /// The hash of what a caller asks for.
    #[doc(hidden)]
    fn hash_query(seed: u64, query: &Self::Query) -> u64;

    /// The hash of a stored key, which is that of an equal query.
    #[doc(hidden)]
    fn hash<R: Reads>(self, reads: &mut R, seed: u64) -> Result<u64, R::Stop>;

    /// Whether the stored key is the one that a caller asks a hash map for.
    #[doc(hidden)]
    fn is<R: Reads>(self, reads: &mut R, query: &Self::Query) -> Result<bool, R::Stop>;

    /// The stored key's order relative to what a caller asks for.
    #[doc(hidden)]
    fn order<R: Reads>(self, reads: &mut R, query: &Self::Query) -> Result<Ordering, R::Stop>;

    /// A key to be stored, with blocks of its own.
    #[doc(hidden)]
    fn make(tx: &mut Tx<'_>, query: &Self::Query) -> Result<Self, Stop>;

    /// A second key that is equal, with blocks of its own.
    #[doc(hidden)]
    fn copy(self, tx: &mut Tx<'_>) -> Result<Self, Stop>;

    /// Frees its blocks.
    #[doc(hidden)]
    fn discard(self, tx: &mut Tx<'_>) -> Result<(), Stop>;
}

impl<T: Pod + Ord> HeapKey for T {
    type Query = T;

    #[inline(always)]
    fn hash_query(seed: u64, query: &T) -> u64 {
        hash(seed, bytemuck::bytes_of(query))
    }

    #[inline(always)]
    fn hash<R: Reads>(self, _reads: &mut R, seed: u64) -> Result<u64, R::Stop> {
        Ok(hash(seed, bytemuck::bytes_of(&self)))
    }

    #[inline(always)]
    fn is<R: Reads>(self, _reads: &mut R, query: &T) -> Result<bool, R::Stop> {
        let (one, other) = (bytemuck::bytes_of(&self), bytemuck::bytes_of(query));
        // One comparison for keys of a word, and no call.
        Ok(match (<[u8; 8]>::try_from(one), <[u8; 8]>::try_from(other)) {
            (Ok(one), Ok(other)) => u64::from_ne_bytes(one) == u64::from_ne_bytes(other),
            _ => one == other,
        })
    }

    #[inline(always)]
    fn order<R: Reads>(self, _reads: &mut R, query: &T) -> Result<Ordering, R::Stop> {
        Ok(self.cmp(query))
    }

    #[inline(always)]
    fn make(_tx: &mut Tx<'_>, query: &T) -> Result<Self, Stop> {
        Ok(*query)
    }

    #[inline(always)]
    fn copy(self, _tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Ok(self)
    }

    #[inline(always)]
    fn discard(self, _tx: &mut Tx<'_>) -> Result<(), Stop> {
        Ok(())
    }
}
