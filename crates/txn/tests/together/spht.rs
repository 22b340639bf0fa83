//! The protocols with time stamps, with executors whose commits have the order of the stamps: what was acknowledged
//! comes back, and each place that the text of the algorithms leaves open.

#[path = "../support/rtm.rs"]
mod rtm;

use crate::bank::{Bank, Body};
use mangrove_shadow::{Create, Domain, FlushInstruction, Latency, Medium, Options, Order, Shadow};
use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, HeapLog, Htm, Isolation, Protocol, RedoLog, Sgl, Stm, StmOptions,
    TxAccess, TxError, TxMemory, TxThread,
};
use rtm::say_where_rtm_runs;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const BANK: Bank = Bank { accounts: 64, threads: 4, varies: true };
const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));
const PROTOCOLS: [Protocol; 3] = [Protocol::Spht, Protocol::SphtEadr, Protocol::SphtEadrFlush];

fn options(protocol: Protocol, logs: usize) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(EMULATED).capacity(1 << 20);
    let options = options.log_bytes(64 << 10).log_count(logs).order(protocol.order().unwrap_or_default());
    let options = options.stamped(protocol.is_stamped());
    match protocol {
        Protocol::Spht => options.domain(Domain::Adr),
        Protocol::SphtEadrFlush => options.domain(Domain::Eadr).flush_instruction(FlushInstruction::detect()),
        _ => options.domain(Domain::Eadr),
    }
}

fn open(path: &Path, protocol: Protocol, logs: usize) -> Arc<Shadow> {
    let shadow = options(protocol, logs).open(path).unwrap();
    shadow.grow(64 << 10).unwrap();
    Arc::new(shadow)
}

fn memory(shadow: &Shadow) -> TxMemory {
    // SAFETY: the executors below end before the shadow does, and only they use its memory.
    unsafe { TxMemory::new(shadow.base(), shadow.len() as usize) }
}

fn word(shadow: &Shadow, at: usize) -> u64 {
    // SAFETY: inside the working copy, aligned, and no other thread runs.
    unsafe { shadow.base().cast::<u64>().add(at).read() }
}

fn add<H: TxThread>(thread: &mut H, at: usize) -> Result<u64, TxError<Infallible, H::SinkError>> {
    thread.run(|tx| -> Body<u64> {
        let value = tx.read_word(at)? + 1;
        tx.write_word(at, value)?;
        Ok(value)
    })
}

fn come_back<X: Isolation>(protocol: Protocol, logs: usize, make: impl Fn(TxMemory, HeapLog) -> X) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let mut acknowledged = BANK.none();
    for opening in 0..3 {
        let shadow = open(&path, protocol, logs);
        let (memory, base) = (memory(&shadow), shadow.base() as usize);
        let executor = make(memory, protocol.log(Arc::clone(&shadow)).unwrap());
        if opening == 0 {
            BANK.fill(&executor, base);
        } else {
            let words: Vec<u64> = (0..BANK.words()).map(|at| word(&shadow, at)).collect();
            BANK.is_right(&words, &acknowledged, &protocol.to_string());
        }
        acknowledged = BANK.transfers(&executor, base, 150);
        drop(executor);
        if opening == 1 {
            Arc::into_inner(shadow).unwrap().close().unwrap();
        }
        // Otherwise the executor and the shadow end without being closed: a crash, as far as the data can tell.
    }
}

#[test]
fn what_was_acknowledged_comes_back() {
    say_where_rtm_runs();
    let limits = HardwareLimits { spurious_per_million: 10_000, ..HardwareLimits::default() };
    for protocol in PROTOCOLS {
        for logs in [1, 2, 8] {
            come_back(protocol, logs, |memory, log| HardwareModel::new(memory, log, limits));
        }
        come_back(protocol, 4, Sgl::new);
        come_back(protocol, 4, Htm::new);
    }
}

/// Runs `work`, which must end by itself.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let worker = std::thread::spawn(move || done.send(work()));
    match result.recv_timeout(Duration::from_secs(300)) {
        Ok(result) => result,
        Err(_) => panic!("somebody waits for ever, or panicked: {}", worker.is_finished()),
    }
}

