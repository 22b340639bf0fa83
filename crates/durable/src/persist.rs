//! Which Rust types can be state.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};

/// Types whose values mean the same after a restart: everything that they own lies in memory that their own
/// methods allocate, and shared references to them change nothing.
///
/// Ordinary owning types are: numbers, text, collections, boxes, options, tuples and arrays of such. For a
/// `struct` or `enum` of your own made of them:
///
/// ```
/// use mangrove_durable::Persist;
/// use std::collections::HashMap;
///
/// #[derive(Default)]
/// struct Shop {
///     stock: HashMap<String, u64>,
///     orders: Vec<(u64, String)>,
/// }
/// // SAFETY: every field is.
/// unsafe impl Persist for Shop {}
/// ```
///
/// # Safety
/// No value holds a resource of the process (a file, a socket, a thread, a lock, a channel), memory with another
/// owner (`Rc`, `Arc`, references that are not to constants), or anything that changes through a shared reference
/// (`Cell`, `Mutex`, atomics).
pub unsafe trait Persist: Send + Sync + 'static {}

macro_rules! persist {
    ($($type:ty),* $(,)?) => {
        // SAFETY: plain values, or owners of nothing but themselves.
        $(unsafe impl Persist for $type {})*
    };
}

persist!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    String,
    Box<str>,
    std::time::Duration,
    std::time::SystemTime,
    std::net::IpAddr,
    std::net::SocketAddr,
    std::path::PathBuf,
    std::ffi::OsString,
    std::ffi::CString,
);

macro_rules! persist_of {
    ($($(#[$why:meta])* [$($of:ident: $bound:path),*] $type:ty),* $(,)?) => {
        // SAFETY: owns what it holds, which is all persistent, through the global allocator.
        $(unsafe impl<$($of: $bound),*> Persist for $type {})*
    };
}

persist_of!(
    [T: Persist] Vec<T>,
    [T: Persist] VecDeque<T>,
    [T: Persist] LinkedList<T>,
    [T: Persist] BinaryHeap<T>,
    [T: Persist] BTreeSet<T>,
    [T: Persist] Option<T>,
    [T: Persist] Box<T>,
    [T: Persist] Box<[T]>,
    [K: Persist, V: Persist] BTreeMap<K, V>,
    [K: Persist, V: Persist] Result<K, V>,
    [A: Persist] (A,),
    [A: Persist, B: Persist] (A, B),
    [A: Persist, B: Persist, C: Persist] (A, B, C),
    [A: Persist, B: Persist, C: Persist, D: Persist] (A, B, C, D),
    [A: Persist, B: Persist, C: Persist, D: Persist, E: Persist] (A, B, C, D, E),
    [A: Persist, B: Persist, C: Persist, D: Persist, E: Persist, F: Persist] (A, B, C, D, E, F),
);

// SAFETY: as above; the hasher is part of the value.
unsafe impl<K: Persist, V: Persist, S: Send + Sync + 'static> Persist for HashMap<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Persist, S: Send + Sync + 'static> Persist for HashSet<K, S> {}
// SAFETY: as above.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {}
