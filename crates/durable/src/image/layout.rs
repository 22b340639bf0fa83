//! The first page of the region of a durable application; docs/format/arena.md describes it in prose.

use mangrove_arena::{PAGE_BYTES, Writes};

/// "MANGRAPP", little endian: the region's first word once its state was initialised.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MANGRAPP");
/// Changes when old and new programs read each other's states wrongly.
pub(crate) const VERSION: u32 = 1;
/// Where the arena's head is.
pub(crate) const ARENA_OFFSET: u64 = PAGE_BYTES as u64;
/// Words for the runtime and its user.
pub(crate) const ROOT_COUNT: usize = 16;
/// Keys that a state can have.
pub(crate) const KEY_COUNT: usize = 64;

/// A key in the state's first page; all zero where there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadKey {
    pub(crate) number_and_one: u64,
    /// Address of the function that gets a thread's value when the thread ends.
    pub(crate) destructor: usize,
}

/// The region's first page.
#[repr(C)]
pub(crate) struct StateHeader {
    /// [`MAGIC`]; zero until the commit of the initialisation, which takes it whole.
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    /// The region's address.
    pub(crate) base: u64,
    /// Address of the table of modules (`image/modules.rs`), and its bytes.
    pub(crate) modules: u64,
    pub(crate) modules_bytes: u64,
    /// Address of the first page of variables (`image/variables.rs`); 0: none.
    pub(crate) globals: u64,
    /// The program's own words: what commands put there.
    pub(crate) roots: [usize; ROOT_COUNT],
    /// Keys for thread-specific data (`alloc/thread_keys.rs`).
    pub(crate) keys: [ThreadKey; KEY_COUNT],
    pub(crate) zero: [u64; 490 - 2 * KEY_COUNT],
}

const _: () = assert!(size_of::<StateHeader>() == PAGE_BYTES);

impl StateHeader {
    /// Reports a field as written.
    #[track_caller]
    pub(crate) fn report<T>(w: &mut impl Writes, field: &T) {
        w.wrote(std::ptr::from_ref(field) as usize, size_of::<T>());
    }
}
