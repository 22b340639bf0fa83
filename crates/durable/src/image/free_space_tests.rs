//! Space that a state gives back: what comes back of it, what a crash keeps, and what a full disk refuses.

use crate::Error;
use crate::alloc::split_allocation::mangrove_arena_free;
use crate::image::image::{State, StateOptions};
use crate::image::image_tests::{ONE, alloc, command, get, options, put, root};
use crate::runtime::backing::Backing;
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_shadow::{Create, Durability, Medium, PoolConfig, Start};
use mangrove_testkit::process::{is_asleep, own_thread};
use mangrove_tracker::WriteSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Blocks, of several pages and of several to a page.
const BLOCKS: usize = 1200;

fn bytes_of(block: usize) -> usize {
    if block.is_multiple_of(20) { 100_000 } else { [900, 5000][block % 2] }
}

fn file_options(start: Start) -> StateOptions {
    StateOptions { shadow: options().shadow.medium(Medium::File).start(start), ..options() }
}

fn image_blocks(path: &Path) -> u64 {
    std::fs::metadata(path.join("image")).unwrap().blocks() * 512
}

/// Allocates a block, and stores its number to its first and its last word; of most long ones to each page. False when
/// there is no space.
fn fill(table: usize, block: usize, wrote: &mut dyn FnMut(usize, usize)) -> bool {
    let at = alloc(bytes_of(block));
    if at == 0 {
        return false;
    }
    put(at, block as u64 + 1, wrote);
    put(at + bytes_of(block) / 8 * 8 - 8, block as u64 + 1, wrote);
    let step = if block.is_multiple_of(40) { usize::MAX } else { 4096 };
    (at..at + bytes_of(block) - 8).step_by(step).for_each(|at| put(at, block as u64 + 1, wrote));
    put(table + block * 8, at as u64, wrote);
    true
}

fn free(table: usize, block: usize, wrote: &mut dyn FnMut(usize, usize)) {
    // SAFETY: a block of `fill`, which nothing refers to any more.
    unsafe { mangrove_arena_free(get(table + block * 8) as *mut u8) };
    put(table + block * 8, 0, wrote);
}

/// A state with a table of blocks in its first root.
fn filled(path: &Path, options: &StateOptions, writes: &mut WriteSet) -> State {
    let (state, opened) = State::open(path, options).unwrap();
    assert!(opened.new);
    state.mark_initialised();
    command(&state, writes, |wrote| {
        let table = alloc(BLOCKS * 8);
        put(state.roots() as usize, table as u64, wrote);
        (0..BLOCKS).for_each(|block| assert!(fill(table, block, wrote)));
    });
    state
}

/// Whether exactly these blocks are there, whole.
#[track_caller]
fn holds(state: &State, expected: impl Fn(usize) -> bool) {
    assert_eq!(state.check(), Vec::<String>::new());
    for block in 0..BLOCKS {
        let at = get(root(state) + block * 8) as usize;
        assert_eq!(at != 0, expected(block), "block {block}");
        if at != 0 {
            let last = at + bytes_of(block) / 8 * 8 - 8;
            assert_eq!([get(at), get(last)], [block as u64 + 1; 2], "block {block}");
        }
    }
    assert_eq!(state.stat().arena.blocks, 2 + (0..BLOCKS).filter(|&block| expected(block)).count() as u64);
}

fn stays(block: usize) -> bool {
    block % 400 < 40
}

