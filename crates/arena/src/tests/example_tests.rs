//! The arena by example, and what a block costs in logged bytes.

use std::collections::BTreeSet;
use std::io;

use mangrove_sys::Reservation;

use crate::bytes::class::{CLASS_BYTES, CLASSES};
use crate::pages::mapped::MapError;
use crate::{ArenaHeap, ArenaSpace, BadFree, PAGE_BYTES, Writes};

pub(crate) struct TestSpace {
    memory: Reservation,
    len: u64,
    pub(crate) capacity: u64,
    /// The most that the medium has space for.
    room: u64,
}

impl TestSpace {
    pub(crate) fn new(capacity: u64) -> Self {
        let memory = Reservation::anonymous(capacity as usize).unwrap();
        Self { memory, len: 0, capacity, room: capacity }
    }
}

impl ArenaSpace for TestSpace {
    fn base(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn grow(&mut self, len: u64) -> io::Result<()> {
        if len > self.room {
            return Err(io::Error::other("full"));
        }
        self.len = len;
        Ok(())
    }
}

/// Counts 32-byte blocks, the unit of the log.
#[derive(Default)]
pub(crate) struct Blocks(pub(crate) BTreeSet<usize>);

impl Writes for Blocks {
    fn wrote(&mut self, ptr: usize, len: usize) {
        self.0.extend((ptr / 32..=(ptr + len - 1) / 32).filter(|_| len > 0));
    }
}

fn heap(capacity: u64) -> (ArenaHeap, Blocks) {
    let mut w = Blocks::default();
    (ArenaHeap::format(Box::new(TestSpace::new(capacity)), 4096, &mut w).unwrap(), w)
}

fn sound(heap: &ArenaHeap) {
    assert_eq!(heap.check(), Vec::<String>::new());
}

#[test]
fn a_small_block_costs_one_logged_block() {
    let (mut heap, mut w) = heap(64 << 20);
    for bytes in CLASS_BYTES {
        let first = heap.alloc(&mut w, bytes as usize);
        w.0.clear();
        let second = heap.alloc(&mut w, bytes as usize);
        assert_eq!(w.0.len(), 1, "allocating {bytes}");
        w.0.clear();
        heap.free(&mut w, second as usize).unwrap();
        assert_eq!(w.0.len(), 1, "freeing {bytes}");
        // A batch of many blocks pays for their slabs' bitmaps once.
        w.0.clear();
        let all: Vec<_> = (0..16).map(|_| heap.alloc(&mut w, bytes as usize)).collect();
        assert!(bytes > 2048 || w.0.len() <= 8, "{bytes}: {}", w.0.len());
        for at in all {
            heap.free(&mut w, at as usize).unwrap();
        }
        heap.free(&mut w, first as usize).unwrap();
        sound(&heap);
    }
}

#[test]
fn blocks_do_not_overlap_and_are_aligned() {
    let (mut heap, mut w) = heap(256 << 20);
    let mut all = Vec::new();
    for round in 0..3000usize {
        let bytes = round * 37 % 9000;
        let align = 1 << (round % 15);
        let at = heap.alloc_aligned(&mut w, bytes, align) as usize;
        assert!(at.is_multiple_of(align) && at.is_multiple_of(16));
        assert!(heap.usable_bytes(at).unwrap() >= bytes.max(1));
        all.push((at, heap.usable_bytes(at).unwrap()));
    }
    sound(&heap);
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
    for (at, _) in all {
        heap.free(&mut w, at).unwrap();
    }
    sound(&heap);
    assert_eq!(heap.stat().blocks, 0);
}

#[test]
fn alignments_beyond_a_page_leave_no_waste() {
    let (mut heap, mut w) = heap(64 << 20);
    let free = heap.stat().free_bytes;
    for align in [8192, 1 << 16, 1 << 21, 1 << 22] {
        let at = heap.alloc_aligned(&mut w, 20_000, align);
        assert_eq!(at as usize % align, 0);
        assert_eq!(heap.usable_bytes(at as usize), Some(20_480));
        sound(&heap);
        heap.free(&mut w, at as usize).unwrap();
        sound(&heap);
    }
    assert!(heap.stat().free_bytes >= free);
}

#[test]
fn bad_frees_are_told_and_change_nothing() {
    let (mut heap, mut w) = heap(64 << 20);
    let small = heap.alloc(&mut w, 100) as usize;
    let large = heap.alloc(&mut w, 100_000) as usize;
    let mapped = heap.map(&mut w, 100_000, PAGE_BYTES).unwrap() as usize;
    for (address, says) in [
        (small + 16, BadFree::NotABlock),
        (small + 112, BadFree::Double),
        (large + 4096, BadFree::NotABlock),
        (large + 16, BadFree::NotABlock),
        (mapped, BadFree::NotABlock),
        (heap.base_address(), BadFree::NotABlock),
        (heap.base_address() - 16, BadFree::Outside),
        (heap.end_address(), BadFree::Outside),
        (small + 1, BadFree::NotABlock),
        (small + 113, BadFree::NotABlock),
        // Free pages.
        (heap.end_address() - 16, BadFree::Double),
        (heap.end_address() - 15, BadFree::NotABlock),
    ] {
        w.0.clear();
        assert_eq!(heap.free(&mut w, address), Err(says));
        assert_eq!(heap.resize(&mut w, address, 10), Err(says));
        assert_eq!(heap.usable_bytes(address), None);
        assert!(w.0.is_empty());
    }
    heap.free(&mut w, small).unwrap();
    heap.free(&mut w, large).unwrap();
    assert_eq!(heap.free(&mut w, small), Err(BadFree::Double));
    assert_eq!(heap.free(&mut w, large), Err(BadFree::Double));
    assert_eq!(heap.resize(&mut w, small, 1), Err(BadFree::Double));
    sound(&heap);
}

#[test]
fn a_large_block_grows_in_place_and_keeps_its_bytes_where_it_cannot() {
    let (mut heap, mut w) = heap(256 << 20);
    let at = heap.alloc(&mut w, 1 << 20) as usize;
    let grown = heap.resize(&mut w, at, 3 << 20).unwrap() as usize;
    assert_eq!(at, grown);
    let wall = heap.alloc(&mut w, 1 << 20);
    // SAFETY: blocks of the arena, in use.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 3 << 20).fill(7) };
    w.0.clear();
    let moved = heap.resize(&mut w, at, 9 << 20).unwrap() as usize;
    assert_ne!(moved, at);
    // SAFETY: as above.
    assert!(unsafe { std::slice::from_raw_parts(moved as *const u8, 3 << 20) }.iter().all(|&b| b == 7));
    // What was copied is reported; new bytes are not until the program writes them.
    let reported = w.0.iter().filter(|&&b| (moved / 32..(moved + (9 << 20)) / 32).contains(&b)).count();
    assert_eq!(reported, (3 << 20) / 32);
    let shrunk = heap.resize(&mut w, moved, 100_000).unwrap() as usize;
    assert_eq!(shrunk, moved);
    heap.free(&mut w, moved).unwrap();
    heap.free(&mut w, wall as usize).unwrap();
    sound(&heap);
    assert_eq!(heap.stat().used_bytes, 0);
}

#[test]
fn zeroed_blocks_are_zero_and_fresh_ones_cost_nothing() {
    let (mut heap, mut w) = heap(256 << 20);
    w.0.clear();
    let fresh = heap.alloc_zeroed(&mut w, 64 << 20, 16) as usize;
    assert!(w.0.len() < 600, "{}", w.0.len());
    // SAFETY: a block of the arena.
    unsafe { std::slice::from_raw_parts_mut(fresh as *mut u8, 64 << 20).fill(9) };
    heap.free(&mut w, fresh).unwrap();
    w.0.clear();
    let again = heap.alloc_zeroed(&mut w, 1 << 20, 16) as usize;
    assert!(w.0.len() >= (1 << 20) / 32);
    // SAFETY: as above.
    assert!(unsafe { std::slice::from_raw_parts(again as *const u8, 1 << 20) }.iter().all(|&b| b == 0));
    let small = heap.alloc_zeroed(&mut w, 100, 64) as usize;
    assert_eq!(small % 64, 0);
    // SAFETY: as above.
    assert!(unsafe { std::slice::from_raw_parts(small as *const u8, 100) }.iter().all(|&b| b == 0));
}

#[test]
fn a_full_region_says_so_and_stays_sound() {
    let (mut heap, mut w) = heap(16 << 20);
    let mut all = Vec::new();
    loop {
        let at = heap.alloc(&mut w, 10_000);
        if at.is_null() {
            break;
        }
        all.push(at as usize);
    }
    assert!(all.len() > 1300, "{} blocks of 10,000 bytes fit 16 MiB", all.len());
    assert!(heap.alloc(&mut w, 1 << 20).is_null());
    assert!(heap.alloc(&mut w, usize::MAX).is_null());
    assert!(heap.alloc_zeroed(&mut w, usize::MAX - 8192, 4096).is_null());
    assert_eq!(heap.map(&mut w, usize::MAX, PAGE_BYTES), Err(MapError::Full));
    assert!(heap.resize(&mut w, all[0], 1 << 20).unwrap().is_null());
    sound(&heap);
    for at in all {
        heap.free(&mut w, at).unwrap();
    }
    sound(&heap);
    assert!(!heap.alloc(&mut w, 8 << 20).is_null());
}

#[test]
fn mappings_are_split_and_joined() {
    let (mut heap, mut w) = heap(64 << 20);
    let page = PAGE_BYTES;
    let at = heap.map(&mut w, 10 * page, page).unwrap() as usize;
    // SAFETY: mapped just now.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 10 * page).fill(5) };
    heap.unmap(&mut w, at + 3 * page, 2 * page).unwrap();
    sound(&heap);
    heap.unmap(&mut w, at + 2 * page, 5 * page).unwrap();
    sound(&heap);
    assert_eq!(heap.stat().mapped_bytes as usize, 5 * page);
    assert_eq!(heap.map_again(&mut w, at + page, 2 * page), Err(MapError::NotMapped));
    heap.map_again(&mut w, at, page).unwrap();
    // SAFETY: still mapped.
    assert_eq!(unsafe { (*(at as *const u8), *((at + page) as *const u8)) }, (0, 5));
    let moved = heap.remap(&mut w, at, 2 * page, 40 * page, true).unwrap() as usize;
    // SAFETY: mapped by remap.
    let bytes = unsafe { std::slice::from_raw_parts(moved as *const u8, 40 * page) };
    assert!(bytes[page..2 * page].iter().all(|&b| b == 5));
    assert!(bytes[2 * page..].iter().all(|&b| b == 0));
    assert_eq!(heap.remap(&mut w, moved, 40 * page, page, false).unwrap() as usize, moved);
    heap.unmap(&mut w, moved, page).unwrap();
    heap.unmap(&mut w, at + 7 * page, 3 * page).unwrap();
    sound(&heap);
    assert_eq!(heap.stat().mapped_bytes, 0);
    let block = heap.alloc(&mut w, 100_000) as usize;
    assert_eq!(heap.unmap(&mut w, block, page), Err(MapError::NotMapped));
    assert_eq!(heap.unmap(&mut w, block + 1, page), Err(MapError::NotMapped));
    assert_eq!(heap.unmap(&mut w, heap.end_address(), page), Err(MapError::NotMapped));
    // The end of such a range lies before its begin.
    let at = heap.map(&mut w, 10 * page, page).unwrap() as usize;
    for len in [usize::MAX - 2 * page, usize::MAX - page, usize::MAX] {
        assert_eq!(heap.unmap(&mut w, at, len), Err(MapError::NotMapped), "{len:#x}");
        assert_eq!(heap.map_again(&mut w, at, len), Err(MapError::NotMapped), "{len:#x}");
        assert_eq!(heap.remap(&mut w, at, len, page, true), Err(MapError::NotMapped), "{len:#x}");
    }
    sound(&heap);
}

#[test]
fn an_image_with_a_broken_head_is_refused() {
    for (at, value) in [(0, 0), (0, 1000), (0, 1 << 40), (8, 0), (8, 1 << 40)] {
        let (heap, _) = heap(64 << 20);
        let base = heap.base_address();
        // SAFETY: the arena's head, 4 KiB into the region; no other code reads it.
        unsafe { *((base + 4096 + at) as *mut u64) = value };
        let space = Borrowed { base: base as *mut u8, len: 4 << 20, capacity: 64 << 20 };
        assert!(ArenaHeap::open(Box::new(space), 4096).is_err());
    }
}

#[test]
fn an_image_that_ends_before_its_head_is_refused() {
    let memory = Reservation::addresses(64 << 20).unwrap();
    for len in [0, 4096] {
        let space = Borrowed { base: memory.base().as_ptr(), len, capacity: 64 << 20 };
        assert!(ArenaHeap::open(Box::new(space), 4096).is_err());
    }
}

#[test]
fn a_medium_that_is_nearly_full_is_used_to_its_end() {
    let mut w = Blocks::default();
    let mut space = TestSpace::new(1 << 30);
    space.room = 66 * (4 << 20);
    let room = space.room;
    let mut heap = ArenaHeap::format(Box::new(space), 4096, &mut w).unwrap();
    while !heap.alloc(&mut w, 1 << 20).is_null() {}
    assert!((room - (9 << 20)..room).contains(&heap.stat().used_bytes), "{:?}", heap.stat());
    sound(&heap);
}

/// The directory ends shortly before the end of a group: the descriptions do not find place behind it.
#[test]
fn an_arena_is_made_whatever_the_length_of_its_directory() {
    for gib in [3_990u64, 4_000, 4_020, 4_030] {
        let mut w = Blocks::default();
        // More is not touched.
        let mut space = TestSpace::new(32 << 20);
        space.capacity = gib << 30;
        let made = ArenaHeap::format(Box::new(space), 4096, &mut w);
        let mut heap = made.unwrap_or_else(|what| panic!("{gib} GiB: {what}"));
        assert!(!heap.alloc(&mut w, 100).is_null());
        sound(&heap);
    }
}

#[test]
fn a_block_takes_the_free_pages_before_those_that_the_space_grows_by() {
    for (capacity, block) in [(32, 16), (32, 31), (48, 46), (64, 61)] {
        let (mut heap, mut w) = heap(capacity << 20);
        assert!(!heap.alloc(&mut w, 100).is_null());
        assert!(heap.end_address() - heap.base_address() <= block << 20, "the space has to grow");
        assert!(!heap.alloc(&mut w, block << 20).is_null(), "{block} MiB of {capacity}");
        sound(&heap);
    }
}

#[test]
fn a_run_with_fewer_addresses_has_what_is_there_and_grows_less() {
    let (mut heap, mut w) = heap(4 << 30);
    let block = heap.alloc(&mut w, 3 << 20) as usize;
    let (base, len) = (heap.base_address(), heap.end_address() - heap.base_address());
    let space = Borrowed { base: base as *mut u8, len: len as u64, capacity: len as u64 + (9 << 20) };
    let mut fewer = ArenaHeap::open(Box::new(space), 4096).unwrap();
    sound(&fewer);
    assert_eq!(fewer.usable_bytes(block), heap.usable_bytes(block));
    assert!(fewer.alloc(&mut w, 100 << 20).is_null());
    assert!(!fewer.alloc(&mut w, 4000).is_null());
    sound(&fewer);
}

/// Memory that somebody else owns, for one more handle; it does not grow.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed {
    pub(crate) base: *mut u8,
    pub(crate) len: u64,
    pub(crate) capacity: u64,
}
// SAFETY: test memory, which the tests that share it read and write by atomic words.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}
impl ArenaSpace for Borrowed {
    fn base(&self) -> *mut u8 {
        self.base
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn grow(&mut self, _: u64) -> io::Result<()> {
        Err(io::Error::other("no"))
    }
}

#[test]
fn little_is_lost_to_fragmentation() {
    let (mut heap, mut w) = heap(1 << 30);
    let mut all = Vec::new();
    let mut wanted = 0u64;
    for i in 0..60_000usize {
        let bytes = 16 + (i * 7919) % 700;
        wanted += bytes as u64;
        all.push(heap.alloc(&mut w, bytes) as usize);
    }
    let stat = heap.stat();
    let held = stat.bytes - stat.free_bytes;
    assert!(held * 100 < wanted * 118, "{held} bytes held for {wanted}");
    for at in all {
        heap.free(&mut w, at).unwrap();
    }
    sound(&heap);
    let left = heap.stat();
    let slabs: u64 = CLASSES.iter().map(|c| u64::from(c.pages) * 4096).sum();
    assert!(left.bytes - left.free_bytes - left.meta_bytes <= slabs);
}

#[test]
fn free_bytes_are_those_of_no_block_and_no_others() {
    let (mut heap, mut w) = heap(64 << 20);
    let mut dice = 0x9e37_79b9_7f4a_7c15u64;
    let mut blocks = Vec::new();
    for _ in 0..3000 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let bytes = if dice.is_multiple_of(64) { dice as usize % 60_000 } else { dice as usize % 2_000 };
        blocks.push((heap.alloc(&mut w, bytes) as usize, bytes.max(1)));
    }
    let before = heap.frees();
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 3 == 0);
    let mut rest = &freed[..];
    for count in (1..14).cycle() {
        let some;
        (some, rest) = rest.split_at(count.min(rest.len()));
        let since = heap.frees();
        for &(_, (at, _)) in some {
            heap.free(&mut w, at).unwrap();
        }
        let mut free = heap.bytes_freed_since(since);
        for &(_, (at, bytes)) in some {
            assert!((at..at + bytes).step_by(61).all(|part| free.hold(part, 1)), "{at:#x} of {count}");
        }
        assert!(kept.iter().all(|(_, (at, bytes))| !free.hold(*at, *bytes)), "a block in use");
        if rest.is_empty() {
            break;
        }
    }
    assert!(heap.frees() >= before + freed.len() as u64);
    let mut free = heap.free_bytes();
    for (_, (at, bytes)) in kept {
        for part in (at..at + bytes).step_by(16) {
            assert!(!free.hold(part, (at + bytes - part).min(32)), "{part:#x} of a block in use");
        }
    }
    // A byte on its own is judged exactly, whatever lies next to it.
    for &(_, (at, bytes)) in &freed {
        assert!((at..at + bytes).step_by(61).all(|part| free.hold(part, 1)), "{at:#x} was freed");
    }
    assert!(!free.hold(heap.base_address(), 32), "the arena's own state is no free memory");
}
