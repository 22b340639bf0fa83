//! The queue.
//!
//! Elements lie in a list of segments. Pushes write the tail's stripe and the last segment, pops the head's stripe;
//! whether there is an element is told by the first segment alone. So pushes and pops conflict only while they use
//! the same segment. There is always a segment with space behind the last element: the push that fills one adds the
//! next.

use super::handle::{AT_SHAPE, KIND_QUEUE, at_root, handle, shape, steps};
use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;

/// Offsets in the head: the first segment and the elements that were ever popped; on a stripe of their own the last
/// segment and the elements that were ever pushed.
pub(super) const AT_FIRST: usize = 32;
pub(super) const AT_POPPED: usize = 40;
pub(super) const AT_LAST: usize = 64;
pub(super) const AT_PUSHED: usize = 72;
const HEAD_BYTES: usize = 96;

/// Offsets in a segment: its elements that were ever pushed, and the next segment.
pub(super) const AT_FILLED: usize = 0;
pub(super) const AT_NEXT: usize = 8;
pub(super) const AT_ELEMENTS: usize = 16;
/// Bytes of a segment's elements, unless one alone has more.
pub(super) const SEGMENT_BYTES: usize = 496;
pub(super) const SEGMENT_ELEMENTS_MAX: usize = 64;

handle! {
    /// A first-in first-out queue in the heap, of plain data.
    ///
    /// The handle is plain data: copy it, store it in the heap, put it into other collections. It does not own the
    /// queue: [`free`](Self::free) frees its memory.
    ///
    /// A consumer that finds the queue empty waits with [`Tx::retry`]: the transaction is undone, and runs again after
    /// a push.
    ///
    /// ```
    /// use mangrove_txn::{Heap, HeapQueue};
    ///
    /// # fn main() -> mangrove_txn::HeapResult<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let heap = Heap::open(folder.path().join("jobs"))?;
    /// let jobs = heap.transaction(|tx| HeapQueue::<u64>::at_root(tx, "jobs"))?;
    /// std::thread::scope(|scope| {
    ///     let worker = scope.spawn(|| {
    ///         heap.transaction(|tx| match jobs.pop(tx)? {
    ///             Some(job) => Ok(job),
    ///             None => Err(tx.retry()), // sleeps until there is a job
    ///         })
    ///     });
    ///     heap.transaction(|tx| jobs.push(tx, 7))?;
    ///     assert_eq!(worker.join().unwrap()?, 7);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// Every operation is a part of its transaction: a crash keeps all of that or nothing, so a job that is popped is
    /// not lost when the transaction that works on it aborts. Each takes O(1) time. Pushes conflict with each other,
    /// and pops with each other; a push and a pop conflict only while the queue is short.
    ///
    /// # Errors
    /// Every operation may end with a [`Stop`]. A push fails the transaction with
    /// [`HeapError::Full`](crate::HeapError::Full) if there is no space.
    ///
    /// # Panics
    /// With a handle that is not one of a queue of this heap, which undoes the transaction; at worst it reads or
    /// writes other bytes of the heap.
    HeapQueue<T>, shape(KIND_QUEUE, 0, size_of::<T>())
}

impl<T: Pod> HeapQueue<T> {
    const ELEMENTS: u64 = {
        let bytes = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
        let count = SEGMENT_BYTES / bytes;
        (if count == 0 {
            1
        } else if count > SEGMENT_ELEMENTS_MAX {
            SEGMENT_ELEMENTS_MAX
        } else {
            count
        }) as u64
    };

    /// A new, empty queue. O(1).
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn create(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let head = tx.alloc_bytes(HEAD_BYTES, 32)?;
        tx.write(Ptr::at(head), [0u64; HEAD_BYTES / 8])?;
        tx.write(Ptr::at(head + AT_SHAPE), Self::SHAPE)?;
        let segment = Self::make_segment(tx)? as u64;
        tx.write(Ptr::at(head + AT_FIRST), segment)?;
        tx.write(Ptr::at(head + AT_LAST), segment)?;
        Ok(Self::of_head(head))
    }

    /// The queue at the root `name`; a new one if there is no such root.
    ///
    /// # Errors
    /// See [`HeapQueue`]; the transaction fails with [`HeapError::Root`](crate::HeapError::Root) if the root is not
    /// that of a queue with elements of this size.
    pub fn at_root(tx: &mut Tx<'_>, name: &str) -> Result<Self, Stop> {
        let head = at_root(tx, name, Self::SHAPE, |tx| Ok(Self::create(tx)?.address()))?;
        Ok(Self::of_head(head))
    }

    fn make_segment(tx: &mut Tx<'_>) -> Result<usize, Stop> {
        let bytes = Self::element(0, Self::ELEMENTS).address();
        let segment = tx.alloc_bytes(bytes, align_of::<T>())?;
        tx.write(Ptr::at(segment + AT_FILLED), 0u64)?;
        tx.write(Ptr::at(segment + AT_NEXT), 0u64)?;
        Ok(segment)
    }

    const fn element(segment: usize, place: u64) -> Ptr<T> {
        Ptr::<T>::at(segment + AT_ELEMENTS.next_multiple_of(align_of::<T>())).add(place as usize)
    }

    fn word(self, offset: usize) -> Ptr<u64> {
        Ptr::at(self.address() + offset)
    }

