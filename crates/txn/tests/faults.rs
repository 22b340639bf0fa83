//! What goes wrong around a transaction: a full heap, a full medium, a medium that fails, a panic, signals. The
//! transaction fails and leaves nothing, nothing is acknowledged that a crash could undo, and the others go on.

#[path = "support/ways.rs"]
mod ways;

use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_txn::{AddressChoice, Create, Heap, HeapError, HeapOptions, HeapResult, Ptr, Stop, Tx};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use ways::{on_each_way, ways};

const LOG_BYTES: u64 = 64 << 10;

fn with(options: HeapOptions, faulty: &Faulty) -> HeapOptions {
    options.capacity(64 << 20).log_bytes(LOG_BYTES).storage(Arc::new(faulty.clone()))
}

/// With each executor and protocol.
fn on_each(test: impl Fn(HeapOptions, &Faulty, &Path)) {
    on_each_way(|options, path| {
        let faulty = Faulty::new(Arc::new(OsStorage));
        test(with(options, &faulty), &faulty, path);
    });
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

fn count_on(heap: &Heap) -> HeapResult<u64> {
    heap.transaction(|tx| {
        let counter = counter(tx)?;
        let count = tx.read(counter)? + 1;
        tx.write(counter, count)?;
        Ok(count)
    })
}

fn count(heap: &Heap) -> HeapResult<u64> {
    heap.read(|tx| {
        let counter = counter(tx)?;
        tx.read(counter)
    })
}

/// Before the commit record is written, when half of it is, and when a process dies with it.
#[test]
fn a_failing_log_acknowledges_nothing_any_more() {
    let files = ways().into_iter().filter(|(name, _)| name.contains("file")).map(|(_, options)| options);
    for options in files {
        let kinds = [FaultKind::Errno(libc::EIO), FaultKind::Short, FaultKind::Halt];
        for (kind, nth) in kinds.into_iter().flat_map(|kind| (0..3).map(move |nth| (kind, nth))) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("heap");
            let faulty = Faulty::new(Arc::new(OsStorage));
            let options = with(options.clone(), &faulty);
            let heap = options.open(&path).unwrap();
            make(&heap);
            assert_eq!(count_on(&heap).unwrap(), 1);
            let (file, operations) =
                (Some("log".into()), vec![FaultyOperation::Write, FaultyOperation::Sync]);
            faulty.plant(Fault { file, operations, nth, kind });
            let mut acknowledged = 1;
            let failed = loop {
                match count_on(&heap) {
                    Ok(count) => acknowledged = count,
                    Err(error) => break error,
                }
            };
            assert!(faulty.struck(), "{kind:?} {nth}");
            assert!(matches!(failed, HeapError::InDoubt(_) | HeapError::Pool(_)), "{failed:?}");
            // The medium works again, and yet no thread is told anything that a crash could undo.
            faulty.heal();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        assert!(count_on(&heap).is_err(), "{kind:?} {nth}: acknowledged after a failure");
                        if let Ok(seen) = count(&heap) {
                            assert_eq!(seen, acknowledged, "{kind:?} {nth}: it may be undone");
                        }
                    });
                }
            });
            assert!(heap.sync().is_err() && heap.shadow().poisoned().is_some());
            assert!(heap.close().is_err(), "{kind:?} {nth}: closed as if all was well");
            let heap = options.create(Create::Never).open(&path).unwrap();
            let found = count(&heap).unwrap();
            assert!((acknowledged..=acknowledged + 3).contains(&found), "{kind:?} {nth}: {found}");
            assert_eq!(heap.check().unwrap(), Vec::<String>::new());
            assert_eq!(count_on(&heap).unwrap(), found + 1);
        }
    }
}

