//! The heap through its public face: what was acknowledged comes back, what was undone left nothing, and no block is
//! lost.

#[path = "support/ways.rs"]
mod ways;

use mangrove_testkit::process::{is_asleep, own_thread};
use mangrove_txn::{
    Cancel, Create, Domain, Executor, Heap, HeapError, HeapOptions, HeapResult, Latency, Medium, MediumKind,
    Order, Pod, Protocol, Ptr, StmOptions, Stop, Tx, Zeroable, field,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use ways::{on_each_way, ways};

const MEDIA: [Medium; 2] = [Medium::Emulated(Latency::new(0, 0)), Medium::File];

fn options(medium: Medium) -> HeapOptions {
    Heap::options().medium(medium).capacity(256 << 20).log_bytes(256 << 10)
}

/// With each executor and protocol.
fn on_each(test: impl Fn(HeapOptions, &Path)) {
    on_each_way(|options, path| test(options.capacity(256 << 20).log_bytes(256 << 10), path));
}

/// A node of a list.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct List {
    head: Ptr<Node>,
    count: u64,
}

fn list(tx: &mut Tx<'_>) -> Result<Ptr<List>, Stop> {
    Ok(tx.root("list")?.expect("made when the heap was"))
}

fn push(tx: &mut Tx<'_>, value: u64) -> Result<(), Stop> {
    let list = list(tx)?;
    let List { head, count } = tx.read(list)?;
    let head = tx.alloc(Node { value, next: head })?;
    tx.write(list, List { head, count: count + 1 })
}

fn pop(tx: &mut Tx<'_>) -> Result<Option<u64>, Stop> {
    let list = list(tx)?;
    let head = tx.read(field!(list, List, head))?;
    if head.is_null() {
        return Ok(None);
    }
    let Node { value, next } = tx.read(head)?;
    let count = tx.read(field!(list, List, count))?;
    tx.write(list, List { head: next, count: count - 1 })?;
    tx.free(head)?;
    Ok(Some(value))
}

fn make_list(heap: &Heap) {
    heap.transaction(|tx| {
        let list = tx.alloc(List::zeroed())?;
        tx.set_root("list", list)
    })
    .unwrap();
}

fn values(heap: &Heap) -> Vec<u64> {
    heap.read(|tx| {
        let mut values = Vec::new();
        let list = list(tx)?;
        let mut at = tx.read(field!(list, List, head))?;
        while !at.is_null() {
            let node = tx.read(at)?;
            values.push(node.value);
            at = node.next;
        }
        assert_eq!(tx.read(field!(list, List, count))?, values.len() as u64);
        Ok(values)
    })
    .unwrap()
}

/// The blocks in use are the list's, and no others.
fn nothing_is_lost(heap: &Heap) {
    assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    let mut reached = BTreeSet::new();
    heap.read(|tx| {
        let list = list(tx)?;
        reached = BTreeSet::from([list.address()]);
        let mut at = tx.read(field!(list, List, head))?;
        while !at.is_null() {
            reached.insert(at.address());
            at = tx.read(field!(at, Node, next))?;
        }
        Ok(())
    })
    .unwrap();
    let mut blocks = BTreeSet::new();
    heap.for_each_block(|address, _| assert!(blocks.insert(address))).unwrap();
    assert_eq!(blocks, reached);
}

#[test]
fn a_list_comes_back_after_a_crash() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        assert!(heap.was_created());
        make_list(&heap);
        (0..1000).for_each(|value| heap.transaction(|tx| push(tx, value)).unwrap());
        let base = heap.base();
        drop(heap);
        let heap = options.open(path).unwrap();
        assert!(!heap.was_created() && heap.base() == base);
        assert_eq!(values(&heap), (0..1000).rev().collect::<Vec<_>>());
        nothing_is_lost(&heap);
        for expected in (500..1000).rev() {
            assert_eq!(heap.transaction(pop).unwrap(), Some(expected));
        }
        heap.close().unwrap();
        assert_eq!(Heap::check_path(path).unwrap(), Vec::<String>::new());
        let heap = options.create(Create::Never).open(path).unwrap();
        assert_eq!(values(&heap), (0..500).rev().collect::<Vec<_>>());
        nothing_is_lost(&heap);
    });
}

