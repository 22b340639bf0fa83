//! The vector.
//!
//! Elements lie in segments, each twice as long as the one before. So growing moves no element, and a vector's
//! largest transaction is its callers'. One empty segment is kept behind the last element, so that pushes and pops at a
//! border do not allocate and free each time.

use super::handle::{AT_SHAPE, KIND_VECTOR, at_root, handle, shape, steps};
use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;

/// Elements of the first segment: 2 to this number.
const FIRST_BITS: u32 = 3;
pub(super) const FIRST: u64 = 1 << FIRST_BITS;
/// Segments at most; the last would not fit into the address space.
pub(super) const SEGMENT_COUNT: usize = 44;

/// Offsets in the head.
pub(super) const AT_LEN: usize = 8;
pub(super) const AT_SEGMENTS: usize = 16;
const HEAD_BYTES: usize = AT_SEGMENTS + SEGMENT_COUNT * 8;

handle! {
    /// A vector in the heap, of plain data.
    ///
    /// The handle is plain data: copy it, store it in the heap, put it into other collections. It does not own the
    /// vector: [`free`](Self::free) frees its memory.
    ///
    /// ```
    /// use mangrove_txn::{Heap, HeapVec};
    ///
    /// # fn main() -> mangrove_txn::HeapResult<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let heap = Heap::open(folder.path().join("log"))?;
    /// let log = heap.transaction(|tx| HeapVec::<u64>::at_root(tx, "log"))?;
    /// heap.transaction(|tx| (0..10).try_for_each(|n| log.push(tx, n * n)))?;
    /// assert_eq!(heap.read(|tx| log.get(tx, 3))?, Some(9));
    /// assert_eq!(heap.transaction(|tx| log.pop(tx))?, Some(81));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Every operation is a part of its transaction: a crash keeps all of that or nothing. Those that change the length
    /// conflict with all others that need it; [`set`](Self::set) conflicts only with those of the same elements.
    ///
    /// # Errors
    /// Every operation may end with a [`Stop`]. Those that add elements fail the transaction with
    /// [`HeapError::Full`](crate::HeapError::Full) if there is no space.
    ///
    /// # Panics
    /// With a handle that is not one of a vector of this heap, which undoes the transaction; at worst it reads or
    /// writes other bytes of the heap.
    HeapVec<T>, shape(KIND_VECTOR, 0, size_of::<T>())
}

/// The segment of an element, and its place there.
#[inline(always)]
const fn locate(index: u64) -> (usize, u64) {
    let from_first = index + FIRST;
    let bits = from_first.ilog2();
    ((bits - FIRST_BITS) as usize, from_first - (1 << bits))
}