/// On memory a failed growth ends the medium. A commit after it is visible and in doubt, and so is what has read it.
#[test]
fn what_read_a_commit_in_doubt_is_in_doubt_on_memory_too() {
    for (name, options) in ways().into_iter().filter(|(name, _)| name.ends_with("one fence, Adr")) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let faulty = Faulty::new(Arc::new(OsStorage));
        let options = with(options, &faulty);
        let heap = options.open(&path).unwrap();
        make(&heap);
        assert_eq!(count_on(&heap).unwrap(), 1);
        let (file, operations) = (Some("pool".into()), vec![FaultyOperation::Write, FaultyOperation::Sync]);
        faulty.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(libc::EIO) });
        let grown = heap.transaction(|tx| tx.alloc_bytes(16 << 20, 16));
        assert!(grown.is_err() && faulty.struck(), "{name}: {grown:?}");
        faulty.heal();
        let doubt = count_on(&heap);
        assert!(matches!(doubt, Err(HeapError::InDoubt(_))), "{name}: {doubt:?}");
        for _ in 0..2 {
            let told = count(&heap);
            assert!(matches!(told, Err(HeapError::InDoubt(_))), "{name}: {told:?}");
        }
        drop(heap);
        let found = count(&options.open(&path).unwrap()).unwrap();
        assert!((1..=2).contains(&found), "{name}: {found}");
    }
}

#[test]
fn a_full_heap_refuses_a_block_and_goes_on() {
    on_each(|options, _, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        let mut blocks = Vec::new();
        let full = loop {
            match heap.transaction(|tx| tx.alloc_bytes(1 << 20, 16)) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, HeapError::Full { .. }) && blocks.len() > 20, "{full}");
        assert!(full.to_string().contains("its address space is used up"), "{full}");
        assert_eq!(count_on(&heap).unwrap(), 1);
        let block = blocks.pop().unwrap();
        // The block that a transaction frees is its own again, but only once it commits.
        heap.transaction(|tx| tx.free_bytes(block)).unwrap();
        heap.transaction(|tx| tx.alloc_bytes(1 << 20, 16)).unwrap();
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
        drop(heap);
        assert_eq!(count(&options.open(path).unwrap()).unwrap(), 1);
    });
}

#[test]
fn a_full_medium_refuses_to_grow_and_the_heap_goes_on() {
    on_each(|options, faulty, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        let (kind, operations) = (FaultKind::ErrnoForEver(libc::ENOSPC), vec![FaultyOperation::Allocate]);
        faulty.plant(Fault { file: None, operations, nth: 0, kind });
        let refused = heap.transaction(|tx| {
            let counter = counter(tx)?;
            tx.write(counter, 77)?;
            tx.alloc_bytes(16 << 20, 16)
        });
        let Err(error @ HeapError::NoSpace { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("no space left"), "{error} {}", faulty.struck());
        assert_eq!(count_on(&heap).unwrap(), 1);
        faulty.heal();
        heap.transaction(|tx| tx.alloc_bytes(16 << 20, 16)).unwrap();
        // The medium has room again: what is too much now is too much for the capacity.
        let refused = heap.transaction(|tx| tx.alloc_bytes(1 << 30, 16));
        assert!(matches!(refused, Err(HeapError::Full { wanted: 0x4000_0000 })), "{refused:?}");
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    });
}

/// A transaction that is longer than the log needs space beside it.
#[test]
fn a_full_medium_refuses_a_long_transaction_and_the_heap_goes_on() {
    on_each(|options, faulty, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        // One by one, so that no transaction before has needed so much.
        let words: Vec<Ptr<u64>> = (0..LOG_BYTES / 256)
            .flat_map(|_| {
                let page: Ptr<u64> = heap.transaction(|tx| tx.alloc_array(256)).unwrap();
                (0..256).map(move |n| page.add(n))
            })
            .collect();
        let (first, last) = (words[0], words[words.len() - 1]);
        let fill = |value: u64| {
            heap.transaction(|tx| {
                let counter = counter(tx)?;
                tx.write(counter, 5)?;
                words.iter().try_for_each(|&word| tx.write(word, value))
            })
        };
        let operations = vec![FaultyOperation::Allocate, FaultyOperation::Name];
        let kind = FaultKind::ErrnoForEver(libc::ENOSPC);
        faulty.plant(Fault { file: None, operations, nth: 0, kind });
        let refused = fill(9);
        let Err(HeapError::Pool(error @ mangrove_shadow::Error::NoSpace { .. })) = refused else {
            panic!("{refused:?}");
        };
        assert!(faulty.struck() && error.to_string().contains("free some space"), "{error}");
        assert_eq!(heap.read(|tx| Ok((tx.read(first)?, tx.read(last)?))).unwrap(), (0, 0));
        assert_eq!(count_on(&heap).unwrap(), 1);
        faulty.heal();
        fill(9).unwrap();
        drop(heap);
        let heap = options.open(path).unwrap();
        assert_eq!(heap.read(|tx| Ok((tx.read(first)?, tx.read(last)?))).unwrap(), (9, 9));
        assert_eq!(count(&heap).unwrap(), 5);
    });
}

