//! Commits that return before they are durable: what their tickets say, who makes them durable, and what a crash or a
//! failing medium leaves of them.

use crate::ways::executors;
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_txn::{
    Cancel, Create, Domain, Durability, Heap, HeapError, HeapOptions, HeapResult, Latency, Medium, Ptr, Stop,
    Tx, TxTicket,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MEDIA: [Medium; 2] = [Medium::Emulated(Latency::new(0, 0)), Medium::File];

/// No thread of the heap makes anything durable by itself.
fn options(medium: Medium) -> HeapOptions {
    let options = Heap::options().medium(medium).capacity(64 << 20).log_bytes(64 << 10);
    let options = if let Medium::File = medium { options } else { options.domain(Domain::Adr) };
    options.background(false).nowait_within(Duration::ZERO)
}

fn on_each_medium(test: impl Fn(&HeapOptions, &Path)) {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        test(&options(medium), &folder.path().join("heap"));
    }
}

fn make(heap: &Heap) {
    heap.transaction(|tx| {
        let counter = tx.alloc(0u64)?;
        tx.set_root("counter", counter)
    })
    .unwrap();
}

fn counter(tx: &mut Tx<'_>) -> Result<Ptr<u64>, Stop> {
    Ok(tx.root("counter")?.expect("made when the heap was"))
}

fn count_body(tx: &mut Tx<'_>) -> Result<u64, Stop> {
    let counter = counter(tx)?;
    let count = tx.read(counter)? + 1;
    tx.write(counter, count)?;
    Ok(count)
}

fn count_later(heap: &Heap) -> HeapResult<(u64, TxTicket)> {
    heap.transaction_nowait(count_body)
}

fn count(heap: &Heap) -> u64 {
    heap.read(|tx| {
        let counter = counter(tx)?;
        tx.read(counter)
    })
    .unwrap()
}

#[test]
fn a_ticket_says_when_its_commit_is_durable_and_a_wait_covers_all_before() {
    on_each_medium(|options, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        let tickets: Vec<_> = (1..=100)
            .map(|n| {
                let (count, ticket) = count_later(&heap).unwrap();
                assert_eq!(count, n);
                ticket
            })
            .collect();
        assert!(tickets.iter().all(|&ticket| !heap.is_durable(ticket).unwrap()), "nobody has waited");
        // One that only read what nobody has waited for.
        let (seen, read) = heap.transaction_nowait(|tx| counter(tx).and_then(|at| tx.read(at))).unwrap();
        assert_eq!((seen, heap.is_durable(read).unwrap()), (100, false));
        heap.wait(tickets[70]).unwrap();
        assert!(tickets[..=70].iter().all(|&ticket| heap.is_durable(ticket).unwrap()));
        let (_, last) = count_later(&heap).unwrap();
        assert!(!heap.is_durable(last).unwrap());
        heap.sync().unwrap();
        assert!(heap.is_durable(last).unwrap() && heap.is_durable(read).unwrap());
        heap.wait(last).unwrap();
        drop(heap);
        assert_eq!(count(&options.open(path).unwrap()), 101);
    });
}

/// Whoever waits, and saw what was not waited for, answers when that is durable.
#[test]
fn a_reader_and_a_later_commit_wait_for_what_they_saw() {
    on_each_medium(|options, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        for by_reading in [true, false] {
            // Several times: with solo mode and without.
            for _ in 0..100 {
                let (_, ticket) = count_later(&heap).unwrap();
                if by_reading {
                    std::thread::scope(|scope| scope.spawn(|| count(&heap)).join().unwrap());
                } else {
                    heap.transaction(count_body).unwrap();
                }
                assert!(heap.is_durable(ticket).unwrap(), "acknowledged, and a crash may undo it");
            }
        }
    });
}

