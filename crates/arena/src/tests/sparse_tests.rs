//! Blocks that move out of sparse slabs: what becomes free, and that a plan older than the arena breaks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mangrove_sys::Reservation;

use crate::bytes::class::{CLASSES, class_of};
use crate::{ArenaHeap, ArenaSpace, MovePlan, PAGE_BYTES, SlabSurvey, Writes};

const CAPACITY: u64 = 64 << 20;
/// Bytes of blocks: of several classes, with slabs of one page and of sixteen.
const SIZES: [usize; 5] = [24, 100, 640, 1_056, 3_000];

#[derive(Clone, Default)]
struct Medium {
    /// Pages whose content was taken away, and for which no space was provided since.
    taken: Arc<Mutex<BTreeSet<u64>>>,
    is_full: Arc<AtomicBool>,
}

struct Space(Reservation, u64, Medium);

impl ArenaSpace for Space {
    fn base(&self) -> *mut u8 {
        self.0.base().as_ptr()
    }
    fn len(&self) -> u64 {
        self.1
    }
    fn capacity(&self) -> u64 {
        CAPACITY
    }
    fn grow(&mut self, len: u64) -> io::Result<()> {
        self.1 = len;
        Ok(())
    }
    fn provide(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let pages = offset / PAGE_BYTES as u64..(offset + len) / PAGE_BYTES as u64;
        let mut taken = self.2.taken.lock().unwrap();
        if self.2.is_full.load(Ordering::Relaxed) && taken.range(pages.clone()).next().is_some() {
            return Err(io::Error::other("full"));
        }
        taken.retain(|page| !pages.contains(page));
        Ok(())
    }
}

struct Ignored;

impl Writes for Ignored {
    fn wrote(&mut self, _: usize, _: usize) {}
}

/// An arena, and what lies in each block.
struct World {
    heap: ArenaHeap,
    medium: Medium,
    blocks: BTreeMap<usize, (usize, u8)>,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let medium = Medium::default();
        let space = Space(Reservation::anonymous(CAPACITY as usize).unwrap(), 0, medium.clone());
        let heap = ArenaHeap::format(Box::new(space), 4096, &mut Ignored).unwrap();
        Self { heap, medium, blocks: BTreeMap::new(), seed }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % limit
    }

    fn fill(&mut self, count: u64) {
        for _ in 0..count {
            let bytes = SIZES[self.below(5) as usize];
            let at = self.heap.alloc(&mut Ignored, bytes);
            if at.is_null() {
                return;
            }
            let byte = self.below(256) as u8;
            // SAFETY: a fresh block.
            unsafe { std::ptr::write_bytes(at, byte, bytes) };
            assert!(self.blocks.insert(at as usize, (bytes, byte)).is_none());
        }
    }

    fn empty(&mut self, of_ten: u64) {
        for at in self.blocks.keys().copied().collect::<Vec<_>>() {
            if self.below(10) < of_ten {
                self.heap.free(&mut Ignored, at).unwrap();
                self.blocks.remove(&at);
            }
        }
    }

    fn take_free_pages(&mut self) {
        let base = self.heap.base_address();
        let taken = self.medium.taken.clone();
        self.heap.free_pages(|run| {
            taken.lock().unwrap().extend(run.start / PAGE_BYTES as u64..run.end / PAGE_BYTES as u64);
            // SAFETY: inside the test's memory; the arena does not need it.
            unsafe {
                std::ptr::write_bytes(
                    (base + run.start as usize) as *mut u8,
                    0xDD,
                    (run.end - run.start) as usize,
                );
            }
        });
    }

    fn plan(&mut self) -> MovePlan {
        let mut survey = SlabSurvey::default();
        while self.heap.survey_slabs(&mut survey, 7) {}
        survey.plan()
    }

    /// Moves what the plan says, each block with the odds of `of_ten`; returns how many moved.
    fn go(&mut self, plan: &mut MovePlan, of_ten: u64) -> u64 {
        let mut moved = 0;
        for at in self.blocks.keys().copied().collect::<Vec<_>>() {
            if self.below(10) >= of_ten {
                continue;
            }
            let is_sparse = self.heap.is_sparse(plan, at);
            let new = self.heap.alloc_denser(&mut Ignored, plan, at);
            if new.is_null() {
                continue;
            }
            assert!(is_sparse);
            let content = self.blocks.remove(&at).unwrap();
            // SAFETY: two blocks of one class.
            unsafe { std::ptr::copy_nonoverlapping(at as *const u8, new, content.0) };
            self.heap.free(&mut Ignored, at).unwrap();
            assert!(self.blocks.insert(new as usize, content).is_none(), "a block was given twice");
            moved += 1;
        }
        moved
    }

    #[track_caller]
    fn verify(&self) {
        assert_eq!(self.heap.check(), Vec::<String>::new());
        let live: BTreeSet<usize> = self.heap.live().map(|block| block.unwrap().0).collect();
        assert!(live.iter().eq(self.blocks.keys()), "what is in use is not what was allocated");
        let taken = self.medium.taken.lock().unwrap();
        for (&at, &(bytes, byte)) in &self.blocks {
            // SAFETY: a block in use.
            let found = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
            assert!(found.iter().all(|&found| found == byte), "content of {at:#x}");
            let page = |at: usize| ((at - self.heap.base_address()) / PAGE_BYTES) as u64;
            assert!(taken.range(page(at)..=page(at + bytes - 1)).next().is_none(), "{at:#x} has no space");
        }
    }

    /// Pages in which anything is in use.
    fn pages(&self) -> usize {
        let base = self.heap.base_address();
        let pages = |(at, (bytes, _)): (&usize, &(usize, u8))| {
            (at - base) / PAGE_BYTES..(at - base + bytes).div_ceil(PAGE_BYTES)
        };
        self.blocks.iter().flat_map(pages).collect::<BTreeSet<_>>().len()
    }
}

