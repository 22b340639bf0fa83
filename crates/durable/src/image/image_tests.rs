//! The state by example: what comes back after a crash, and what is refused.

use crate::Error;
use crate::alloc::split_allocation;
use crate::alloc::split_allocation::{
    is_inside, is_persistent, mangrove_arena_alloc, mangrove_arena_free, mangrove_arena_usable,
};
use crate::image::image::{Opened, State, StateOptions};
use crate::image::layout::{MAGIC, StateHeader};
use crate::runtime::backing::Backing;
use mangrove_shadow::{AddressChoice, Create, Latency, Medium, Start};
use mangrove_tracker::WriteSet;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The tests take turns: one thread of a process can be inside a command.
pub(super) static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

pub(super) fn options() -> StateOptions {
    let shadow = mangrove_shadow::Options::new()
        .create(Create::IfMissing)
        .address(AddressChoice::Chosen)
        .capacity(1 << 30);
    StateOptions {
        shadow,
        keeps_variables: true,
        self_contained: false,
        returns_memory: false,
        fence: None,
        translates: true,
        moving: None,
    }
}

fn open(path: &Path) -> (State, Opened) {
    State::open(path, &options()).unwrap()
}

#[test]
fn a_read_only_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut options) = (folder.path().join("state"), options());
    options.shadow = options.shadow.read_only(true);
    let Err(Error::Invalid { what }) = State::open(&path, &options) else { panic!("it opened") };
    assert!(what.contains("read-only") && !path.exists(), "{what}");
}

#[test]
fn a_state_that_points_only_into_itself_is_no_other_programs() {
    let _turn = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let of_library = || StateOptions { self_contained: true, keeps_variables: false, ..options() };
    let (state, opened) = State::open(&path, &of_library()).unwrap();
    assert!(opened.new);
    state.mark_initialised();
    let mut writes = WriteSet::new(32).unwrap();
    command(&state, &mut writes, |wrote| put(state.roots() as usize, 70, wrote));
    Box::new(state).close().unwrap();
    let Err(Error::Foreign { what }) = State::open(&path, &options()) else { panic!("it opened") };
    assert!(what.contains("points only into itself"), "{what}");
    let (state, opened) = State::open(&path, &of_library()).unwrap();
    assert!(!opened.new && root(&state) == 70);
}

#[test]
fn a_refused_creation_leaves_nothing() {
    let _turn = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let (path, shadow) =
            (folder.path().join("state"), options().shadow.medium(medium).log_bytes(1 << 20));
        for shadow in [shadow.clone().capacity(64 << 10), shadow.clone().address(AddressChoice::At(1 << 52))]
        {
            let error = State::open(&path, &StateOptions { shadow, ..options() }).err().unwrap();
            assert!(!path.exists(), "{error}");
        }
        let (state, opened) = State::open(&path, &StateOptions { shadow, ..options() }).unwrap();
        assert!(opened.new);
        drop(state);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_new_state_takes_less_than_a_mebibyte() {
    let _turn = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let taken = || mangrove_testkit::disk::disk_bytes(&path);
    // The capacity that it has where the program says nothing.
    let shadow = mangrove_shadow::Options::new().create(Create::IfMissing).address(AddressChoice::Chosen);
    let options = StateOptions { shadow: shadow.medium(Medium::File), ..options() };
    let (state, opened) = State::open(&path, &options).unwrap();
    assert!(opened.new && taken() <= 1 << 20, "{} bytes", taken());
    state.mark_initialised();
    let mut writes = WriteSet::new(32).unwrap();
    command(&state, &mut writes, |wrote| {
        let list = alloc(16);
        put(list, 7, wrote);
        put(state.roots() as usize, list as u64, wrote);
    });
    Box::new(state).close().unwrap();
    assert!(taken() <= 1 << 20, "closed: {} bytes", taken());
    let (state, opened) = State::open(&path, &options).unwrap();
    assert!(!opened.new && get(root(&state)) == 7);
}

/// Runs `work` as a write command that reports by hand, and makes it durable.
pub(super) fn command(state: &State, writes: &mut WriteSet, work: impl FnOnce(&mut dyn FnMut(usize, usize))) {
    // SAFETY: `writes` outlives the command; one thread.
    unsafe { state.enter(writes) }.unwrap();
    let set = std::ptr::from_mut(writes);
    // SAFETY: the set that `enter` was given, on the same thread.
    work(&mut |at, len| unsafe { (*set).record(at, len) });
    state.leave();
    let ticket = state.commit(writes).unwrap();
    state.wait(ticket).unwrap();
}

pub(super) fn alloc(bytes: usize) -> usize {
    assert!(is_inside());
    // SAFETY: inside.
    unsafe { mangrove_arena_alloc(bytes, 16) as usize }
}

pub(super) fn put(at: usize, value: u64, wrote: &mut dyn FnMut(usize, usize)) {
    // SAFETY: the tests' own blocks.
    unsafe { (at as *mut u64).write(value) };
    wrote(at, 8);
}

pub(super) fn get(at: usize) -> u64 {
    // SAFETY: the tests' own blocks.
    unsafe { (at as *const u64).read() }
}

pub(super) fn root(state: &State) -> usize {
    // SAFETY: a word of the region.
    unsafe { (*state.roots())[0] }
}

fn start(path: &Path, writes: &mut WriteSet) -> State {
    let (state, opened) = open(path);
    assert!(opened.new);
    state.mark_initialised();
    command(&state, writes, |wrote| {
        let list = alloc(16);
        put(list, 7, wrote);
        put(state.roots() as usize, list as u64, wrote);
    });
    state
}

/// A new state in a directory of its own, as `start` leaves it.
fn started() -> (tempfile::TempDir, PathBuf, WriteSet, State) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut writes = WriteSet::new(32).unwrap();
    let state = start(&path, &mut writes);
    (folder, path, writes, state)
}