/// An attempt whose atomic group is longer than half a ring does not commit in hardware. It would put its group with
/// its lower bound announced, and wait there for the group before it to be applied; with SPHT that group's commit waits
/// for the bound, and with SPHT-eADR the bound holds the watermark below it.
#[test]
fn groups_longer_than_half_a_ring_do_not_wait_for_each_other_in_hardware() {
    const WORDS: usize = 3000;
    for protocol in PROTOCOLS {
        ends(move || {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("heap");
            let shadow = open(&path, protocol, 8);
            let base = shadow.base() as usize;
            let log = protocol.log(Arc::clone(&shadow)).unwrap();
            let model = HardwareModel::new(memory(&shadow), log, HardwareLimits::default());
            let both_announced = Barrier::new(2);
            std::thread::scope(|scope| {
                for who in 0..2 {
                    let (model, both_announced) = (&model, &both_announced);
                    scope.spawn(move || {
                        let (mut thread, mut attempts) = (model.thread(), 0);
                        thread
                            .run(|tx| -> Body<()> {
                                attempts += 1;
                                (0..WORDS).try_for_each(|word| {
                                    let at = word + who * 4096;
                                    tx.write_word(base + 8 * at, at as u64 + 1)
                                })?;
                                if attempts == 1 {
                                    both_announced.wait();
                                }
                                Ok(())
                            })
                            .unwrap();
                        let counts = thread.counts();
                        assert_eq!((counts.hardware, counts.serial), (0, 1), "{protocol}");
                    });
                }
            });
            drop(model);
            drop(shadow);
            let shadow = open(&path, protocol, 8);
            for at in (0..WORDS).flat_map(|word| [word, word + 4096]) {
                assert_eq!(word(&shadow, at), at as u64 + 1, "{protocol}");
            }
        });
    }
}

/// An executor with several threads' handles, of which some have left a transaction in every way.
fn leave_in_every_way<X: Isolation>(executor: &X, base: usize) {
    let mut left: Vec<_> = (0..3).map(|_| executor.thread()).collect();
    let aborted = left[0].run(|tx| {
        tx.write_word(base, 5)?;
        Err::<(), _>(Halt::Abort(()))
    });
    assert!(matches!(aborted, Err(TxError::Aborted(()))));
    let read = left[1].read(|tx| -> Body<u64> { Ok(tx.read_word(base)?) });
    assert_eq!(read.unwrap(), 0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        left[2].run(|tx| -> Body<()> {
            tx.write_word(base, 6)?;
            panic!("a body that panics")
        })
    }));
    assert!(panicked.is_err());
    let mut thread = executor.thread();
    for round in 1..20 {
        assert_eq!(add(&mut thread, base).unwrap(), round);
    }
    left.push(thread);
    drop(left);
    assert_eq!(add(&mut executor.thread(), base).unwrap(), 20);
}

/// Algorithm 2, l.1: nobody waits for a thread that is in no transaction, however it left its last one.
#[test]
fn a_thread_without_a_transaction_holds_nobody_up() {
    say_where_rtm_runs();
    for protocol in PROTOCOLS {
        ends(move || {
            let folder = tempfile::tempdir().unwrap();
            let opened = |word: usize| {
                let shadow = open(&folder.path().join("heap"), protocol, 8);
                let (memory, base) = (memory(&shadow), shadow.base() as usize + word * 8);
                let log = protocol.log(Arc::clone(&shadow)).unwrap();
                (shadow, memory, log, base)
            };
            let (shadow, memory, log, base) = opened(0);
            leave_in_every_way(&HardwareModel::new(memory, log, HardwareLimits::default()), base);
            drop(shadow);
            let (shadow, memory, log, base) = opened(8);
            leave_in_every_way(&Sgl::new(memory, log), base);
            drop(shadow);
            let (shadow, memory, log, base) = opened(16);
            leave_in_every_way(&Htm::new(memory, log), base);
            drop(shadow);
        });
    }
}

/// l.16 to l.22: a thread that panics when its commit is visible and not durable holds nobody up, and the commit, which
/// others may have seen, becomes durable: when the thread goes on, and when it ends.
#[test]
fn a_panic_behind_the_hardware_commit_holds_nobody_up() {
    for protocol in PROTOCOLS {
        ends(move || {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("heap");
            for round in 1..=2 {
                let shadow = open(&path, protocol, 8);
                let base = shadow.base() as usize;
                let armed = Arc::new(AtomicBool::new(false));
                let window = Arc::clone(&armed);
                let log = protocol.log(Arc::clone(&shadow)).unwrap();
                let model = HardwareModel::new(memory(&shadow), log, HardwareLimits::default()).with_window(
                    move || assert!(!window.swap(false, Ordering::Relaxed), "a panic in the window"),
                );
                let mut thread = model.thread();
                armed.store(true, Ordering::Relaxed);
                assert!(catch_unwind(AssertUnwindSafe(|| add(&mut thread, base))).is_err());
                if round == 1 {
                    // The same thread goes on.
                    assert_eq!(add(&mut thread, base + 512).unwrap(), 1);
                }
                drop(thread);
                assert_eq!(add(&mut model.thread(), base + 8).unwrap(), round);
                drop(model);
                drop(shadow);
                let shadow = open(&path, protocol, 8);
                assert_eq!((word(&shadow, 0), word(&shadow, 1)), (round, round), "{protocol}");
            }
        });
    }
}

