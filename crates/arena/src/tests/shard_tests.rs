//! Shards: transactions of different threads allocate side by side, and nothing is lost.

use crate::bytes::class::CLASS_BYTES;
use crate::tests::example_tests::{Blocks, Borrowed, TestSpace};
use crate::tests::toy_transactions::{Clock, Conflict, Tx};
use crate::{ArenaHeap, ArenaSpace, BadFree};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

const HEAD: u64 = 4096;

/// An arena with shards. The first handle owns the memory.
struct World {
    heap: ArenaHeap,
    space: Borrowed,
    clock: Clock,
}

impl World {
    fn new(capacity: u64, shards: u64) -> Self {
        let space = TestSpace::new(capacity);
        let shared = Borrowed { base: space.base(), len: capacity, capacity };
        let mut w = Blocks::default();
        let mut heap = ArenaHeap::format(Box::new(space), HEAD, &mut w).unwrap();
        if shards > 0 {
            assert_eq!(heap.make_shards(&mut w, shards), Ok(shards));
        }
        Self { heap, space: shared, clock: Clock::default() }
    }

    fn handle(&self, shard: u64) -> ArenaHeap {
        let mut heap = ArenaHeap::open(Box::new(self.space), HEAD).unwrap();
        heap.enter_shard(shard);
        heap
    }

    /// Whether a word of the head says which runs of pages are free, or how many there are.
    fn is_of_free_runs(&self, at: usize) -> bool {
        let offset = at.wrapping_sub(self.space.base as usize + HEAD as usize);
        offset < 48 || (336..2384).contains(&offset)
    }

    fn sound(&self, blocks: u64) {
        // The first handle's space does not know what others grew.
        assert_eq!(self.handle(0).check(), Vec::<String>::new());
        assert_eq!(self.heap.stat().blocks, blocks, "the arena and the program count the same blocks");
    }
}

/// A generator that is the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn size(&mut self) -> usize {
        match self.roll(20) {
            0 => self.roll(40_000),
            1..4 => self.roll(5_000),
            _ => self.roll(300),
        }
    }
}

/// Runs two transactions of four allocations each at the same time, `rounds` times. Returns how often they met, and
/// how often at a word that does not speak of free runs.
fn meet(
    world: &World,
    shards: [u64; 2],
    rounds: usize,
    size: impl Fn(usize, &mut Dice) -> usize,
) -> (usize, usize) {
    let mut handles = shards.map(|shard| world.handle(shard));
    let mut dice = Dice(0x9e37_79b9);
    let (mut met, mut elsewhere) = (0, 0);
    for _ in 0..rounds {
        let mut both = [Tx::begin(&world.clock), Tx::begin(&world.clock)];
        for _ in 0..4 {
            for who in 0..2 {
                let bytes = size(who, &mut dice);
                assert!(!handles[who].alloc_in(&mut both[who], bytes, 16).unwrap().is_null());
            }
        }
        let [first, second] = both;
        let conflicts = first.conflicts(&second);
        met += usize::from(!conflicts.is_empty());
        elsewhere += usize::from(
            conflicts.iter().any(|&at| !world.is_of_free_runs(at)) && {
                // Where both take pages from the free runs they meet at those pages too.
                ![&first, &second].iter().all(|tx| tx.writes.keys().any(|&at| world.is_of_free_runs(at)))
            },
        );
        first.commit().unwrap();
        assert!(second.commit().is_ok() || !conflicts.is_empty());
    }
    assert_eq!(world.handle(0).check(), Vec::<String>::new());
    (met, elsewhere)
}

#[test]
fn threads_in_shards_of_their_own_meet_only_at_the_free_runs_and_seldom() {
    let world = World::new(1 << 30, 8);
    let (met, elsewhere) = meet(&world, [1, 2], 5_000, |_, dice| dice.roll(600));
    assert_eq!(elsewhere, 0);
    assert!(met <= 50, "{met} of 5,000");
}