#[test]
fn threads_allocate_and_free_and_lose_nothing() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        let popped = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let (heap, popped) = (&heap, &popped);
                scope.spawn(move || {
                    for round in 0..300 {
                        heap.transaction(|tx| push(tx, number << 32 | round)).unwrap();
                        if round % 3 == 0 {
                            let got = heap.transaction(pop).unwrap().expect("this thread has pushed more");
                            popped.fetch_add(got, Ordering::Relaxed);
                        }
                        if round % 7 == 0 {
                            let answer: Result<(), u64> = heap
                                .try_transaction(|tx| {
                                    push(tx, 1)?;
                                    pop(tx)?;
                                    push(tx, 2)?;
                                    Err(Cancel::Abort(round))
                                })
                                .unwrap();
                            assert_eq!(answer, Err(round));
                        }
                    }
                });
            }
        });
        let pushed: u64 = (0..4u64).map(|n| (0..300).map(|round| n << 32 | round).sum::<u64>()).sum();
        assert_eq!(values(&heap).iter().sum::<u64>() + popped.into_inner(), pushed);
        nothing_is_lost(&heap);
        drop(heap);
        let heap = options.open(path).unwrap();
        assert_eq!(values(&heap).len(), 4 * 200);
        nothing_is_lost(&heap);
    });
}

#[test]
fn what_is_undone_leaves_nothing() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        heap.transaction(|tx| push(tx, 1)).unwrap();
        let undone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| -> Result<(), Stop> {
                push(tx, 2)?;
                tx.set_root("other", Ptr::<u64>::at(8))?;
                panic!("in the middle");
            })
        }));
        assert!(undone.is_err());
        let twice = heap.transaction(|tx| {
            let block = tx.alloc(7u64)?;
            tx.free(block)?;
            tx.free(block)
        });
        assert!(matches!(twice, Err(HeapError::BadFree { twice: true, .. })), "{twice:?}");
        let inside = heap.transaction(|tx| {
            let list = list(tx)?;
            tx.free_bytes(list.address() + 8)
        });
        assert!(matches!(inside, Err(HeapError::BadFree { twice: false, .. })), "{inside:?}");
        let foreign = heap.transaction(|tx| tx.free_bytes(std::ptr::from_ref(&heap).addr()));
        assert!(matches!(foreign, Err(HeapError::BadFree { twice: false, .. })), "{foreign:?}");
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| {
                push(tx, 3)?;
                tx.write(Ptr::at(std::ptr::from_ref(&heap).addr()), 1u64)
            })
        }));
        assert!(outside.is_err());
        let nested = heap.transaction(|tx| {
            push(tx, 4)?;
            Ok(heap.transaction(|tx| push(tx, 5))?)
        });
        assert!(matches!(nested, Err(HeapError::Nested)), "{nested:?}");
        let full = heap.transaction(|tx| {
            push(tx, 6)?;
            tx.alloc_bytes(1 << 40, 16)
        });
        assert!(matches!(full, Err(HeapError::Full { .. })), "{full:?}");
        assert_eq!(values(&heap), [1]);
        nothing_is_lost(&heap);
        heap.transaction(|tx| push(tx, 9)).unwrap();
        drop(heap);
        let heap = options.open(path).unwrap();
        assert_eq!(values(&heap), [9, 1]);
        nothing_is_lost(&heap);
    });
}