#[test]
fn memory_comes_back_at_its_address_after_a_crash() {
    let _one = ONE.lock();
    let (_folder, path, mut writes, state) = started();
    let list = root(&state);
    assert!(is_persistent(list) && state.check().is_empty());
    drop(state);
    assert!(!is_persistent(list));
    for round in 0..5 {
        let (state, opened) = open(&path);
        assert!(!opened.new);
        assert_eq!((root(&state), get(list)), (list, 7 + round));
        command(&state, &mut writes, |wrote| put(list, 8 + round, wrote));
        // A command that was not committed.
        // SAFETY: `writes` outlives the command; one thread.
        unsafe { state.enter(&raw mut writes) }.unwrap();
        put(list, 99, &mut |at, len| writes.record(at, len));
        alloc(100_000);
        state.leave();
        writes.clear();
        assert!(state.check().is_empty());
        if round % 2 == 0 { drop(state) } else { Box::new(state).close().unwrap() }
    }
    let (state, _) = open(&path);
    assert_eq!(state.stat().arena.blocks, 2, "the list and the table of modules");
}

#[test]
fn what_calls_wrote_apart_is_logged_for_each_and_comes_back() {
    let _one = ONE.lock();
    let (_folder, path, mut writes, state) = started();
    let list = root(&state);
    for (is_apart, bytes, value) in [(false, 32, 3), (true, 96, 6)] {
        let before = state.counts().bytes;
        // SAFETY: `writes` outlives the command; one thread.
        unsafe { state.enter(&raw mut writes) }.unwrap();
        for number in value - 2..=value {
            put(list, number, &mut |at, len| writes.record(at, len));
            if is_apart {
                writes.seal();
            }
        }
        state.leave();
        state.wait(state.commit(&mut writes).unwrap()).unwrap();
        assert!(writes.is_empty());
        assert_eq!(state.counts().bytes - before, bytes, "apart: {is_apart}");
    }
    drop(state);
    assert_eq!(get_after_reopening(&path, list), 6);
}

fn get_after_reopening(path: &Path, at: usize) -> u64 {
    let (_state, opened) = open(path);
    assert!(!opened.new);
    get(at)
}

fn is_mapped(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let ends = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        (ends[0]..ends[1]).contains(&address)
    })
}