/// The thread that did not wait sleeps, or has ended.
#[test]
fn checkpoint_backup_and_close_need_nothing_of_the_thread_that_did_not_wait() {
    on_each_medium(|options, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        let (woken, wake) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let heap = &heap;
            scope.spawn(move || {
                for _ in 0..50 {
                    count_later(heap).unwrap();
                }
                tell.send(count_later(heap).unwrap().1).unwrap();
                let _ = wake.recv();
            });
            let asleep = told.recv().unwrap();
            heap.shadow().checkpoint().unwrap();
            assert!(heap.is_durable(asleep).unwrap());
            drop(woken);
        });
        std::thread::scope(|scope| scope.spawn(|| count_later(&heap).unwrap()).join().unwrap());
        let copy = path.with_extension("copy");
        heap.backup(&copy, |_| std::ops::ControlFlow::Continue(())).unwrap();
        std::thread::scope(|scope| scope.spawn(|| count_later(&heap).unwrap()).join().unwrap());
        heap.close().unwrap();
        assert_eq!(count(&options.open(path).unwrap()), 53);
        assert_eq!(count(&options.clone().medium(Medium::Auto).open(&copy).unwrap()), 52);
    });
}

/// Threads with and without waits; what was waited for is there afterwards, in the order of the commits.
#[test]
fn threads_that_wait_now_and_then_lose_nothing_they_waited_for() {
    on_each_medium(|options, path| {
        let options = options.clone().background(true);
        let heap = options.open(path).unwrap();
        make(&heap);
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (heap, acknowledged) = (&heap, &acknowledged);
                scope.spawn(move || {
                    let mut open = Vec::new();
                    for n in 0..300 {
                        open.push(count_later(heap).unwrap());
                        match (n + thread) % 16 {
                            0 => {
                                for (count, ticket) in open.drain(..) {
                                    heap.wait(ticket).unwrap();
                                    acknowledged.fetch_max(count, Ordering::Relaxed);
                                }
                            }
                            8 => drop(acknowledged.fetch_max(count(heap), Ordering::Relaxed)),
                            _ => {}
                        }
                    }
                });
            }
        });
        drop(heap);
        let found = count(&options.open(path).unwrap());
        assert!(found >= acknowledged.into_inner() && found <= 1200, "{found}");
    });
}

#[test]
fn a_ticket_of_another_heap_or_of_an_earlier_opening_is_refused() {
    on_each_medium(|options, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        let (_, ticket) = count_later(&heap).unwrap();
        let other = options.open(path.with_extension("other")).unwrap();
        let error = other.wait(ticket).unwrap_err();
        assert!(matches!(error, HeapError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("another heap, or of an earlier opening"), "{error}");
        assert!(other.is_durable(ticket).is_err());
        heap.close().unwrap();
        let heap = options.open(path).unwrap();
        assert!(heap.wait(ticket).is_err(), "of an earlier opening");
        let [opening, position] = count_later(&heap).unwrap().1.to_words();
        heap.wait(TxTicket::from_words([opening, position])).unwrap();
        assert!(heap.wait(TxTicket::from_words([opening, position + 1000])).is_err(), "not drawn yet");
        // Waited for inside a transaction, too.
        let (_, ticket) = count_later(&heap).unwrap();
        heap.transaction(|_| Ok(heap.wait(ticket)?)).unwrap();
    });
}

/// The first failure of the device latches: no ticket is acknowledged that was not durable by then.
#[test]
fn a_failing_device_is_told_by_every_ticket_that_was_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let options = options(Medium::File).storage(Arc::new(faulty.clone()));
    let heap = options.open(&path).unwrap();
    make(&heap);
    let (_, durable) = count_later(&heap).unwrap();
    heap.wait(durable).unwrap();
    let lost: Vec<_> = (0..10).map(|_| count_later(&heap).unwrap().1).collect();
    let (file, operations) = (Some("log".into()), vec![FaultyOperation::Write, FaultyOperation::Sync]);
    faulty.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(libc::EIO) });
    let error = heap.wait(lost[3]).unwrap_err();
    assert!(matches!(error, HeapError::InDoubt(_)), "{error:?}");
    assert!(faulty.struck());
    faulty.heal();
    for &ticket in &lost {
        assert!(matches!(heap.wait(ticket), Err(HeapError::InDoubt(_))));
        assert!(matches!(heap.is_durable(ticket), Err(HeapError::InDoubt(_))));
    }
    heap.wait(durable).unwrap();
    assert!(heap.is_durable(durable).unwrap());
    drop(heap);
    let found = count(&options.open(&path).unwrap());
    assert!((1..=11).contains(&found), "{found}");
}

