//! Transactions whose commits are durable: by each protocol, what was acknowledged is there after the heap's owner is
//! gone, and what is there is a state that the transactions produced.

use crate::bank::{Bank, Body};
use mangrove_shadow::{Create, Latency, Medium, Options, Order, Shadow};
use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, HeapLog, Isolation, Protocol, Sgl, Stm, StmOptions, TxAccess,
    TxMemory, TxThread,
};
use std::sync::{Arc, Barrier};

const BANK: Bank = Bank { accounts: 512, threads: 4, varies: false };

fn options(medium: Medium, logs: usize) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(medium).capacity(1 << 20);
    options.log_bytes(64 << 10).log_count(logs)
}

fn memory(shadow: &Shadow) -> TxMemory {
    // SAFETY: the executors below end before the shadow does, and only they use its memory.
    unsafe { TxMemory::new(shadow.base(), shadow.len() as usize) }
}

fn is_right(shadow: &Shadow, acknowledged: &[u64]) {
    // SAFETY: inside the working copy, aligned, and no other thread runs.
    let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), BANK.words()) };
    BANK.is_right(words, acknowledged, "");
}

fn come_back<X: Isolation>(medium: Medium, logs: usize, make: impl Fn(TxMemory, HeapLog) -> X) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let options = options(medium, logs);
    let mut acknowledged = BANK.none();
    for opening in 0..3 {
        let shadow = Arc::new(options.open(&path).unwrap());
        shadow.grow(64 << 10).unwrap();
        let (memory, base) = (memory(&shadow), shadow.base() as usize);
        let executor = make(memory, HeapLog::new(Arc::clone(&shadow)));
        if opening == 0 {
            BANK.fill(&executor, base);
        }
        is_right(&shadow, &acknowledged);
        acknowledged = BANK.transfers(&executor, base, 400);
        // The executor and the shadow end without being closed: a crash, as far as the data can tell.
    }
    let shadow = options.open(&path).unwrap();
    assert_eq!(acknowledged, vec![1200; BANK.threads]);
    is_right(&shadow, &acknowledged);
}

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));

fn stm_options(solo_after: Option<u32>) -> StmOptions {
    StmOptions { record_bits: 12, solo_after, ..StmOptions::default() }
}

#[test]
fn ownership_records_come_back() {
    for medium in [EMULATED, Medium::File] {
        for logs in [1, 2, 16] {
            come_back(medium, logs, |memory, log| Stm::new(memory, log, stm_options(None)));
        }
        come_back(medium, 2, |memory, log| Stm::new(memory, log, stm_options(Some(4))));
    }
}

#[test]
fn one_lock_comes_back() {
    for medium in [EMULATED, Medium::File] {
        come_back(medium, 2, Sgl::new);
    }
}

#[test]
fn the_model_of_hardware_comes_back() {
    let limits = HardwareLimits { spurious_per_million: 10_000, ..HardwareLimits::default() };
    come_back(EMULATED, 8, |memory, log| HardwareModel::new(memory, log, limits));
}

/// More threads than logs, most of them asleep between transactions.
#[test]
fn a_hundred_threads_share_two_logs() {
    let folder = tempfile::tempdir().unwrap();
    let shadow = Arc::new(options(EMULATED, 2).open(folder.path().join("heap")).unwrap());
    shadow.grow(4096).unwrap();
    let base = shadow.base() as usize;
    let stm = Stm::new(memory(&shadow), HeapLog::new(Arc::clone(&shadow)), stm_options(Some(8)));
    let mut handles: Vec<_> = (0..100).map(|_| stm.thread()).collect();
    std::thread::scope(|scope| {
        for (number, handle) in handles.iter_mut().enumerate() {
            scope.spawn(move || {
                for _ in 0..20 {
                    let at = base + number % 10 * 8;
                    handle
                        .run(|tx| -> Body<()> {
                            let value = tx.read_word(at)?;
                            Ok(tx.write_word(at, value + 1)?)
                        })
                        .unwrap();
                }
            });
        }
    });
    drop(handles);
    let total: u64 = (0..10)
        .map(|n| stm.thread().read(|tx| -> Body<u64> { Ok(tx.read_word(base + n * 8)?) }).unwrap())
        .sum();
    assert_eq!(total, 2000);
}