#[test]
fn closing_keeps_the_memory_for_destructors_or_returns_it() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    for returns_memory in [false, true] {
        let path = folder.path().join(format!("state-{returns_memory}"));
        let (state, opened) = State::open(&path, &StateOptions { returns_memory, ..options() }).unwrap();
        assert!(opened.new);
        state.mark_initialised();
        command(&state, &mut writes, |wrote| put(state.roots() as usize, alloc(16) as u64, wrote));
        let list = root(&state);
        Box::new(state).close().unwrap();
        assert_eq!(is_mapped(list as u64), !returns_memory);
    }
}

#[test]
fn a_crash_before_initialisation_ends_leaves_nothing() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut writes = WriteSet::new(32).unwrap();
    for _ in 0..3 {
        let (state, opened) = open(&path);
        assert!(opened.new && root(&state) == 0);
        // SAFETY: `writes` outlives the command; one thread.
        unsafe { state.enter(&raw mut writes) }.unwrap();
        let at = alloc(100_000);
        put(at, 1, &mut |at, len| writes.record(at, len));
        put(state.roots() as usize, at as u64, &mut |at, len| writes.record(at, len));
        state.leave();
        writes.clear();
    }
    let state = start(&path, &mut writes);
    assert_eq!(state.stat().arena.blocks, 2);
    assert!(state.check().is_empty());
}

/// Where pages are not compared with their checksums: a state with a damaged beginning never counts as none.
#[test]
fn a_state_whose_beginning_is_damaged_is_refused_and_left_as_it_is() {
    let _one = ONE.lock();
    let emulated = Medium::Emulated(Latency::default());
    for (medium, begin) in [(emulated, Start::Read), (Medium::File, Start::CopyOnWrite)] {
        for damaged in [MAGIC ^ 1 << 42, 0] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state");
            let shadow = options().shadow.medium(medium).log_bytes(1 << 20).start(begin);
            let options = StateOptions { shadow, ..options() };
            let (state, _) = State::open(&path, &options).unwrap();
            state.mark_initialised();
            command(&state, &mut WriteSet::new(32).unwrap(), |wrote| put(alloc(16), 7, wrote));
            state.checkpoint().unwrap();
            drop(state);
            let mut bytes = std::fs::read(path.join("image")).unwrap();
            // The logs come before the state in the data file.
            let at = bytes.windows(8).rposition(|word| word == MAGIC.to_le_bytes()).unwrap();
            bytes[at..at + 8].copy_from_slice(&damaged.to_le_bytes());
            std::fs::write(path.join("image"), &bytes).unwrap();
            let error = State::open(&path, &options).err().unwrap();
            assert!(matches!(error, Error::Damaged { .. }), "{medium:?}: {error}");
            assert!(std::fs::read(path.join("image")).unwrap()[at..] == bytes[at..], "{medium:?}");
        }
    }
}

/// A power cut takes the length after which nothing was written.
#[test]
fn space_that_a_crash_took_back_is_there_again() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut writes = WriteSet::new(32).unwrap();
    let mut shadow = options().shadow;
    shadow = shadow.medium(mangrove_shadow::Medium::File);
    let options = StateOptions { shadow, ..options() };
    let (state, _) = State::open(&path, &options).unwrap();
    state.mark_initialised();
    command(&state, &mut writes, |wrote| put(state.roots() as usize, 7, wrote));
    drop(state);
    let file = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    assert!(file.metadata().unwrap().len() > 64 << 10);
    file.set_len(0).unwrap();
    for round in 0..2 {
        let (state, opened) = State::open(&path, &options).unwrap();
        assert!(!opened.new && root(&state) == 7);
        assert!(state.check().is_empty());
        let mut block = 0;
        command(&state, &mut writes, |wrote| {
            block = alloc(3 << 20);
            put(block + (2 << 20), 8, wrote);
        });
        assert_eq!(get(block + (2 << 20)), 8);
        if round == 0 { drop(state) } else { Box::new(state).close().unwrap() }
    }
}

static COUNTED: AtomicU64 = AtomicU64::new(5);
static TABLE: [AtomicU64; 3000] = [const { AtomicU64::new(0) }; 3000];

