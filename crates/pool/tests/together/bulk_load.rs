//! Pools that are filled without a log: what was flushed is there when the load has ended, and nothing before.

use crate::hooked::{Access, hooked};
use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool, PoolOptions, Region,
    Storage,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const ENOSPC: i32 = 28;

/// In memory where the system has such a directory: some of these tests sync hundreds of times.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> PoolOptions {
    PoolOptions::new().medium(Medium::File).capacity(256 << 20).kind("bulk")
}

fn loading() -> PoolOptions {
    options().create(Create::New).bulk_load(true)
}

fn bytes_of(region: &Region, len: usize) -> Vec<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(region.base(), len) }.to_vec()
}

#[test]
fn what_was_flushed_is_there_after_the_end() {
    // Also where the system has a disk under it: writes there go past the page cache.
    for (background, len, folder) in [
        (true, 80 << 20, folder()),
        (false, 8 << 20, folder()),
        (true, 80 << 20, tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()),
    ] {
        let path = folder.path().join("p");
        let pool = loading().background(background).open(&path).unwrap();
        assert!(pool.was_created() && pool.is_loading());
        let region = pool.region();
        let mut random = StdRng::seed_from_u64(7);
        let mut model = vec![0u8; len];
        let mut end = 0;
        for turn in 0..4000 {
            // Mostly forward, as a load goes; one in four goes back to what was written, and perhaps given back.
            let bytes = random.random_range(1..3 * len / 4000);
            let at = if turn % 4 == 3 { random.random_range(0..end) } else { end };
            let bytes = bytes.min(len - at);
            region.grow((at + bytes) as u64).unwrap();
            let value = vec![random.random_range(0..=255u8); bytes];
            region.write(at as u64, &value);
            region.flush(at as u64, bytes);
            model[at..at + bytes].copy_from_slice(&value);
            end = end.max(at + bytes);
            if turn % 64 == 63 {
                region.drain().unwrap();
                // SAFETY: no other thread stores, and all stores were flushed.
                unsafe {
                    region.page_out(mangrove_pool::ByteRange { offset: 0, len: region.medium().grown() })
                }
                .unwrap();
            }
        }
        assert_eq!(bytes_of(region, end), model[..end], "while it is loaded");
        let early = pool.stat().image_written;
        assert!(early > end as u64 / 4, "{early} of {end} bytes were written before the end");
        pool.close().unwrap();
        let report = Pool::check(&path).unwrap();
        assert!(report.clean && report.damage.is_empty() && report.notes.is_empty(), "{report:?}");
        let pool = options().open(&path).unwrap();
        assert!(pool.was_clean() && !pool.is_loading());
        assert_eq!(bytes_of(pool.region(), end), model[..end]);
        // It is a pool like any other from now on.
        pool.region().write(0, b"more");
        pool.region().flush(0, 4);
        pool.region().drain().unwrap();
        drop(pool);
        let pool = options().open(&path).unwrap();
        assert_eq!(bytes_of(pool.region(), 4), b"more");
    }
}

#[test]
fn threads_that_store_while_pages_are_written_lose_nothing() {
    let folder = folder();
    let path = folder.path().join("p");
    let pool = loading().open(&path).unwrap();
    let region = pool.region();
    const LEN: usize = 48 << 20;
    region.grow(LEN as u64).unwrap();
    // Each thread has every fourth word of each page, and stores to all pages three times.
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for round in 1..=3u64 {
                    for page in 0..(LEN / PAGE) as u64 {
                        let at = page * PAGE as u64 + thread * 8;
                        region.store(at, round << 32 | page, std::sync::atomic::Ordering::Release);
                        region.flush(at, 8);
                    }
                }
            });
        }
    });
    pool.close().unwrap();
    let pool = options().read_only(true).open(&path).unwrap();
    for page in 0..(LEN / PAGE) as u64 {
        for thread in 0..4 {
            let found = pool
                .region()
                .word(page * PAGE as u64 + thread * 8)
                .load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(found, 3 << 32 | page, "page {page}, thread {thread}");
        }
    }
}