/// A variable of a thread that was made before the thread's first call of a heap is destroyed after what the thread has
/// of the heap.
#[test]
fn a_destructor_of_a_thread_that_ends_is_refused() {
    type Tell = Sender<HeapResult<()>>;
    struct Session(RefCell<Option<(Arc<Heap>, Tell)>>);
    impl Drop for Session {
        fn drop(&mut self) {
            let (heap, tell) = self.0.take().expect("set below");
            tell.send(heap.transaction(|tx| push(tx, 2))).unwrap();
        }
    }
    thread_local!(static SESSION: Session = const { Session(RefCell::new(None)) });
    on_each(|options, path| {
        let heap = Arc::new(options.open(path).unwrap());
        make_list(&heap);
        let (tell, told) = channel();
        let other = Arc::clone(&heap);
        let thread = std::thread::spawn(move || {
            SESSION.with(|session| session.0.replace(Some((Arc::clone(&other), tell))));
            other.transaction(|tx| push(tx, 1)).unwrap();
        });
        thread.join().unwrap();
        let refused = told.recv().unwrap();
        assert!(matches!(refused, Err(HeapError::Ending)), "{refused:?}");
        assert_eq!(heap.transaction(pop).unwrap(), Some(1));
    });
}

/// Addresses between the used part and the capacity belong to nobody.
#[test]
fn addresses_behind_the_used_part_are_refused() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        let behind = heap.base() + (200 << 20);
        let undone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| tx.write(Ptr::at(behind), 1u64))
        }));
        assert!(undone.is_err(), "{undone:?}");
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| tx.read(Ptr::<u64>::at(behind)))
        }));
        assert!(read.is_err(), "{read:?}");
        make_list(&heap);
        assert_eq!(values(&heap), [0u64; 0]);
    });
}

#[test]
fn roots_have_names_and_sizes() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        heap.transaction(|tx| {
            for n in 0..mangrove_txn::ROOT_COUNT_MAX as u64 {
                let block = tx.alloc(n)?;
                tx.set_root(&format!("root {n}"), block)?;
            }
            Ok(())
        })
        .unwrap();
        let set = |name: &str| heap.transaction(|tx| tx.set_root(name, Ptr::<u64>::NULL));
        assert!(matches!(set("one more"), Err(HeapError::Root { .. })));
        assert!(matches!(set(""), Err(HeapError::Root { .. })));
        assert!(matches!(set(&"x".repeat(40)), Err(HeapError::Root { .. })));
        assert!(heap.transaction(|tx| tx.remove_root("root 7")).unwrap());
        assert!(!heap.transaction(|tx| tx.remove_root("root 7")).unwrap());
        set(&"x".repeat(39)).unwrap();
        drop(heap);
        let heap = options.open(path).unwrap();
        let get = |name: &str| heap.read(|tx| tx.root::<u64>(name)?.map(|root| tx.read(root)).transpose());
        assert_eq!(get("root 62").unwrap(), Some(62));
        assert_eq!(get("root 7").unwrap(), None);
        let wrong = heap.read(|tx| tx.root::<u32>("root 8"));
        assert!(matches!(wrong, Err(HeapError::Root { .. })), "{wrong:?}");
    });
}

#[test]
fn callers_without_types_use_sizes_and_see_errors() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        let at = heap
            .transaction(|tx| {
                let at = tx.alloc_bytes(24, 8)?;
                tx.set_root_bytes("record", at, 24)?;
                Ok(at)
            })
            .unwrap();
        assert_eq!(heap.read(|tx| tx.root::<[u64; 3]>("record")).unwrap(), Some(Ptr::at(at)));
        assert_eq!(heap.read(|tx| tx.root_bytes("record", 24)).unwrap(), Some(at));
        let mut seen = None;
        let refused = heap.read(|tx| {
            let read = tx.root_bytes("record", 16);
            seen = read.as_ref().err().and_then(Stop::error).cloned();
            read
        });
        assert!(matches!(refused, Err(HeapError::Root { .. })), "{refused:?}");
        assert!(matches!(seen, Some(HeapError::Root { .. })), "{seen:?}");
        // A reader that aborts has changed nothing, and says why; that it must run again is no error.
        let aborted: Result<(), u64> = heap
            .try_read(|tx| {
                tx.remove_root("record")?;
                assert!(tx.retry().error().is_none());
                Err(Cancel::Abort(7))
            })
            .unwrap();
        assert_eq!(aborted, Err(7));
        assert_eq!(heap.read(|tx| tx.root_bytes("record", 24)).unwrap(), Some(at));
    });
}

