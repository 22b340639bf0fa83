//! The range of addresses that transactions share, and accesses to it of 1 to 8 bytes.

use crate::sync::{load_u8, load_u16, load_u32, load_u64, store_u8, store_u16, store_u32, store_u64};

/// Bytes of the longest access that one ownership record covers: an aligned word.
pub(crate) const WORD_BYTES: usize = 8;

/// A range of addresses that transactions read and write.
#[derive(Clone, Copy, Debug)]
pub struct TxMemory {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a `TxMemory` is an address and a length; every access goes through atomics, and whoever made it promised
// that the range stays valid.
unsafe impl Send for TxMemory {}
// SAFETY: as above.
unsafe impl Sync for TxMemory {}

impl TxMemory {
    /// The range of `bytes` bytes at `base`.
    ///
    /// # Safety
    /// The range stays mapped and writable while an executor uses it. While a transaction may reach a byte, no other
    /// code writes it, and no other code reads it but by atomic loads; neighbours of such a byte, even in its word,
    /// are free.
    ///
    /// # Panics
    /// When the base is not aligned to 8 bytes, or the range is shorter than one word.
    #[must_use]
    pub unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        assert!(
            base.addr().is_multiple_of(WORD_BYTES),
            "the base of transactional memory is aligned to 8 bytes"
        );
        assert!(bytes >= WORD_BYTES, "transactional memory holds at least one word");
        Self { base, bytes }
    }

    /// The first address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base.expose_provenance()
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pointer to `size` bytes at `address`, all of them inside an aligned word (`size` is 1 to 8).
    ///
    /// # Panics
    /// When a byte lies outside the range: the caller's pointer is wrong.
    #[inline(always)]
    pub(crate) fn at(&self, address: usize, size: usize) -> *mut u8 {
        let offset = address.wrapping_sub(self.base.addr());
        if offset > self.bytes - size {
            outside(address, size, self);
        }
        // SAFETY: the offset lies inside the range.
        unsafe { self.base.add(offset) }
    }
}

#[cold]
#[inline(never)]
fn outside(address: usize, size: usize, memory: &TxMemory) -> ! {
    panic!(
        "{size} bytes at {address:#x} are not in the transactions' memory, {:#x} and {} bytes from there",
        memory.base.addr(),
        memory.bytes
    );
}

/// Reads `size` bytes as a little-endian number.
///
/// # Safety
/// `at` came from [`TxMemory::at`] with this size.
#[inline(always)]
pub(crate) unsafe fn load(at: *mut u8, size: usize) -> u64 {
    let address = at.addr();
    // SAFETY: inside the range, and aligned where a type of more than a byte is used.
    unsafe {
        match size {
            8 if address.is_multiple_of(8) => u64::from_le(load_u64(at.cast())),
            4 if address.is_multiple_of(4) => u64::from(u32::from_le(load_u32(at.cast()))),
            2 if address.is_multiple_of(2) => u64::from(u16::from_le(load_u16(at.cast()))),
            1 => u64::from(load_u8(at)),
            _ => (0..size).fold(0, |value, i| value | u64::from(load_u8(at.add(i))) << (8 * i)),
        }
    }
}

/// Writes the low `size` bytes of `value`, and no byte beside them.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub(crate) unsafe fn store(at: *mut u8, size: usize, value: u64) {
    let address = at.addr();
    // SAFETY: inside the range, and aligned where a type of more than a byte is used.
    unsafe {
        match size {
            8 if address.is_multiple_of(8) => store_u64(at.cast(), value.to_le()),
            4 if address.is_multiple_of(4) => store_u32(at.cast(), (value as u32).to_le()),
            2 if address.is_multiple_of(2) => store_u16(at.cast(), (value as u16).to_le()),
            1 => store_u8(at, value as u8),
            _ => (0..size).for_each(|i| store_u8(at.add(i), (value >> (8 * i)) as u8)),
        }
    }
}