#[test]
fn what_was_freed_gives_its_space_back_and_is_used_again() {
    let _one = ONE.lock();
    for start in [Start::Read, Start::CopyOnWrite] {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (path, options) = (folder.path().join("state"), file_options(start));
        let mut writes = WriteSet::new(32).unwrap();
        Box::new(filled(&path, &options, &mut writes)).close().unwrap();
        let full = image_blocks(&path);
        // After a reopening memory may show the data file.
        let (state, _) = State::open(&path, &options).unwrap();
        let table = root(&state);
        command(&state, &mut writes, |wrote| {
            (0..BLOCKS).filter(|&block| !stays(block)).for_each(|block| free(table, block, wrote));
        });
        let given = state.release_free_pages().unwrap();
        assert!(given > full / 4 * 3, "{given} of {full} bytes");
        assert_eq!(state.release_free_pages().unwrap(), 0, "once");
        holds(&state, stays);
        state.checkpoint().unwrap();
        let small = image_blocks(&path);
        assert!(small <= full - given, "{small} of {full} bytes, {given} given back");
        holds(&state, stays);
        // A crash.
        drop(state);
        let (state, _) = State::open(&path, &options).unwrap();
        holds(&state, stays);
        command(&state, &mut writes, |wrote| {
            (0..BLOCKS).filter(|&block| !stays(block)).for_each(|block| assert!(fill(table, block, wrote)));
        });
        holds(&state, |_| true);
        state.checkpoint().unwrap();
        assert!(image_blocks(&path) > full - full / 8);
        drop(state);
        let (state, _) = State::open(&path, &options).unwrap();
        holds(&state, |_| true);
        command(&state, &mut writes, |wrote| {
            (0..BLOCKS).filter(|&block| !stays(block)).for_each(|block| free(table, block, wrote));
        });
        Box::new(state).close().unwrap();
        // Not what was reserved before this opening and never stored to.
        assert!(image_blocks(&path) < full / 2, "closing gives back, too: {small}, {}", image_blocks(&path));
        let (state, _) = State::open(&path, &options).unwrap();
        holds(&state, stays);
        // Nothing is freed and nothing is written: closing changes nothing.
        let before = std::fs::read(path.join("sums")).unwrap();
        Box::new(state).close().unwrap();
        assert!(std::fs::read(path.join("sums")).unwrap() == before);
    }
}

/// Pages that no block ever had: their space goes and comes again, and they are zero all the time.
#[test]
fn space_that_was_reserved_ahead_comes_back_and_is_zero() {
    const PAGE: usize = 4096;
    const LEN: usize = 6 << 20;
    let _one = ONE.lock();
    for start in [Start::Read, Start::CopyOnWrite] {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (path, options) = (folder.path().join("state"), file_options(start));
        let mut writes = WriteSet::new(32).unwrap();
        Box::new(filled(&path, &options, &mut writes)).close().unwrap();
        let (state, _) = State::open(&path, &options).unwrap();
        let table = root(&state);
        let full = image_blocks(&path);
        assert!(
            state.release_free_pages().unwrap() > 0,
            "nothing is freed, and more is reserved than is used"
        );
        state.checkpoint().unwrap();
        assert!(image_blocks(&path) < full);
        let mut block = 0;
        command(&state, &mut writes, |wrote| {
            // SAFETY: in a command.
            block = unsafe { crate::alloc::split_allocation::mangrove_arena_alloc_zeroed(LEN, 16) } as usize;
            assert!((block..block + LEN).step_by(8).all(|at| get(at) == 0));
            (block..block + LEN).step_by(3 * PAGE).for_each(|at| put(at, at as u64, wrote));
        });
        state.checkpoint().unwrap();
        // A crash.
        drop(state);
        let (state, _) = State::open(&path, &options).unwrap();
        assert_eq!(root(&state), table);
        let expected = |at: usize| if (at - block).is_multiple_of(3 * PAGE) { at as u64 } else { 0 };
        assert!((block..block + LEN).step_by(8).all(|at| get(at) == expected(at)));
        assert_eq!(state.check(), Vec::<String>::new());
        Box::new(state).close().unwrap();
    }
}

/// By interval, a crash takes the batch and what was given back after it, or neither.
#[test]
fn a_batch_that_a_crash_undoes_still_has_what_it_freed() {
    let _one = ONE.lock();
    for is_durable in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut options) = (folder.path().join("state"), file_options(Start::Read));
        options.shadow = options.shadow.durability(Durability::interval_ms(600_000));
        let mut writes = WriteSet::new(32).unwrap();
        let state = filled(&path, &options, &mut writes);
        let table = root(&state);
        state.checkpoint().unwrap();
        command(&state, &mut writes, |wrote| {
            (0..BLOCKS).filter(|&block| !stays(block)).for_each(|block| free(table, block, wrote));
        });
        assert!(state.release_free_pages().unwrap() > 1 << 20);
        if is_durable {
            state.sync().unwrap();
        }
        // What was not synced is lost.
        drop(state);
        let (state, _) = State::open(&path, &options).unwrap();
        holds(&state, |block| !is_durable || stays(block));
    }
}

