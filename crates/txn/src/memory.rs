//! The range of addresses that transactions share, and accesses to it of 1 to 8 bytes.

use crate::sync::{
    AtomicU64, Ordering, load_u8, load_u16, load_u32, load_u64, store_u8, store_u16, store_u32, store_u64,
};

/// Bytes of the longest access that one ownership record covers: an aligned word.
pub(crate) const WORD_BYTES: usize = 8;

/// A range of addresses that transactions read and write.
#[derive(Clone, Copy, Debug)]
pub struct TxMemory {
    base: *mut u8,
    /// The offset of the last whole word, in bytes; of a range that grows, when this was last looked at.
    last: usize,
    /// Of a range that grows, the bytes that may be used now; otherwise null.
    grown: *const AtomicU64,
    /// Of a range that is itself durable, who takes the stores.
    in_place: Option<*const dyn InPlaceStores>,
}

/// Takes stores to a range that is itself durable: a transaction that has the lock must be undone after a crash.
pub(crate) trait InPlaceStores: Sync {
    /// Makes it durable that `size` bytes at `at` held `old`, then stores the low bytes of `value` there. False if
    /// there is no space for that, or the process is a child of fork; then nothing was stored. The caller has the lock
    /// that keeps all other transactions out.
    ///
    /// # Safety
    /// `at` came from [`TxMemory::at`] with this size.
    #[must_use]
    unsafe fn write(&self, at: *mut u8, size: usize, old: u64, value: u64) -> bool;

    /// These stores, each an address and a size, have become visible in one step.
    fn stored(&self, stores: &mut dyn Iterator<Item = (usize, usize)>);

    /// Whether the range is this process's: a child of fork shares it with its parent, and stores nothing there.
    fn are_ours(&self) -> bool;
}

// SAFETY: a `TxMemory` is an address and a length; every access goes through atomics, and the caller that made it
// promised that the range stays valid.
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
        Self { base, last: bytes - WORD_BYTES, grown: std::ptr::null(), in_place: None }
    }

    /// A range at `base` that is itself durable. Executors that isolate by hardware or by one lock store to it in
    /// place.
    ///
    /// # Safety
    /// As for [`TxMemory::new`]; `stores` stays valid for as long.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub(crate) unsafe fn in_place(base: *mut u8, bytes: usize, stores: *const dyn InPlaceStores) -> Self {
        // SAFETY: the caller's promises.
        let memory = unsafe { Self::new(base, bytes) };
        Self { in_place: Some(stores), ..memory }
    }

    /// Who takes the stores of a range that is itself durable.
    #[inline(always)]
    pub(crate) fn stores(&self) -> Option<&dyn InPlaceStores> {
        // SAFETY: valid, as the caller of `in_place` promised.
        self.in_place.map(|stores| unsafe { &*stores })
    }

    /// Whether what was stored may be undone: not in a child of fork that shares a durable range with its parent.
    #[inline]
    pub(crate) fn may_undo(&self) -> bool {
        self.stores().is_none_or(|stores| stores.are_ours())
    }

    /// A range at `base` that grows: `grown` holds the bytes that may be used, and only gets larger.
    ///
    /// # Safety
    /// As for [`TxMemory::new`], for as many bytes as `grown` says at any time; `grown` stays valid for as long.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub unsafe fn growing(base: *mut u8, grown: *const AtomicU64) -> Self {
        // SAFETY: the caller's promises.
        let memory = unsafe { Self::new(base, (*grown).load(Ordering::Relaxed) as usize) };
        Self { grown, ..memory }
    }

    /// Looks how far the range has grown.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        if !self.grown.is_null() {
            self.last = self.bytes_now() - WORD_BYTES;
        }
    }

    fn bytes_now(&self) -> usize {
        if self.grown.is_null() {
            return self.bytes();
        }
        // SAFETY: valid, as the caller of `growing` promised. Relaxed: the thread that gave us an address in the new
        // part has grown it before.
        unsafe { (*self.grown).load(Ordering::Relaxed) as usize }
    }

    /// The first address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base.expose_provenance()
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.last + WORD_BYTES
    }

    /// The pointer to `size` bytes at `address`, all of them inside an aligned word (`size` is 1 to 8).
    ///
    /// # Panics
    /// When a byte lies outside the range: the caller's pointer is wrong.
    #[inline(always)]
    pub(crate) fn at(&self, address: usize, size: usize) -> *mut u8 {
        let offset = address.wrapping_sub(self.base.addr());
        if offset > self.last + (WORD_BYTES - size) {
            self.must_hold(address, size);
        }
        // SAFETY: the offset lies inside the range.
        unsafe { self.base.add(offset) }
    }

    /// Where the offsets end at which a whole word, and every shorter access, lies in the range as it was last looked
    /// at.
    #[inline(always)]
    pub(crate) fn end_of_words(&self) -> usize {
        self.last + 1
    }

    /// The pointer to `address` if its offset is smaller than `end`: less than [`TxMemory::at`] asks, and one
    /// comparison with a number that the caller chose beforehand.
    ///
    /// # Safety
    /// `end` is at most [`TxMemory::end_of_words`].
    #[inline(always)]
    pub(crate) unsafe fn at_before(&self, end: usize, address: usize) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.base.addr());
        // SAFETY: 8 bytes from the offset on lie inside the range, as the caller promises.
        (offset < end).then(|| unsafe { self.base.add(offset) })
    }

    /// The word at `address`, as a little-endian number.
    ///
    /// # Safety
    /// [`TxMemory::at`] has accepted the address for 8 bytes.
    #[inline(always)]
    pub(crate) unsafe fn load_word(&self, address: usize) -> u64 {
        // SAFETY: inside the range, and 8 bytes inside an aligned word are that word.
        u64::from_le(unsafe { load_u64(self.base.add(address.wrapping_sub(self.base.addr())).cast()) })
    }

    /// Panics unless the range has grown over these bytes meanwhile.
    #[cold]
    #[inline(never)]
    fn must_hold(&self, address: usize, size: usize) {
        let (base, bytes) = (self.base.addr(), self.bytes_now());
        assert!(
            address.wrapping_sub(base) <= bytes - size,
            "{size} bytes at {address:#x} are not in the transactions' memory, {base:#x} and {bytes} bytes from there"
        );
    }
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