#[test]
fn what_is_left_fits_in_as_few_slabs_as_hold_it() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        world.fill(20_000);
        world.empty(9);
        world.take_free_pages();
        let (before, mut plan) = (world.pages(), world.plan());
        let planned = plan.blocks();
        assert_eq!(world.go(&mut plan, 10), planned, "each block of a sparse slab moves, and no other");
        world.verify();
        let needed: usize = SIZES
            .map(|bytes| {
                let shape = &CLASSES[class_of(bytes)];
                let count = world.blocks.values().filter(|block| block.0 == bytes).count();
                count.div_ceil(shape.slots as usize) * shape.pages as usize
            })
            .iter()
            .sum();
        assert!(world.pages() <= needed, "{} pages of {before}, where {needed} are enough", world.pages());
        assert!(needed * 2 < before, "{needed} of {before}");
        // Nothing is left to do.
        assert_eq!(world.plan().blocks(), 0);
    }
}

/// The descriptions of new groups lie in pages that were usable, and whose space was taken.
#[test]
fn what_describes_new_pages_gets_space_first() {
    let mut world = World::new(0);
    let medium = world.medium.clone();
    world.heap.make_usable(CAPACITY / PAGE_BYTES as u64);
    let base = world.heap.base_address();
    let first_end = world.heap.end_address();
    while world.heap.end_address() == first_end {
        world.heap.unused_pages(|run| {
            medium.taken.lock().unwrap().extend(run.start / PAGE_BYTES as u64..run.end / PAGE_BYTES as u64);
        });
        // No run is left that the description fits in.
        assert!(!world.heap.alloc(&mut Ignored, 15 * PAGE_BYTES).is_null());
    }
    assert!(medium.taken.lock().unwrap().len() > 1_000);
    for page in medium.taken.lock().unwrap().iter() {
        let at = base + *page as usize * PAGE_BYTES;
        // What lies beyond is not under management.
        if at >= world.heap.end_address() {
            break;
        }
        assert!(world.heap.free_bytes().hold(at, PAGE_BYTES), "page {page} is in use and has no space");
    }
}

