//! The process's own heap: the malloc that comes after this library's in the search order, usually that of libc.
//!
//! Invariant: the search for that malloc allocates from a small buffer of this file, never from the heap that it
//! looks for.

use mangrove_sys::thread_mark;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAMES: [&CStr; 8] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"memalign",
    c"posix_memalign",
    c"aligned_alloc",
    c"malloc_usable_size",
];
const MALLOC: usize = 0;
const CALLOC: usize = 1;
const REALLOC: usize = 2;
const FREE: usize = 3;
const MEMALIGN: usize = 4;
const POSIX_MEMALIGN: usize = 5;
const ALIGNED_ALLOC: usize = 6;
const USABLE: usize = 7;

/// The next functions in the search order, 0 before they were looked for.
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
/// The thread that looks for them.
static FINDER: AtomicUsize = AtomicUsize::new(0);

/// Memory for what the dynamic linker allocates while it looks the functions up. Parts are never
/// reused, so freeing one does nothing.
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: parts are handed out once each.
unsafe impl Sync for Early {}
const EARLY_BYTES: usize = 32 << 10;
static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// A part of the early buffer; zero. Its length stands before it.
#[cold]
fn early(bytes: usize, align: usize) -> *mut c_void {
    let base = EARLY.0.get() as usize;
    let mut used = EARLY_USED.load(Ordering::Relaxed);
    loop {
        let at = (base + used + 16).next_multiple_of(align.max(16));
        let end = match at.checked_add(bytes) {
            Some(end) if end <= base + EARLY_BYTES => end - base,
            _ => return null_mut(),
        };
        match EARLY_USED.compare_exchange(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: since the exchange `at - 16 .. at + bytes` of the buffer belongs to this call.
                unsafe { ((at - 16) as *mut usize).write(bytes) };
                return at as *mut c_void;
            }
            Err(now) => used = now,
        }
    }
}

#[inline]
fn is_early(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// # Safety
/// `block` is of the early buffer.
unsafe fn early_len(block: *const c_void) -> usize {
    // SAFETY: put there by `early`.
    unsafe { (block as *const usize).sub(2).read() }
}

/// The next function in the search order, or 0 for the thread that is looking for it.
#[inline]
fn next(which: usize) -> usize {
    // Acquire, with the Release in `find`.
    let found = NEXT[which].load(Ordering::Acquire);
    if found != 0 { found } else { find(which) }
}

#[cold]
fn find(which: usize) -> usize {
    let me = thread_mark();
    match FINDER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        Err(finder) if finder == me => return 0,
        Err(_) => {
            while NEXT[which].load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            return NEXT[which].load(Ordering::Acquire);
        }
        Ok(_) => {}
    }
    for (place, name) in NEXT.iter().zip(NAMES) {
        // SAFETY: a NUL-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        if found == 0 {
            const ORDER: &[u8] =
                b"mangrove: no malloc comes after that of libmangrove_app; link it before libc\n";
            const STATIC: &[u8] =
                b"mangrove: this program has libc in itself, so no second malloc can be found; link it dynamically\n";
            // SAFETY: only reads a value. No dynamic linker loaded a program that was linked statically.
            let text = if unsafe { libc::getauxval(libc::AT_BASE) } == 0 { STATIC } else { ORDER };
            // SAFETY: writes a constant.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
            std::process::abort();
        }
        place.store(found, Ordering::Release);
    }
    // FINDER stays set: everything is found now.
    NEXT[which].load(Ordering::Relaxed)
}

/// The address of the next malloc in the search order.
pub(crate) fn next_malloc() -> *const c_void {
    next(MALLOC) as *const c_void
}

/// The addresses of those that give memory.
pub(crate) fn makers() -> [usize; 6] {
    [MALLOC, CALLOC, REALLOC, MEMALIGN, POSIX_MEMALIGN, ALIGNED_ALLOC].map(next)
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Two = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Usable = unsafe extern "C" fn(*mut c_void) -> usize;

// SAFETY (all of the calls below): the addresses are those of the functions of these names, which have
// these signatures in every C library.

#[inline]
pub(crate) fn malloc(bytes: usize) -> *mut c_void {
    match next(MALLOC) {
        0 => early(bytes, 16),
        // SAFETY: see above.
        next => unsafe { transmute::<usize, Malloc>(next)(bytes) },
    }
}

#[inline]
pub(crate) fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match next(CALLOC) {
        0 => count.checked_mul(bytes).map_or(null_mut(), |all| early(all, 16)),
        // SAFETY: see above.
        next => unsafe { transmute::<usize, Two>(next)(count, bytes) },
    }
}

