//! What the arena costs: a block by size, in nanoseconds, with the write set of durable applications; and opening an
//! arena of a million blocks. `cargo run --release -p mangrove-arena --example arena_cost`.

use mangrove_arena::{ArenaHeap, ArenaSpace, Writes};
use mangrove_sys::{MapKind, Reservation};
use mangrove_tracker::WriteSet;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

/// Where the arena's head lies.
const HEAD: u64 = 4096;
const BLOCKS: usize = 100_000;

/// Memory that an arena grows in.
struct Space {
    memory: Reservation,
    len: u64,
}

impl ArenaSpace for Space {
    fn base(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    fn grow(&mut self, len: u64) -> io::Result<()> {
        self.len = len;
        Ok(())
    }
}

/// What was written since it was cleared.
struct Written(WriteSet);

impl Writes for Written {
    #[inline]
    fn wrote(&mut self, address: usize, len: usize) {
        self.0.record(address, len);
    }
}

/// Nanoseconds of one of `count` calls, the best of seven rounds.
fn best(count: usize, mut round: impl FnMut()) -> f64 {
    let rounds = (0..7).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / count as f64
    });
    rounds.fold(f64::MAX, f64::min)
}

fn blocks() {
    let memory = Reservation::anonymous(4 << 30).expect("addresses");
    let mut writes = Written(WriteSet::new(32).expect("memory"));
    let mut heap =
        ArenaHeap::format(Box::new(Space { memory, len: 0 }), HEAD, &mut writes).expect("an arena");
    let view = heap.view();
    for bytes in [16, 100, 1000, 10_000, 100_000] {
        let count = BLOCKS.min((1 << 30) / bytes);
        let mut blocks = vec![0usize; count];
        writes.0.clear();
        let pair = best(count, || {
            for _ in 0..count {
                let at = heap.alloc(&mut writes, black_box(bytes)) as usize;
                heap.free(&mut writes, at).expect("a block");
            }
        });
        let (mut alloc, mut free) = (f64::MAX, f64::MAX);
        for _ in 0..7 {
            let start = Instant::now();
            // A batch of 100 commands.
            for (at, block) in blocks.iter_mut().enumerate() {
                *block = heap.alloc(&mut writes, black_box(bytes)) as usize;
                if at % 100 == 99 {
                    writes.0.clear();
                }
            }
            alloc = alloc.min(start.elapsed().as_nanos() as f64 / count as f64);
            // In an order that no cache likes.
            let mut state = 1u64;
            for at in (1..count).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                blocks.swap(at, (state >> 33) as usize % (at + 1));
            }
            let start = Instant::now();
            for (at, &block) in blocks.iter().enumerate() {
                heap.free(&mut writes, block).expect("a block");
                if at % 100 == 99 {
                    writes.0.clear();
                }
            }
            free = free.min(start.elapsed().as_nanos() as f64 / count as f64);
        }
        let one = heap.alloc(&mut writes, bytes) as usize;
        let look = best(BLOCKS, || {
            for _ in 0..BLOCKS {
                black_box(view.usable_bytes(black_box(one)));
            }
        });
        heap.free(&mut writes, one).expect("a block");
        println!(
            "{bytes:>7} B: alloc+free {pair:.1} ns, alloc {alloc:.1}, free at random {free:.1}, usable {look:.1}"
        );
    }
}

/// The arena in a file of `bytes`, mapped whole.
fn mapped(file: &File, kind: MapKind, bytes: u64) -> Box<Space> {
    let memory = Reservation::file(file.as_fd(), bytes as usize, kind).expect("addresses");
    Box::new(Space { memory, len: bytes })
}

fn opening() {
    const BYTES: u64 = 1 << 30;
    const COUNT: usize = 1_000_000;
    let file = tempfile::tempfile().expect("a file");
    file.set_len(BYTES).expect("a gibibyte");
    let mut writes = Written(WriteSet::new(32).expect("memory"));
    let mut heap =
        ArenaHeap::format(mapped(&file, MapKind::Shared, BYTES), HEAD, &mut writes).expect("an arena");
    for _ in 0..COUNT {
        writes.0.clear();
        assert!(!heap.alloc(&mut writes, BYTES as usize / COUNT / 4 * 3).is_null());
    }
    drop(heap);
    for round in 0..5 {
        let space = mapped(&file, MapKind::Private, BYTES);
        let start = Instant::now();
        let mut heap = ArenaHeap::open(space, HEAD).expect("the arena");
        let opened = start.elapsed();
        let at = heap.alloc(&mut writes, 100);
        let all = start.elapsed();
        assert!(!at.is_null());
        let start = Instant::now();
        let stat = heap.stat();
        println!(
            "round {round}: open {opened:?}, with the first allocation {all:?}; counting its {} blocks {:?}",
            stat.blocks,
            start.elapsed()
        );
    }
}

fn main() {
    blocks();
    opening();
}