/// l.17 to l.19: a reader's answer waits until what it saw is durable, where that is not so at once.
#[test]
fn a_reader_is_not_answered_before_what_it_saw_is_durable() {
    for (protocol, waits) in [(Protocol::Spht, true), (Protocol::SphtEadr, false)] {
        ends(move || {
            let folder = tempfile::tempdir().unwrap();
            let shadow = open(&folder.path().join("heap"), protocol, 8);
            let base = shadow.base() as usize;
            let stage = Arc::new(AtomicU64::new(0));
            let window = Arc::clone(&stage);
            let log = protocol.log(Arc::clone(&shadow)).unwrap();
            let model = HardwareModel::new(memory(&shadow), log, HardwareLimits::default());
            let model = model.with_window(move || {
                window.store(1, Ordering::Release);
                while window.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
            });
            let (seen, answered) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let mut writer = model.thread();
                scope.spawn(move || add(&mut writer, base).unwrap());
                while stage.load(Ordering::Acquire) < 1 {
                    std::thread::yield_now();
                }
                let mut reader = model.thread();
                let (seen, answered) = (&seen, &answered);
                scope.spawn(move || {
                    let look = |tx: &mut mangrove_txn::HardwareTx<'_>| -> Body<()> {
                        seen.store(tx.read_word(base)?, Ordering::Release);
                        Ok(())
                    };
                    reader.read(look).unwrap();
                    answered.store(true, Ordering::Release);
                });
                while seen.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                if waits {
                    std::thread::sleep(Duration::from_millis(30));
                    assert!(!answered.load(Ordering::Acquire), "it saw what a crash would undo");
                } else {
                    while !answered.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                }
                stage.store(2, Ordering::Release);
            });
            assert!(answered.load(Ordering::Relaxed));
        });
    }
}

/// Stamps belong to one opening: those of the next one are larger, whatever the counter of the machine says.
#[test]
fn stamps_grow_from_opening_to_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    for protocol in [Protocol::Spht, Protocol::SphtEadr, Protocol::Spht] {
        let mut last = 0;
        for opening in 0..3 {
            let shadow = open(&path, protocol, 2);
            assert!(shadow.committed().0 >= last, "opening {opening}");
            let sgl = Sgl::new(memory(&shadow), protocol.log(Arc::clone(&shadow)).unwrap());
            last = sgl.log().newest();
            add(&mut sgl.thread(), shadow.base() as usize).unwrap();
        }
    }
    let shadow = open(&path, Protocol::OneFence, 2);
    assert_eq!(word(&shadow, 0), 9);
}

#[test]
#[should_panic(expected = "ownership records need a log that counts")]
fn ownership_records_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shadow = open(&folder.path().join("s"), Protocol::Spht, 2);
    Stm::new(memory(&shadow), Protocol::Spht.log(Arc::clone(&shadow)).unwrap(), StmOptions::default());
}

/// A stamp is always later than the last one, so it is no sign that something has changed: a transaction that waits for
/// a change sleeps all the same, and a commit wakes it.
#[test]
fn a_retry_on_time_stamps_sleeps() {
    say_where_rtm_runs();
    let folder = tempfile::tempdir().unwrap();
    let shadow = open(&folder.path().join("s"), Protocol::Spht, 4);
    let (memory, at) = (memory(&shadow), shadow.base() as usize);
    let executor = Htm::new(memory, Protocol::Spht.log(Arc::clone(&shadow)).unwrap());
    let runs = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut thread = executor.thread();
            thread.run(|tx| -> Body<u64> {
                runs.fetch_add(1, Ordering::Relaxed);
                match tx.read_word(at)? {
                    0 => Err(Halt::Retry),
                    value => Ok(value),
                }
            })
        });
        std::thread::sleep(Duration::from_millis(200));
        add(&mut executor.thread(), at).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 1);
    });
    // With sleep two in 20 ms, however long this thread slept; without it hundreds in each millisecond.
    let runs_max = 1000 + u64::try_from(begun.elapsed().as_millis()).unwrap();
    let runs = runs.into_inner();
    assert!(runs < runs_max, "{runs} runs of a body that waits, in a time for {runs_max}");
}

#[test]
fn wrong_pairings_are_refused_with_what_would_work() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |protocol: Protocol, options: Options, name: &str| {
        let shadow = Arc::new(options.open(folder.path().join(name)).unwrap());
        protocol.log(shadow).unwrap_err().to_string()
    };
    let plain = || Options::new().create(Create::IfMissing).capacity(1 << 20);
    for protocol in PROTOCOLS {
        let error = refused(protocol, plain().medium(Medium::File), "file");
        assert!(error.contains("is for the media dax and emulated"), "{error}");
        let error = refused(protocol, plain().medium(EMULATED), "dense");
        assert!(error.contains("needs a pool that was opened for time stamps"), "{error}");
    }
    let error = refused(Protocol::Automatic, options(Protocol::Spht, 2), "marker");
    assert!(error.contains("needs one of the protocols SPHT"), "{error}");
    let adr = plain().medium(EMULATED).domain(Domain::Adr).order(Order::Gaps);
    let error = adr.open(folder.path().join("adr")).unwrap_err().to_string();
    assert!(error.contains("persistent caches (eADR)"), "{error}");
}
