//! The first page of the region of a durable application, told in prose in docs/format/arena.md.

use crate::arena::{PAGE_BYTES, Writes};
use crate::keys::{KEY_COUNT, Key};

/// "MANGRAPP", little endian: the region's first word once its state was initialised.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MANGRAPP");
/// Changes when old and new programs read each other's images wrongly.
pub(crate) const VERSION: u32 = 1;
/// Where the arena's head is.
pub(crate) const ARENA_OFFSET: u64 = PAGE_BYTES as u64;
/// Words for the runtime and its user.
pub(crate) const ROOT_COUNT: usize = 16;

/// The region's first page.
#[repr(C)]
pub(crate) struct Header {
    /// [`MAGIC`]; zero until the commit of the initialisation, whole.
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    /// The region's address.
    pub(crate) base: u64,
    /// Address of the table of modules (`modules.rs`), and its bytes.
    pub(crate) modules: u64,
    pub(crate) modules_bytes: u64,
    /// Address of the first page of variables (`globals.rs`); 0: none.
    pub(crate) globals: u64,
    /// What the runtime and its user put there.
    pub(crate) roots: [usize; ROOT_COUNT],
    /// Keys for thread-specific data (`keys.rs`).
    pub(crate) keys: [Key; KEY_COUNT],
    pub(crate) zero: [u64; 490 - 2 * KEY_COUNT],
}

const _: () = assert!(size_of::<Header>() == PAGE_BYTES);

impl Header {
    /// Reports a field.
    #[track_caller]
    pub(crate) fn report<T>(w: &mut impl Writes, field: &T) {
        w.wrote(std::ptr::from_ref(field) as usize, size_of::<T>());
    }
}