/// # Safety
/// As realloc(3), for a block of this heap.
#[inline]
pub(crate) unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if is_early(block) {
        let new = malloc(bytes);
        if !new.is_null() {
            // SAFETY: an early block's bytes, into a new one of as many.
            unsafe {
                std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), early_len(block).min(bytes))
            };
        }
        return new;
    }
    match next(REALLOC) {
        0 => early(bytes, 16),
        // SAFETY: see above; the caller's contract.
        next => unsafe { transmute::<usize, Realloc>(next)(block, bytes) },
    }
}

/// # Safety
/// As free(3), for a block of this heap.
#[inline]
pub(crate) unsafe fn free(block: *mut c_void) {
    if is_early(block) {
        return;
    }
    match next(FREE) {
        0 => {}
        // SAFETY: see above; the caller's contract.
        next => unsafe { transmute::<usize, Free>(next)(block) },
    }
}

pub(crate) fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match next(MEMALIGN) {
        0 => early(bytes, align),
        // SAFETY: see above.
        next => unsafe { transmute::<usize, Two>(next)(align, bytes) },
    }
}

pub(crate) fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    match next(ALIGNED_ALLOC) {
        0 => early(bytes, align),
        // SAFETY: see above.
        next => unsafe { transmute::<usize, Two>(next)(align, bytes) },
    }
}

/// # Safety
/// As posix_memalign(3).
pub(crate) unsafe fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    match next(POSIX_MEMALIGN) {
        0 => {
            // SAFETY: the caller's contract.
            unsafe { *out = early(bytes, align) };
            0
        }
        // SAFETY: see above; the caller's contract.
        next => unsafe { transmute::<usize, PosixMemalign>(next)(out, align, bytes) },
    }
}

/// # Safety
/// As malloc_usable_size(3), for a block of this heap.
pub(crate) unsafe fn usable(block: *mut c_void) -> usize {
    if is_early(block) {
        // SAFETY: an early block.
        return unsafe { early_len(block) };
    }
    match next(USABLE) {
        0 => 0,
        // SAFETY: see above; the caller's contract.
        next => unsafe { transmute::<usize, Usable>(next)(block) },
    }
}

/// The process's heap for this library's own Rust code, whichever thread runs a command. A command may reach that code
/// by a call of this library. A tracker must not translate the heap then, or what the heap asks of the system would be
/// a request of the command: memory of the state, or refused. So the four functions below are leaves.
pub(crate) struct ProcessHeap;

const ALIGN_MIN: usize = 16;

/// The functions of this heap that a tracker runs natively. What they write belongs to the process.
pub(crate) fn leaves() -> [usize; 4] {
    [
        own_alloc as *const () as usize,
        own_alloc_zeroed as *const () as usize,
        own_free as *const () as usize,
        own_realloc as *const () as usize,
    ]
}

#[inline(never)]
extern "C" fn own_alloc(bytes: usize, align: usize) -> *mut u8 {
    if align <= ALIGN_MIN { malloc(bytes).cast() } else { memalign(align, bytes).cast() }
}

#[inline(never)]
extern "C" fn own_alloc_zeroed(bytes: usize, align: usize) -> *mut u8 {
    if align <= ALIGN_MIN {
        return calloc(1, bytes).cast();
    }
    let block = own_alloc(bytes, align);
    if !block.is_null() {
        // SAFETY: a fresh block of this size.
        unsafe { std::ptr::write_bytes(block, 0, bytes) };
    }
    block
}

/// # Safety
/// As free(3), for a block of this heap.
#[inline(never)]
unsafe extern "C" fn own_free(block: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { free(block.cast()) }
}

/// # Safety
/// As realloc(3), for a block of `used` bytes of this heap, of this alignment.
#[inline(never)]
unsafe extern "C" fn own_realloc(block: *mut u8, used: usize, align: usize, bytes: usize) -> *mut u8 {
    if align <= ALIGN_MIN {
        // SAFETY: the caller's contract.
        return unsafe { realloc(block.cast(), bytes).cast() };
    }
    let new = memalign(align, bytes).cast::<u8>();
    if !new.is_null() {
        // SAFETY: both blocks are at least this long; the old one is the caller's.
        unsafe {
            std::ptr::copy_nonoverlapping(block, new, used.min(bytes));
            free(block.cast());
        }
    }
    new
}

// SAFETY: the C library's allocator keeps the contract; larger alignments go through its aligned calls,
// whose blocks `free` takes as well.
unsafe impl GlobalAlloc for ProcessHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        own_alloc(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        own_alloc_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's contract.
        unsafe { own_free(block) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { own_realloc(block, layout.size(), layout.align(), bytes) }
    }
}