/// As in a block that was freed before the commit: nothing depends on such a store, and none may damage the pool.
#[test]
fn a_store_that_no_flush_follows_does_not_part_a_page_from_its_checksum() {
    const LEN: usize = 1 << 20;
    let folder = folder();
    let path = folder.path().join("p");
    let base = Arc::new(AtomicUsize::new(0));
    let stored_to = Arc::clone(&base);
    let storage = hooked(move |access, name, offset| {
        let base = stored_to.load(Ordering::Relaxed);
        if access == Access::Write && name == "image" && base != 0 {
            // SAFETY: a word of the region, on the first of the pages that are about to be written.
            unsafe { std::ptr::with_exposed_provenance_mut::<u64>(base + offset as usize).write(!0) };
        }
    });
    let pool = loading().background(false).storage(storage).open(&path).unwrap();
    let region = pool.region();
    region.grow(LEN as u64).unwrap();
    region.write(0, &vec![7; LEN]);
    region.flush(0, LEN);
    base.store(region.base().expose_provenance(), Ordering::Relaxed);
    pool.close().unwrap();
    let report = Pool::check(&path).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    assert_eq!(bytes_of(options().open(&path).unwrap().region(), LEN), vec![7; LEN]);
}

/// Pages that come faster than they are written would pile up in memory: giving memory back waits for the writer then,
/// and not otherwise.
#[test]
fn a_writer_that_lags_is_waited_for() {
    const PIECE: u64 = 16 << 20;
    let folder = folder();
    let (entered, has_entered) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let (first, gates) = (AtomicBool::new(true), Mutex::new((entered, may_go_on)));
    let storage = hooked(move |access, name, _| {
        if access == Access::Write && name == "image" && first.swap(false, Ordering::Relaxed) {
            let gates = gates.lock().unwrap();
            gates.0.send(()).unwrap();
            gates.1.recv().unwrap();
        }
    });
    let pool = loading().storage(storage).open(folder.path().join("p")).unwrap();
    let region = pool.region();
    let piece = |number: u64| {
        region.grow((number + 1) * PIECE).unwrap();
        region.write(number * PIECE, &vec![number as u8 + 1; PIECE as usize]);
        region.flush(number * PIECE, PIECE as usize);
    };
    // The writer looks at a piece at its second turn.
    let mut count = 0;
    while has_entered.recv_timeout(Duration::from_secs(if count < 2 { 1 } else { 30 })).is_err() {
        piece(count);
        count += 1;
        assert!(count < 10, "the writer writes nothing");
    }
    // SAFETY: no other thread stores, and all stores were flushed.
    let page_out = || unsafe { region.page_out(mangrove_pool::ByteRange { offset: 0, len: PIECE }) }.unwrap();
    assert!(!page_out(), "it waited for a writer that does not lag");
    (count..count + 3).for_each(piece);
    let is_released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // However early this comes, the call below is right.
            std::thread::sleep(Duration::from_millis(200));
            is_released.store(true, Ordering::SeqCst);
            go_on.send(()).unwrap();
        });
        // It may still give back less than all: the other lane's thread may be writing, and not lag.
        page_out();
        assert!(is_released.load(Ordering::SeqCst), "it did not wait");
    });
    pool.close().unwrap();
}