/// A unit longer than a ring is put beside the durable copy before its number is drawn; two at a time must not wait
/// for each other.
#[test]
fn long_transactions_side_by_side() {
    for medium in [EMULATED, Medium::File] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let shadow = Arc::new(options(medium, 4).open(&path).unwrap());
        shadow.grow(512 << 10).unwrap();
        let base = shadow.base() as usize;
        let stm = Stm::new(memory(&shadow), HeapLog::new(Arc::clone(&shadow)), stm_options(None));
        std::thread::scope(|scope| {
            for number in 0..BANK.threads {
                let stm = &stm;
                scope.spawn(move || {
                    let mut thread = stm.thread();
                    for round in 1..6 {
                        let from = base + number * (128 << 10);
                        thread
                            .run(|tx| -> Body<()> {
                                (0..16 << 10).try_for_each(|n| Ok(tx.write_word(from + n * 8, round)?))
                            })
                            .unwrap();
                    }
                });
            }
        });
        drop(stm);
        drop(shadow);
        let shadow = options(medium, 4).open(&path).unwrap();
        // SAFETY: inside the working copy, aligned, and no other thread runs.
        let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), 64 << 10) };
        assert!(words.iter().all(|&word| word == 5), "{medium:?}");
    }
}

/// A thousand threads have handles at once, to 64 logs. All commits are there after the heap's owner is gone.
fn a_thousand_threads<X: Isolation>(options: &Options, make: impl Fn(TxMemory, HeapLog) -> X) {
    const THREADS: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let open = || Arc::new(options.open(&path).unwrap());
    let shadow = open();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    let protocol = if shadow.is_stamped() { Protocol::Spht } else { Protocol::Automatic };
    let executor = make(memory(&shadow), protocol.log(Arc::clone(&shadow)).unwrap());
    let all_have_handles = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for number in 1..=THREADS {
            let (executor, all_have_handles) = (&executor, &all_have_handles);
            scope.spawn(move || {
                let mut handle = executor.thread();
                all_have_handles.wait();
                for _ in 0..2 {
                    let at = [base + number * 8, base + number % 8 * 8192];
                    handle
                        .run(|tx| -> Body<()> {
                            at.iter().try_for_each(|&at| {
                                let value = tx.read_word(at)?;
                                Ok(tx.write_word(at, value + 1)?)
                            })
                        })
                        .unwrap();
                }
            });
        }
    });
    drop(executor);
    drop(shadow);
    let shadow = open();
    // SAFETY: inside the working copy, aligned, and no other thread runs.
    let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), 8192) };
    assert!((1..=THREADS).all(|number| words[number] == 2), "{:?}", &words[..=THREADS]);
    let shared: u64 = (0..8).map(|n| words[n * 1024]).sum();
    assert_eq!(shared, 2 * THREADS as u64);
}

#[test]
fn a_thousand_threads_have_handles_to_64_logs() {
    for medium in [EMULATED, Medium::File] {
        let options = options(medium, 64);
        a_thousand_threads(&options, |memory, log| Stm::new(memory, log, stm_options(Some(8))));
        a_thousand_threads(&options, Sgl::new);
    }
    a_thousand_threads(&options(EMULATED, 64).order(Order::Marker).stamped(true), Sgl::new);
}

/// An atomic group of 16 MiB, 256 times as long as its log: undone, then committed, then there.
#[test]
fn a_million_words_in_one_durable_transaction() {
    const WORDS: usize = 1 << 20;
    for medium in [EMULATED, Medium::File] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let options = options(medium, 2).capacity(16 << 20);
        let shadow = Arc::new(options.open(&path).unwrap());
        shadow.grow(8 * WORDS as u64).unwrap();
        let base = shadow.base() as usize;
        let stm = Stm::new(memory(&shadow), HeapLog::new(Arc::clone(&shadow)), stm_options(None));
        for aborts in [true, false] {
            let mut thread = stm.thread();
            let outcome = thread.run(|tx| {
                for word in 0..WORDS {
                    let value = tx.read_word(base + word * 8)?;
                    tx.write_word(base + word * 8, value + word as u64)?;
                }
                if aborts { Err(Halt::Abort(())) } else { Ok(()) }
            });
            assert_eq!(outcome.is_err(), aborts, "{medium:?}: {outcome:?}");
            // SAFETY: inside the working copy, aligned, and no other thread runs.
            let words = unsafe { std::slice::from_raw_parts(base as *const u64, WORDS) };
            let expected = |word: usize| if aborts { 0 } else { word as u64 };
            assert!((0..WORDS).all(|word| words[word] == expected(word)), "{medium:?}");
        }
        drop(stm);
        drop(shadow);
        let shadow = options.open(&path).unwrap();
        // SAFETY: as above.
        let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), WORDS) };
        assert!((0..WORDS).all(|word| words[word] == word as u64), "{medium:?}, opened again");
    }
}
