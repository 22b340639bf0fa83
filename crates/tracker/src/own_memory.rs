//! Memory that belongs to the trackers, and where it is: a verifier must not take it for the program's.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Mappings at most; what does not fit is mapped all the same, but a verifier would report it.
const MAPPING_COUNT_MAX: usize = 4096;

struct Slot {
    addr: AtomicUsize,
    len: AtomicUsize,
}

static MAPPINGS: [Slot; MAPPING_COUNT_MAX] =
    [const { Slot { addr: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; MAPPING_COUNT_MAX];

/// Notes a mapping as ours.
pub(crate) fn note(addr: usize, len: usize) {
    for slot in &MAPPINGS {
        if slot.addr.load(Relaxed) == 0 && slot.addr.compare_exchange(0, addr, Relaxed, Relaxed).is_ok() {
            slot.len.store(len, Relaxed);
            return;
        }
    }
}

fn forget(addr: usize) {
    if let Some(slot) = MAPPINGS.iter().find(|slot| slot.addr.load(Relaxed) == addr) {
        slot.len.store(0, Relaxed);
        slot.addr.store(0, Relaxed);
    }
}

/// All mappings of the trackers: (address, length).
pub(crate) fn each(mut f: impl FnMut(usize, usize)) {
    for slot in &MAPPINGS {
        let (addr, len) = (slot.addr.load(Relaxed), slot.len.load(Relaxed));
        if addr != 0 && len != 0 {
            f(addr, len);
        }
    }
}

/// Maps `len` bytes of zeros.
pub(crate) fn map(len: usize) -> Option<usize> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    if ptr == libc::MAP_FAILED {
        return None;
    }
    note(ptr.expose_provenance(), len);
    Some(ptr.expose_provenance())
}

/// Reserves `len` bytes of address space, zeros when touched, that no neighbour merges with.
pub(crate) fn reserve(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    if ptr == libc::MAP_FAILED {
        return None;
    }
    note(ptr.expose_provenance(), len);
    Some(ptr.expose_provenance())
}

/// Grows a mapping that `map` made; it may move.
pub(crate) fn remap(addr: usize, old_len: usize, len: usize) -> Option<usize> {
    // SAFETY: our own mapping; the one owner holds no reference into it now.
    let ptr = unsafe {
        libc::mremap(std::ptr::with_exposed_provenance_mut(addr), old_len, len, libc::MREMAP_MAYMOVE)
    };
    if ptr == libc::MAP_FAILED {
        return None;
    }
    forget(addr);
    note(ptr.expose_provenance(), len);
    Some(ptr.expose_provenance())
}

/// Gives back what `map` or `remap` returned.
pub(crate) fn unmap(addr: usize, len: usize) {
    forget(addr);
    // SAFETY: our own mapping, and nobody refers to it any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(addr), len) };
}

/// The variable that lists them, itself.
pub(crate) fn variables() -> [(usize, usize); 1] {
    [(std::ptr::from_ref(&MAPPINGS).addr(), size_of_val(&MAPPINGS))]
}