#[test]
fn a_thread_that_panics_in_its_body_harms_no_other() {
    on_each(|options, _, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| assert!(count_on(&heap).unwrap() <= 100)));
            }
            for _ in 0..20 {
                let ended = scope.spawn(|| {
                    heap.transaction(|tx| -> Result<(), Stop> {
                        let counter = counter(tx)?;
                        tx.write(counter, 1_000_000)?;
                        tx.alloc([0u64; 128])?;
                        panic!("in the middle")
                    })
                });
                assert!(ended.join().is_err());
            }
        });
        assert_eq!(count(&heap).unwrap(), 100);
        assert_eq!(heap.stat().unwrap().arena.blocks, 1);
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    });
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// The program's handlers run in the middle of transactions; system calls end early.
#[test]
fn signals_interrupt_transactions_and_change_nothing() {
    on_each(|options, _, path| {
        let heap = options.open(path).unwrap();
        make(&heap);
        // SAFETY: a handler that only counts, without SA_RESTART.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        let before = SIGNALS.load(Ordering::Relaxed);
        let done = std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            let heap = &heap;
            let worker = scope.spawn(move || {
                // SAFETY: the calling thread's own number.
                send.send(unsafe { libc::pthread_self() }).unwrap();
                let mut done = 0;
                while SIGNALS.load(Ordering::Relaxed) < before + 100 || done < 1000 {
                    done = count_on(heap).unwrap();
                }
                done
            });
            let thread = receive.recv().unwrap();
            let mut sent = before;
            while !worker.is_finished() {
                // One after the other: many at a time come as one.
                if SIGNALS.load(Ordering::Relaxed) < sent {
                    std::thread::yield_now();
                    continue;
                }
                sent += 1;
                // SAFETY: nobody has joined the thread yet, so its number is valid.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                std::thread::yield_now();
            }
            worker.join().unwrap()
        });
        drop(heap);
        assert_eq!(count(&options.open(path).unwrap()).unwrap(), done);
    });
}

/// Too small, out of the address space, on a full medium: the directory is as it was.
#[test]
fn a_refused_creation_leaves_nothing() {
    on_each_way(|options, path| {
        let faulty = Faulty::new(Arc::new(OsStorage));
        let options = options.log_bytes(LOG_BYTES).storage(Arc::new(faulty.clone()));
        let outside = AddressChoice::At(1 << 52);
        for refused in [
            options.clone().capacity(64 << 10),
            options.clone().capacity(64 << 20).address(outside),
            options.clone().capacity(64 << 20).address(AddressChoice::At(4096 * 3 + 1)),
        ] {
            let error = refused.open(path).unwrap_err();
            assert!(!path.exists(), "{error}");
        }
        let file = Some("image".into());
        let full = Fault {
            file,
            operations: vec![FaultyOperation::Allocate],
            nth: 0,
            kind: FaultKind::ErrnoForEver(libc::ENOSPC),
        };
        faulty.plant(full);
        let opened = options.clone().capacity(64 << 20).open(path);
        if faulty.struck() {
            let error = opened.unwrap_err();
            assert!(matches!(error, HeapError::Pool(mangrove_shadow::Error::NoSpace { .. })), "{error:?}");
            assert!(!path.exists(), "{error}");
            faulty.heal();
        }
        options.capacity(64 << 20).open(path).unwrap();
    });
}