#[test]
fn a_full_disk_refuses_what_needs_space_again_and_nothing_else() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let mut options = file_options(Start::Read);
    options.shadow = options.shadow.storage(Arc::new(faulty.clone()));
    let mut writes = WriteSet::new(32).unwrap();
    let state = filled(&path, &options, &mut writes);
    let table = root(&state);
    command(&state, &mut writes, |wrote| {
        (0..BLOCKS).filter(|&block| !stays(block)).for_each(|block| free(table, block, wrote));
    });
    state.release_free_pages().unwrap();
    state.checkpoint().unwrap();
    let full = || Fault {
        file: Some("image".into()),
        operations: vec![FaultyOperation::Allocate],
        nth: 0,
        kind: FaultKind::ErrnoForEver(libc::ENOSPC),
    };
    let mut state = Some(state);
    for opened_again in [false, true] {
        let now = match state.take() {
            Some(state) if !opened_again => state,
            _ => State::open(&path, &options).unwrap().0,
        };
        faulty.plant(full());
        command(&now, &mut writes, |wrote| {
            for block in [100, 101, 110] {
                assert!(!fill(table, block, wrote), "block {block}, opened again: {opened_again}");
            }
        });
        assert!(faulty.struck());
        // What is in use can be written, and what has space can be allocated.
        command(&now, &mut writes, |wrote| put(get(table) as usize, 1, wrote));
        now.checkpoint().unwrap();
        holds(&now, stays);
        faulty.heal();
        command(&now, &mut writes, |wrote| assert!(fill(table, 100, wrote)));
        faulty.plant(full());
        now.checkpoint().unwrap();
        holds(&now, |block| stays(block) || block == 100);
        faulty.heal();
        command(&now, &mut writes, |wrote| free(table, 100, wrote));
        now.release_free_pages().unwrap();
        now.checkpoint().unwrap();
        Box::new(now).close().unwrap();
    }
}

