//! The malloc family for the whole program: persistent memory inside write commands, the process's own heap
//! elsewhere; frees go by address. C++ `new` and `delete`, `strdup` and every other allocating function of the C and
//! C++ libraries end here.
//!
//! Also the keys for thread-specific data, since a library that sets itself up in a command makes them.
//!
//! These symbols replace libc's in programs that link libmangrove_app, and only there.

use crate::process::heap;
use crate::process::next_symbol::next_symbol;
use mangrove_durable::keys;
use mangrove_durable::route::{
    is_inside, is_persistent, mangrove_arena_adopt, mangrove_arena_alloc, mangrove_arena_alloc_zeroed,
    mangrove_arena_free, mangrove_arena_resize, mangrove_arena_usable,
};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

const ALIGN_MIN: usize = 16;
const PAGE_BYTES: usize = 4096;

#[cold]
fn no_memory() -> *mut c_void {
    fail(libc::ENOMEM)
}

#[cold]
fn fail(code: c_int) -> *mut c_void {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = code };
    null_mut()
}

/// A persistent block. The calling thread is inside a command.
#[inline]
fn persistent(bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: every caller has checked `is_inside`.
    let block = unsafe { mangrove_arena_alloc(bytes, align) };
    if block.is_null() { no_memory() } else { block.cast() }
}

/// As malloc(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if is_inside() { persistent(bytes, ALIGN_MIN) } else { heap::malloc(bytes) }
}

/// As calloc(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if !is_inside() {
        return heap::calloc(count, bytes);
    }
    let Some(all) = count.checked_mul(bytes) else { return no_memory() };
    // SAFETY: inside.
    let block = unsafe { mangrove_arena_alloc_zeroed(all, ALIGN_MIN) };
    if block.is_null() { no_memory() } else { block.cast() }
}

/// As free(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    if is_persistent(block as usize) {
        // SAFETY: persistent, and the caller's to free.
        unsafe { mangrove_arena_free(block.cast()) };
    } else if !block.is_null() {
        // SAFETY: the caller's contract.
        unsafe { heap::free(block) };
    }
}

/// As free_sized (C23).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free_sized(block: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { free(block) }
}

/// As free_aligned_sized (C23).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { free(block) }
}

/// As realloc(3). The new block is where the calling thread allocates now: inside a command the block
/// becomes persistent, outside the caller gets a copy in the process's heap.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(bytes);
    }
    // SAFETY: the caller's contract; each block goes to the heap that its address belongs to.
    unsafe {
        match (is_inside(), is_persistent(block as usize)) {
            (false, false) => heap::realloc(block, bytes),
            (_, persistent) if bytes == 0 && (persistent || is_inside()) => {
                free(block);
                null_mut()
            }
            (true, true) => {
                let new = mangrove_arena_resize(block.cast(), bytes);
                if new.is_null() { no_memory() } else { new.cast() }
            }
            (true, false) => {
                let used = heap::usable(block).min(bytes);
                let new = mangrove_arena_adopt(block.cast(), used, bytes, ALIGN_MIN);
                if new.is_null() {
                    return no_memory();
                }
                heap::free(block);
                new.cast()
            }
            (false, true) => {
                let used = mangrove_arena_usable(block.cast());
                if bytes <= used {
                    return block;
                }
                let new = heap::malloc(bytes);
                if !new.is_null() {
                    std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), used);
                    mangrove_arena_free(block.cast());
                }
                new
            }
        }
    }
}

/// As reallocarray(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return no_memory() };
    // SAFETY: the caller's contract.
    unsafe { realloc(block, all) }
}

/// As memalign(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    if !is_inside() {
        return heap::memalign(align, bytes);
    }
    match align.checked_next_power_of_two() {
        Some(align) => persistent(bytes, align),
        None => fail(libc::EINVAL),
    }
}

/// As aligned_alloc(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !is_inside() {
        return heap::aligned_alloc(align, bytes);
    }
    if !align.is_power_of_two() {
        return fail(libc::EINVAL);
    }
    persistent(bytes, align)
}

/// As posix_memalign(3).
///
/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !is_inside() {
        // SAFETY: the caller's contract.
        return unsafe { heap::posix_memalign(out, align, bytes) };
    }
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: inside.
    let block = unsafe { mangrove_arena_alloc(bytes, align) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // This function may run untracked, so it reports what it writes.
    mangrove_durable::will_write(out.cast(), size_of::<*mut c_void>());
    // SAFETY: the caller's contract.
    unsafe { *out = block.cast() };
    0
}

/// As valloc(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn valloc(bytes: usize) -> *mut c_void {
    memalign(PAGE_BYTES, bytes)
}

/// As pvalloc(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(PAGE_BYTES) {
        Some(bytes) => memalign(PAGE_BYTES, bytes),
        None => no_memory(),
    }
}

/// As malloc_usable_size(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the caller's contract; the block's address says which heap it belongs to.
    unsafe {
        if is_persistent(block as usize) { mangrove_arena_usable(block.cast()) } else { heap::usable(block) }
    }
}

/// As malloc_trim(3). In a command there is nothing to do: the arena itself returns memory that stays
/// free. Elsewhere the process's own heap is trimmed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc_trim(pad: usize) -> c_int {
    if is_inside() {
        return 0;
    }
    // SAFETY: the function of this name has this type in every C library that has it.
    let next = unsafe { next_symbol::<unsafe extern "C" fn(usize) -> c_int>(c"malloc_trim") };
    // SAFETY: any number is valid.
    next.map_or(0, |next| unsafe { next(pad) })
}

