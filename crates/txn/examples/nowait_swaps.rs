//! What tickets save: swaps of two words on a heap, one a transaction, one thread, with a wait after each 1, 8, 64 and
//! 512 commits. The ways take turns in one process, so that a noisy machine disturbs all of them alike; the medians of
//! the rounds are printed.
//!
//! `cargo run --release -p mangrove-txn --example nowait_swaps [ROUNDS] [DIRECTORY]`: rounds of about a second, and
//! where the heap on the file medium lies.

use mangrove_txn::{Domain, Heap, HeapResult, Latency, Medium, Ptr};
use std::path::Path;
use std::time::{Duration, Instant};

const WORDS: u64 = 1 << 17;
const SLICE: Duration = Duration::from_millis(40);
/// Commits a wait; 0: each waits by itself, without tickets.
const WAYS: [u64; 5] = [0, 1, 8, 64, 512];

struct Swaps {
    heap: Heap,
    words: usize,
    random: u64,
}

impl Swaps {
    fn open(medium: Medium, path: &Path) -> HeapResult<Self> {
        let options = Heap::options().medium(medium).capacity(64 << 20).log_bytes(32 << 20);
        let options = if let Medium::File = medium { options } else { options.domain(Domain::Adr) };
        let heap = options.open(path)?;
        let words = heap.transaction(|tx| tx.alloc_bytes(WORDS as usize * 8, 64))?;
        Ok(Self { heap, words, random: 88_172_645_463_325_252 })
    }

    fn place(&mut self) -> Ptr<u64> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Ptr::at(self.words + (self.random % WORDS) as usize * 8)
    }

    /// Nanoseconds a commit.
    fn run(&mut self, way: u64) -> HeapResult<f64> {
        let (begun, mut commits) = (Instant::now(), 0u64);
        while begun.elapsed() < SLICE {
            let mut last = None;
            for _ in 0..way.max(64) {
                let (one, other) = (self.place(), self.place());
                if way == 0 {
                    self.heap.transaction(|tx| {
                        let (a, b) = (tx.read(one)?, tx.read(other)?);
                        tx.write(one, b)?;
                        tx.write(other, a)
                    })?;
                } else {
                    let ((), ticket) = self.heap.transaction_nowait(|tx| {
                        let (a, b) = (tx.read(one)?, tx.read(other)?);
                        tx.write(one, b)?;
                        tx.write(other, a)
                    })?;
                    last = Some(ticket);
                }
                commits += 1;
                if way > 0 && commits.is_multiple_of(way) {
                    self.heap.wait(last.take().expect("just committed"))?;
                }
            }
        }
        self.heap.sync()?;
        Ok(begun.elapsed().as_nanos() as f64 / commits as f64)
    }
}

fn main() -> HeapResult<()> {
    let mut args = std::env::args().skip(1);
    let rounds = args.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(9);
    let directory = args.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    for (name, medium) in [("emulated, ADR", Medium::Emulated(Latency::new(0, 0))), ("file", Medium::File)] {
        let path = Path::new(&directory).join(format!("nowait_swaps.{}", std::process::id()));
        let mut swaps = Swaps::open(medium, &path)?;
        let mut times = WAYS.map(|_| Vec::new());
        for _ in 0..=rounds {
            for (way, times) in WAYS.into_iter().zip(&mut times) {
                times.push(swaps.run(way)?);
            }
        }
        drop(swaps);
        let _ = std::fs::remove_dir_all(&path);
        let medians = times.map(|mut times| {
            // The first round warms up.
            let mut times = times.split_off(1);
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!("{name}");
        for (way, median) in WAYS.into_iter().zip(medians) {
            let name = if way == 0 { "no tickets".into() } else { format!("{way} a wait") };
            println!("  {name:<12} {median:>12.1} ns a commit {:>8.1}x", medians[0] / median);
        }
    }
    Ok(())
}
