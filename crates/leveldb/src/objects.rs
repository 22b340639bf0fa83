//! The small objects of the API: comparators, filter policies, caches, environments; and the version.

use mangrove_cabi::{allocate, give, take_back};
use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

/// The version of LevelDB whose API this is.
const MAJOR: c_int = 1;
const MINOR: c_int = 23;

type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
type Compare = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int>;
type Name = Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>;
type CreateFilter = Option<
    unsafe extern "C" fn(*mut c_void, *const *const c_char, *const usize, c_int, *mut usize) -> *mut c_char,
>;
type KeyMayMatch =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8>;

/// An order of keys that the program defines.
pub struct leveldb_comparator_t {
    state: *mut c_void,
    destructor: Destructor,
    compare: Compare,
    name: Name,
}

/// A comparator in use: the caller keeps the object alive as long as the database is open.
#[derive(Clone, Copy)]
pub(crate) struct Comparator {
    state: *mut c_void,
    compare: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int,
}

// SAFETY: the API's contract: a comparator may be called from any thread, by several at once.
unsafe impl Send for Comparator {}
// SAFETY: as above.
unsafe impl Sync for Comparator {}

/// Compares byte by byte.
///
/// # Safety
/// Bytes that can be read.
unsafe extern "C" fn compare_bytes(
    _: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: `Comparator::compare` passes slices.
    let (a, b) = unsafe {
        (std::slice::from_raw_parts(a.cast::<u8>(), a_len), std::slice::from_raw_parts(b.cast::<u8>(), b_len))
    };
    a.cmp(b) as c_int
}

impl Comparator {
    /// Byte by byte, in the form of a program's comparator.
    pub(crate) fn bytewise() -> Self {
        Self { state: std::ptr::null_mut(), compare: compare_bytes }
    }

    /// A comparator without a state.
    #[cfg(test)]
    pub(crate) fn of(
        compare: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int,
    ) -> Self {
        Self { state: std::ptr::null_mut(), compare }
    }

    /// The order of two keys.
    #[inline]
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the API's contract for `compare`; the slices outlive the call.
        let order =
            unsafe { (self.compare)(self.state, a.as_ptr().cast(), a.len(), b.as_ptr().cast(), b.len()) };
        order.cmp(&0)
    }
}

impl leveldb_comparator_t {
    /// The function to call, and the name to store; `None` when one of them is missing.
    pub(crate) fn parts(&self) -> Option<(Comparator, Vec<u8>)> {
        let comparator = Comparator { state: self.state, compare: self.compare? };
        // SAFETY: the API's contract: `name` may be called with the state.
        let name = unsafe { self.name?(self.state) };
        if name.is_null() {
            return None;
        }
        // SAFETY: the API's contract: `name` returns a NUL-terminated string, or NULL, as the classes do for a
        // `Name()` that threw an exception.
        let name = unsafe { CStr::from_ptr(name) };
        Some((comparator, name.to_bytes().to_vec()))
    }
}

/// Creates a comparator of the program. The functions must be callable from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Destructor,
    compare: Compare,
    name: Name,
) -> *mut leveldb_comparator_t {
    give(leveldb_comparator_t { state, destructor, compare, name })
}

/// Calls the destructor with the state, and frees the comparator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    // SAFETY: the API's contract: a live handle, not used any more.
    unsafe {
        if let Some((destructor, state)) = comparator.as_ref().and_then(|c| Some((c.destructor?, c.state))) {
            destructor(state);
        }
        take_back(comparator);
    }
}

/// A filter policy: accepted and never called, because no read here searches a disk.
pub struct leveldb_filterpolicy_t {
    state: *mut c_void,
    destructor: Destructor,
}

/// Creates a filter policy of the program. Its functions are never called, its destructor is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Destructor,
    _create_filter: CreateFilter,
    _key_may_match: KeyMayMatch,
    _name: Name,
) -> *mut leveldb_filterpolicy_t {
    give(leveldb_filterpolicy_t { state, destructor })
}

/// A Bloom filter's policy.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(_bits_per_key: c_int) -> *mut leveldb_filterpolicy_t {
    give(leveldb_filterpolicy_t { state: std::ptr::null_mut(), destructor: None })
}

/// Calls the destructor with the state, and frees the policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    // SAFETY: the API's contract: a live handle, not used any more.
    unsafe {
        if let Some((destructor, state)) = policy.as_ref().and_then(|p| Some((p.destructor?, p.state))) {
            destructor(state);
        }
        take_back(policy);
    }
}

/// A block cache: accepted and not needed, since all data is in memory.
pub struct leveldb_cache_t {
    _capacity: usize,
}

/// A cache of `capacity` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut leveldb_cache_t {
    give(leveldb_cache_t { _capacity: capacity })
}

/// Frees a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(cache) };
}

/// A log for people. The C API has no way to make one; accepted where it is given.
pub struct leveldb_logger_t {
    _opaque: u8,
}

/// An environment: there is one, the operating system.
pub struct leveldb_env_t {
    _opaque: u8,
}

/// The operating system.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    give(leveldb_env_t { _opaque: 0 })
}

/// Frees an environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(env) };
}

/// A directory for tests: that of the environment variable TEST_TMPDIR, else one of this user's in /tmp. NULL when it
/// cannot be created. Freed with leveldb_free().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(_env: *mut leveldb_env_t) -> *mut c_char {
    let directory = std::env::var_os("TEST_TMPDIR").filter(|v| !v.is_empty()).map_or_else(
        // SAFETY: no arguments, cannot fail.
        || PathBuf::from(format!("/tmp/leveldbtest-{}", unsafe { libc::geteuid() })),
        PathBuf::from,
    );
    if std::fs::create_dir_all(&directory).is_err() {
        return std::ptr::null_mut();
    }
    allocate(directory.as_os_str().as_encoded_bytes()).cast()
}

/// free(), for what this library allocated by malloc().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(block: *mut c_void) {
    // SAFETY: the API's contract: NULL, or a block that this library returned.
    unsafe { libc::free(block) };
}

/// The major version of the API.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    MAJOR
}

/// The minor version of the API.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    MINOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::slice;

    unsafe extern "C" fn backwards(
        _: *mut c_void,
        a: *const c_char,
        a_len: usize,
        b: *const c_char,
        b_len: usize,
    ) -> c_int {
        // SAFETY: the comparator passes slices.
        let (a, b) = unsafe { (slice(a, a_len).unwrap(), slice(b, b_len).unwrap()) };
        b.cmp(a) as c_int
    }

    #[test]
    fn a_comparator_orders() {
        let c = Comparator { state: std::ptr::null_mut(), compare: backwards };
        assert_eq!(c.compare(b"a", b"b"), Ordering::Greater);
        assert_eq!(c.compare(b"", b""), Ordering::Equal);
    }
}