    /// Adds an element at the end. O(1).
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn push(self, tx: &mut Tx<'_>, value: T) -> Result<(), Stop> {
        let pushed = tx.read(self.word(AT_PUSHED))?;
        let segment = tx.read(self.word(AT_LAST))? as usize;
        let place = pushed % Self::ELEMENTS;
        // First: where there is no space, nothing has changed.
        let next = if place + 1 == Self::ELEMENTS { Some(Self::make_segment(tx)? as u64) } else { None };
        tx.write(Self::element(segment, place), value)?;
        tx.write(Ptr::at(segment + AT_FILLED), place + 1)?;
        tx.write(self.word(AT_PUSHED), pushed + 1)?;
        if let Some(next) = next {
            tx.write(Ptr::at(segment + AT_NEXT), next)?;
            tx.write(self.word(AT_LAST), next)?;
        }
        Ok(())
    }

    /// The segment with the first element, the elements popped before it, and whether there is one.
    fn begin<R: Reads>(self, reads: &mut R) -> Result<(usize, u64, bool), R::Stop> {
        let popped = reads.read(self.word(AT_POPPED))?;
        let segment = reads.read(self.word(AT_FIRST))? as usize;
        let filled = reads.word(segment + AT_FILLED)?;
        Ok((segment, popped, popped % Self::ELEMENTS < filled))
    }

    /// The first element, which stays. O(1).
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn front<R: Reads>(self, reads: &mut R) -> Result<Option<T>, R::Stop> {
        let (segment, popped, is_there) = self.begin(reads)?;
        if !is_there {
            return Ok(None);
        }
        reads.read(Self::element(segment, popped % Self::ELEMENTS)).map(Some)
    }

    /// Removes the first element, and returns it. O(1).
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn pop(self, tx: &mut Tx<'_>) -> Result<Option<T>, Stop> {
        let (segment, popped, is_there) = self.begin(tx)?;
        if !is_there {
            return Ok(None);
        }
        let value = tx.read(Self::element(segment, popped % Self::ELEMENTS))?;
        tx.write(self.word(AT_POPPED), popped + 1)?;
        if (popped + 1).is_multiple_of(Self::ELEMENTS) {
            let next: u64 = tx.read(Ptr::at(segment + AT_NEXT))?;
            tx.write(self.word(AT_FIRST), next)?;
            tx.free_bytes(segment)?;
        }
        Ok(Some(value))
    }

    /// The number of elements. O(1), and every push and pop meanwhile conflicts with it.
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn len<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        Ok(reads.read(self.word(AT_PUSHED))? - reads.read(self.word(AT_POPPED))?)
    }

    /// Whether there is no element. O(1).
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn is_empty<R: Reads>(self, reads: &mut R) -> Result<bool, R::Stop> {
        Ok(!self.begin(reads)?.2)
    }

    /// A walk through all elements, the first one first.
    #[must_use]
    pub const fn walk(self) -> QueueWalk<T> {
        QueueWalk { queue: self, segment: None, position: 0 }
    }

    /// All elements, the first one first. The transaction is borrowed meanwhile; a loop that needs it uses
    /// [`walk`](Self::walk).
    pub fn iter<R: Reads>(self, reads: &mut R) -> impl Iterator<Item = Result<T, R::Stop>> + use<'_, T, R> {
        steps(reads, self.walk(), QueueWalk::next)
    }

    /// Removes all elements. O(elements / 62), or more for elements of more than 8 bytes.
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn clear(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        let (last, pushed) = (tx.read(self.word(AT_LAST))?, tx.read(self.word(AT_PUSHED))?);
        let mut segment = tx.read(self.word(AT_FIRST))?;
        while segment != last {
            let next: u64 = tx.read(Ptr::at(segment as usize + AT_NEXT))?;
            tx.free_bytes(segment as usize)?;
            segment = next;
        }
        tx.write(self.word(AT_FIRST), last)?;
        tx.write(self.word(AT_POPPED), pushed)
    }

    /// Frees the queue, but nothing that its elements own. As [`clear`](Self::clear). A root that points to it must be
    /// removed or set anew.
    ///
    /// # Errors
    /// See [`HeapQueue`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.clear(tx)?;
        let last = tx.read(self.word(AT_LAST))?;
        tx.free_bytes(last as usize)?;
        tx.free_bytes(self.address())
    }
}

/// A walk through the elements of a [`HeapQueue`]. Elements that are pushed between two steps are seen; if one is
/// popped, a step may read memory that was freed.
#[derive(Debug)]
pub struct QueueWalk<T> {
    queue: HeapQueue<T>,
    segment: Option<usize>,
    position: u64,
}

impl<T: Pod> QueueWalk<T> {
    /// The next element; none at the end. O(1).
    ///
    /// # Errors
    /// [`Reads::Stop`].
    pub fn next<R: Reads>(&mut self, reads: &mut R) -> Result<Option<T>, R::Stop> {
        let segment = match self.segment {
            Some(segment) => segment,
            None => {
                let (segment, popped, _) = self.queue.begin(reads)?;
                self.position = popped % HeapQueue::<T>::ELEMENTS;
                *self.segment.insert(segment)
            }
        };
        if self.position >= reads.word(segment + AT_FILLED)? {
            return Ok(None);
        }
        let value = reads.read(HeapQueue::<T>::element(segment, self.position))?;
        self.position += 1;
        if self.position == HeapQueue::<T>::ELEMENTS {
            self.segment = Some(reads.word(segment + AT_NEXT)? as usize);
            self.position = 0;
        }
        Ok(Some(value))
    }
}
