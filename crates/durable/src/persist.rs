//! Which Rust types can be state.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, RandomState};

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
/// # Hashes and orders
///
/// A map finds a key after a restart only if the key's hash, or its place in the order, is what it was. So what
/// `Hash`, `Eq`, `Ord` and the hasher compute depends on the values alone: not on a seed that each process draws
/// anew and keeps outside of the map, and not on an address of anything outside of the state. A hasher may have a
/// seed as a part of its own value, as the standard library's `RandomState` does: the seed then persists in the map.
///
/// A hasher is therefore state too. `RandomState` is `Persist`, and so is `BuildHasherDefault<H>` where `H` is;
/// `DefaultHasher` is. A hasher without such a promise does not compile:
///
/// ```compile_fail,E0277
/// # use mangrove_durable::Durable;
/// # use std::collections::HashMap;
/// # use std::hash::{BuildHasher, DefaultHasher, Hasher};
/// /// Hashes the seed of this process before each key.
/// #[derive(Clone, Default)]
/// struct SeededPerProcess;
/// impl BuildHasher for SeededPerProcess {
///     type Hasher = DefaultHasher;
///     fn build_hasher(&self) -> DefaultHasher {
///         let mut hasher = DefaultHasher::new();
///         hasher.write_u32(std::process::id());
///         hasher
///     }
/// }
/// let stock = Durable::open("shop", HashMap::<String, u64, SeededPerProcess>::default); // keys would be lost
/// ```
///
/// A hasher of your own without a seed, or with the seed in its value, says so:
///
/// ```no_run
/// # use mangrove_durable::{Durable, Persist};
/// # use std::collections::HashMap;
/// # use std::hash::{BuildHasherDefault, Hasher};
/// #[derive(Default)]
/// struct Sum(u64);
/// impl Hasher for Sum {
///     fn write(&mut self, bytes: &[u8]) {
///         bytes.iter().for_each(|&byte| self.0 = self.0.wrapping_mul(31) + u64::from(byte));
///     }
///     fn finish(&self) -> u64 {
///         self.0
///     }
/// }
/// // SAFETY: `Sum::default` is the same in every process, and a hash depends on the bytes alone.
/// unsafe impl Persist for Sum {}
/// let stock = Durable::open("shop", HashMap::<String, u64, BuildHasherDefault<Sum>>::default);
/// ```
///
/// # Safety
/// No value holds a resource of the process (a file, a socket, a thread, a lock, a channel), memory with another
/// owner (`Rc`, `Arc`, references that are not to constants), or anything that changes through a shared reference
/// (`Cell`, `Mutex`, atomics). For a type that hashes, compares or orders, or builds hashers: what it computes is the
/// same in every process. For a hasher: its `Default` is, too.
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
    // Its seed is in its value, and so in the map.
    RandomState,
    // Without a seed.
    DefaultHasher,
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
    [K: Persist, V: Persist, S: Persist] HashMap<K, V, S>,
    [K: Persist, S: Persist] HashSet<K, S>,
    // It holds nothing; the hashers that it makes must be the same in every process.
    [H: Persist] BuildHasherDefault<H>,
    [A: Persist] (A,),
    [A: Persist, B: Persist] (A, B),
    [A: Persist, B: Persist, C: Persist] (A, B, C),
    [A: Persist, B: Persist, C: Persist, D: Persist] (A, B, C, D),
    [A: Persist, B: Persist, C: Persist, D: Persist, E: Persist] (A, B, C, D, E),
    [A: Persist, B: Persist, C: Persist, D: Persist, E: Persist, F: Persist] (A, B, C, D, E, F),
);

// SAFETY: as above.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {}

/// Parameters that a value holds nothing of are bound too. A map whose hasher holds an address that means nothing
/// after a restart:
///
/// ```compile_fail,E0277
/// struct Keyed(&'static [u64; 2]);
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<std::collections::HashMap<u64, u64, Keyed>>();
/// ```
///
/// ```compile_fail,E0277
/// struct Keyed(&'static [u64; 2]);
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<std::collections::HashSet<u64, Keyed>>();
/// ```
///
/// A hasher type that only the builder's type names, and whose `Default` may draw a seed in each process:
///
/// ```compile_fail,E0277
/// struct Seeded(u64);
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<std::collections::HashMap<u64, u64, std::hash::BuildHasherDefault<Seeded>>>();
/// ```
///
/// Functions and phantom types promise nothing:
///
/// ```compile_fail,E0277
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<fn() -> u64>();
/// ```
///
/// ```compile_fail,E0277
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<std::marker::PhantomData<u64>>();
/// ```
///
/// And those which compile, by the same means:
///
/// ```
/// use std::collections::{HashMap, HashSet};
/// use std::hash::{BuildHasherDefault, DefaultHasher, RandomState};
/// struct Keyed([u64; 2]);
/// // SAFETY: the seed is in the value.
/// unsafe impl mangrove_durable::Persist for Keyed {}
/// fn is_state<T: mangrove_durable::Persist>() {}
/// is_state::<HashMap<u64, u64, Keyed>>();
/// is_state::<HashSet<u64, RandomState>>();
/// is_state::<HashMap<u64, HashSet<String>, BuildHasherDefault<DefaultHasher>>>();
/// ```
#[cfg(doctest)]
struct WhatIsNotState;
