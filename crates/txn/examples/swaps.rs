//! Swaps of random words, per second: 1, 4, 16 and 64 swaps a transaction, 1 and 2 threads, each executor, nothing
//! durable. `cargo run --release -p mangrove-txn --example swaps [MILLISECONDS [WORDS]]`. The best of three rounds
//! counts.
//!
//! `swaps count EXECUTOR SWAPS TRANSACTIONS` (executor `records`, `solo`, `writer` or `lock`) runs so many transactions
//! on one thread, to count instructions: what callgrind counts for 20,000 less what it counts for 10,000, divided by
//! 10,000.

use mangrove_sys::Reservation;
use mangrove_txn::{Isolation, Sgl, Stm, StmOptions, TxAccess, TxMemory, TxThread, VolatileLog};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// xorshift64 (Marsaglia, 2003), and numbers below a bound from its upper half.
struct Random(u64);

impl Random {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    #[inline(always)]
    fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }
}

/// Millions of transactions a second, and conflicts for each thousand of them.
fn measure(
    executor: &impl Isolation,
    memory: TxMemory,
    threads: u64,
    swaps: u64,
    time: Duration,
) -> (f64, f64) {
    let (ready, go, stop) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let words = memory.bytes() as u64 / 8;
                let (ready, go, stop) = (&ready, &go, &stop);
                scope.spawn(move || {
                    let mut thread = executor.thread();
                    let mut random = Random(0x0123_4567 + number * 7919);
                    ready.fetch_add(1, Ordering::SeqCst);
                    while !go.load(Ordering::SeqCst) {
                        std::hint::spin_loop();
                    }
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..16 {
                            transact(&mut thread, memory, words, random.next(), swaps);
                        }
                    }
                    thread.counts()
                })
            })
            .collect();
        while ready.load(Ordering::SeqCst) < threads as usize {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        go.store(true, Ordering::SeqCst);
        std::thread::sleep(time);
        stop.store(true, Ordering::SeqCst);
        let counts: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        let commits: u64 = counts.iter().map(|count| count.commits).sum();
        let conflicts: u64 = counts.iter().map(|count| count.conflicts).sum();
        (commits as f64 / begun.elapsed().as_secs_f64() / 1e6, conflicts as f64 * 1000.0 / commits as f64)
    })
}

/// Runs one transaction of so many swaps.
#[inline(always)]
fn transact(thread: &mut impl TxThread, memory: TxMemory, words: u64, seed: u64, swaps: u64) {
    let done = thread.run(|tx| {
        let mut random = Random(seed | 1);
        for _ in 0..swaps {
            let one = memory.base() + random.below(words) as usize * 8;
            let other = memory.base() + random.below(words) as usize * 8;
            let (x, y) = (tx.read_word(one)?, tx.read_word(other)?);
            tx.write_word(one, y)?;
            tx.write_word(other, x)?;
        }
        Ok::<(), mangrove_txn::Halt<Infallible>>(())
    });
    assert!(done.is_ok(), "the volatile log takes everything");
}

/// Runs so many transactions on one thread, for a program that counts instructions.
fn count(executor: &impl Isolation, memory: TxMemory, swaps: u64, transactions: u64) {
    let mut thread = executor.thread();
    let mut random = Random(0x0123_4567);
    let words = memory.bytes() as u64 / 8;
    for _ in 0..transactions {
        transact(&mut thread, memory, words, random.next(), swaps);
    }
}

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == "count") {
        return count_of_arguments();
    }
    let argument = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |word| word.parse().expect("a number"))
    };
    let (milliseconds, words) = (argument(1, 300), argument(2, 1 << 20));
    // On huge pages: small ones would measure the TLB.
    let bytes = words as usize * 8;
    let reservation = Reservation::anonymous(bytes + HUGE_PAGE_BYTES).expect("8 MiB");
    let base = reservation.base().as_ptr();
    let from = base.addr().next_multiple_of(HUGE_PAGE_BYTES) - base.addr();
    reservation.advise_huge(from, bytes);
    // SAFETY: inside the mapping.
    let base: *mut u64 = unsafe { base.add(from) }.cast();
    // SAFETY: as before; nobody else uses it yet.
    (0..words).for_each(|word| unsafe { base.add(word as usize).write(word) });
    // SAFETY: the words outlive the executors, and only transactions touch them until the sum is taken.
    let memory = unsafe { TxMemory::new(base.cast(), bytes) };
    let measured = || {
        let options = StmOptions { solo_after: None, measures: true, ..StmOptions::default() };
        Stm::new(memory, VolatileLog::new(), options)
    };
    let stm = |solo: bool, one_writer: bool| {
        Stm::new(
            memory,
            VolatileLog::new(),
            StmOptions { solo_after: solo.then_some(64), one_writer, ..StmOptions::default() },
        )
    };
    println!("million transactions a second (conflicts a thousand), {words} words, volatile");
    for threads in [1, 2] {
        println!("{threads} thread(s)       1 swap          4 swaps         16 swaps        64 swaps");
        let row = |name: &str, measure: &dyn Fn(u64) -> (f64, f64)| {
            let cells = [1, 4, 16, 64].map(|swaps| {
                let rounds = [(); 3].map(|()| measure(swaps));
                rounds.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three rounds")
            });
            let cells = cells.map(|(rate, conflicts)| format!("{rate:8.2} ({conflicts:4.1})"));
            println!("{name:16} {}", cells.join(" "));
        };
        let time = Duration::from_millis(milliseconds);
        row("records", &|swaps| measure(&stm(false, false), memory, threads, swaps, time));
        row("records, solo", &|swaps| measure(&stm(true, false), memory, threads, swaps, time));
        row("one writer", &|swaps| measure(&stm(false, true), memory, threads, swaps, time));
        row("by throughput", &|swaps| measure(&measured(), memory, threads, swaps, time));
        row("one lock", &|swaps| {
            measure(&Sgl::new(memory, VolatileLog::new()), memory, threads, swaps, time)
        });
    }
    // SAFETY: as before; the executors are gone.
    let sum: u64 = (0..words as usize).map(|word| unsafe { base.add(word).read() }).sum();
    assert_eq!(sum, words * (words - 1) / 2, "swaps lose no word");
}

fn count_of_arguments() {
    let word = |at: usize| std::env::args().nth(at).expect("count EXECUTOR SWAPS TRANSACTIONS");
    let number = |at: usize| -> u64 { word(at).parse().expect("a number") };
    let mut words = vec![0_u64; 1 << 14];
    // SAFETY: the words outlive the executors, and only transactions touch them.
    let memory = unsafe { TxMemory::new(words.as_mut_ptr().cast(), words.len() * 8) };
    let solo_after = (word(2) == "solo").then_some(64);
    let options = StmOptions { solo_after, one_writer: word(2) == "writer", ..StmOptions::default() };
    match &*word(2) {
        "lock" => count(&Sgl::new(memory, VolatileLog::new()), memory, number(3), number(4)),
        _ => count(&Stm::new(memory, VolatileLog::new(), options), memory, number(3), number(4)),
    }
}
