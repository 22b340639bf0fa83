//! What look-ups read through: a transaction, or plain loads.

use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;
use std::convert::Infallible;

/// What a look-up reads through: a [`Tx`], or [`PlainReads`].
pub trait Reads {
    /// Why a read did not take place.
    type Stop;

    /// Fills `into` with the bytes from `address` on.
    ///
    /// # Errors
    /// [`Reads::Stop`].
    fn read_bytes(&mut self, address: usize, into: &mut [u8]) -> Result<(), Self::Stop>;

    /// The value at `pointer`.
    ///
    /// # Errors
    /// [`Reads::Stop`].
    #[inline(always)]
    fn read<T: Pod>(&mut self, pointer: Ptr<T>) -> Result<T, Self::Stop> {
        let mut value = T::zeroed();
        self.read_bytes(pointer.address(), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// The word at `address`.
    ///
    /// # Errors
    /// [`Reads::Stop`].
    #[inline(always)]
    fn word(&mut self, address: usize) -> Result<u64, Self::Stop> {
        self.read(Ptr::at(address))
    }
}

impl Reads for Tx<'_> {
    type Stop = Stop;

    #[inline(always)]
    fn read_bytes(&mut self, address: usize, into: &mut [u8]) -> Result<(), Stop> {
        Tx::read_bytes(self, address, into)
    }

    #[inline(always)]
    fn read<T: Pod>(&mut self, pointer: Ptr<T>) -> Result<T, Stop> {
        Tx::read(self, pointer)
    }
}

/// Plain loads, without a transaction: for a program that knows that no transaction writes meanwhile, for instance
/// before it starts its threads.
#[derive(Debug)]
pub struct PlainReads(());

impl PlainReads {
    /// Plain loads.
    ///
    /// # Safety
    /// While it is used, its heap stays open and no transaction on it writes, and every handle that it is used
    /// with belongs to that heap and to a collection that was not freed.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Reads for PlainReads {
    type Stop = Infallible;

    #[inline(always)]
    fn read_bytes(&mut self, address: usize, into: &mut [u8]) -> Result<(), Infallible> {
        // SAFETY: the address was found from a handle of an open heap, whose bytes no thread writes: the promise of
        // `new`. The heap's base was exposed when it was opened.
        unsafe {
            let from: *const u8 = std::ptr::with_exposed_provenance(address);
            from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
        }
        Ok(())
    }
}