#[test]
fn variables_that_commands_wrote_come_back_and_their_neighbours_do_not() {
    let _one = ONE.lock();
    let (_folder, path, mut writes, state) = started();
    command(&state, &mut writes, |wrote| {
        put(COUNTED.as_ptr() as usize, 6, wrote);
        for at in (0..3000).step_by(2) {
            put(TABLE[at].as_ptr() as usize, at as u64, wrote);
        }
    });
    assert!(state.stat().variable_pages >= 6);
    drop(state);
    // Another run: variables that it sets itself stay, where no command wrote.
    COUNTED.store(1, Ordering::Relaxed);
    TABLE.iter().for_each(|t| t.store(77, Ordering::Relaxed));
    let (state, _) = open(&path);
    assert_eq!(COUNTED.load(Ordering::Relaxed), 6);
    for (at, value) in TABLE.iter().enumerate() {
        assert_eq!(value.load(Ordering::Relaxed), if at % 2 == 0 { at as u64 } else { 77 });
    }
    drop(state);
    let without = StateOptions { keeps_variables: false, ..options() };
    let error = State::open(&path, &without).err().unwrap().to_string();
    assert!(error.contains("open it as it was written"), "{error}");
}

#[test]
fn blocks_freed_outside_commands_are_freed_by_the_next_one() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    let state = start(&folder.path().join("state"), &mut writes);
    let mut blocks = vec![];
    command(&state, &mut writes, |_| blocks.extend((0..100).map(|i| alloc(i * 100))));
    let before = state.stat().arena.blocks;
    std::thread::scope(|scope| {
        for part in blocks.chunks(25) {
            scope.spawn(move || {
                for &block in part {
                    // SAFETY: in use, and no longer needed.
                    unsafe {
                        assert!(mangrove_arena_usable(block as *const u8) >= 16);
                        mangrove_arena_free(block as *mut u8);
                    }
                }
            });
        }
    });
    assert_eq!(state.stat().arena.blocks, before);
    command(&state, &mut writes, |_| {});
    assert_eq!(state.stat().arena.blocks, before - 100);
    assert_eq!(state.stat().freed_outside, 100);
    assert!(state.check().is_empty());
}

#[test]
fn what_the_runtime_allocates_inside_a_command_is_not_persistent() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    let state = start(&folder.path().join("state"), &mut writes);
    command(&state, &mut writes, |_| {
        assert!(!split_allocation::outside(|| {
            assert!(!split_allocation::outside(is_inside));
            is_inside()
        }));
        assert!(is_inside());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!is_inside()));
        });
    });
    assert!(!is_inside());
}

#[test]
fn what_is_persistent_stays_so_while_other_states_come_and_go() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let state = start(&folder.path().join("state"), &mut WriteSet::new(32).unwrap());
    let (block, over) = (root(&state), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3_000_000 {
                for base in [1 << 16, usize::MAX << 16] {
                    // SAFETY: no code frees what lies there.
                    let place = unsafe {
                        split_allocation::register(std::ptr::null_mut(), std::ptr::null_mut(), base, 4096)
                    };
                    drop(place.unwrap());
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            assert!(is_persistent(block));
        }
    });
}

#[test]
fn in_a_forked_child_nobody_is_inside_a_command() {
    const THREADS: usize = 24;
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    let state = start(&folder.path().join("state"), &mut writes);
    let (entered, forked) = (Barrier::new(2), Barrier::new(2));
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: `writes` outlives the command; one thread.
            unsafe { state.enter(&raw mut writes) }.unwrap();
            entered.wait();
            forked.wait();
            state.leave();
        });
        entered.wait();
        // SAFETY: the child starts threads and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // One of them gets the stack of the thread above.
            static ALL: Barrier = Barrier::new(THREADS);
            let ask = || {
                ALL.wait();
                is_inside()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(ask)).collect();
            let inside = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|&is| is);
            let inside = inside.count() as i32;
            // SAFETY: ends the child.
            unsafe { libc::_exit(inside) };
        }
        forked.wait();
        let mut status = 0;
        // SAFETY: fills the number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

