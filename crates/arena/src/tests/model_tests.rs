//! The arena against a model, through commits and crashes: what comes back is the committed state, byte by byte, and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use mangrove_sys::Reservation;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::{ArenaHeap, ArenaSpace, PAGE_BYTES, Writes};

const CAPACITY: usize = 48 << 20;

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: usize, align: usize, zeroed: bool },
    Free(usize),
    Resize(usize, usize),
    Map(usize),
    Unmap { which: usize, from: usize, pages: usize },
    TakeFreePages,
    Commit,
    Crash,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..600, 3 => 0usize..20_000, 1 => 0usize..3_000_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (size(), 0u32..14, any::<bool>())
            .prop_map(|(bytes, align, zeroed)| Step::Alloc { bytes, align: 1 << align, zeroed }),
        8 => any::<usize>().prop_map(Step::Free),
        4 => (any::<usize>(), size()).prop_map(|(which, bytes)| Step::Resize(which, bytes)),
        1 => (1usize..300).prop_map(Step::Map),
        1 => (any::<usize>(), 0usize..300, 1usize..100)
            .prop_map(|(which, from, pages)| Step::Unmap { which, from, pages }),
        1 => Just(Step::TakeFreePages),
        2 => Just(Step::Commit),
        1 => Just(Step::Crash),
    ]
}

/// Memory at one address, whose content a crash replaces by what was committed.
struct Working {
    base: *mut u8,
    len: u64,
    taken: Taken,
}

/// Pages whose content was taken away, and for which no space was provided since.
type Taken = Arc<Mutex<BTreeSet<u64>>>;

// SAFETY: test memory, used by one thread.
unsafe impl Send for Working {}

impl ArenaSpace for Working {
    fn base(&self) -> *mut u8 {
        self.base
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn capacity(&self) -> u64 {
        CAPACITY as u64
    }
    fn grow(&mut self, len: u64) -> io::Result<()> {
        if len > CAPACITY as u64 {
            return Err(io::Error::other("full"));
        }
        self.len = len;
        Ok(())
    }
    fn provide(&mut self, offset: u64, len: u64) -> io::Result<()> {
        assert!(offset + len <= self.len, "beyond what is usable");
        let page = |at: u64| at / PAGE_BYTES as u64;
        self.taken.lock().unwrap().retain(|taken| !(page(offset)..page(offset + len)).contains(taken));
        Ok(())
    }
}

/// The 32-byte blocks written since the last commit.
#[derive(Default)]
struct Written(BTreeMap<usize, usize>);

impl Writes for Written {
    fn wrote(&mut self, ptr: usize, len: usize) {
        if len > 0 {
            let end = self.0.entry(ptr / 32 * 32).or_default();
            *end = (*end).max((ptr + len).next_multiple_of(32));
        }
    }
}

struct World {
    working: Reservation,
    image: Vec<u8>,
    heap: ArenaHeap,
    written: Written,
    /// Address to contents; of mappings too.
    blocks: BTreeMap<usize, Vec<u8>>,
    maps: BTreeMap<usize, Vec<u8>>,
    committed: (BTreeMap<usize, Vec<u8>>, BTreeMap<usize, Vec<u8>>),
    taken: Taken,
    /// Freed since pages were taken away last.
    gone: Vec<(usize, usize)>,
    tick: u8,
}

impl World {
    fn new() -> Self {
        let working = Reservation::anonymous(CAPACITY).unwrap();
        let mut written = Written::default();
        let taken = Taken::default();
        let space = Box::new(Working { base: working.base().as_ptr(), len: 0, taken: taken.clone() });
        let heap = ArenaHeap::format(space, 8192, &mut written).unwrap();
        let mut world = Self {
            working,
            image: vec![0; CAPACITY],
            heap,
            written,
            blocks: BTreeMap::new(),
            maps: BTreeMap::new(),
            committed: Default::default(),
            taken,
            gone: Vec::new(),
            tick: 0,
        };
        world.commit();
        world
    }

    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: inside the working copy.
        unsafe { std::slice::from_raw_parts(at as *const u8, len) }
    }