type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// As pthread_key_create(3); in a command whose state has too many keys it returns EAGAIN.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_key_create(
    key: *mut libc::pthread_key_t,
    destructor: Destructor,
) -> c_int {
    // SAFETY: the function of this name has this type, and gets what the caller gave.
    unsafe {
        let next = next_symbol::<unsafe extern "C" fn(*mut libc::pthread_key_t, Destructor) -> c_int>(
            c"pthread_key_create",
        );
        let Some(next) = next else { return libc::ENOSYS };
        let made = next(key, destructor);
        if made == 0 && is_inside() && !keys::remember(*key, destructor.map_or(0, |d| d as usize)) {
            pthread_key_delete(*key);
            return libc::EAGAIN;
        }
        made
    }
}

/// As pthread_key_delete(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_key_delete(key: libc::pthread_key_t) -> c_int {
    keys::forget(key);
    // SAFETY: as above.
    unsafe {
        let next = next_symbol::<unsafe extern "C" fn(libc::pthread_key_t) -> c_int>(c"pthread_key_delete");
        next.map_or(libc::ENOSYS, |next| next(key))
    }
}

/// The functions that a tracker may run untracked, with their names: they report what they write.
pub(crate) fn leaves() -> [(usize, &'static CStr); 13] {
    [
        (malloc as *const () as usize, c"malloc"),
        (calloc as *const () as usize, c"calloc"),
        (realloc as *const () as usize, c"realloc"),
        (reallocarray as *const () as usize, c"reallocarray"),
        (free as *const () as usize, c"free"),
        (free_sized as *const () as usize, c"free_sized"),
        (free_aligned_sized as *const () as usize, c"free_aligned_sized"),
        (memalign as *const () as usize, c"memalign"),
        (aligned_alloc as *const () as usize, c"aligned_alloc"),
        (posix_memalign as *const () as usize, c"posix_memalign"),
        (valloc as *const () as usize, c"valloc"),
        (pvalloc as *const () as usize, c"pvalloc"),
        (malloc_usable_size as *const () as usize, c"malloc_usable_size"),
    ]
}

/// Checks that the program's allocations come here.
///
/// # Errors
/// A message that names the library whose malloc the program has instead.
pub(crate) fn check() -> Result<(), String> {
    // This library's own names would not do: in a library that was loaded late they are bound to libc's functions.
    let here = module_of(module_of as *const () as *const c_void);
    for (_, name) in leaves() {
        // SAFETY: a NUL-terminated name.
        let used = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let whose = module_of(used);
        // A program that was linked statically with this library need not export its malloc.
        if !used.is_null() && whose.0 != here.0 {
            return Err(format!(
                "the program's {} is that of {}, so what commands allocate would not be durable; link mangrove_app before it, or start the program with LD_PRELOAD=libmangrove_app.so",
                name.to_string_lossy(),
                whose.1
            ));
        }
    }
    Ok(())
}

/// The functions that no command may reach, each with the reason.
pub(crate) fn refused() -> Vec<(usize, &'static str)> {
    const KEY: &str = "it makes a key for thread-specific data by tss_create, and no later start has that key; use pthread_key_create, or make it before opening";
    const NEW: &str = "it makes memory by an allocator's own operator new, which does not call malloc, so that memory would not be durable; link libstdc++ before that allocator, or name it before it in LD_PRELOAD";
    const PAST: &str = "it makes memory by the process's own malloc, past that of libmangrove_app (as __libc_malloc, or from a library that was loaded with RTLD_DEEPBIND), so that memory would not be durable; call malloc, or name the caller by mangrove_app_native";
    const LIBCS: [&CStr; 6] = [
        c"__libc_malloc",
        c"__libc_calloc",
        c"__libc_realloc",
        c"__libc_memalign",
        c"__libc_valloc",
        c"__libc_pvalloc",
    ];
    const OPERATORS: [&CStr; 8] = [
        c"_Znwm",
        c"_Znam",
        c"_ZnwmRKSt9nothrow_t",
        c"_ZnamRKSt9nothrow_t",
        c"_ZnwmSt11align_val_t",
        c"_ZnamSt11align_val_t",
        c"_ZnwmSt11align_val_tRKSt9nothrow_t",
        c"_ZnamSt11align_val_tRKSt9nothrow_t",
    ];
    // SAFETY: a NUL-terminated name.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast_const();
    let allocator = module_of(heap::next_malloc()).0;
    let past = OPERATORS.map(find).into_iter().filter(|&f| !f.is_null() && module_of(f).0 == allocator);
    let mut all: Vec<_> = past.map(|f| (f as usize, NEW)).collect();
    // Untracked, this library itself calls the next ones.
    let others = heap::makers().into_iter().chain(LIBCS.map(|name| find(name) as usize));
    all.extend(others.filter(|&f| f != 0).map(|f| (f, PAST)));
    all.push((find(c"tss_create") as usize, KEY));
    all
}

/// Base address and file name of the module that an address lies in.
fn module_of(address: *const c_void) -> (usize, String) {
    // SAFETY: fills the struct; its name belongs to the dynamic linker and stays.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return (0, "another library".to_owned());
        }
        (info.dli_fbase as usize, CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}