#[test]
fn what_a_failed_batch_did_does_not_become_durable_by_closing() {
    static VARIABLE: AtomicU64 = AtomicU64::new(5);
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let small = StateOptions { shadow: options().shadow.capacity(16 << 20), ..options() };
    let mut writes = WriteSet::new(32).unwrap();
    let (state, _) = State::open(&path, &small).unwrap();
    state.mark_initialised();
    let (mut kept, mut late) = (0, 0);
    command(&state, &mut writes, |wrote| {
        (kept, late) = (alloc(64), alloc(64));
        put(state.roots() as usize, kept as u64, wrote);
    });
    // SAFETY: `writes` outlives the command; one thread.
    unsafe { state.enter(&raw mut writes) }.unwrap();
    // SAFETY: in use, and no longer needed.
    unsafe { mangrove_arena_free(kept as *mut u8) };
    put(state.roots() as usize, 0, &mut |at, len| writes.record(at, len));
    while alloc(5000) != 0 {}
    put(VARIABLE.as_ptr() as usize, 6, &mut |at, len| writes.record(at, len));
    state.leave();
    let error = state.commit(&mut writes).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    writes.clear();
    // SAFETY: in use, and no longer needed.
    unsafe { mangrove_arena_free(late as *mut u8) };
    Box::new(state).close().unwrap();
    let (state, opened) = State::open(&path, &small).unwrap();
    assert!(!opened.new && root(&state) == kept);
    assert_eq!(state.check(), Vec::<String>::new());
    command(&state, &mut writes, |_| (0..100).for_each(|_| assert_ne!(alloc(64), kept)));
}

/// Changes the header of a state as its program would, and opens it again.
fn spoiled(change: impl FnOnce(&mut StateHeader)) -> Error {
    let (_folder, path, mut writes, state) = started();
    command(&state, &mut writes, |wrote| {
        // SAFETY: the region's first page.
        let header = unsafe { &mut *((state.roots() as usize & !4095) as *mut StateHeader) };
        let (table, len) = (header.modules as usize, header.modules_bytes as usize);
        change(header);
        wrote(std::ptr::from_ref(header) as usize, 4096);
        wrote(table, len);
        wrote(first_group(header), 384 + 64 * 1024);
    });
    drop(state);
    State::open(&path, &options()).err().unwrap()
}

/// The description of a state's first pages (docs/format/arena.md).
fn first_group(header: &StateHeader) -> usize {
    let base = std::ptr::from_ref(header) as usize;
    base + get(base + 8192) as usize
}

/// Changes what the arena says of the span that starts at `address`.
fn spoil_span(header: &StateHeader, address: usize, kind: u8, class: u8, pages: u64) {
    let page = (address - std::ptr::from_ref(header) as usize) / 4096;
    assert!(address.is_multiple_of(4096) && page < 1024);
    let entry = first_group(header) + 384 + 64 * page;
    // SAFETY: an entry of which nothing is read before the state is opened again.
    unsafe {
        (entry as *mut [u8; 2]).write([kind, class]);
        (entry as *mut u64).add(1).write(pages);
    }
}

/// Makes a state's table of modules say that the program had been elsewhere when the state was written.
fn move_program(header: &StateHeader) {
    // SAFETY: the table of modules is a block; its first entry is the program.
    unsafe {
        let table = header.modules as *mut u8;
        let path = table.add(4).cast::<u32>().read_unaligned() as usize;
        let id = table.add(8 + path).cast::<u32>().read_unaligned() as usize;
        let span = table.add(8 + path + 4 + id + 8).cast::<[u64; 2]>();
        span.write_unaligned([0x1234_0000, 0x1235_0000]);
    }
}

/// Kinds: 2 slab, 3 large block. Lengths that end beyond the region, or beyond all addresses.
#[test]
fn a_damaged_arena_is_refused_and_does_not_crash_the_opener() {
    let _one = ONE.lock();
    let says = |error: Error, text: &str| {
        assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains(text), "{error}");
    };
    let spans = [(2, 200, 1), (2, 0, 1 << 40), (3, 0, 1 << 40), (3, 0, 1 << 60), (3, 0, 0), (9, 0, 1)];
    for (kind, class, pages) in spans {
        let error = spoiled(|h| {
            spoil_span(h, h.modules as usize, kind, class, pages);
            h.modules_bytes = 1 << 40;
        });
        says(error, "table of modules cannot be read");
    }
    for (kind, class, pages) in &spans[..5] {
        let error = spoiled(|h| {
            move_program(h);
            spoil_span(h, h.roots[0], *kind, *class, *pages);
        });
        says(error, if *kind == 2 && *class == 200 { "is of no class" } else { "the span at page" });
    }
}