#[test]
fn a_fork_is_refused() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        // SAFETY: the child makes one call, which allocates nothing that another thread may hold, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = matches!(heap.transaction(|tx| push(tx, 1)), Err(HeapError::Forked));
            let stays = matches!(heap.close(), Err(HeapError::Forked));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!refused || !stays)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        heap.transaction(|tx| push(tx, 2)).unwrap();
        assert_eq!(values(&heap), [2]);
    });
}

/// The child has the parent's log, on emulated the same memory: it must not write there.
#[test]
fn a_child_that_is_forked_in_a_body_commits_nothing() {
    on_each(|options, path| {
        let heap = options.clone().open(path).unwrap();
        make_list(&heap);
        let mut child = -1;
        let answer = heap.transaction(|tx| {
            push(tx, 1)?;
            if child == -1 {
                // SAFETY: the child leaves the body, which allocates little of the process's memory, and exits.
                child = unsafe { libc::fork() };
            }
            // The medium does not grow for the child.
            if child == 0 && tx.alloc_array::<u64>(1 << 20).is_ok() {
                // SAFETY: as above.
                unsafe { libc::_exit(2) };
            }
            Ok(())
        });
        if child == 0 {
            let refused = matches!(answer, Err(HeapError::Forked));
            let waits = matches!(heap.sync(), Err(HeapError::Forked));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!refused || !waits)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        answer.unwrap();
        heap.transaction(|tx| push(tx, 2)).unwrap();
        drop(heap);
        assert_eq!(values(&options.open(path).unwrap()).len(), 2);
    });
}