#[test]
fn threads_that_allocate_as_much_as_they_free_meet_seldom() {
    const ROUNDS: usize = 20_000;
    let world = World::new(1 << 30, 8);
    let mut handles = [1, 2].map(|shard| world.handle(shard));
    let mut dice = Dice(11);
    let mut live = [(); 2].map(|()| VecDeque::new());
    let (mut met, mut measured) = (0, 0);
    for round in 0..ROUNDS {
        let mut both = [Tx::begin(&world.clock), Tx::begin(&world.clock)];
        let mut made = [(); 2].map(|()| Vec::new());
        for who in 0..2 {
            for _ in 0..2 {
                let bytes = dice.roll(600);
                made[who].push(handles[who].alloc_in(&mut both[who], bytes, 16).unwrap() as usize);
            }
            // Each has a thousand blocks, and frees any two of them.
            for at in 0..if live[who].len() < 1000 { 0 } else { 2 } {
                live[who].swap(at, dice.roll(900) + 2);
                assert_eq!(handles[who].free_in(&mut both[who], live[who][at]), Ok(Ok(())));
            }
        }
        let [first, second] = both;
        if round >= ROUNDS / 2 {
            measured += 1;
            met += usize::from(!first.conflicts(&second).is_empty());
        }
        for (who, tx) in [first, second].into_iter().enumerate() {
            if tx.commit().is_ok() {
                let freed = if live[who].len() < 1000 { 0 } else { 2 };
                live[who].drain(..freed);
                live[who].extend(made[who].drain(..));
            }
        }
    }
    world.sound(live.iter().map(|of| of.len() as u64).sum());
    println!("{met} of {measured} pairs met");
    assert!(met * 100 <= measured, "{met} of {measured}");
}

#[test]
fn threads_in_one_shard_meet() {
    // The reason for shards, and the proof that the test above can fail.
    let world = World::new(1 << 30, 8);
    let (met, _) = meet(&world, [0, 0], 500, |_, dice| dice.roll(600));
    assert!(met > 250, "{met} of 500");
}

#[test]
fn different_classes_of_one_shard_meet_only_where_slabs_are_made() {
    let world = World::new(1 << 30, 8);
    let (met, _) = meet(&world, [3, 3], 5_000, |who, _| [40, 100][who]);
    assert!(met <= 400, "{met} of 5,000");
}

#[test]
fn a_transaction_that_met_another_one_changes_nothing_and_a_broken_engine_is_found() {
    for is_broken in [false, true] {
        let mut world = World::new(64 << 20, 2);
        world.clock.is_broken = is_broken;
        let mut handles = [world.handle(1), world.handle(1)];
        let mut warm = Tx::begin(&world.clock);
        handles[0].alloc_in(&mut warm, 100, 16).unwrap();
        warm.commit().unwrap();
        let mut both = [Tx::begin(&world.clock), Tx::begin(&world.clock)];
        let got = [0, 1].map(|who| handles[who].alloc_in(&mut both[who], 100, 16).unwrap());
        assert_eq!(got[0], got[1], "the same snapshot gives the same block");
        let [first, second] = both;
        first.commit().unwrap();
        assert_eq!(second.commit(), if is_broken { Ok(()) } else { Err(Conflict) });
        // The broken engine gave one block to two: the arena then counts a block less than the program.
        let program = if is_broken { 3 } else { 2 };
        assert_eq!(world.heap.stat().blocks == program, !is_broken);
    }
}