impl<T: Pod> HeapVec<T> {
    /// A new, empty vector. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn create(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let head = tx.alloc_array::<u64>(HEAD_BYTES / 8)?.address();
        tx.write(Ptr::at(head + AT_SHAPE), Self::SHAPE)?;
        Ok(Self::of_head(head))
    }

    /// The vector at the root `name`; a new one if there is no such root.
    ///
    /// # Errors
    /// See [`HeapVec`]; the transaction fails with [`HeapError::Root`](crate::HeapError::Root) if the root is not
    /// that of a vector with elements of this size.
    pub fn at_root(tx: &mut Tx<'_>, name: &str) -> Result<Self, Stop> {
        let head = at_root(tx, name, Self::SHAPE, |tx| Ok(Self::create(tx)?.address()))?;
        Ok(Self::of_head(head))
    }

    fn segment(self, number: usize) -> Ptr<u64> {
        Ptr::at(self.address() + AT_SEGMENTS + number * 8)
    }

    fn set_len(self, tx: &mut Tx<'_>, len: u64) -> Result<(), Stop> {
        tx.write(Ptr::at(self.address() + AT_LEN), len)
    }

    /// Where an element lies whose segment is there.
    #[inline(always)]
    fn element<R: Reads>(self, reads: &mut R, index: u64) -> Result<Ptr<T>, R::Stop> {
        let (segment, place) = locate(index);
        let first = Ptr::<T>::at(reads.read(self.segment(segment))? as usize);
        Ok(first.add(place as usize))
    }

    /// The number of elements. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    #[inline(always)]
    pub fn len<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        reads.word(self.address() + AT_LEN)
    }

    /// Whether there is no element. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn is_empty<R: Reads>(self, reads: &mut R) -> Result<bool, R::Stop> {
        Ok(self.len(reads)? == 0)
    }

    /// Where the element at `index` lies, if there is one. The pointer is good until its transaction removes the
    /// element, or ends. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn get_ptr<R: Reads>(self, reads: &mut R, index: u64) -> Result<Option<Ptr<T>>, R::Stop> {
        if index < self.len(reads)? { self.element(reads, index).map(Some) } else { Ok(None) }
    }

    /// The element at `index`, if there is one. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    #[inline]
    pub fn get<R: Reads>(self, reads: &mut R, index: u64) -> Result<Option<T>, R::Stop> {
        match self.get_ptr(reads, index)? {
            Some(element) => reads.read(element).map(Some),
            None => Ok(None),
        }
    }

    /// Replaces the element at `index`, and returns the old one. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    ///
    /// # Panics
    /// When there is no such element, which undoes the transaction.
    pub fn set(self, tx: &mut Tx<'_>, index: u64, value: T) -> Result<T, Stop> {
        let Some(element) = self.get_ptr(tx, index)? else {
            panic!("the vector has no element {index}; `push` and `insert` add elements");
        };
        let old = tx.read(element)?;
        tx.write(element, value)?;
        Ok(old)
    }

    /// Adds an element at the end. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn push(self, tx: &mut Tx<'_>, value: T) -> Result<(), Stop> {
        let len = self.len(tx)?;
        let (segment, place) = locate(len);
        if place == 0 && tx.read(self.segment(segment))? == 0 {
            let bytes =
                size_of::<T>().saturating_mul(usize::try_from(FIRST).unwrap_or(usize::MAX) << segment);
            let block = tx.alloc_bytes(bytes, align_of::<T>())?;
            tx.write(self.segment(segment), block as u64)?;
        }
        let element = self.element(tx, len)?;
        tx.write(element, value)?;
        self.set_len(tx, len + 1)
    }

    /// Removes the last element, and returns it. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn pop(self, tx: &mut Tx<'_>) -> Result<Option<T>, Stop> {
        let Some(last) = self.len(tx)?.checked_sub(1) else { return Ok(None) };
        let element = self.element(tx, last)?;
        let value = tx.read(element)?;
        self.set_len(tx, last)?;
        let (segment, place) = locate(last);
        if place == 0 && segment + 1 < SEGMENT_COUNT {
            let spare = self.segment(segment + 1);
            let block = tx.read(spare)?;
            if block != 0 {
                tx.free_bytes(block as usize)?;
                tx.write(spare, 0)?;
            }
        }
        Ok(Some(value))
    }

    /// Puts an element at `index`; the ones behind move by one. O(elements behind).
    ///
    /// # Errors
    /// See [`HeapVec`].
    ///
    /// # Panics
    /// When `index` is more than the length, which undoes the transaction.
    pub fn insert(self, tx: &mut Tx<'_>, index: u64, value: T) -> Result<(), Stop> {
        let len = self.len(tx)?;
        assert!(index <= len, "the index is {index}, and the vector has {len} elements");
        self.push(tx, value)?;
        let mut carried = value;
        for at in index..=len {
            let element = self.element(tx, at)?;
            let next = tx.read(element)?;
            tx.write(element, carried)?;
            carried = next;
        }
        Ok(())
    }

    /// Removes the element at `index`, if there is one, and returns it; the ones behind move by one. O(elements
    /// behind).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn remove(self, tx: &mut Tx<'_>, index: u64) -> Result<Option<T>, Stop> {
        if index >= self.len(tx)? {
            return Ok(None);
        }
        let Some(mut carried) = self.pop(tx)? else { return Ok(None) };
        for at in (index..self.len(tx)?).rev() {
            let element = self.element(tx, at)?;
            let next = tx.read(element)?;
            tx.write(element, carried)?;
            carried = next;
        }
        Ok(Some(carried))
    }

    /// Removes the element at `index`, if there is one, and returns it; the last one takes its place. O(1).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn swap_remove(self, tx: &mut Tx<'_>, index: u64) -> Result<Option<T>, Stop> {
        if index >= self.len(tx)? {
            return Ok(None);
        }
        let Some(last) = self.pop(tx)? else { return Ok(None) };
        if index == self.len(tx)? { Ok(Some(last)) } else { self.set(tx, index, last).map(Some) }
    }

    /// All elements in order. The transaction is borrowed meanwhile; a loop that needs it uses [`get`](Self::get).
    pub fn iter<R: Reads>(self, reads: &mut R) -> impl Iterator<Item = Result<T, R::Stop>> + use<'_, T, R> {
        steps(reads, 0, move |next, reads| {
            let item = self.get(reads, *next)?;
            *next += 1;
            Ok(item)
        })
    }

    /// Removes all elements, and gives memory back. O(log elements).
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn clear(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.set_len(tx, 0)?;
        for number in 0..SEGMENT_COUNT {
            let segment = self.segment(number);
            let block = tx.read(segment)?;
            if block == 0 {
                break;
            }
            tx.free_bytes(block as usize)?;
            tx.write(segment, 0)?;
        }
        Ok(())
    }

    /// Frees the vector, but nothing that its elements own. O(log elements). A root that points to it must be removed
    /// or set anew.
    ///
    /// # Errors
    /// See [`HeapVec`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.clear(tx)?;
        tx.free_bytes(self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(locate(index), expected);
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
