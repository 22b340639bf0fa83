//! The arena's bytes; docs/format/arena.md describes them in prose. All numbers are little endian.
//!
//! The region is cut into pages of 4 KiB and groups of 1,024 pages. Consecutive pages form *spans*: a free
//! run, a slab of equal small blocks, one large block, memory mapped by a command, the arena's own state, or what a
//! shard keeps for its next slabs.
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
    /// Free pages that belong to a shard.
    pub(crate) const RESERVE: u8 = 6;
}

/// The first word of a span's entry.
pub(crate) const fn what(kind: u8, class: u8) -> u64 {
    kind as u64 | (class as u64) << 8
}

/// The [`kind`] that a span's first word says.
pub(crate) const fn kind_of(what: u64) -> u8 {
    what as u8
}

/// The size class that a slab's first word says.
pub(crate) const fn class_of_span(what: u64) -> u8 {
    (what >> 8) as u8
}

/// The entry of a span, at its first page. It has two 32-byte halves: links change when a span changes its use, the
/// bitmap with every block. So a block costs one logged block of 32 bytes.
#[repr(C, align(64))]
pub(crate) struct Span {
    /// What it is ([`what`]); its pages; the next span of a bin or of a class, as its first page plus one, 0 at the
    /// end; the previous one, in the same form, 0 in the first.
    pub(crate) links: [AtomicU64; 4],
    /// Of a slab: the blocks that are free. In the entry of the *last* page of a free run: word 0 is the
    /// run's pages.
    pub(crate) free: [AtomicU64; 4],
}

impl Span {
    #[inline]
    pub(crate) fn what(&self) -> &AtomicU64 {
        &self.links[0]
    }
    #[inline]
    pub(crate) fn pages(&self) -> &AtomicU64 {
        &self.links[1]
    }
    #[inline]
    pub(crate) fn next(&self) -> &AtomicU64 {
        &self.links[2]
    }
    #[inline]
    pub(crate) fn prev(&self) -> &AtomicU64 {
        &self.links[3]
    }
}

/// What describes 1,024 pages.
#[repr(C)]
pub(crate) struct PageGroup {
    /// Pages at which a span starts.
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

impl PageGroup {
    #[inline]
    pub(crate) fn bits(&self, map: PageBitmap) -> &[AtomicU64; 16] {
        match map {
            PageBitmap::Starts => &self.starts,
            PageBitmap::Touched => &self.touched,
            PageBitmap::FreeEnds => &self.free_ends,
        }
    }
}

/// For each class its first slab with free blocks; in the form of [`Span::next`].
pub(crate) type SlabLists = [AtomicU64; CLASS_COUNT];

/// The arena's fixed part, followed by the directory: the offset of each group's [`PageGroup`], 0 before it has
/// one.
#[repr(C)]
pub(crate) struct Head {
    /// Pages under management, a multiple of [`GROUP_PAGES`].
    pub(crate) pages: AtomicU64,
    /// Groups that the directory has space for.
    pub(crate) groups_max: AtomicU64,
    /// Bit per bin: it is not empty.
    pub(crate) bins_used: [AtomicU64; BIN_COUNT / 64],
    /// The slabs of shard 0.
    pub(crate) lists: SlabLists,
    /// First free run, by bin.
    pub(crate) bins: [AtomicU64; BIN_COUNT],
    /// First page of the table of the other shards, plus one; 0: there is none.
    pub(crate) shards: AtomicU64,
    /// Shards in that table.
    pub(crate) shard_count: AtomicU64,
}

/// A shard: what one thread at a time allocates from, so that threads do not meet at one word.
#[repr(C, align(64))]
pub(crate) struct Shard {
    pub(crate) lists: SlabLists,
    /// First page of the run that the next slabs are cut from, plus one; 0: there is none.
    pub(crate) reserve: AtomicU64,
    pub(crate) zero: [AtomicU64; 27],
}

/// Shards that an arena can have, besides shard 0.
pub(crate) const SHARD_COUNT_MAX: u64 = 1024;

/// Pages of a table of `count` shards.
pub(crate) const fn shard_table_pages(count: u64) -> u64 {
    (count * size_of::<Shard>() as u64).div_ceil(PAGE_BYTES as u64)
}

/// Bytes of a group's bitmaps, with which it begins.
pub(crate) const GROUP_BITMAPS_BYTES: usize = 384;

/// Bytes before the directory.
pub(crate) const ARENA_HEAD_BYTES: usize = PAGE_BYTES;

const _: () = {
    assert!(size_of::<Span>() == 64);
    assert!(size_of::<PageGroup>() == GROUP_BITMAPS_BYTES + 64 * 1024);
    assert!(std::mem::offset_of!(PageGroup, spans) == GROUP_BITMAPS_BYTES);
    assert!(std::mem::offset_of!(Span, free) == 32);
    assert!(size_of::<Shard>() == 512);
    assert!(std::mem::offset_of!(Shard, reserve) == 288);
    assert!(std::mem::offset_of!(Head, shards) == 2384);
    assert!(size_of::<Head>() <= ARENA_HEAD_BYTES);
};

/// Bytes of head and directory for a region that can grow to `capacity`, whole pages.
pub(crate) const fn arena_front_bytes(capacity: u64) -> u64 {
    (ARENA_HEAD_BYTES as u64 + capacity.div_ceil(GROUP_BYTES) * 8).next_multiple_of(PAGE_BYTES as u64)
}