/// Otherwise each page that is stored to makes the thread that loads wait until the kernel has cleared one.
#[test]
fn memory_behind_what_is_marked_is_there_before_it_is_needed() {
    const MIB: usize = 1 << 20;
    let folder = folder();
    let pool = loading().open(folder.path().join("p")).unwrap();
    let region = pool.region();
    region.grow(128 << 20).unwrap();
    region.write(0, &vec![1; 20 * MIB]);
    region.flush(0, 20 * MIB);
    let is_resident = |at: usize| {
        let mut resident = 0u8;
        // SAFETY: a page of the region, and a byte for the answer.
        unsafe {
            assert_eq!(libc::mincore(region.base().add(at).cast(), PAGE, &raw mut resident), 0);
        }
        resident & 1 == 1
    };
    // Two pieces, of one thread each.
    let mut tries = 0;
    while !(is_resident(22 * MIB) && is_resident(24 * MIB)) {
        std::thread::sleep(Duration::from_millis(10));
        tries += 1;
        assert!(tries < 6000, "it never comes");
    }
    assert!(!is_resident(48 * MIB), "much more than will soon be needed came");
    pool.close().unwrap();
}

#[test]
fn before_the_end_there_is_no_pool_and_after_it_no_load() {
    let folder = folder();
    let path = folder.path().join("p");
    let fill = |pool: &Pool| {
        pool.region().grow(1 << 20).unwrap();
        pool.region().write(4096, b"leaf");
        pool.region().flush(4096, 4);
        pool.region().drain().unwrap();
    };
    let pool = loading().open(&path).unwrap();
    fill(&pool);
    for read_only in [false, true] {
        let other = options().read_only(read_only).open(&path);
        assert!(matches!(other, Err(Error::Busy { .. })), "{other:?}");
    }
    let told = Pool::inspect(&path).unwrap_err().to_string();
    assert!(told.contains("a bulk load is under way here, or was interrupted"), "{told}");
    drop(pool);
    assert!(!path.exists(), "a load that was dropped");

    let pool = loading().open(&path).unwrap();
    fill(&pool);
    pool.checkpoint().unwrap();
    assert!(!pool.is_loading());
    pool.region().write(4096, b"more");
    pool.region().flush(4096, 4);
    assert!(matches!(pool.region().drain(), Err(Error::Closed { .. })), "a write after the end");
    pool.close().unwrap();
    // Where there is a pool already, it is opened as ever.
    let exists = loading().open(&path);
    assert!(matches!(exists, Err(Error::Exists { .. })), "{exists:?}");
    let pool = options().create(Create::IfMissing).bulk_load(true).open(&path).unwrap();
    assert!(!pool.is_loading());
    assert_eq!(bytes_of(pool.region(), 4100)[4096..], *b"leaf");
}

/// Loads a pool of several MiB, with pages that are written early.
fn load(storage: &Faulty, path: &Path) -> Result<(), Error> {
    let pool = loading().background(false).storage(Arc::new(storage.clone())).open(path)?;
    let region = pool.region();
    for chunk in 0..12u64 {
        let at = chunk * (512 << 10);
        region.grow(at + (512 << 10))?;
        region.write(at, &vec![chunk as u8 + 1; 512 << 10]);
        region.flush(at, 512 << 10);
        region.drain()?;
        // SAFETY: no other thread stores, and all stores were flushed.
        unsafe { region.page_out(mangrove_pool::ByteRange { offset: 0, len: at }) }?;
    }
    pool.close()
}