/// One more undone attempt than an ownership record counts draws a number, which has an empty atomic group. A child
/// undoes its copy of a body, too, and must not put that into the parent's log.
#[test]
fn a_child_that_undoes_a_body_writes_nothing_into_the_log() {
    const COUNTED: usize = 127;
    let records = StmOptions { solo_after: None, ..StmOptions::default() };
    let options = options(Medium::Emulated(Latency::new(0, 0))).executor(records).domain(Domain::Adr);
    let options = options.log_count(4).background(false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let heap = options.open(&path).unwrap();
    make_list(&heap);
    let touch = |tx: &mut Tx<'_>| -> Result<(), Stop> {
        let list = list(tx)?;
        let same = tx.read(list)?;
        tx.write(list, same)
    };
    for _ in 0..COUNTED {
        let undone = heap.try_transaction(|tx| {
            touch(tx)?;
            Err::<(), _>(Cancel::Abort(()))
        });
        undone.unwrap().unwrap_err();
    }
    let image = || std::fs::read(path.join("image")).unwrap();
    let (mut child, mut ended) = (-1, None);
    let answer = heap.transaction(|tx| {
        touch(tx)?;
        let before = image();
        // SAFETY: the child leaves the body, which allocates nothing, and exits.
        child = unsafe { libc::fork() };
        if child != 0 {
            let mut status = -1;
            // SAFETY: waits for the child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            ended = Some((status, image() == before));
        }
        Ok(())
    });
    if child == 0 {
        let refused = matches!(answer, Err(HeapError::Forked));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    answer.unwrap();
    assert_eq!(ended, Some((0, true)), "the child's status, and whether the log is as it was");
    heap.transaction(|tx| push(tx, 1)).unwrap();
    drop(heap);
    assert_eq!(values(&options.open(&path).unwrap()), [1]);
}

/// Seconds after which a child that waits is ended, and after which a parent gives up.
const CHILD_SECONDS_MAX: u32 = 300;

/// A heap with two words, whose transactions wait for each other's words without a limit.
fn with_two_words(folder: &Path) -> (Heap, [Ptr<u64>; 2]) {
    let records = StmOptions { solo_after: None, ..StmOptions::default() };
    let options = options(Medium::Emulated(Latency::new(0, 0))).executor(records).domain(Domain::Adr);
    let heap = options.log_count(4).background(false).open(folder.join("heap")).unwrap();
    let words = heap.transaction(|tx| Ok([tx.alloc_array(32)?, tx.alloc_array(32)?])).unwrap();
    (heap, words)
}

/// Writes the second word in a transaction whose body forks after `ready`. The child then writes the first one, which
/// another thread of the parent owns, and has to end with `Forked`.
fn fork_in_a_body(heap: &Heap, words: [Ptr<u64>; 2], ready: impl Fn()) {
    let mut child = -1;
    let answer = heap.transaction(|tx| {
        tx.write(words[1], 2)?;
        if child == -1 {
            ready();
            // SAFETY: the child leaves the body, which allocates little of the process's memory, and exits.
            child = unsafe { libc::fork() };
        }
        if child == 0 {
            // SAFETY: asks for a signal.
            unsafe { libc::alarm(CHILD_SECONDS_MAX) };
            tx.write(words[0], 2)?;
        }
        Ok(())
    });
    if child == 0 {
        let refused = matches!(answer, Err(HeapError::Forked));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    answer.unwrap();
    assert_eq!(status, 0);
}

/// Writes the first word in a transaction that lasts until `may_end` has a message, or no sender.
fn own_the_first(heap: &Heap, words: [Ptr<u64>; 2], owns: &Sender<()>, may_end: &Receiver<()>) {
    let answer = heap.transaction(|tx| {
        tx.write(words[0], 1)?;
        owns.send(()).unwrap();
        let _ = may_end.recv();
        Ok(())
    });
    answer.unwrap();
}

/// In a child, what another thread of the parent's owned stays owned.
#[test]
fn a_child_that_is_forked_in_a_body_does_not_wait_for_a_thread_that_it_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let (heap, words) = with_two_words(folder.path());
    let ((owns, is_owned), (end, may_end)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let (heap, _end) = (&heap, end);
        scope.spawn(move || own_the_first(heap, words, &owns, &may_end));
        is_owned.recv().unwrap();
        fork_in_a_body(heap, words, || {});
    });
    assert_eq!(heap.read(|tx| Ok([tx.read(words[0])?, tx.read(words[1])?])).unwrap(), [1, 2]);
}

/// In a child, a gate that another thread of the parent's was closing stays closed, and its turn taken.
#[test]
fn a_child_that_is_forked_in_a_body_does_not_wait_for_a_gate_that_stays_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (heap, words) = with_two_words(folder.path());
    let ((owns, is_owned), (end, may_end)) = (channel(), channel::<()>());
    let ((begins, has_begun), (closes, is_closing)) = (channel::<()>(), channel());
    std::thread::scope(|scope| {
        let (heap, _end, begins) = (&heap, end, begins);
        scope.spawn(move || own_the_first(heap, words, &owns, &may_end));
        scope.spawn(move || {
            if has_begun.recv().is_ok() {
                closes.send(own_thread()).unwrap();
                // Closes the gate, and waits for the transactions that run.
                heap.stat().unwrap();
            }
        });
        is_owned.recv().unwrap();
        fork_in_a_body(heap, words, || {
            begins.send(()).unwrap();
            let (closing, begun) = (is_closing.recv().unwrap(), Instant::now());
            while !is_asleep(&closing) {
                let waited = begun.elapsed() < Duration::from_secs(CHILD_SECONDS_MAX.into());
                assert!(waited, "it does not wait");
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(heap.read(|tx| Ok([tx.read(words[0])?, tx.read(words[1])?])).unwrap(), [1, 2]);
}

#[test]
fn a_retry_waits_for_a_change() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let take = |tx: &mut Tx<'_>| match pop(tx)? {
                    Some(value) => Ok(value),
                    None => Err(tx.retry()),
                };
                (0..50).map(|_| heap.transaction(take).unwrap()).sum::<u64>()
            });
            (0..50).for_each(|value| heap.transaction(|tx| push(tx, value)).unwrap());
            assert_eq!(consumer.join().unwrap(), (0..50).sum::<u64>());
        });
    });
}

