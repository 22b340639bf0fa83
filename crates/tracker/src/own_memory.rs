//! Memory that belongs to the trackers, and where it lies.
//!
//! One reserved region holds all of it, for three reasons. Trackers work in the middle of a program's `malloc` and
//! must not enter it again. A verifier must be able to tell it from the program's memory. And the program's own
//! mappings come to lie where they would lie natively.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Sizes of the region to try, largest first.
const REGION_BYTES: [usize; 4] = [64 << 30, 8 << 30, 1 << 30, LEAST_BYTES];
/// Address space that the process must allow.
pub(crate) const LEAST_BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
const CLASS_COUNT: usize = 64;
/// Mappings outside of the region: the code cache and the low region.
const OUTSIDE_COUNT_MAX: usize = 64;

/// Pieces of the process heap that libraries used by the trackers keep.
const HEAP_COUNT_MAX: usize = 16;

/// All variables of this module, so that a verifier can skip them.
struct Variables {
    locked: AtomicBool,
    base: AtomicUsize,
    next: AtomicUsize,
    end: AtomicUsize,
    /// Heads of the lists of free pieces, by the logarithm of their size. The first word of a piece is the link.
    free: [AtomicUsize; CLASS_COUNT],
    outside: [(AtomicUsize, AtomicUsize); OUTSIDE_COUNT_MAX],
    heap: [(AtomicUsize, AtomicUsize); HEAP_COUNT_MAX],
}

static VARIABLES: Variables = Variables {
    locked: AtomicBool::new(false),
    base: AtomicUsize::new(0),
    next: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    free: [const { AtomicUsize::new(0) }; CLASS_COUNT],
    outside: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; OUTSIDE_COUNT_MAX],
    heap: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; HEAP_COUNT_MAX],
};

/// Runs `f` under the module's lock, which is held briefly and never across a call into the program.
fn locked<T>(f: impl FnOnce() -> T) -> T {
    // Acquire and release pair with each other: the next holder finds the lists consistent.
    while VARIABLES.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::hint::spin_loop();
    }
    let result = f();
    VARIABLES.locked.store(false, Ordering::Release);
    result
}

/// Bytes that a request of `len` gets: a power of two, whole pages.
pub(crate) fn size_of_piece(len: usize) -> usize {
    len.max(PAGE_BYTES).next_power_of_two()
}

/// Reserves the region, before the program uses up the address space. False when there is too little.
pub(crate) fn prepare() -> bool {
    locked(|| {
        if VARIABLES.base.load(Ordering::Relaxed) == 0 {
            reserve();
        }
        VARIABLES.base.load(Ordering::Relaxed) != 0
    })
}

/// Bytes of the region.
pub(crate) fn region_bytes() -> usize {
    VARIABLES.end.load(Ordering::Relaxed) - VARIABLES.base.load(Ordering::Relaxed)
}

/// At least `len` zeroed bytes, page-aligned.
pub(crate) fn map(len: usize) -> Option<usize> {
    let bytes = size_of_piece(len);
    let class = bytes.trailing_zeros() as usize;
    locked(|| {
        let head = VARIABLES.free[class].load(Ordering::Relaxed);
        if head != 0 {
            let link: *mut usize = std::ptr::with_exposed_provenance_mut(head);
            // SAFETY: a free piece of the region; its first word is its link, and the rest was zeroed when it was
            // freed.
            unsafe {
                VARIABLES.free[class].store(link.read(), Ordering::Relaxed);
                link.write(0);
            }
            return Some(head);
        }
        if VARIABLES.base.load(Ordering::Relaxed) == 0 {
            reserve();
        }
        let at = VARIABLES.next.load(Ordering::Relaxed);
        if VARIABLES.end.load(Ordering::Relaxed) - at < bytes {
            return None;
        }
        VARIABLES.next.store(at + bytes, Ordering::Relaxed);
        Some(at)
    })
}

