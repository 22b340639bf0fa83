//! The arena's bytes; docs/format/arena.md describes them in prose. All numbers are little endian.
//!
//! The region is cut into pages of 4 KiB and groups of 1,024 pages. Consecutive pages form *spans*: a free
//! run, a slab of equal small blocks, one large block, memory mapped by a command, or the arena's own state.
//! A span is described by the entry of its first page; a bitmap says which pages are first pages.

use std::sync::atomic::AtomicU64;

/// Bytes of a page of the arena.
pub const PAGE_BYTES: usize = 4096;
/// Pages of a group; the region grows by whole groups.
pub(crate) const GROUP_PAGES: u64 = 1024;
pub(crate) const GROUP_BYTES: u64 = GROUP_PAGES * PAGE_BYTES as u64;
/// Blocks of a slab, at most: the bits of its bitmap.
pub(crate) const SLAB_SLOTS_MAX: usize = 256;
pub(crate) const BIN_COUNT: usize = 256;
/// Size classes of small blocks; `class.rs` lists them.
pub(crate) const CLASS_COUNT: usize = 36;

/// What a span is.
pub(crate) mod kind {
    pub(crate) const FREE: u8 = 1;
    pub(crate) const SLAB: u8 = 2;
    pub(crate) const LARGE: u8 = 3;
    pub(crate) const MAPPED: u8 = 4;
    pub(crate) const META: u8 = 5;
}

/// The entry of a span, at its first page. It has two 32-byte halves: links change when a span changes its use, the
/// bitmap with every block. So a block costs one logged block of 32 bytes.
#[repr(C, align(64))]
pub(crate) struct Span {
    /// One of [`kind`].
    pub(crate) kind: u8,
    /// The size class of a slab.
    pub(crate) class: u8,
    pub(crate) zero: [u8; 6],
    pub(crate) pages: u64,
    /// The next span of a bin or of a class: its first page plus one; 0 ends the list.
    pub(crate) next: u64,
    /// The previous one, in the same form; 0 in the first.
    pub(crate) prev: u64,
    /// Of a slab: the blocks that are free. In the entry of the *last* page of a free run: word 0 is the
    /// run's pages.
    pub(crate) free: [u64; 4],
}

/// What describes 1,024 pages.
#[repr(C)]
pub(crate) struct Group {
    /// Pages at which a span starts. Atomic: other threads look up a block's span while this one changes.
    pub(crate) starts: [AtomicU64; 16],
    /// Pages that were ever allocated: the others are zero.
    pub(crate) touched: [AtomicU64; 16],
    /// Last pages of free runs.
    pub(crate) free_ends: [AtomicU64; 16],
    pub(crate) spans: [Span; GROUP_PAGES as usize],
}

/// One of a group's bitmaps.
#[derive(Clone, Copy)]
pub(crate) enum PageBitmap {
    Starts,
    Touched,
    FreeEnds,
}

/// The arena's fixed part, followed by the directory: the offset of each group's [`Group`], 0 before it has
/// one.
#[repr(C)]
pub(crate) struct Head {
    /// Pages under management, a multiple of [`GROUP_PAGES`].
    pub(crate) pages: u64,
    /// Groups that the directory has space for.
    pub(crate) groups_max: u64,
    /// Bit per bin: it is not empty.
    pub(crate) bins_used: [u64; BIN_COUNT / 64],
    /// First slab with free blocks, by class; in the form of [`Span::next`].
    pub(crate) classes: [u64; CLASS_COUNT],
    /// First free run, by bin.
    pub(crate) bins: [u64; BIN_COUNT],
}

/// Bytes before the directory.
pub(crate) const ARENA_HEAD_BYTES: usize = PAGE_BYTES;

const _: () = {
    assert!(size_of::<Span>() == 64);
    assert!(size_of::<Group>() == 384 + 64 * 1024);
    assert!(std::mem::offset_of!(Span, free) == 32);
    assert!(size_of::<Head>() <= ARENA_HEAD_BYTES);
};

/// Bytes of head and directory for a region that can grow to `capacity`, whole pages.
pub(crate) const fn arena_front_bytes(capacity: u64) -> u64 {
    (ARENA_HEAD_BYTES as u64 + capacity.div_ceil(GROUP_BYTES) * 8).next_multiple_of(PAGE_BYTES as u64)
}
