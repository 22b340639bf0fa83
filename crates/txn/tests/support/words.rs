//! Memory for transactions, and numbers that only look random.

use crate::api::TxMemory;
use std::cell::UnsafeCell;

/// Zeroed memory that transactions may use.
pub(crate) struct Words(Box<[UnsafeCell<u64>]>);

// SAFETY: only transactions and atomic accesses touch the words while threads share them.
unsafe impl Sync for Words {}
// SAFETY: as above.
unsafe impl Send for Words {}

impl Words {
    /// So many words, all zero.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    /// The words as an executor's memory; they must outlive it.
    pub(crate) fn memory(&self) -> TxMemory {
        // SAFETY: every use in the tests keeps the words longer than the executor.
        unsafe { TxMemory::new(self.0.as_ptr().cast_mut().cast(), self.0.len() * 8) }
    }

    /// The address of a word.
    pub(crate) fn at(&self, index: usize) -> usize {
        self.0[index].get().expose_provenance()
    }

    /// A word, while no transaction writes it.
    pub(crate) fn get(&self, index: usize) -> u64 {
        // SAFETY: atomic, and in bounds.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.0[index].get()) }
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Stores to a word that no transaction can reach.
    pub(crate) fn set(&self, index: usize, value: u64) {
        // SAFETY: as above.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.0[index].get()) }
            .store(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// A byte, while no transaction writes it.
    pub(crate) fn byte(&self, index: usize) -> &std::sync::atomic::AtomicU8 {
        assert!(index < self.0.len() * 8);
        // SAFETY: atomic, and in bounds.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(self.0.as_ptr().cast_mut().cast::<u8>().add(index)) }
    }
}

/// xorshift64 (Marsaglia, 2003).
pub(crate) struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize * bound) >> 32
    }
}