#[test]
fn a_transaction_that_is_undone_leaves_nothing() {
    let world = World::new(256 << 20, 4);
    let mut heap = world.handle(1);
    let mut dice = Dice(7);
    for round in 0..200 {
        let mut tx = Tx::begin(&world.clock);
        let blocks: Vec<_> =
            (0..50).map(|_| heap.alloc_in(&mut tx, dice.size() * 4, 16).unwrap() as usize).collect();
        // Its own blocks can be asked about, resized and freed in any state, before any of it is in place.
        for (at, &block) in blocks.iter().enumerate() {
            assert!(heap.usable_bytes_in(&mut tx, block).unwrap().is_some());
            if at % 3 == 0 {
                assert_eq!(heap.free_in(&mut tx, block), Ok(Ok(())));
                assert_eq!(heap.free_in(&mut tx, block), Ok(Err(BadFree::Double)));
            } else if at % 3 == 1 {
                assert!(!heap.resize_in(&mut tx, block, 5000, 16).unwrap().unwrap().is_null());
            }
        }
        drop(tx);
        if round % 50 == 0 {
            world.sound(0);
        }
    }
    world.sound(0);
}

#[test]
fn a_growth_that_is_undone_can_be_done_again() {
    let world = World::new(1 << 30, 4);
    let mut heap = world.handle(2);
    let before = world.heap.stat().bytes;
    for commits in [false, false, true] {
        let mut tx = Tx::begin(&world.clock);
        let large = heap.alloc_in(&mut tx, 100 << 20, 16).unwrap() as usize;
        assert!(large != 0 && heap.usable_bytes_in(&mut tx, large).unwrap() == Some(100 << 20));
        let small = heap.alloc_zeroed_in(&mut tx, 1000, 16).unwrap() as usize;
        // An undone transaction leaves these bytes behind in free pages.
        for at in (large..large + (1 << 20)).step_by(8) {
            word_in_place(at, u64::MAX);
        }
        assert_eq!(heap.free_in(&mut tx, small), Ok(Ok(())));
        if commits {
            tx.commit().unwrap();
        } else {
            drop(tx);
            assert_eq!(world.heap.stat().bytes, before);
            world.sound(0);
        }
    }
    assert!(world.heap.stat().bytes > before);
    world.sound(1);
    let mut tx = Tx::begin(&world.clock);
    let zeroed = heap.alloc_zeroed_in(&mut tx, 60 << 10, 16).unwrap() as usize;
    for at in (zeroed..zeroed + (60 << 10)).step_by(8) {
        assert_eq!(tx.get(at), Ok(0), "pages that count as never allocated may hold what was undone");
    }
}

/// Stores outside of any transaction.
fn word_in_place(at: usize, value: u64) {
    // SAFETY: a word of the test's region, which no other thread uses.
    unsafe { (at as *mut u64).write(value) };
}

/// A block's content: each word says where it is and which block it is of.
fn fill(tx: &mut Tx<'_>, block: usize, bytes: usize, mark: u64) {
    (block..block + bytes).step_by(64).for_each(|at| tx.put(at, mark ^ at as u64));
}