/// Gives back what `map` returned for `len`.
pub(crate) fn unmap(addr: usize, len: usize) {
    let bytes = size_of_piece(len);
    let class = bytes.trailing_zeros() as usize;
    let piece: *mut u8 = std::ptr::with_exposed_provenance_mut(addr);
    // SAFETY: the caller's piece, to which nothing refers any more. Its pages become zeros again; locked ones
    // (mlockall) do not by themselves.
    unsafe {
        if libc::madvise(piece.cast(), bytes, libc::MADV_DONTNEED) != 0 {
            piece.write_bytes(0, bytes);
        }
    }
    locked(|| {
        let head = VARIABLES.free[class].load(Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { std::ptr::with_exposed_provenance_mut::<usize>(addr).write(head) };
        VARIABLES.free[class].store(addr, Ordering::Relaxed);
    });
}

/// The sizes to try. A leak checker searches the whole region, 20 s of 64 GiB: what is built for tests takes less for
/// programs that run under one.
fn sizes() -> &'static [usize] {
    // SAFETY: the tests that set this variable do so before the program begins.
    let is_checked =
        cfg!(debug_assertions) && unsafe { !libc::getenv(c"MANGROVE_TEST_QUICK".as_ptr()).is_null() };
    if is_checked { &REGION_BYTES[2..] } else { &REGION_BYTES }
}

fn reserve() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    for &len in sizes() {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let ptr = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if ptr != libc::MAP_FAILED {
            let base = ptr.expose_provenance();
            VARIABLES.base.store(base, Ordering::Relaxed);
            VARIABLES.next.store(base, Ordering::Relaxed);
            VARIABLES.end.store(base + len, Ordering::Relaxed);
            return;
        }
    }
}

/// Notes a mapping outside the region.
pub(crate) fn note(addr: usize, len: usize) {
    if let Some(slot) = VARIABLES.outside.iter().find(|slot| slot.0.load(Ordering::Relaxed) == 0) {
        slot.1.store(len, Ordering::Relaxed);
        slot.0.store(addr, Ordering::Relaxed);
    }
}

/// Notes a piece of the process heap that belongs to the trackers all the same.
pub(crate) fn note_heap(addr: usize, len: usize) {
    let free = |slot: &&(AtomicUsize, AtomicUsize)| {
        let at = slot.0.load(Ordering::Relaxed);
        at == 0 || at == addr
    };
    if let Some(slot) = VARIABLES.heap.iter().find(free) {
        slot.1.fetch_max(len, Ordering::Relaxed);
        slot.0.store(addr, Ordering::Relaxed);
    }
}

/// True if the byte lies in such a piece.
pub(crate) fn in_heap(byte: usize) -> bool {
    VARIABLES.heap.iter().any(|slot| {
        let addr = slot.0.load(Ordering::Relaxed);
        (addr..addr + slot.1.load(Ordering::Relaxed)).contains(&byte)
    })
}

/// All memory of the trackers: (address, length).
pub(crate) fn each(mut f: impl FnMut(usize, usize)) {
    let base = VARIABLES.base.load(Ordering::Relaxed);
    f(base, VARIABLES.end.load(Ordering::Relaxed) - base);
    for slot in &VARIABLES.outside {
        let (addr, len) = (slot.0.load(Ordering::Relaxed), slot.1.load(Ordering::Relaxed));
        if addr != 0 {
            f(addr, len);
        }
    }
}

/// All memory of the trackers, for who tells it from the program's.
pub fn own_memory_spans(mut each_span: impl FnMut(std::ops::Range<usize>)) {
    each(|addr, len| each_span(addr..addr + len));
}

/// Where this module's variables lie.
pub(crate) fn variables() -> [(usize, usize); 1] {
    [(std::ptr::from_ref(&VARIABLES).addr(), size_of_val(&VARIABLES))]
}

/// In a forked child: the thread that held the lock does not exist there.
pub(crate) fn forget_lock() {
    VARIABLES.locked.store(false, Ordering::Relaxed);
}
