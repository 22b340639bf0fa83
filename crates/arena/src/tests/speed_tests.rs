//! What a block costs, on demand.

use crate::tests::example_tests::TestSpace;
use crate::{Heap, Writes};
use mangrove_tracker::WriteSet;
use std::hint::black_box;
use std::time::Instant;

impl Writes for WriteSet {
    #[inline]
    fn wrote(&mut self, ptr: usize, len: usize) {
        self.record(ptr, len);
    }
}

/// Nanoseconds of one of `count` calls, the best of seven rounds.
fn best(count: usize, mut round: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .fold(f64::MAX, f64::min)
}

/// By hand: `cargo test --release -p mangrove-arena --lib a_block_costs -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_block_costs_nanoseconds() {
    const COUNT: usize = 100_000;
    let mut writes = WriteSet::new(32).unwrap();
    let mut heap = Heap::format(Box::new(TestSpace::new(4 << 30)), 4096, &mut writes).unwrap();
    let view = heap.view();
    for bytes in [16, 100, 1000, 10_000, 100_000] {
        let count = COUNT.min((1 << 30) / bytes);
        let mut blocks = vec![0usize; count];
        writes.clear();
        let pair = best(count, || {
            for _ in 0..count {
                let at = heap.alloc(&mut writes, black_box(bytes)) as usize;
                heap.free(&mut writes, at).unwrap();
            }
        });
        let (mut alloc, mut free) = (f64::MAX, f64::MAX);
        for _ in 0..7 {
            let start = Instant::now();
            // A batch of 100 commands.
            for (at, block) in blocks.iter_mut().enumerate() {
                *block = heap.alloc(&mut writes, black_box(bytes)) as usize;
                if at % 100 == 99 {
                    writes.clear();
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
                heap.free(&mut writes, block).unwrap();
                if at % 100 == 99 {
                    writes.clear();
                }
            }
            free = free.min(start.elapsed().as_nanos() as f64 / count as f64);
        }
        let one = heap.alloc(&mut writes, bytes) as usize;
        let look = best(COUNT, || {
            for _ in 0..COUNT {
                black_box(view.usable_bytes(black_box(one)));
            }
        });
        heap.free(&mut writes, one).unwrap();
        println!(
            "{bytes:>7} B: alloc+free {pair:.1} ns, alloc {alloc:.1}, free at random {free:.1}, usable {look:.1}"
        );
    }
}
