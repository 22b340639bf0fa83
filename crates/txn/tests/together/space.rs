//! Space that a heap gives back: what comes back of it, what a crash keeps, what a full disk refuses, and transactions
//! beside it.

use crate::ways::{on_each_way, ways};
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_txn::{Heap, HeapError, HeapOptions, Ptr, Start, Stop, Tx};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks, of several pages and of several to a page.
const BLOCKS: usize = 1200;
/// Blocks of one transaction.
const TURN: usize = 100;

fn words_of(block: usize) -> usize {
    match block % 20 {
        0 => 12_500,
        // So long that a thread's reserve has them.
        10 => 5000,
        short => [112, 625][short % 2],
    }
}

/// A twelfth of the blocks.
fn stays(block: usize) -> bool {
    block % 400 < 34
}

/// Runs `test` with each executor on files, and with both ways to fill memory at an opening.
fn on_files(test: impl Fn(HeapOptions, &Path)) {
    for (name, options) in ways().into_iter().filter(|(name, _)| name.contains("file")) {
        for start in [Start::Read, Start::CopyOnWrite] {
            eprintln!("with {name}, {start:?}:");
            // Where the storage keeps holes.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            test(
                options.clone().capacity(256 << 20).log_bytes(1 << 20).start(start),
                &folder.path().join("h"),
            );
        }
    }
}

/// The data file gets no more space.
fn full_disk() -> Fault {
    Fault {
        file: Some("image".into()),
        operations: vec![FaultyOperation::Allocate],
        nth: 0,
        kind: FaultKind::ErrnoForEver(libc::ENOSPC),
    }
}

fn image_bytes(path: &Path) -> u64 {
    std::fs::metadata(path.join("image")).unwrap().blocks() * 512
}

fn own_bytes(heap: &Heap) -> usize {
    mangrove_sys::PageMap::open().unwrap().own_bytes(heap.base(), heap.shadow().len() as usize).unwrap()
}

fn table(tx: &mut Tx<'_>) -> Result<Ptr<u64>, Stop> {
    Ok(tx.root("table")?.expect("made when the heap was"))
}

fn slot(table: Ptr<u64>, block: usize) -> Ptr<u64> {
    Ptr::at(table.address() + block * 8)
}

/// Allocates a block of its number plus one, in every word.
fn fill(tx: &mut Tx<'_>, block: usize) -> Result<(), Stop> {
    let at = tx.alloc_bytes(words_of(block) * 8, 8)?;
    tx.write_bytes(at, &(block as u64 + 1).to_le_bytes().repeat(words_of(block)))?;
    let table = table(tx)?;
    tx.write(slot(table, block), at as u64)
}

fn free(tx: &mut Tx<'_>, block: usize) -> Result<(), Stop> {
    let table = table(tx)?;
    let at = tx.read(slot(table, block))?;
    tx.write(slot(table, block), 0)?;
    tx.free_bytes(at as usize)
}