/// A crash may take back space of what was allocated and never stored to.
#[test]
fn a_full_disk_at_the_opening_is_no_damage() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let mut options = file_options(Start::Read);
    // No thread makes a checkpoint.
    options.shadow = options.shadow.storage(Arc::new(faulty.clone())).background(false);
    let mut writes = WriteSet::new(32).unwrap();
    let (state, _) = State::open(&path, &options).unwrap();
    state.mark_initialised();
    command(&state, &mut writes, |wrote| {
        let block = alloc(1 << 20);
        put(state.roots() as usize, block as u64, wrote);
    });
    drop(state);
    let image = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    let mut refused = 0;
    for nth in 0.. {
        image.set_len(0).unwrap();
        faulty.plant(Fault {
            file: Some("image".into()),
            operations: vec![FaultyOperation::Allocate],
            nth,
            kind: FaultKind::ErrnoForEver(libc::ENOSPC),
        });
        match State::open(&path, &options) {
            Ok((state, opened)) => {
                assert!(!opened.new && !faulty.struck() && root(&state) != 0);
                assert_eq!(state.check(), Vec::<String>::new());
                break;
            }
            Err(error) => {
                let is_told = matches!(error, Error::Pool(mangrove_shadow::Error::NoSpace { .. }));
                assert!(is_told && faulty.struck(), "at {nth}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1, "{refused}");
}

/// What the blocks of `loaded` are full of.
const LOADED: u64 = 0xabab_abab_abab_abab;

/// A state that is loaded without a log, and blocks of it, of 64 KiB each.
fn loaded(path: &Path, returns_memory: bool, writes: &mut WriteSet) -> (State, Vec<usize>) {
    let config = PoolConfig {
        create: Create::New,
        medium: Medium::File,
        bulk_load: true,
        capacity: Some(1 << 30),
        ..PoolConfig::default()
    };
    // Without background threads a call of `page_out_loaded` writes what no command has changed since the last one.
    let shadow = mangrove_shadow::Options::new().config(config).background(false);
    let options = StateOptions { shadow, returns_memory, ..options() };
    let (state, opened) = State::open(path, &options).unwrap();
    assert!(opened.new);
    state.mark_initialised();
    let mut blocks = Vec::new();
    command(&state, writes, |wrote| {
        for _ in 0..100 {
            let at = alloc(64 << 10);
            // SAFETY: a fresh block of this many bytes.
            unsafe { std::ptr::write_bytes(at as *mut u8, 0xab, 64 << 10) };
            wrote(at, 64 << 10);
            blocks.push(at);
        }
    });
    (state, blocks)
}

/// Memory is given back in pieces of 2 MiB, and written in blocks of 1 MiB.
#[test]
fn memory_that_is_given_back_takes_no_list_of_freed_blocks_with_it() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut writes = WriteSet::new(32).unwrap();
    let (state, blocks) = loaded(&path, false, &mut writes);
    let base = state.roots() as usize & !4095;
    let place = |block: usize| ((block - base) >> 21, (block - base) & ((2 << 20) - 1));
    // One in the first half of a piece, and one in the other half.
    let beside = |freed: usize| {
        blocks.iter().copied().find(|&block| place(block).0 == place(freed).0 && place(block).1 >= 1 << 20)
    };
    let early = blocks.iter().copied().filter(|&block| place(block).0 > 0 && place(block).1 < 512 << 10);
    let mut pairs = early.filter_map(|block| beside(block).map(|beside| (block, beside)));
    let (freed, beside) = pairs.next().unwrap();
    state.page_out_loaded().unwrap();
    command(&state, &mut writes, |wrote| put(beside, 5, wrote));
    // This writes the first half alone.
    state.page_out_loaded().unwrap();
    // SAFETY: in use, and no longer needed; the other is the free block's own memory.
    unsafe {
        mangrove_arena_free(freed as *mut u8);
        ((freed + 8192) as *mut u64).write(1);
    }
    assert!(state.has_deferred() && get(freed) == 0, "the last of the list");
    state.page_out_loaded().unwrap();
    assert_eq!(get(freed + 8192), LOADED, "the piece was not given back");
    assert_eq!(get(freed), 0, "the list leads elsewhere");
    command(&state, &mut writes, |_| ());
    assert!(!state.has_deferred() && state.check().is_empty());
    let left = state.stat().arena.blocks;
    assert_eq!(left, 1 + 99, "the table of modules and the others");
    Box::new(state).close().unwrap();
    let (state, opened) = State::open(&path, &file_options(Start::Read)).unwrap();
    assert!(!opened.new && state.check().is_empty());
    assert_eq!((state.stat().arena.blocks, get(beside), get(beside + 8)), (left, 5, LOADED));
}

#[test]
fn a_free_outside_commands_waits_while_memory_is_given_back() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    let (state, blocks) = loaded(&folder.path().join("state"), false, &mut writes);
    let (freeing, block) = (OnceLock::new(), blocks[0]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        state.registration().without_frees(|| {
            let thread = scope.spawn(|| {
                freeing.set(own_thread()).unwrap();
                // SAFETY: in use, and no longer needed.
                unsafe { mangrove_arena_free(block as *mut u8) };
            });
            while !thread.is_finished() && !freeing.get().is_some_and(|thread| is_asleep(thread)) {
                assert!(begun.elapsed() < Duration::from_secs(300), "it neither waits nor frees");
                std::thread::yield_now();
            }
            assert!(!thread.is_finished() && !state.has_deferred(), "it did not wait");
        });
    });
    assert!(state.has_deferred());
    command(&state, &mut writes, |_| ());
    assert!(!state.has_deferred() && state.check().is_empty());
}

/// Memory has what the failed batch did, and the end of a load writes memory as it is.
#[test]
fn a_load_of_which_a_batch_failed_leaves_nothing_when_it_is_closed() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut writes = WriteSet::new(32).unwrap();
    for returns_memory in [false, true] {
        let (state, _) = loaded(&path, returns_memory, &mut writes);
        state.note_failure();
        Box::new(state).close().unwrap_err();
        assert!(!path.exists(), "returns_memory({returns_memory})");
    }
}