/// Each thread that ends leaves its log and its shard to the next one.
#[test]
fn a_thousand_short_threads() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        for _ in 0..100 {
            std::thread::scope(|scope| {
                (0..10).for_each(|value| {
                    drop(scope.spawn({
                        let heap = &heap;
                        move || heap.transaction(|tx| push(tx, value)).unwrap()
                    }))
                });
            });
        }
        assert_eq!(values(&heap).len(), 1000);
        nothing_is_lost(&heap);
    });
}

#[test]
fn a_nested_transaction_is_undone_alone() {
    on_each(|options, path| {
        let heap = options.open(path).unwrap();
        make_list(&heap);
        let answer: Result<Result<(), ()>, ()> = heap
            .try_transaction(|tx| {
                push(tx, 1)?;
                let inner = tx.nested(|tx| -> Result<(), Cancel<u64>> {
                    push(tx, 2)?;
                    pop(tx)?;
                    pop(tx)?;
                    push(tx, 3)?;
                    Err(Cancel::Abort(7))
                });
                assert!(matches!(inner, Err(Cancel::Abort(7))));
                tx.nested(|tx| -> Result<(), Cancel<()>> { Ok(push(tx, 4)?) })?;
                tx.or_else(
                    |tx| {
                        push(tx, 5)?;
                        Err(tx.retry())
                    },
                    |tx| push(tx, 6),
                )?;
                Ok(Ok(()))
            })
            .unwrap();
        assert_eq!(answer, Ok(Ok(())));
        assert_eq!(values(&heap), [6, 4, 1]);
        nothing_is_lost(&heap);
        drop(heap);
        let heap = options.open(path).unwrap();
        assert_eq!(values(&heap), [6, 4, 1]);
        nothing_is_lost(&heap);
    });
}

