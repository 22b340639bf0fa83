//! Durable swaps of random words, per second: 1, 4, 16 and 64 swaps a transaction over 1 Mi words, 1 and 2 threads,
//! one fence a commit, the replayer keeping up; beside them F, the time of one line stored, flushed and fenced.
//! `cargo run --release -p mangrove-txn --example durable_swaps [MILLISECONDS]`. The pool lies in `/dev/shm`. The best
//! of three rounds counts.
//!
//! `durable_swaps count EXECUTOR SWAPS TRANSACTIONS` (executor `solo` or `records`) runs so many transactions on one
//! thread, without a replayer, to count instructions: what callgrind counts for 20,000 less what it counts for 10,000,
//! divided by 10,000.

use mangrove_shadow::{Create, Latency, Medium, Options, Shadow};
use mangrove_txn::{Halt, HeapLog, Isolation, Stm, StmOptions, TxAccess, TxMemory, TxThread};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORDS: usize = 1 << 20;
const LINE: usize = 64;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }
}

/// Runs one transaction of so many swaps.
#[inline(always)]
fn transact(thread: &mut impl TxThread, base: usize, seed: u64, swaps: usize) {
    let answer = thread.run(|tx| -> Result<(), Halt<()>> {
        let mut random = Random(seed);
        for _ in 0..swaps {
            let (a, b) = (base + random.below(WORDS) * 8, base + random.below(WORDS) * 8);
            let (left, right) = (tx.read_word(a)?, tx.read_word(b)?);
            tx.write_word(a, right)?;
            tx.write_word(b, left)?;
        }
        Ok(())
    });
    assert!(answer.is_ok(), "the medium is memory");
}

/// An executor for the words of the working copy, and where they begin.
fn executor(shadow: &Arc<Shadow>, solo: bool) -> (Stm<HeapLog>, usize) {
    // SAFETY: the executor ends before the shadow, and only transactions touch the words meanwhile.
    let memory = unsafe { TxMemory::new(shadow.base(), WORDS * 8) };
    let options = StmOptions { solo_after: solo.then_some(64), ..StmOptions::default() };
    (Stm::new(memory, HeapLog::new(Arc::clone(shadow)), options), memory.base())
}

/// Runs so many transactions on one thread, for a program that counts instructions.
fn count(solo: bool, swaps: usize, transactions: usize) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let log_bytes = (transactions as u64 * (swaps as u64 * 32 + 128)).next_power_of_two().max(1 << 20);
    let shadow = shadow(folder.path(), log_bytes * 2, false);
    let (stm, base) = executor(&shadow, solo);
    let mut thread = stm.thread();
    let mut random = Random(77);
    for _ in 0..transactions {
        transact(&mut thread, base, random.below(1 << 30) as u64 + 1, swaps);
    }
}

/// A working copy that holds the words; `background`: a replayer runs.
fn shadow(folder: &Path, log_bytes: u64, background: bool) -> Arc<Shadow> {
    let options = Options::new().create(Create::New).medium(Medium::Emulated(Latency::new(0, 0)));
    let options = options.capacity(64 << 20).log_bytes(log_bytes).log_count(4).background(background);
    let shadow = Arc::new(options.open(folder.join("swaps")).expect("a pool"));
    shadow.grow(WORDS as u64 * 8).expect("room");
    shadow
}

/// Transactions a second.
fn measure(shadow: &Arc<Shadow>, threads: usize, swaps: usize, solo: bool, time: Duration) -> f64 {
    let (stm, base) = executor(shadow, solo);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (stm, stop, done) = (&stm, &stop, &done);
            scope.spawn(move || {
                let mut thread = stm.thread();
                let mut random = Random(77 + number as u64);
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let seed = random.below(1 << 30) as u64 + 1;
                    transact(&mut thread, base, seed, swaps);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    done.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

/// Nanoseconds of one line stored, flushed and fenced: lines of a ring, one after the other.
fn floor(shadow: &Shadow) -> f64 {
    const ROUNDS: usize = 200_000;
    let (base, instruction) = (shadow.base(), mangrove_sys::FlushInstruction::detect());
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let at = round % (WORDS * 8 / LINE) * LINE;
        // SAFETY: inside the working copy, which no thread uses now; a line of it.
        unsafe {
            base.add(at).cast::<u64>().write_volatile(0);
            mangrove_sys::flush_range(instruction, base.add(at), LINE);
        }
        mangrove_sys::fence();
    }
    begun.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == "count") {
        let word = |at: usize| std::env::args().nth(at).expect("count EXECUTOR SWAPS TRANSACTIONS");
        let number = |at: usize| word(at).parse().expect("a number");
        return count(word(2) == "solo", number(3), number(4));
    }
    let time = std::env::args().nth(1).map_or(500, |text| text.parse().expect("milliseconds"));
    let folder = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let shadow = shadow(folder.path(), 32 << 20, true);
    let line = floor(&shadow);
    println!("F = {line:.0} ns; thousand transactions a second, and F for each in brackets");
    println!("{:<24}{:>16}{:>16}{:>16}{:>16}", "swaps a transaction", 1, 4, 16, 64);
    for (threads, solo, name) in
        [(1, true, "1 thread, solo"), (1, false, "1 thread, records"), (2, false, "2 threads, records")]
    {
        let cells = [1, 4, 16, 64].map(|swaps| {
            let rounds = (0..3).map(|_| measure(&shadow, threads, swaps, solo, Duration::from_millis(time)));
            let best = rounds.fold(0.0, f64::max);
            format!("{:.0} ({:.2})", best / 1e3, 1e9 / best * threads as f64 / line)
        });
        println!("{name:<24}{:>16}{:>16}{:>16}{:>16}", cells[0], cells[1], cells[2], cells[3]);
    }
    let stat = shadow.stat();
    println!(
        "image: {:.3} lines a word applied; {} waits for log space",
        stat.image_written as f64 / 64.0 / (stat.applied_bytes as f64 / 8.0),
        stat.full_waits
    );
}