    /// Writes into a block as a tracked program does.
    fn fill(&mut self, at: usize, len: usize) -> Vec<u8> {
        self.tick = self.tick.wrapping_add(1);
        // SAFETY: the block is in use and this long.
        unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len).fill(self.tick) };
        self.written.wrote(at, len);
        vec![self.tick; len]
    }

    fn commit(&mut self) {
        let base = self.working.base().as_ptr() as usize;
        for (at, end) in std::mem::take(&mut self.written.0) {
            // SAFETY: inside the working copy.
            let now = unsafe { std::slice::from_raw_parts(at as *const u8, end - at) };
            self.image[at - base..end - base].copy_from_slice(now);
        }
        self.committed = (self.blocks.clone(), self.maps.clone());
    }

    fn crash(&mut self) {
        // SAFETY: the working copy's memory; the handle to it is replaced below.
        unsafe { std::slice::from_raw_parts_mut(self.working.base().as_ptr(), CAPACITY) }
            .copy_from_slice(&self.image);
        self.written = Written::default();
        self.gone.clear();
        let (base, taken) = (self.working.base().as_ptr(), self.taken.clone());
        let space = Box::new(Working { base, len: CAPACITY as u64, taken });
        self.heap = ArenaHeap::open(space, 8192).unwrap();
        (self.blocks, self.maps) = self.committed.clone();
    }

    /// Takes the content of all pages away in which nothing is in use, from the working copy and from what a crash
    /// leaves.
    fn take_free_pages(&mut self) {
        let base = self.working.base().as_ptr() as usize;
        let mut runs = Vec::new();
        self.heap.free_pages(|run| runs.push(run));
        let live: Vec<_> = self.heap.live().map(Result::unwrap).collect();
        let mut before = 0;
        for run in runs {
            let (from, to) = (run.start as usize, run.end as usize);
            assert!(
                from % PAGE_BYTES == 0 && to % PAGE_BYTES == 0 && from < to && (from > before || before == 0)
            );
            before = to;
            let after = live.partition_point(|(at, _)| at - base < to);
            assert!(after == 0 || live[after - 1].0 + live[after - 1].1 - base <= from, "in use: {run:?}");
            // SAFETY: inside the test's memory; the arena does not need it.
            unsafe { std::ptr::write_bytes((base + from) as *mut u8, 0xDD, to - from) };
            self.image[from..to].fill(0xDD);
            self.taken.lock().unwrap().extend((from / PAGE_BYTES..to / PAGE_BYTES).map(|page| page as u64));
        }
        // Of the others only the space goes.
        self.heap.unused_pages(|run| {
            self.taken.lock().unwrap().extend(run.start / PAGE_BYTES as u64..run.end / PAGE_BYTES as u64);
        });
        // Blocks of more than a page that are freed give all their pages.
        let pages = |at: &usize, len: usize| (at - base) / PAGE_BYTES..(at - base + len).div_ceil(PAGE_BYTES);
        let in_use: BTreeSet<_> = live.iter().flat_map(|(at, len)| pages(at, *len)).collect();
        for at in self.gone.drain(..) {
            let is_taken = |page: usize| self.taken.lock().unwrap().contains(&(page as u64));
            for page in pages(&at.0, at.1).filter(|page| !in_use.contains(page)) {
                // Unless the arena has the page for itself.
                let own = !self.heap.free_bytes().hold(base + page * PAGE_BYTES, 1);
                assert!(is_taken(page) || own, "page {page} was freed");
            }
        }
    }

    fn verify(&self) {
        for (&at, content) in self.blocks.iter().chain(&self.maps) {
            let first = (at - self.working.base().as_ptr() as usize) / PAGE_BYTES;
            let pages = first as u64..first as u64 + content.len().div_ceil(PAGE_BYTES) as u64;
            let taken = self.taken.lock().unwrap();
            assert!(taken.range(pages).next().is_none(), "the block at {at:#x} has a page without space");
        }
        assert_eq!(self.heap.check(), Vec::<String>::new());
        for (&at, content) in self.blocks.iter().chain(&self.maps) {
            assert_eq!(self.bytes(at, content.len()), &content[..], "content of {at:#x}");
        }
        let mut ranges: Vec<_> = self
            .blocks
            .keys()
            .map(|&at| (at, self.heap.usable_bytes(at).unwrap()))
            .chain(self.maps.iter().map(|(&at, content)| (at, content.len())))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "blocks overlap");
        let live: Result<Vec<_>, _> = self.heap.live().collect();
        let mapped = |range: &&(usize, usize)| self.maps.contains_key(&range.0);
        assert_eq!(live.as_ref().unwrap().iter().filter(|range| !mapped(range)).count(), self.blocks.len());
        assert!(
            ranges
                .iter()
                .filter(|range| !mapped(range))
                .eq(live.unwrap().iter().filter(|range| !mapped(range)))
        );
        let stat = self.heap.stat();
        assert_eq!(stat.blocks, self.blocks.len() as u64);
        assert_eq!(stat.mapped_bytes, self.maps.values().map(|m| m.len() as u64).sum::<u64>());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { bytes, align, zeroed } => {
                let at = if zeroed {
                    self.heap.alloc_zeroed(&mut self.written, bytes, align)
                } else {
                    self.heap.alloc_aligned(&mut self.written, bytes, align)
                } as usize;
                if at != 0 {
                    assert!(at.is_multiple_of(align.max(16)));
                    if zeroed {
                        assert!(self.bytes(at, bytes).iter().all(|&b| b == 0));
                    }
                    // Half of the zeroed ones stay as they came.
                    let content =
                        if zeroed && bytes % 2 == 0 { vec![0; bytes] } else { self.fill(at, bytes) };
                    assert!(self.blocks.insert(at, content).is_none());
                }
            }
            Step::Free(which) => {
                if let Some(at) = pick(&self.blocks, which) {
                    self.gone.push((at, self.heap.usable_bytes(at).unwrap()));
                    self.heap.free(&mut self.written, at).unwrap();
                    self.blocks.remove(&at);
                    assert!(self.heap.free(&mut self.written, at).is_err());
                }
            }
            Step::Resize(which, bytes) => {
                if let Some(at) = pick(&self.blocks, which) {
                    let new = self.heap.resize(&mut self.written, at, bytes).unwrap() as usize;
                    if new != 0 {
                        let mut content = self.blocks.remove(&at).unwrap();
                        content.truncate(bytes);
                        let kept = content.len();
                        assert_eq!(self.bytes(new, kept), &content[..]);
                        let tail = self.fill(new + kept, bytes - kept);
                        content.extend(tail);
                        self.blocks.insert(new, content);
                    }
                }
            }
            Step::Map(pages) => {
                if let Ok(at) = self.heap.map(&mut self.written, pages * PAGE_BYTES, PAGE_BYTES) {
                    let at = at as usize;
                    assert!(self.bytes(at, pages * PAGE_BYTES).iter().all(|&b| b == 0));
                    let mut content = vec![0; pages * PAGE_BYTES];
                    let written = self.fill(at, pages * 100);
                    content[..written.len()].copy_from_slice(&written);
                    self.maps.insert(at, content);
                }
            }
            Step::Unmap { which, from, pages } => {
                if let Some(at) = pick(&self.maps, which) {
                    let content = self.maps.remove(&at).unwrap();
                    let has = content.len() / PAGE_BYTES;
                    let from = from % has;
                    let until = (from + pages).min(has);
                    let range = at + from * PAGE_BYTES;
                    self.heap.unmap(&mut self.written, range, (until - from) * PAGE_BYTES).unwrap();
                    if from > 0 {
                        self.maps.insert(at, content[..from * PAGE_BYTES].to_vec());
                    }
                    if until < has {
                        self.maps.insert(at + until * PAGE_BYTES, content[until * PAGE_BYTES..].to_vec());
                    }
                }
            }
            Step::TakeFreePages => {
                // Content must stay until the command that freed it is durable.
                self.commit();
                self.take_free_pages();
            }
            Step::Commit => self.commit(),
            Step::Crash => self.crash(),
        }
    }
}

fn pick(of: &BTreeMap<usize, Vec<u8>>, which: usize) -> Option<usize> {
    of.keys().nth(which % of.len().max(1)).copied()
}

proptest! {
    // The same cases in every run; a longer campaign sets PROPTEST_RNG_SEED and PROPTEST_CASES.
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 2000,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_arena_is_its_model_through_commits_and_crashes(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            if matches!(step, Step::Commit | Step::Crash) {
                world.verify();
            }
        }
        world.verify();
        world.crash();
        world.verify();
    }
}