/// Without an option, the persistence domain decides what a commit waits for.
#[test]
fn the_order_follows_the_persistence_domain() {
    let [emulated, file] = MEDIA;
    for (medium, domain, asked, expected) in [
        (emulated, Domain::Eadr, None, Order::Gaps),
        (emulated, Domain::Adr, None, Order::Dense),
        (emulated, Domain::Eadr, Some(Order::Dense), Order::Dense),
        (file, Domain::Eadr, None, Order::Dense),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let options = options(medium).domain(domain);
        let options = asked.map_or(options.clone(), |order| options.clone().order(order));
        let heap = options.open(&path).unwrap();
        assert_eq!(heap.shadow().order(), expected, "{medium} {domain:?} {asked:?}");
        make_list(&heap);
        (0..20).for_each(|n| heap.transaction(|tx| push(tx, n)).unwrap());
        drop(heap);
        // Recovery follows the order of the opening that wrote, whatever the domain is now.
        let heap = options.domain(Domain::Adr).order(Order::Dense).open(&path).unwrap();
        assert_eq!(values(&heap).len(), 20, "{medium} {domain:?} {asked:?}");
        if medium == emulated {
            assert_eq!(heap.shadow().report().last.map(|last| last.order), Some(expected));
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let (adr, file) = (options(MEDIA[0]).domain(Domain::Adr), options(MEDIA[1]));
    let lock =
        |options: &HeapOptions, protocol| options.clone().executor(Executor::OneLock).protocol(protocol);
    for (options, word) in [
        (adr.clone().order(Order::Marker), "the protocol SPHT"),
        (adr.clone().protocol(Protocol::Spht), "the executor with one lock"),
        (lock(&adr, Protocol::SphtEadr), "eADR"),
        (lock(&adr, Protocol::Spht).order(Order::Dense), "Order::Marker"),
        (lock(&file, Protocol::Spht), "on the file medium"),
    ] {
        let refused = options.open(&path);
        assert!(matches!(&refused, Err(HeapError::Invalid { what }) if what.contains(word)), "{refused:?}");
        let refused =
            options.plan(if word == "on the file medium" { MediumKind::File } else { MediumKind::Emulated });
        assert!(matches!(&refused, Err(HeapError::Invalid { what }) if what.contains(word)), "{refused:?}");
        assert!(!path.exists());
    }
    let rtm = adr.executor(Executor::Rtm).open(&path);
    assert_eq!(rtm.is_ok(), mangrove_sys::rtm().commits(), "{rtm:?}");
}

/// Recovery follows the protocol that wrote; the next opening may choose another one, and another executor.
#[test]
fn each_opening_chooses_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let mut expected = Vec::new();
    for round in 0..3 {
        for (name, options) in ways().into_iter().filter(|(name, _)| !name.contains("file")) {
            let heap = options.capacity(256 << 20).log_bytes(256 << 10).open(&path).unwrap();
            if heap.was_created() {
                make_list(&heap);
            }
            assert_eq!(values(&heap), expected, "{name}");
            for n in 0..5 {
                heap.transaction(|tx| push(tx, round * 10 + n)).unwrap();
                expected.insert(0, round * 10 + n);
            }
            nothing_is_lost(&heap);
            if round == 1 {
                heap.close().unwrap();
            }
        }
    }
}

/// The path of each commit, and why attempts in hardware came to nothing.
#[test]
fn counts_tell_the_path_of_a_commit() {
    on_each(|options, path| {
        let executor = options.plan(MediumKind::Emulated).unwrap().executor;
        let heap = options.open(path).unwrap();
        make_list(&heap);
        (0..2000).for_each(|n| heap.transaction(|tx| push(tx, n)).unwrap());
        let counts = heap.stat().unwrap().counts;
        assert!(counts.commits >= 2001 && counts.hardware + counts.serial + counts.solo <= counts.commits);
        let paths = (counts.hardware > 0, counts.serial > 0, counts.solo > 0);
        match executor {
            "one lock" => assert_eq!(paths, (false, true, false), "{counts:?}"),
            text if text.contains("records") => assert_eq!(paths, (false, false, true), "{counts:?}"),
            text if text.contains("model") => {
                assert!(paths.0 && !paths.2 && counts.without_reason > 0, "{counts:?}");
                assert_eq!(counts.conflicts, counts.without_reason + counts.capacity, "{counts:?}");
            }
            _ => assert!(paths.0 && !paths.2, "{counts:?}"),
        }
    });
}

/// Caches that are said to be persistent: commits wait for nobody, and come back all the same.
#[test]
fn with_persistent_caches_commits_wait_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let adr = options(MEDIA[0]).order(Order::Gaps).domain(Domain::Adr).open(&path);
    assert!(matches!(adr, Err(HeapError::Pool(_))), "{adr:?}");
    let options = options(MEDIA[0]).domain(Domain::Eadr);
    let heap = options.open(&path).unwrap();
    make_list(&heap);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let heap = &heap;
            scope.spawn(move || {
                (0..200).for_each(|n| heap.transaction(|tx| push(tx, number * 1000 + n)).unwrap())
            });
        }
    });
    let before = values(&heap);
    drop(heap);
    let heap = options.open(&path).unwrap();
    assert_eq!((values(&heap), before.len()), (before, 800));
    nothing_is_lost(&heap);
}