fn holds(tx: &mut Tx<'_>, block: usize, bytes: usize, mark: u64) -> Result<bool, Conflict> {
    for at in (block..block + bytes).step_by(64) {
        if tx.get(at)? != mark ^ at as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn blocks_of_many_threads_are_theirs_and_none_is_lost() {
    const THREADS: u64 = 4;
    const ROUNDS: usize = 1500;
    // Fewer shards than threads: two threads share one.
    let world = World::new(512 << 20, 3);
    // Blocks that one thread made and another one frees: address to bytes and mark.
    let passed: Mutex<Vec<(usize, (usize, u64))>> = Mutex::default();
    let kept: Vec<BTreeMap<usize, (usize, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (heap, clock, passed) = (world.handle(1 + thread % 3), &world.clock, &passed);
                scope.spawn(move || one_thread(heap, clock, passed, thread, ROUNDS))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let live: BTreeMap<_, _> = kept.into_iter().flatten().chain(passed.into_inner().unwrap()).collect();
    world.sound(live.len() as u64);
    // A start after a crash: new handles, which know only the bytes.
    let mut handles: Vec<_> = (0..=3).map(|shard| world.handle(shard)).collect();
    let mut end = 0;
    for (&block, &(bytes, mark)) in &live {
        assert!(end <= block, "blocks overlap");
        end = block + handles[0].usable_bytes(block).unwrap();
        assert!(end - block >= bytes);
        assert_eq!(
            holds(&mut Tx::begin(&world.clock), block, bytes, mark),
            Ok(true),
            "content of {block:#x}"
        );
    }
    let mut in_use = BTreeMap::new();
    for block in world.heap.live() {
        let (at, bytes) = block.unwrap();
        assert!(in_use.insert(at, bytes).is_none());
    }
    assert!(live.keys().eq(in_use.keys()), "a block is in use that no thread has");
    for (turn, &block) in live.keys().enumerate() {
        let mut tx = Tx::begin(&world.clock);
        assert_eq!(handles[turn % 4].free_in(&mut tx, block), Ok(Ok(())));
        tx.commit().unwrap();
    }
    world.sound(0);
}

type Marked = (usize, (usize, u64));

fn one_thread(
    mut heap: ArenaHeap,
    clock: &Clock,
    passed: &Mutex<Vec<Marked>>,
    thread: u64,
    rounds: usize,
) -> BTreeMap<usize, (usize, u64)> {
    let mut dice = Dice(thread + 1);
    let mut mine: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    let mut done = 0;
    while done < rounds {
        let taken = if dice.roll(4) == 0 { passed.lock().unwrap().pop() } else { None };
        let own = if dice.roll(2) == 0 { mine.iter().next().map(|(&at, &how)| (at, how)) } else { None };
        let mark = (thread << 48) + ((done as u64) << 16);
        let mut tx = Tx::begin(clock);
        let mut made = Vec::new();
        let worked = (|| -> Result<(), Conflict> {
            for (block, (bytes, mark)) in taken.iter().chain(&own).copied() {
                assert!(holds(&mut tx, block, bytes, mark)?, "another thread wrote to {block:#x}");
                assert_eq!(heap.free_in(&mut tx, block)?, Ok(()));
            }
            for _ in 0..dice.roll(4) {
                let bytes = dice.size();
                let block = heap.alloc_in(&mut tx, bytes, 16)? as usize;
                assert_ne!(block, 0);
                fill(&mut tx, block, bytes, mark);
                made.push((block, (bytes, mark)));
            }
            Ok(())
        })();
        // One in eight changes its mind.
        let committed = worked.is_ok() && dice.roll(8) != 0 && tx.commit().is_ok();
        if !committed {
            passed.lock().unwrap().extend(taken);
            continue;
        }
        done += 1;
        own.map(|(block, _)| mine.remove(&block));
        if dice.roll(3) == 0 {
            passed.lock().unwrap().extend(made);
        } else {
            mine.extend(made);
        }
    }
    mine
}

#[test]
fn what_a_shard_keeps_is_there_for_the_others_when_the_region_is_full() {
    let world = World::new(16 << 20, 4);
    let mut handles = [world.handle(1), world.handle(2)];
    let mut blocks = Vec::new();
    let fill_up = |heap: &mut ArenaHeap, blocks: &mut Vec<usize>| {
        let mut got = 0;
        loop {
            let mut tx = Tx::begin(&world.clock);
            let at = heap.alloc_in(&mut tx, 100, 16).unwrap() as usize;
            if at == 0 {
                return got;
            }
            tx.commit().unwrap();
            blocks.push(at);
            got += 1;
        }
    };
    let all = fill_up(&mut handles[0], &mut blocks);
    assert!(all > 130_000, "{all} blocks of 112 bytes fit 16 MiB");
    assert_eq!(world.heap.stat().blocks, all);
    // Every hundredth block is freed by shard 1, so that its slabs come to shard 1, and shard 2 gets them all.
    let mut freed = 0;
    for at in blocks.iter().step_by(100) {
        let mut tx = Tx::begin(&world.clock);
        handles[0].free_in(&mut tx, *at).unwrap().unwrap();
        tx.commit().unwrap();
        freed += 1;
    }
    assert_eq!(fill_up(&mut handles[1], &mut blocks), freed);
    world.sound(all);
}

#[test]
fn an_arena_from_before_shards_gets_them_and_its_slabs_are_used() {
    let mut world = World::new(256 << 20, 0);
    let mut w = Blocks::default();
    let old: Vec<_> =
        CLASS_BYTES.iter().map(|&bytes| world.heap.alloc(&mut w, bytes as usize) as usize).collect();
    assert_eq!(world.heap.shard_count(), 0);
    world.sound(old.len() as u64);
    let mut tx = Tx::begin(&world.clock);
    assert_eq!(world.handle(0).make_shards(&mut tx, 64), Ok(64));
    tx.commit().unwrap();
    let mut heap = world.handle(64);
    let mut tx = Tx::begin(&world.clock);
    for (&bytes, &before) in CLASS_BYTES.iter().zip(&old) {
        let at = heap.alloc_in(&mut tx, bytes as usize, 16).unwrap() as usize;
        assert_eq!(at, before + bytes as usize, "the next block of the slab that was there");
    }
    tx.commit().unwrap();
    world.sound(2 * old.len() as u64);
    // The one door's handle goes on with what the other one left.
    for at in old {
        world.heap.free(&mut w, at).unwrap();
    }
    world.sound(CLASS_BYTES.len() as u64);
}

#[test]
fn a_table_of_shards_that_cannot_be_one_is_refused() {
    for (at, value) in [(2384, 1 << 40), (2392, 0), (2392, 1 << 20)] {
        let world = World::new(64 << 20, 8);
        word_in_place(world.space.base as usize + HEAD as usize + at, value);
        assert!(ArenaHeap::open(Box::new(world.space), HEAD).is_err());
    }
}

#[test]
fn the_number_of_shards_is_chosen_once_and_every_opening_finds_it() {
    let world = World::new(64 << 20, 5);
    let mut tx = Tx::begin(&world.clock);
    let mut heap = world.handle(5);
    assert_eq!(heap.shard_count(), 5);
    assert_eq!(heap.make_shards(&mut tx, 9), Ok(5));
    assert!(tx.writes.is_empty());
    let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| heap.enter_shard(6)));
    assert!(beyond.is_err());
    assert_eq!(World::new(64 << 20, 0).handle(0).shard_count(), 0);
}

/// Memory of which a crash has left a part usable.
struct Shortened(Borrowed, std::sync::Arc<std::sync::atomic::AtomicU64>);

impl ArenaSpace for Shortened {
    fn base(&self) -> *mut u8 {
        self.0.base
    }
    fn len(&self) -> u64 {
        self.1.load(std::sync::atomic::Ordering::Relaxed)
    }
    fn capacity(&self) -> u64 {
        self.0.capacity
    }
    fn grow(&mut self, len: u64) -> std::io::Result<()> {
        self.1.fetch_max(len, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_reserve_that_a_crash_left_without_space_gets_it_before_it_is_used() {
    let world = World::new(64 << 20, 1);
    let mut first = world.handle(1);
    let mut tx = Tx::begin(&world.clock);
    assert!(!first.alloc_in(&mut tx, 4096, 16).unwrap().is_null());
    tx.commit().unwrap();
    let used = first.used_pages(first.view.pages()).unwrap() * 4096;
    let len = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(used));
    let space = Shortened(world.space, std::sync::Arc::clone(&len));
    let mut heap = ArenaHeap::open(Box::new(space), HEAD).unwrap();
    heap.enter_shard(1);
    let mut end = 0;
    for _ in 0..100 {
        let mut tx = Tx::begin(&world.clock);
        let block = heap.alloc_in(&mut tx, 4096, 16).unwrap();
        tx.commit().unwrap();
        end = end.max(block as u64 + 4096 - world.space.base as u64);
        let len = len.load(std::sync::atomic::Ordering::Relaxed);
        assert!(end <= len, "a block ends at {end}, the region at {len}");
    }
    assert!(end > used, "blocks lie where the crash took the space");
}
