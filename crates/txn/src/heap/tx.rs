//! A transaction on a heap, as its body sees it.

use super::error::HeapError;
use super::executors::HeapTx;
use super::pointer::Ptr;
use super::roots::Root;
use super::space::GrowthRefusal;
use super::stop::{Cancel, Stop, Why};
use super::{roots, words::TxWords};
use crate::access::TxAccess;
use bytemuck::Pod;
use mangrove_arena::{ArenaHeap, BadFree};
use std::convert::Infallible;

/// A nested transaction that runs; undone unless it ended with an answer.
struct Nest<'a> {
    tx: HeapTx<'a>,
    keeps: bool,
}

impl<'a> Nest<'a> {
    fn begin(mut tx: HeapTx<'a>) -> Self {
        tx.begin_nested();
        Self { tx, keeps: false }
    }
}

impl Drop for Nest<'_> {
    fn drop(&mut self) {
        self.tx.end_nested(self.keeps);
    }
}

/// Alignment of every block.
const ALIGN_MIN: usize = 16;

/// A transaction on a [`Heap`](crate::Heap).
///
/// Every access may end with a [`Stop`]: return it from the body (`?`). A body may run several times, so it does
/// nothing that cannot be done again but by way of the transaction; each run sees one consistent state of the heap.
///
/// What is stored is [`Pod`]: plain data of any bit pattern, without references, boxes or padding
/// (`#[derive(Pod)]` of the crate bytemuck refuses the rest).
///
/// It cannot be kept after its transaction:
///
/// ```compile_fail,E0521
/// # use mangrove_txn::{Heap, HeapResult};
/// # fn keep(heap: &Heap) -> HeapResult<()> {
/// let mut kept = None;
/// heap.transaction(|tx| {
///     kept = Some(tx);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Panics
/// Accesses at an address that is not in the heap, which undoes the transaction.
pub struct Tx<'a> {
    pub(super) tx: HeapTx<'a>,
    pub(super) arena: &'a mut ArenaHeap,
    pub(super) refusal: &'a GrowthRefusal,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl Tx<'_> {
    /// The value at `pointer`. O(bytes).
    ///
    /// # Errors
    /// [`Stop`].
    #[inline(always)]
    pub fn read<T: Pod>(&mut self, pointer: Ptr<T>) -> Result<T, Stop> {
        let mut value = T::zeroed();
        if size_of::<T>() == 8 {
            // Of the access of a word, the rare cases alone are calls.
            let word = self.tx.read_word(pointer.address())?;
            bytemuck::bytes_of_mut(&mut value).copy_from_slice(&word.to_le_bytes());
            return Ok(value);
        }
        self.read_bytes(pointer.address(), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Writes the value at `pointer`. O(bytes).
    ///
    /// # Errors
    /// [`Stop`].
    #[inline(always)]
    pub fn write<T: Pod>(&mut self, pointer: Ptr<T>, value: T) -> Result<(), Stop> {
        if let Ok(word) = <[u8; 8]>::try_from(bytemuck::bytes_of(&value)) {
            // As in `read`.
            return Ok(self.tx.write_word(pointer.address(), u64::from_le_bytes(word))?);
        }
        self.write_bytes(pointer.address(), bytemuck::bytes_of(&value))
    }

    /// Fills `into` with the bytes from `address` on.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn read_bytes(&mut self, address: usize, into: &mut [u8]) -> Result<(), Stop> {
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *into) {
            *word = self.tx.read_word(address)?.to_le_bytes();
            return Ok(());
        }
        Ok(self.tx.read_bytes(address, into)?)
    }

    /// Writes `bytes` from `address` on. Bytes beside them are not stored to.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn write_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<(), Stop> {
        if let Ok(word) = <[u8; 8]>::try_from(bytes) {
            return Ok(self.tx.write_word(address, u64::from_le_bytes(word))?);
        }
        Ok(self.tx.write_bytes(address, bytes)?)
    }

    /// A new block that holds `value`. It exists once the transaction commits. O(bytes).
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::Full`] if the heap has no space, and with
    /// [`HeapError::NoSpace`] if its medium has none.
    pub fn alloc<T: Pod>(&mut self, value: T) -> Result<Ptr<T>, Stop> {
        let pointer = Ptr::at(self.alloc_bytes(size_of::<T>(), align_of::<T>())?);
        self.write(pointer, value)?;
        Ok(pointer)
    }

    /// A new block of `count` values, all zero. O(bytes).
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn alloc_array<T: Pod>(&mut self, count: usize) -> Result<Ptr<T>, Stop> {
        let Some(bytes) = count.checked_mul(size_of::<T>()) else {
            return Err(self.full(usize::MAX));
        };
        Ok(Ptr::at(self.alloc_bytes_zeroed(bytes, align_of::<T>())?))
    }

    /// A new block of at least `bytes` bytes of undefined content, at a multiple of `align` (a power of two) and of
    /// 16; its address. O(1).
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    ///
    /// # Panics
    /// When `align` is no power of two.
    pub fn alloc_bytes(&mut self, bytes: usize, align: usize) -> Result<usize, Stop> {
        assert!(align.is_power_of_two(), "an alignment is a power of two, and {align} is not");
        let at = self.arena.alloc_in(&mut TxWords(&mut self.tx), bytes, align.max(ALIGN_MIN))?;
        if at.is_null() { Err(self.full(bytes)) } else { Ok(at.addr()) }
    }

    /// As [`Tx::alloc_bytes`], with every byte zero. O(bytes).
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    ///
    /// # Panics
    /// When `align` is no power of two.
    pub fn alloc_bytes_zeroed(&mut self, bytes: usize, align: usize) -> Result<usize, Stop> {
        assert!(align.is_power_of_two(), "an alignment is a power of two, and {align} is not");
        let at = self.arena.alloc_zeroed_in(&mut TxWords(&mut self.tx), bytes, align.max(ALIGN_MIN))?;
        if at.is_null() { Err(self.full(bytes)) } else { Ok(at.addr()) }
    }

    /// Frees the block at `pointer`. Other transactions may get it once this one has committed; none that began
    /// before acts on what they write there. O(1) up to 16 KiB.
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::BadFree`] if no block begins there.
    #[inline]
    pub fn free<T>(&mut self, pointer: Ptr<T>) -> Result<(), Stop> {
        self.free_bytes(pointer.address())
    }

    /// As [`Tx::free`], by the address.
    ///
    /// # Errors
    /// As there.
    pub fn free_bytes(&mut self, address: usize) -> Result<(), Stop> {
        let freed = self.arena.free_in(&mut TxWords(&mut self.tx), address)?;
        freed.map_err(|bad| HeapError::BadFree { address, twice: bad == BadFree::Double }.into())
    }

    /// Bytes that may be used of the block at `address`; `None` if no block in use begins there.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn usable_bytes(&mut self, address: usize) -> Result<Option<usize>, Stop> {
        Ok(self.arena.usable_bytes_in(&mut TxWords(&mut self.tx), address)?)
    }

    /// What the root `name` points to, if there is such a root. O(roots).
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::Root`] if the root was set with a type of another size.
    pub fn root<T>(&mut self, name: &str) -> Result<Option<Ptr<T>>, Stop> {
        Ok(self.root_bytes(name, size_of::<T>() as u64)?.map(Ptr::at))
    }

    /// As [`Tx::root`], by the bytes of what it points to: the address.
    ///
    /// # Errors
    /// As there.
    pub fn root_bytes(&mut self, name: &str, bytes: u64) -> Result<Option<usize>, Stop> {
        let base = self.arena.base_address();
        let Some(found) = roots::find(&mut self.tx, base, name)? else { return Ok(None) };
        if found.size != bytes {
            return Err(HeapError::Root {
                what: format!(
                    "the root {name:?} was set with a type of {} bytes, not of {bytes}; use the program that set it",
                    found.size
                ),
            }
            .into());
        }
        Ok(Some(found.pointer))
    }

    /// Every root. O(1).
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::Damaged`] if a slot cannot be a root's.
    pub fn roots(&mut self) -> Result<Vec<Root>, Stop> {
        let base = self.arena.base_address();
        roots::all(&mut self.tx, base)
    }

    /// Makes the root `name` point to `pointer`. O(roots).
    ///
    /// # Errors
    /// [`Stop`]; the transaction fails with [`HeapError::Root`] if the name is empty or too long, or there are
    /// [`ROOT_COUNT_MAX`](crate::ROOT_COUNT_MAX) roots.
    pub fn set_root<T>(&mut self, name: &str, pointer: Ptr<T>) -> Result<(), Stop> {
        self.set_root_bytes(name, pointer.address(), size_of::<T>() as u64)
    }

    /// As [`Tx::set_root`], by the address and the bytes of what lies there.
    ///
    /// # Errors
    /// As there.
    pub fn set_root_bytes(&mut self, name: &str, address: usize, bytes: u64) -> Result<(), Stop> {
        let base = self.arena.base_address();
        roots::set(&mut self.tx, base, name, address, bytes)
    }

    /// Removes the root `name`, and returns whether there was one. What it pointed to stays.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn remove_root(&mut self, name: &str) -> Result<bool, Stop> {
        let base = self.arena.base_address();
        roots::remove(&mut self.tx, base, name)
    }

    /// Runs `body` as a nested transaction: if it ends without a result, what it wrote, allocated and freed is
    /// undone, and nothing else. The caller may continue after [`Cancel::Abort`]; it passes a [`Stop`] on.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn nested<T, E>(
        &mut self,
        body: impl FnOnce(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> Result<T, Cancel<E>> {
        let Self { arena, refusal, .. } = self;
        let mut nest = Nest::begin(self.tx.again());
        let answer = body(&mut Tx { tx: nest.tx.again(), arena, refusal });
        nest.keeps = answer.is_ok();
        answer
    }

    /// Runs `first`; if it asks for a [`Tx::retry`], undoes it and runs `second` instead. If that asks for it, too, the
    /// transaction waits until something has changed that either of them read, and runs again.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn or_else<T>(
        &mut self,
        first: impl FnOnce(&mut Tx<'_>) -> Result<T, Stop>,
        second: impl FnOnce(&mut Tx<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        match self.whole(first) {
            Err(Stop(Why::Retry)) => second(self),
            answer => answer,
        }
    }

    /// Runs `body`, which changes a structure in several steps. If it ends with a [`Stop`], what it wrote is undone: a
    /// caller that continues and commits, for instance where there was no space, commits nothing half done.
    pub(crate) fn whole<T>(&mut self, body: impl FnOnce(&mut Tx<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        match self.nested(|tx| body(tx).map_err(Cancel::<Infallible>::Stop)) {
            Err(Cancel::Stop(stop)) => Err(stop),
            Ok(answer) => Ok(answer),
        }
    }

    /// Undoes the transaction and runs it again when something that it read has changed: `return Err(tx.retry())`.
    pub fn retry(&self) -> Stop {
        Stop(Why::Retry)
    }

    /// Asks that the commit return only when no other transaction can still read what this one unlinks, or undo a
    /// write to it: from then on plain loads and stores may use that memory.
    pub fn privatise(&mut self) {
        self.tx.privatise();
    }

    #[cold]
    fn full(&self, bytes: usize) -> Stop {
        self.refusal.error(bytes as u64).into()
    }
}