/// The loaded bytes, or that there is no pool; a load makes it then.
fn whole_or_none(path: &Path, what: &str) -> bool {
    match options().open(path) {
        Ok(pool) => {
            let bytes = bytes_of(pool.region(), 12 * (512 << 10));
            assert!(
                bytes.chunks(512 << 10).zip(1..).all(|(chunk, value)| chunk.iter().all(|&b| b == value)),
                "{what}: half a load opens"
            );
            true
        }
        Err(Error::NotFound { .. } | Error::Foreign { .. }) => {
            assert!(!path.exists() || Pool::is_unfinished(path) || !path.join("pool").exists(), "{what}");
            load(&Faulty::new(Arc::new(OsStorage)), path).unwrap_or_else(|e| panic!("{what}: again: {e}"));
            assert!(whole_or_none(path, what));
            false
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

#[test]
fn a_process_that_dies_at_any_operation_leaves_the_whole_load_or_none() {
    let (mut none, mut whole, mut nth) = (0, 0, 0);
    loop {
        let folder = folder();
        let path = folder.path().join("p");
        let storage = Faulty::new(Arc::new(OsStorage));
        storage.plant(Fault { file: None, operations: Vec::new(), nth, kind: FaultKind::Halt });
        let loaded = load(&storage, &path);
        let what = format!("after {nth} operations");
        if !storage.struck() {
            loaded.unwrap();
            assert!(whole_or_none(&path, &what));
            break;
        }
        assert!(loaded.is_err(), "{what}");
        *if whole_or_none(&path, &what) { &mut whole } else { &mut none } += 1;
        nth += 1;
    }
    // The superblock is written twice; a process that dies between the two has made the pool.
    assert!(none > 30 && whole >= 1, "{none} without a pool, {whole} with one");
}

/// A write of another thread fails while the end of the load is under way: there is no pool, since no thread would
/// write those pages again. (That thread's call is made from within the first write of the end.)
#[test]
fn a_write_that_fails_beside_the_end_leaves_nothing() {
    const EIO: i32 = 5;
    /// Two pieces, of which the end writes the first one first.
    const LEN: usize = 4 << 20;
    let folder = folder();
    let path = folder.path().join("p");
    let shared = Arc::new(OnceLock::<(Faulty, Region)>::new());
    let page_out = |region: &Region| {
        // SAFETY: no other thread stores, and all stores were flushed.
        unsafe { region.page_out(mangrove_pool::ByteRange { offset: 0, len: LEN as u64 }) }
    };
    let amid = {
        let shared = Arc::clone(&shared);
        move |access: Access, name: &str, offset: u64| {
            let is_first = access == Access::Write && name == "image" && offset == 0;
            if let Some((storage, region)) = shared.get().filter(|_| is_first) {
                let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Write]);
                storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(EIO) });
                assert!(matches!(page_out(region), Err(Error::Io { .. })));
            }
        }
    };
    let storage = Faulty::new(hooked(amid));
    let pool = loading().background(false).storage(Arc::new(storage.clone())).open(&path).unwrap();
    let region = pool.region();
    region.grow(LEN as u64).unwrap();
    region.write(0, &vec![7u8; LEN]);
    region.flush(0, LEN);
    // From now on the pages rest: the next call writes them.
    page_out(region).unwrap();
    assert!(shared.set((storage.clone(), region.clone())).is_ok());
    let ended = pool.close();
    assert!(storage.struck() && ended.is_err(), "{ended:?}");
    assert!(!path.join("pool").exists());
}

/// The end of a load fails in one lane while the other one is still being written. A second thread that ends the load
/// then gets the first lane, whose pages it does not write, and has to find the load poisoned. (The write in the other
/// lane waits here until it is.)
#[test]
fn a_write_of_the_end_that_fails_poisons_the_load_before_its_lane_is_free() {
    const EIO: i32 = 5;
    /// From this size on each lane has a thread at the end.
    const LEN: u64 = 16 << 20;
    /// The lanes have these in turn.
    const PIECE: u64 = 2 << 20;
    /// Too little for the threads in the background.
    const BYTES: usize = 256 << 10;
    fn happens(is: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !is() {
            if begun.elapsed() > Duration::from_secs(300) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
    let folder = folder();
    let path = folder.path().join("p");
    let shared = Arc::new(OnceLock::<(Faulty, Region)>::new());
    let was_poisoned = Arc::new(AtomicBool::new(false));
    let amid = {
        let (shared, was_poisoned) = (Arc::clone(&shared), Arc::clone(&was_poisoned));
        let is_other_under_way = AtomicBool::new(false);
        move |access: Access, name: &str, offset: u64| {
            let is_end = access == Access::Write && name == "image";
            let Some((storage, region)) = shared.get().filter(|_| is_end) else { return };
            if offset == PIECE {
                is_other_under_way.store(true, Ordering::SeqCst);
                let is_poisoned = happens(|| region.medium().poisoned().is_some());
                was_poisoned.store(is_poisoned, Ordering::SeqCst);
            } else if offset == 0 && happens(|| is_other_under_way.load(Ordering::SeqCst)) {
                // The next write is the first lane's second.
                let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Write]);
                storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(EIO) });
            }
        }
    };
    let storage = Faulty::new(hooked(amid));
    let pool = loading().storage(Arc::new(storage.clone())).open(&path).unwrap();
    let region = pool.region();
    region.grow(LEN).unwrap();
    for piece in 0..3 {
        region.write(piece * PIECE, &vec![7u8; BYTES]);
        region.flush(piece * PIECE, BYTES);
    }
    assert!(shared.set((storage.clone(), region.clone())).is_ok());
    let ended = pool.checkpoint();
    assert!(storage.struck() && ended.is_err(), "{ended:?}");
    assert!(was_poisoned.load(Ordering::SeqCst), "its lane was free before");
    drop(pool);
    assert!(!path.join("pool").exists());
}

