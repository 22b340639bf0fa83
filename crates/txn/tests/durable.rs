//! Transactions whose commits are durable: by each protocol, what was acknowledged is there after the heap's owner is
//! gone, and what is there is a state that the transactions produced.

use mangrove_shadow::{Create, Latency, Medium, Options, Shadow};
use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, HeapLog, Isolation, Sgl, Stm, StmOptions, TxAccess, TxMemory,
    TxThread,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ACCOUNTS: usize = 512;
const START: u64 = 1000;
const THREADS: usize = 4;

fn options(medium: Medium, logs: usize) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(medium).capacity(1 << 20);
    options.log_bytes(64 << 10).log_count(logs)
}

fn memory(shadow: &Shadow) -> TxMemory {
    // SAFETY: the executors below end before the shadow does, and only they use its memory.
    unsafe { TxMemory::new(shadow.base(), shadow.len() as usize) }
}

type Body<T> = Result<T, Halt<Infallible>>;

/// Transfers by several threads; each thread counts its own in a word behind the accounts. Returns the counts that
/// were acknowledged.
fn transfers<X: Isolation>(executor: &X, base: usize, rounds: usize) -> Vec<u64> {
    let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            scope.spawn(move || {
                let mut thread = executor.thread();
                let mut random = 77 + number as u64;
                for _ in 0..rounds {
                    let mut account = || {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        base + (random >> 33) as usize % ACCOUNTS * 8
                    };
                    let (from, to) = (account(), account());
                    let counter = base + (ACCOUNTS + number) * 8;
                    let count = thread.run(|tx| -> Body<u64> {
                        let has = tx.read_word(from)?;
                        tx.write_word(from, has.wrapping_sub(3))?;
                        let has = tx.read_word(to)?;
                        tx.write_word(to, has.wrapping_add(3))?;
                        let count = tx.read_word(counter)? + 1;
                        tx.write_word(counter, count)?;
                        Ok(count)
                    });
                    acknowledged.store(count.unwrap(), Ordering::Relaxed);
                }
            });
        }
    });
    acknowledged.into_iter().map(AtomicU64::into_inner).collect()
}

fn is_right(shadow: &Shadow, acknowledged: &[u64]) {
    // SAFETY: inside the working copy, aligned, and no other thread runs.
    let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), ACCOUNTS + THREADS) };
    let total = words[..ACCOUNTS].iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
    assert_eq!(total, START * ACCOUNTS as u64);
    assert_eq!(words[ACCOUNTS..], *acknowledged);
}

fn come_back<X: Isolation>(medium: Medium, logs: usize, make: impl Fn(TxMemory, HeapLog) -> X) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let options = options(medium, logs);
    let mut acknowledged = vec![0; THREADS];
    for opening in 0..3 {
        let shadow = Arc::new(options.open(&path).unwrap());
        shadow.grow(64 << 10).unwrap();
        let (memory, base) = (memory(&shadow), shadow.base() as usize);
        let executor = make(memory, HeapLog::new(Arc::clone(&shadow)));
        if opening == 0 {
            let mut thread = executor.thread();
            let fill = |tx: &mut <X::Thread<'_> as TxThread>::Tx| -> Body<()> {
                (0..ACCOUNTS).try_for_each(|n| Ok(tx.write_word(base + n * 8, START)?))
            };
            thread.run(fill).unwrap();
        }
        is_right(&shadow, &acknowledged);
        acknowledged = transfers(&executor, base, 400);
        // The executor and the shadow end without being closed: a crash, as far as the data can tell.
    }
    let shadow = options.open(&path).unwrap();
    assert_eq!(acknowledged, [1200; THREADS]);
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
            for number in 0..THREADS {
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