#[test]
fn states_that_cannot_live_here_are_refused_with_a_sentence() {
    let _one = ONE.lock();
    let says = |error: Error, text: &str| assert!(error.to_string().contains(text), "{error}");
    says(spoiled(|h| h.version = 9), "use the library that wrote it");
    says(spoiled(|h| h.base += 4096), "says it lies at");
    says(spoiled(|h| h.modules += 16), "table of modules cannot be read");
    says(spoiled(|h| h.modules_bytes -= 1), "table of modules cannot be read");
    says(spoiled(|h| h.modules_bytes += 1 << 40), "table of modules cannot be read");
    says(spoiled(|h| h.globals = 4096), "where no block is");
    // Another build of this program.
    says(
        spoiled(|h| {
            // SAFETY: the table of modules is a block; after the count and the path's length comes the path,
            // then the id's length, then the id.
            unsafe {
                let table = h.modules as *mut u8;
                let path = table.add(4).cast::<u32>().read_unaligned() as usize;
                *table.add(8 + path + 4) ^= 1;
            }
        }),
        "start the build that wrote it",
    );
}

fn points_there() {}

/// Where the program is by a state's table of modules.
fn program_span(state: &State) -> (u64, u64) {
    let header = (state.roots() as usize & !4095) as *const StateHeader;
    // SAFETY: the header's table of modules, whose first entry is the program (docs/format/arena.md).
    unsafe {
        let table = (*header).modules as *const u8;
        let path = table.add(4).cast::<u32>().read_unaligned() as usize;
        let id = table.add(8 + path).cast::<u32>().read_unaligned() as usize;
        table.add(8 + path + 4 + id + 8).cast::<(u64, u64)>().read_unaligned()
    }
}