#[test]
fn dense_slabs_stay() {
    let mut world = World::new(5);
    world.fill(20_000);
    world.empty(2);
    // Four fifths of each are in use, of those that were filled last perhaps less, and of small ones by chance.
    let planned = world.plan().blocks();
    assert!(planned * 8 < world.blocks.len() as u64, "{planned} of {} would move", world.blocks.len());
}

#[test]
fn a_few_sparse_slabs_among_many_stay() {
    let mut world = World::new(6);
    world.fill(40_000);
    assert_eq!(world.plan().blocks(), 0);
    let neighbours: Vec<_> =
        world.blocks.iter().filter(|(_, block)| block.0 == 640).map(|(at, _)| *at).collect();
    for (n, at) in neighbours.into_iter().take(1_000).enumerate() {
        // Of two slabs in 84, and then of ten.
        if n == 190 {
            assert_eq!(world.plan().blocks(), 0);
        }
        if n % 10 > 0 {
            world.heap.free(&mut Ignored, at).unwrap();
            world.blocks.remove(&at);
        }
    }
    assert!(world.plan().blocks() > 50);
}

#[test]
fn a_plan_older_than_the_arena_breaks_nothing() {
    let mut moved = 0;
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.fill(4_000);
        let mut plan = world.plan();
        for _ in 0..40 {
            match world.below(6) {
                0 => world.fill(4_000),
                1 => world.empty(7),
                2 => world.take_free_pages(),
                3 => plan = world.plan(),
                _ => moved += world.go(&mut plan, 3),
            }
        }
        world.verify();
    }
    assert!(moved > 1_000, "only {moved} blocks moved");
}

#[test]
fn a_full_medium_moves_nothing_to_where_it_has_no_space() {
    let mut world = World::new(7);
    world.fill(20_000);
    world.empty(9);
    world.take_free_pages();
    world.medium.is_full.store(true, Ordering::Relaxed);
    let mut plan = world.plan();
    let planned = plan.blocks();
    // Only into slabs of which no page was taken.
    let moved = world.go(&mut plan, 10);
    world.verify();
    assert!(moved * 2 < planned, "{moved} of {planned} moved while the medium was full");
    world.medium.is_full.store(false, Ordering::Relaxed);
    let mut plan = world.plan();
    assert!(plan.blocks() > 0);
    world.go(&mut plan, 10);
    world.verify();
    assert_eq!(world.plan().blocks(), 0);
}

#[test]
fn a_full_medium_gives_a_longer_run_that_has_its_space() {
    let mut world = World::new(1);
    let pages = [20, 5, 200, 5];
    let [short, _, long, _] = pages.map(|pages| world.heap.alloc(&mut Ignored, pages * PAGE_BYTES) as usize);
    world.heap.free(&mut Ignored, short).unwrap();
    world.take_free_pages();
    world.heap.free(&mut Ignored, long).unwrap();
    world.medium.is_full.store(true, Ordering::Relaxed);
    let at = world.heap.alloc(&mut Ignored, 10 * PAGE_BYTES) as usize;
    assert_eq!(at, long, "the free run of 20 pages at {short:#x} has no space, that of 200 has");
    assert_eq!(world.heap.check(), Vec::<String>::new());
}

#[test]
fn a_full_medium_gives_a_block_of_another_slab_that_has_its_space() {
    let mut world = World::new(1);
    let slots = CLASSES[class_of(1_056)].slots as usize;
    let blocks: Vec<_> = (0..2 * slots).map(|_| world.heap.alloc(&mut Ignored, 1_056) as usize).collect();
    let (first, second) = blocks.split_at(slots);
    // The second slab becomes empty, and stays before the first one in their list.
    for &block in second.iter().chain(&first[..1]) {
        world.heap.free(&mut Ignored, block).unwrap();
    }
    world.take_free_pages();
    world.medium.is_full.store(true, Ordering::Relaxed);
    let mut alloc = || world.heap.alloc(&mut Ignored, 1_056) as usize;
    assert_eq!([alloc(), alloc()], [first[0], 0], "the empty slab has no space, the other one has");
    world.medium.is_full.store(false, Ordering::Relaxed);
    assert!(second.contains(&alloc()));
    assert_eq!(world.heap.check(), Vec::<String>::new());
}