/// What is appended and not written is bounded by the log, which the medium then writes.
#[test]
fn commits_that_nobody_waits_for_may_be_many_times_the_log() {
    on_each_medium(|options, path| {
        for background in [true, false] {
            let options = options.clone().background(background);
            let heap = options.open(path).unwrap();
            if heap.was_created() {
                make(&heap);
            }
            let before = count(&heap);
            // Each takes a line of the log at least: about ten times its length.
            for _ in 0..10_000 {
                count_later(&heap).unwrap();
            }
            drop(heap);
            let found = count(&options.open(path).unwrap());
            assert!(found > before && found <= before + 10_000, "{found}");
        }
    });
}

/// Where caches are persistent a commit is durable when it is made.
#[test]
fn with_persistent_caches_a_ticket_is_durable_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let medium = Medium::Emulated(Latency::new(0, 0));
    let heap = options(medium).domain(Domain::Eadr).open(folder.path().join("heap")).unwrap();
    make(&heap);
    let (_, ticket) = count_later(&heap).unwrap();
    assert!(heap.is_durable(ticket).unwrap());
}

/// By interval a commit is not waited for; its ticket is, if the program asks.
#[test]
fn with_durability_by_interval_a_ticket_waits_for_the_device() {
    for executor in executors() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(Medium::File).executor(executor).durability(Durability::interval_ms(60_000));
        let heap = options.create(Create::IfMissing).open(folder.path().join("heap")).unwrap();
        make(&heap);
        let (_, ticket) = count_later(&heap).unwrap();
        assert!(!heap.is_durable(ticket).unwrap(), "{executor}");
        heap.wait(ticket).unwrap();
        assert!(heap.is_durable(ticket).unwrap(), "{executor}");
    }
}

/// What it has read may be told, too.
#[test]
fn a_transaction_that_aborts_waits_until_what_it_has_read_is_durable() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let heap = options(medium).open(folder.path().join("heap")).unwrap();
        make(&heap);
        let (count, ticket) = count_later(&heap).unwrap();
        let aborts = |tx: &mut Tx<'_>| -> Result<(), Cancel<u64>> {
            let counter = counter(tx)?;
            Err(Cancel::Abort(tx.read(counter)?))
        };
        assert_eq!(heap.try_transaction_nowait(aborts).unwrap().map(drop), Err(count));
        assert!(!heap.is_durable(ticket).unwrap(), "{medium:?}: it does not wait");
        assert_eq!(heap.try_transaction(aborts).unwrap(), Err(count));
        assert!(heap.is_durable(ticket).unwrap(), "{medium:?}");
    }
}

/// So it may where it fails, and by a walk over the blocks.
#[test]
fn a_transaction_that_fails_and_a_walk_wait_until_what_they_have_read_is_durable() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let heap = options(medium).open(folder.path().join("heap")).unwrap();
        make(&heap);
        let (count, ticket) = count_later(&heap).unwrap();
        let mut seen = 0;
        let fails = heap.transaction(|tx| {
            let counter = counter(tx)?;
            seen = tx.read(counter)?;
            tx.alloc_array::<u64>(1 << 30).map(drop)
        });
        assert!(matches!(fails, Err(HeapError::Full { .. })) && seen == count, "{fails:?}");
        assert!(heap.is_durable(ticket).unwrap(), "{medium:?}");
        let (_, ticket) = count_later(&heap).unwrap();
        assert!(!heap.is_durable(ticket).unwrap(), "{medium:?}");
        heap.for_each_block(|_, _| ()).unwrap();
        assert!(heap.is_durable(ticket).unwrap(), "{medium:?}");
    }
}

#[test]
fn without_a_wait_the_heap_makes_a_commit_durable_by_itself() {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        let options = options(medium).background(true).nowait_within(Duration::from_millis(20));
        let heap = options.open(folder.path().join("heap")).unwrap();
        make(&heap);
        for _ in 0..5 {
            let (_, ticket) = count_later(&heap).unwrap();
            let begun = std::time::Instant::now();
            while !heap.is_durable(ticket).unwrap() {
                assert!(begun.elapsed() < Duration::from_secs(300), "{medium:?}: it does not become durable");
                std::thread::yield_now();
            }
        }
    }
}