#[test]
fn a_full_disk_and_other_errors_leave_nothing() {
    for operation in [FaultyOperation::Allocate, FaultyOperation::Write, FaultyOperation::Sync] {
        for kind in [FaultKind::Errno(ENOSPC), FaultKind::ErrnoForEver(ENOSPC), FaultKind::Short] {
            if matches!(kind, FaultKind::Short) && operation != FaultyOperation::Write {
                continue;
            }
            for nth in 0.. {
                let folder = folder();
                let path = folder.path().join("p");
                let storage = Faulty::new(Arc::new(OsStorage));
                storage.plant(Fault { file: None, operations: vec![operation], nth, kind });
                let loaded = load(&storage, &path);
                if !storage.struck() {
                    break;
                }
                let what = format!("{operation:?} {nth} {kind:?}: {loaded:?}");
                if loaded.is_err() {
                    // An error for ever stops the removal too. Where only the superblock's other copy was missing, the
                    // pool is there.
                    let is_for_ever = matches!(kind, FaultKind::ErrnoForEver(_));
                    assert!(is_for_ever || !path.exists(), "{what}");
                    whole_or_none(&path, &what);
                } else {
                    // Only space beyond the need was missing.
                    assert_eq!(operation, FaultyOperation::Allocate, "{what}");
                    assert!(whole_or_none(&path, &what));
                }
            }
        }
    }
}

#[test]
fn a_load_beyond_the_limit_of_memory_is_refused() {
    let folder = folder();
    let pool = loading().memory_bytes_max(4 << 20).open(folder.path().join("p")).unwrap();
    pool.region().grow(1 << 20).unwrap();
    let told = pool.region().grow(5 << 20);
    assert!(matches!(told, Err(Error::MemoryLimit { limit, .. }) if limit == 4 << 20), "{told:?}");
    pool.close().unwrap();
}

#[test]
fn an_interrupted_load_is_made_anew_and_by_no_other_opening() {
    let folder = folder();
    let path = folder.path().join("p");
    let halted = Faulty::new(Arc::new(OsStorage) as Arc<dyn Storage>);
    halted.plant(Fault {
        file: None,
        operations: vec![FaultyOperation::Write],
        nth: 8,
        kind: FaultKind::Halt,
    });
    load(&halted, &path).unwrap_err();
    assert!(std::fs::metadata(path.join("image")).unwrap().len() > 0 && Pool::is_unfinished(&path));
    let told = options().open(&path).unwrap_err().to_string();
    assert!(told.contains("its creation was interrupted"), "{told}");
    // Without the mark it might be a pool whose superblock was lost.
    std::fs::write(path.join("pool"), [0; 8192]).unwrap();
    let told = options().create(Create::IfMissing).open(&path).unwrap_err().to_string();
    assert!(told.contains("its superblock is blank"), "{told}");
}
