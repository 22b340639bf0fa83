//! Ownership records: one word for each stripe of memory, which tells the last commit there or who owns it now.
//!
//! A record is either free, and holds the number of the last commit in the low bits but seven and, in these, an
//! *incarnation* (how many attempts have been undone on the stripe since); or it is owned, with the top bit set and
//! the owner's number below. Stripes share records when their addresses agree in the record's bits; that costs
//! conflicts, never correctness.
//!
//! 1. Bytes of a stripe change only while its record is owned (or while all other transactions are kept out).
//! 2. A record never returns to a value that it had before bytes of its stripe changed, not even if the change was
//!    undone: a commit gives it a larger number, an undone attempt the next incarnation. So bytes read between two
//!    equal loads of a free record are committed ones.
//! 3. A number was drawn while every record that it will be written to was owned.

use crate::sync::{AtomicU64, Ordering, Table as Memory, fence};

/// Set in a record that is owned.
const OWNED: u64 = 1 << 63;

/// Bits that count undone attempts.
const INCARNATION_BITS: u32 = 7;

/// The last incarnation.
const INCARNATION_MAX: u64 = (1 << INCARNATION_BITS) - 1;

/// The largest record that a snapshot taken at `number` accepts: compares with records as numbers, and owned ones are
/// larger than any.
pub(crate) const fn limit_of(number: u64) -> u64 {
    number << INCARNATION_BITS | INCARNATION_MAX
}

/// The record after the commit `number`.
pub(crate) const fn record_of(number: u64) -> u64 {
    number << INCARNATION_BITS
}

/// The number of the commit in a free record.
pub(crate) const fn number_of(record: u64) -> u64 {
    record >> INCARNATION_BITS
}

/// An owner's mark; marks of different numbers differ.
pub(crate) const fn mark_of(owner: u64) -> u64 {
    OWNED | owner
}

pub(crate) const fn is_owned(record: u64) -> bool {
    record & OWNED != 0
}

/// The record after an attempt on top of `record` was undone; none if the incarnations are used up.
pub(crate) const fn next_incarnation(record: u64) -> Option<u64> {
    if record & INCARNATION_MAX == INCARNATION_MAX { None } else { Some(record + 1) }
}

/// At most 2 to this power ownership records.
pub(crate) const RECORD_BITS_MAX: u32 = 28;
/// A stripe has 2 to one of these powers bytes.
pub(crate) const STRIPE_BITS: std::ops::RangeInclusive<u32> = 3..=12;

/// Records between the last one of a stripe and the one of all memory, so that it has cache lines of its own.
const APART: usize = 16;

/// The table of records.
#[derive(Debug)]
pub(crate) struct OwnershipTable {
    words: Memory,
    mask: usize,
    stripe_bits: u32,
}

impl OwnershipTable {
    /// A table of `2^record_bits` records for stripes of `2^stripe_bits` bytes.
    pub(crate) fn new(record_bits: u32, stripe_bits: u32) -> Self {
        assert!(record_bits <= RECORD_BITS_MAX, "at most 2^28 ownership records");
        assert!(STRIPE_BITS.contains(&stripe_bits), "a stripe has 8 to 4,096 bytes");
        let count = 1 << record_bits;
        Self { words: Memory::new(count + 2 * APART), mask: count - 1, stripe_bits }
    }

    /// The records, for one thread: every access looks them up, so each thread has their place at hand.
    pub(crate) fn records(&self) -> OwnershipRecords<'_> {
        OwnershipRecords { words: self.words.words(), mask: self.mask, stripe_bits: self.stripe_bits }
    }
}

/// The records of a [`OwnershipTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnershipRecords<'table> {
    words: &'table [AtomicU64],
    mask: usize,
    stripe_bits: u32,
}

impl<'table> OwnershipRecords<'table> {
    /// Which record is responsible for the word that holds `address`.
    #[inline(always)]
    pub(crate) fn index(&self, address: usize) -> u32 {
        ((address >> self.stripe_bits) & self.mask) as u32
    }

    /// The record that is responsible for all of memory, while there is at most one writer.
    #[inline(always)]
    pub(crate) fn of_all(&self) -> u32 {
        (self.mask + APART) as u32
    }

    /// A record by its index.
    #[inline(always)]
    pub(crate) fn at(&self, index: u32) -> &'table AtomicU64 {
        debug_assert!((index as usize) < self.words.len());
        // SAFETY: indexes come from `index`, whose mask keeps them inside the table, and from `of_all`, which adds
        // less than the table is longer by.
        unsafe { self.words.get_unchecked(index as usize) }
    }

    /// Takes a record that was seen free; false if it has changed since.
    #[inline(always)]
    pub(crate) fn own(&self, index: u32, seen: u64, mark: u64) -> bool {
        // Acquire pairs with the Release in `release`: we see the bytes of the owner before us.
        let owned = self.at(index).compare_exchange(seen, mark, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Our stores to the stripe come after the mark. Pairs with the Acquire fence in `unchanged`: a reader that
        // got a byte of ours sees the mark, or what came after it.
        fence(Ordering::Release);
        owned
    }

    /// Gives a record back.
    #[inline(always)]
    pub(crate) fn release(&self, index: u32, record: u64) {
        // Release pairs with the Acquire of a thread that sees the record free: it sees our bytes, too.
        self.at(index).store(record, Ordering::Release);
    }

    /// Whether a record is still as `seen`, after loads from its stripe.
    #[inline(always)]
    pub(crate) fn unchanged(&self, index: u32, seen: u64) -> bool {
        // Pairs with the Release fence in `own`.
        fence(Ordering::Acquire);
        self.at(index).load(Ordering::Relaxed) == seen
    }
}