/// Changes the blocks that are chosen, some in each transaction.
fn change(
    heap: &Heap,
    chosen: impl Fn(usize) -> bool,
    each: impl Fn(&mut Tx<'_>, usize) -> Result<(), Stop>,
) {
    for first in (0..BLOCKS).step_by(TURN) {
        let turn = || (first..first + TURN).filter(|&block| chosen(block));
        heap.transaction(|tx| turn().try_for_each(|block| each(tx, block))).unwrap();
    }
}

/// A heap with a table of blocks.
fn with_table(options: &HeapOptions, path: &Path) -> Heap {
    let heap = options.open(path).unwrap();
    heap.transaction(|tx| {
        let table = tx.alloc_array::<u64>(BLOCKS)?;
        tx.set_root("table", table)
    })
    .unwrap();
    heap
}

/// As `with_table`, with every block.
fn filled(options: &HeapOptions, path: &Path) -> Heap {
    let heap = with_table(options, path);
    change(&heap, |_| true, fill);
    heap
}

/// Whether exactly these blocks are there, whole.
#[track_caller]
fn holds(heap: &Heap, expected: impl Fn(usize) -> bool) {
    assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    for block in 0..BLOCKS {
        let words = heap.read(|tx| {
            let table = table(tx)?;
            let at = tx.read(slot(table, block))? as usize;
            let mut bytes = vec![0; if at == 0 { 0 } else { words_of(block) * 8 }];
            tx.read_bytes(at, &mut bytes).map(|()| bytes)
        });
        let whole = if expected(block) { words_of(block) } else { 0 };
        assert!(words.unwrap() == (block as u64 + 1).to_le_bytes().repeat(whole), "block {block}");
    }
    let blocks = heap.stat().unwrap().arena.blocks;
    assert_eq!(blocks, 1 + (0..BLOCKS).filter(|&block| expected(block)).count() as u64);
}

#[test]
fn what_was_freed_gives_disk_and_memory_back_and_is_used_again() {
    on_files(|options, path| {
        filled(&options, path).close().unwrap();
        let full = image_bytes(path);
        // After a reopening memory may show the data file.
        let heap = options.open(path).unwrap();
        change(&heap, |block| !stays(block), free);
        // A page that is stored to is the process's own.
        change(&heap, stays, |tx, block| free(tx, block).and_then(|()| fill(tx, block)));
        let given = heap.compact().unwrap();
        assert!(given > full / 4 * 3, "{given} of {full} bytes");
        assert_eq!(heap.compact().unwrap(), 0, "once");
        let small = image_bytes(path);
        assert!(small <= full - given, "{small} of {full} bytes, {given} given back");
        assert!(own_bytes(&heap) < full as usize / 3, "{} bytes of memory", own_bytes(&heap));
        holds(&heap, stays);
        // A crash.
        drop(heap);
        let heap = options.open(path).unwrap();
        holds(&heap, stays);
        assert!(
            image_bytes(path) < full / 3,
            "what is free takes no space after a crash: {}",
            image_bytes(path)
        );
        change(&heap, |block| !stays(block), fill);
        holds(&heap, |_| true);
        heap.shadow().checkpoint().unwrap();
        assert!(image_bytes(path) > full / 8 * 7);
        drop(heap);
        let heap = options.open(path).unwrap();
        holds(&heap, |_| true);
        change(&heap, |block| !stays(block), free);
        heap.compact().unwrap();
        heap.close().unwrap();
        assert!(image_bytes(path) < full / 3);
        let heap = options.open(path).unwrap();
        holds(&heap, stays);
        change(&heap, |block| !stays(block), fill);
        heap.close().unwrap();
        let heap = options.open(path).unwrap();
        holds(&heap, |_| true);
        heap.close().unwrap();
    });
}

/// Slabs that a thread allocates from, and what its shard keeps for the next ones, lose their pages: the next blocks
/// there ask for space again.
#[test]
fn the_place_of_the_next_block_is_given_back_too() {
    const SOME: [usize; 4] = [1, 2, 10, 20];
    on_files(|options, path| {
        let faulty = Faulty::new(Arc::new(OsStorage));
        let options = options.start(Start::Read).storage(Arc::new(faulty.clone()));
        let heap = with_table(&options, path);
        for round in 0..4 {
            assert!(heap.compact().unwrap() >= 3 * 4096, "round {round}");
            faulty.plant(full_disk());
            for block in SOME {
                let refused = heap.transaction(|tx| fill(tx, block)).unwrap_err();
                assert!(matches!(refused, HeapError::NoSpace { .. }), "round {round}, {block}: {refused}");
            }
            faulty.heal();
            for block in SOME {
                heap.transaction(|tx| fill(tx, block)).unwrap();
            }
            holds(&heap, |block| SOME.contains(&block));
            heap.shadow().checkpoint().unwrap();
            for block in SOME {
                heap.transaction(|tx| free(tx, block)).unwrap();
            }
        }
        heap.close().unwrap();
        holds(&options.open(path).unwrap(), |_| false);
    });
}

#[test]
fn a_full_disk_refuses_what_needs_space_again_and_nothing_else() {
    on_files(|options, path| {
        let faulty = Faulty::new(Arc::new(OsStorage));
        let options = options.start(Start::Read).storage(Arc::new(faulty.clone()));
        let heap = filled(&options, path);
        change(&heap, |block| !stays(block), free);
        heap.compact().unwrap();
        let mut heap = Some(heap);
        for opened_again in [false, true] {
            let now = match heap.take() {
                Some(heap) if !opened_again => heap,
                _ => options.open(path).unwrap(),
            };
            faulty.plant(full_disk());
            for block in [100, 101, 102, 110] {
                let refused = now.transaction(|tx| fill(tx, block)).unwrap_err();
                assert!(matches!(refused, HeapError::NoSpace { .. }), "block {block}: {refused}");
            }
            assert!(faulty.struck());
            // What is in use can be written.
            now.transaction(|tx| {
                let table = table(tx)?;
                let at = tx.read(slot(table, 0))?;
                tx.write(Ptr::at(at as usize), 1u64)
            })
            .unwrap();
            now.shadow().checkpoint().unwrap();
            holds(&now, stays);
            faulty.heal();
            now.transaction(|tx| fill(tx, 100)).unwrap();
            faulty.plant(full_disk());
            now.shadow().checkpoint().unwrap();
            holds(&now, |block| stays(block) || block == 100);
            faulty.heal();
            now.transaction(|tx| free(tx, 100)).unwrap();
            now.compact().unwrap();
            now.close().unwrap();
        }
    });
}

/// Threads allocate, fill, compare and free while another one gives back what is free.
#[test]
fn transactions_go_on_beside_it() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 12;
    on_files(|options, path| {
        let heap = filled(&options, path);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mine = |thread: usize| move |block: usize| block % THREADS == thread && !stays(block);
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let heap = &heap;
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let some = |block| mine(thread)(block) && block / 50 % 4 == round % 4;
                            change(heap, some, free);
                            change(heap, some, fill);
                        }
                        change(heap, mine(thread), free);
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut given = 0;
                while !done.load(Ordering::Relaxed) {
                    given += heap.compact().unwrap();
                }
                assert!(given > 0);
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        holds(&heap, stays);
        drop(heap);
        let heap = options.open(path).unwrap();
        holds(&heap, stays);
        heap.close().unwrap();
    });
}

#[test]
fn it_is_refused_inside_a_transaction_and_read_only() {
    on_files(|options, path| {
        let heap = filled(&options, path);
        heap.transaction(|_| {
            assert!(matches!(heap.compact(), Err(HeapError::Nested)));
            Ok(())
        })
        .unwrap();
        heap.close().unwrap();
        let heap = options.clone().read_only(true).open(path).unwrap();
        assert!(matches!(heap.compact(), Err(HeapError::ReadOnly)));
    });
}

#[test]
fn other_media_give_nothing_back_and_say_so() {
    on_each_way(|options, path| {
        let options = options.capacity(64 << 20);
        let heap = filled(&options, path);
        change(&heap, |block| !stays(block), free);
        let given = heap.compact().unwrap();
        assert_eq!(given > 0, heap.shadow().medium() == mangrove_txn::MediumKind::File);
        holds(&heap, stays);
        heap.close().unwrap();
        let heap = options.open(path).unwrap();
        holds(&heap, stays);
        heap.close().unwrap();
    });
}