#[test]
fn a_module_that_moved_matters_only_if_the_state_points_to_it() {
    let _one = ONE.lock();
    for points in [false, true] {
        let (_folder, path, mut writes, state) = started();
        command(&state, &mut writes, |wrote| {
            // SAFETY: the region's first page.
            let header = unsafe { &*((state.roots() as usize & !4095) as *const StateHeader) };
            move_program(header);
            wrote(header.modules as usize, header.modules_bytes as usize);
            if points {
                let at = alloc(64);
                put(at + 24, 0x1234_5678, wrote);
            }
        });
        drop(state);
        match State::open(&path, &options()) {
            Ok((state, opened)) => {
                assert!(!points && !opened.new && state.check().is_empty());
                // What this process's commands store may point to where the program is now.
                assert_eq!(program_span(&state).0, 0x1234_0000, "opening changes nothing");
                command(&state, &mut writes, |wrote| put(root(&state), 8, wrote));
                let here = program_span(&state);
                drop(state);
                let (state, _) = open(&path);
                assert_eq!(program_span(&state), here, "durable with the first command");
                let code = points_there as *const () as u64;
                assert!((here.0..here.1).contains(&code) && state.check().is_empty());
                assert_eq!(state.stat().arena.blocks, 2, "the list and one table");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    points && text.contains("points to 0x12345678") && text.contains("was at 0x12340000"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn memory_is_still_there_after_closing_and_frees_of_it_do_nothing() {
    let _one = ONE.lock();
    let (_folder, path, mut writes, state) = started();
    let list = root(&state);
    let mut late = 0;
    command(&state, &mut writes, |_| late = alloc(1000));
    assert_eq!(state.stat().arena.blocks, 3);
    // SAFETY: in use, and no longer needed.
    unsafe { mangrove_arena_free(late as *mut u8) };
    Box::new(state).close().unwrap();
    assert!(is_persistent(list) && get(list) == 7);
    // SAFETY: as a global's destructor does.
    unsafe {
        (list as *mut u64).write(1234);
        mangrove_arena_free(list as *mut u8);
        assert_eq!(mangrove_arena_usable(list as *const u8), 16);
    }
    let (state, opened) = open(&path);
    assert!(!opened.new && root(&state) == list && get(list) == 7);
    assert_eq!(state.stat().arena.blocks, 2, "what was freed before closing is free");
    assert!(state.check().is_empty());
}

#[test]
fn closing_leaves_the_command_of_another_state_alone() {
    let _one = ONE.lock();
    let (_folder, path, _, state) = started();
    let (_others, _, mut writes, other) = started();
    // SAFETY: in use; nothing follows the pointer to it any more.
    unsafe { mangrove_arena_free(root(&state) as *mut u8) };
    command(&other, &mut writes, |_| {
        std::thread::scope(|scope| {
            scope.spawn(move || Box::new(state).close().unwrap());
        });
        assert!(is_inside() && is_persistent(alloc(100)));
    });
    assert!(other.check().is_empty());
    let (state, _) = open(&path);
    assert_eq!(state.stat().arena.blocks, 1, "what was freed before closing is free");
    assert!(state.check().is_empty());
}

/// A command's body, which gets a function that reports a write.
type Work<'a> = &'a mut dyn FnMut(&mut dyn FnMut(usize, usize));

#[test]
fn what_a_command_allocates_fills_and_frees_costs_no_log() {
    let _one = ONE.lock();
    let (_folder, path, mut writes, state) = started();
    // On a file a ticket is a position in the log.
    let mut logged = |work: Work<'_>| {
        let before = state.durable().0;
        command(&state, &mut writes, |wrote| work(wrote));
        state.durable().0 - before
    };
    let fill = |bytes: usize, wrote: &mut dyn FnMut(usize, usize)| {
        let at = alloc(bytes);
        // SAFETY: a fresh block of this many bytes.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0xab, bytes) };
        wrote(at, bytes);
        at
    };
    for bytes in [300, 5_000, 300_000] {
        let mut kept = 0;
        let with = logged(&mut |wrote| kept = fill(bytes, wrote));
        // SAFETY: inside a command, a block of the arena.
        let without = logged(&mut |wrote| unsafe { mangrove_arena_free(fill(bytes, wrote) as *mut u8) });
        assert!(with >= bytes as u64 && without <= 1024, "{bytes} bytes: {with} and {without} logged");
        // A later command frees them; the rest of that command is there all the same.
        logged(&mut |wrote| {
            put(root(&state), 70 + bytes as u64, wrote);
            // SAFETY: as above.
            unsafe { mangrove_arena_free(kept as *mut u8) };
        });
        assert_eq!(logged(&mut |_| ()), 0, "nothing was written");
    }
    drop(state);
    let (state, _) = open(&path);
    assert_eq!((get(root(&state)), state.stat().arena.blocks), (70 + 300_000, 2));
    assert_eq!(state.check(), Vec::<String>::new());
}

#[test]
#[cfg(target_env = "gnu")]
fn whoever_translates_hears_of_libraries_that_went_also_of_those_it_never_knew() {
    let load = |name: &std::ffi::CStr| {
        // SAFETY: libc's own libraries, whose initialisers do nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        handle
    };
    // SAFETY: handles of `load`, once each.
    let unload = |handle| assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let mut writes = WriteSet::new(32).unwrap();
    for (self_contained, translates) in [(true, true), (false, true), (true, false), (false, false)] {
        let path = folder.path().join(format!("state-{self_contained}-{translates}"));
        let options = StateOptions { self_contained, translates, ..options() };
        let (state, _) = State::open(&path, &options).unwrap();
        let mut heard = || {
            // SAFETY: `writes` outlives the command; one thread.
            let entered = unsafe { state.enter(&raw mut writes) }.unwrap();
            state.leave();
            entered.unloaded
        };
        let before = heard();
        unload(load(c"libutil.so.1"));
        let other = load(c"libanl.so.1");
        assert_eq!(heard() > before, translates);
        unload(other);
    }
}
