//! Space that a pool gives back: holes in the data file, whatever interrupts making them, and none where space was
//! asked for again.

use crate::hooked::{Access, hooked};
use mangrove_pool::{
    ByteRange, Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Medium, OsStorage, Pool, PoolOptions,
};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};

const PAGE: u64 = 4096;
/// Pages of a part that is given back as a whole.
const PART_PAGES: u64 = 16;
const PART_BYTES: u64 = PART_PAGES * PAGE;
/// Parts behind the first page.
const PARTS: u64 = 6;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options() -> PoolOptions {
    PoolOptions::new().create(Create::IfMissing).medium(Medium::File).capacity(64 << 20).background(false)
}

/// Bytes that the data file takes on the disk.
fn image_blocks(path: &Path) -> u64 {
    std::fs::metadata(path.join("image")).unwrap().blocks() * 512
}

fn part(number: u64) -> ByteRange {
    ByteRange { offset: PAGE + number * PART_BYTES, len: PART_BYTES }
}

fn provide_all(pool: &Pool) -> Result<(), Error> {
    pool.region().provide(ByteRange { offset: 0, len: PAGE })?;
    (0..PARTS).try_for_each(|number| pool.region().provide(part(number)))
}

/// Fills a part with a number.
fn fill(pool: &Pool, number: u64, value: u64) {
    let range = part(number);
    for at in (range.offset..range.offset + range.len).step_by(8) {
        pool.region().store(at, value, Ordering::Relaxed);
    }
    pool.region().flush(range.offset, range.len as usize);
}

/// Fills all parts with 7.
fn fill_all(pool: &Pool) {
    provide_all(pool).unwrap();
    (0..PARTS).for_each(|number| fill(pool, number, 7));
}

/// The number that a part is filled with; none if it has several. 0 also where the region ends before it.
fn filled(pool: &Pool, number: u64) -> Option<u64> {
    let range = part(number);
    if pool.stat().grown < range.offset + range.len {
        return Some(0);
    }
    let word = |at: u64| pool.region().word(at).load(Ordering::Relaxed);
    let mut words = (range.offset..range.offset + range.len).step_by(8).map(word);
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

fn give_back(pool: &Pool, number: u64) -> bool {
    // SAFETY: only this thread uses the region.
    unsafe { pool.region().give_back(part(number)) }.unwrap()
}

#[test]
fn what_is_given_back_becomes_a_hole_at_the_next_checkpoint() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), PAGE + PARTS * PART_BYTES);
    for number in [0, 1, 3] {
        assert!(give_back(&pool, number));
        assert_eq!(filled(&pool, number), Some(0), "at once");
    }
    assert_eq!(image_blocks(&path), PAGE + PARTS * PART_BYTES, "recovery could still need the bytes");
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 3) * PART_BYTES);
    pool.region().provide(part(1)).unwrap();
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 2) * PART_BYTES);
    fill(&pool, 1, 8);
    pool.region().drain().unwrap();
    drop(pool);
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    let pool = options().open(&path).unwrap();
    let found: Vec<_> = (0..PARTS).map(|number| filled(&pool, number).unwrap()).collect();
    assert_eq!(found, [0, 8, 7, 0, 7, 7]);
    pool.close().unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 2) * PART_BYTES);
}

#[test]
fn what_was_provided_again_keeps_its_space() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    for number in 0..PARTS {
        give_back(&pool, number);
    }
    pool.region().provide(part(2)).unwrap();
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), PAGE + PART_BYTES);
    assert_eq!(filled(&pool, 2), Some(0));
    pool.close().unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    assert_eq!(image_blocks(&path), PAGE + PART_BYTES);
}

#[test]
fn the_process_after_a_crash_makes_the_holes() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    assert!((0..3).all(|number| give_back(&pool, number)));
    pool.region().provide(part(1)).unwrap();
    // One page of it is in use: a writer of the others asks for no space any more.
    pool.region().store(part(1).offset, 9, Ordering::Relaxed);
    pool.region().flush(part(1).offset, 8);
    pool.region().drain().unwrap();
    drop(pool);
    let pool = options().open(&path).unwrap();
    assert_eq!([0, 2].map(|number| filled(&pool, number)), [Some(0), Some(0)]);
    assert_eq!(pool.region().word(part(1).offset).load(Ordering::Relaxed), 9);
    pool.close().unwrap();
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 2) * PART_BYTES);
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

/// Where there is a hole, a checkpoint needs no space: neither for a part for which space was asked and not found, nor
/// for one of which recovery does not know whether it was.
#[test]
fn a_hole_that_is_given_back_again_needs_no_space() {
    let dir = folder();
    let path = dir.path().join("p");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    fill_all(&pool);
    let first_three = ByteRange { offset: part(0).offset, len: 3 * PART_BYTES };
    // SAFETY: only this thread uses the region.
    let give_three_back = |pool: &Pool| assert!(unsafe { pool.region().give_back(first_three) }.unwrap());
    give_three_back(&pool);
    pool.checkpoint().unwrap();
    let used = PAGE + (PARTS - 3) * PART_BYTES;
    assert_eq!(image_blocks(&path), used);
    give_three_back(&pool);
    let full = FaultKind::ErrnoForEver(libc::ENOSPC);
    faulty.plant(Fault { file: None, operations: vec![FaultyOperation::Allocate], nth: 0, kind: full });
    assert!(matches!(pool.region().provide(part(1)), Err(Error::NoSpace { .. })));
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), used, "a part that found no space");
    faulty.heal();
    give_three_back(&pool);
    pool.region().provide(part(1)).unwrap();
    fill(&pool, 1, 8);
    pool.region().drain().unwrap();
    drop(pool);
    let pool = options().open(&path).unwrap();
    pool.close().unwrap();
    assert_eq!(image_blocks(&path), used + PART_BYTES, "parts beside one that was asked for");
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

/// Steps of a pool that gives back and asks again; each leaves one state, which is durable when it returns.
fn steps(pool: &Pool) -> Result<(), Error> {
    provide_all(pool)?;
    let region = pool.region();
    for step in 1..=12u64 {
        let (used, given) = (step % PARTS, (step + 2) % PARTS);
        if filled(pool, given).is_some_and(|value| value > 0) {
            // SAFETY: only this thread uses the region.
            unsafe { region.give_back(part(given)) }?;
        }
        region.provide(part(used))?;
        fill(pool, used, step);
        region.store(0, step, Ordering::Relaxed);
        region.flush(0, 8);
        region.drain()?;
        if step % 3 == 0 {
            pool.checkpoint()?;
        }
    }
    Ok(())
}

/// What the parts hold after so many steps.
fn after(steps: u64) -> [u64; PARTS as usize] {
    let mut parts = [0; PARTS as usize];
    for step in 1..=steps {
        parts[((step + 2) % PARTS) as usize] = 0;
        parts[(step % PARTS) as usize] = step;
    }
    parts
}

#[test]
fn each_storage_operation_may_be_the_last_one() {
    let dir = folder();
    let count = {
        let faulty = Faulty::new(Arc::new(OsStorage));
        let path = dir.path().join("whole");
        let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
        faulty.plant(Fault { file: None, operations: Vec::new(), nth: u64::MAX, kind: FaultKind::Halt });
        steps(&pool).unwrap();
        pool.close().unwrap();
        faulty.seen()
    };
    assert!(count > 60, "{count} operations");
    for nth in 0..count {
        let path = dir.path().join(nth.to_string());
        let faulty = Faulty::new(Arc::new(OsStorage));
        let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
        faulty.plant(Fault { file: None, operations: Vec::new(), nth, kind: FaultKind::Halt });
        let _ = steps(&pool).and_then(|()| pool.close());
        assert!(faulty.struck());
        let check = || {
            // A closed pool with a torn copy of the superblock looks like one whose copy was damaged.
            let mut damage = Pool::check(&path).unwrap().damage;
            damage.retain(|damage| damage.path != path.join("pool"));
            assert_eq!(damage, [], "after {nth} operations");
        };
        check();
        // Twice: the second opening finds what the first one finished, or nothing changed.
        for _ in 0..2 {
            let pool = options().open(&path).unwrap_or_else(|e| panic!("after {nth} operations: {e}"));
            let done = if pool.stat().grown == 0 { 0 } else { pool.region().word(0).load(Ordering::Relaxed) };
            // A crash keeps a prefix of the flushes: what the step after the last whole one did first may be there.
            let (mut now, next) = (after(done), after(done + 1));
            let found: Vec<_> = (0..PARTS).map(|number| filled(&pool, number)).collect();
            let gone = ((done + 3) % PARTS) as usize;
            if found[gone] == Some(0) {
                now[gone] = 0;
            }
            for (number, found) in found.iter().enumerate() {
                let torn = number as u64 == (done + 1) % PARTS && found.is_none();
                assert!(
                    torn || *found == Some(now[number]) || *found == Some(next[number]),
                    "part {number} after {nth} operations and {done} steps: {found:?}"
                );
            }
            pool.checkpoint().unwrap();
        }
        check();
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_page_is_not_blank_without_a_record_of_it() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    fill_all(&pool);
    give_back(&pool, 0);
    pool.checkpoint().unwrap();
    drop(pool);
    let image = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0; 4096], part(1).offset).unwrap();
    let error = options().open(&path).unwrap_err().to_string();
    assert!(error.contains("does not match its checksum"), "{error}");
}

#[test]
fn a_full_medium_refuses_what_is_asked_for_and_nothing_else() {
    let dir = folder();
    let path = dir.path().join("p");
    let faulty = Faulty::new(Arc::new(OsStorage));
    let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    give_back(&pool, 0);
    pool.checkpoint().unwrap();
    let full = FaultKind::ErrnoForEver(libc::ENOSPC);
    faulty.plant(Fault { file: None, operations: vec![FaultyOperation::Allocate], nth: 0, kind: full });
    assert!(matches!(pool.region().provide(part(0)), Err(Error::NoSpace { .. })));
    assert!(matches!(pool.region().provide(part(PARTS)), Err(Error::NoSpace { .. })));
    fill(&pool, 1, 8);
    give_back(&pool, 2);
    pool.checkpoint().unwrap();
    faulty.heal();
    pool.region().provide(part(0)).unwrap();
    fill(&pool, 0, 9);
    pool.close().unwrap();
    let pool = options().open(&path).unwrap();
    let found: Vec<_> = (0..PARTS).map(|number| filled(&pool, number).unwrap()).collect();
    assert_eq!(found, [9, 8, 0, 7, 7, 7]);
}

/// A storage whose every hole fails like this.
fn without_holes(kind: FaultKind) -> Faulty {
    let faulty = Faulty::new(Arc::new(OsStorage));
    faulty.plant(Fault { file: None, operations: vec![FaultyOperation::Punch], nth: 0, kind });
    faulty
}

/// XFS, completely full, has no space to record a hole; other file systems have no holes.
#[test]
fn where_no_hole_can_be_made_there_are_zeros() {
    let dir = folder();
    for (number, kind) in
        [libc::ENOSPC, libc::EDQUOT, libc::EOPNOTSUPP].map(FaultKind::ErrnoForEver).into_iter().enumerate()
    {
        let path = dir.path().join(number.to_string());
        let faulty = without_holes(kind);
        let options = || options().storage(Arc::new(faulty.clone()));
        let pool = options().open(&path).unwrap();
        fill_all(&pool);
        pool.checkpoint().unwrap();
        assert!((0..3).all(|number| give_back(&pool, number)));
        pool.checkpoint().unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert!(faulty.struck());
        assert_eq!(image_blocks(&path), PAGE + PARTS * PART_BYTES, "{kind:?}");
        // The next process makes what is left to do of this one's.
        assert!(give_back(&pool, 3));
        pool.region().drain().unwrap();
        drop(pool);
        let pool = options().open(&path).unwrap();
        pool.region().provide(part(1)).unwrap();
        fill(&pool, 1, 8);
        pool.close().unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(Pool::check(&path).unwrap().damage, []);
        let pool = options().open(&path).unwrap();
        assert!(pool.open_report().was_clean);
        let found: Vec<_> = (0..PARTS).map(|number| filled(&pool, number).unwrap()).collect();
        assert_eq!(found, [0, 8, 0, 0, 7, 7], "{kind:?}");
    }
}

#[test]
fn a_hole_that_is_made_in_part_is_zeros_as_a_whole() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().storage(Arc::new(without_holes(FaultKind::Short))).open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    assert!(give_back(&pool, 0));
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), PAGE + PARTS * PART_BYTES - PART_BYTES / 2, "no zeros in the hole");
    pool.close().unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
    let pool = options().open(&path).unwrap();
    assert_eq!([0, 1].map(|number| filled(&pool, number)), [Some(0), Some(7)]);
}

/// Zeros where no hole can be made take no space that the pages did not have.
#[test]
fn a_hole_that_fails_poisons_the_pool_and_the_next_process_makes_it() {
    let dir = folder();
    let path = dir.path().join("p");
    let faulty = without_holes(FaultKind::Errno(libc::EIO));
    let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
    fill_all(&pool);
    pool.checkpoint().unwrap();
    assert!((0..3).all(|number| give_back(&pool, number)));
    pool.region().drain().unwrap();
    let failed = pool.checkpoint().expect_err("a hole could not be made").to_string();
    assert!(faulty.struck() && failed.contains("image"), "{failed}");
    // The fault struck once; nothing is tried again.
    fill(&pool, 4, 9);
    assert!(pool.region().drain().is_err() && pool.checkpoint().is_err() && pool.close().is_err());

    let pool = options().open(&path).unwrap();
    pool.checkpoint().unwrap();
    let found: Vec<_> = (0..PARTS).map(|number| filled(&pool, number).unwrap()).collect();
    assert_eq!(found, [0, 0, 0, 7, 7, 7]);
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 3) * PART_BYTES);
    pool.close().unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

#[test]
fn what_never_had_space_gets_none_when_it_is_given_back() {
    let dir = folder();
    for code in [libc::ENOSPC, libc::EOPNOTSUPP] {
        let path = dir.path().join(code.to_string());
        let faulty = without_holes(FaultKind::ErrnoForEver(code));
        let pool = options().storage(Arc::new(faulty.clone())).open(&path).unwrap();
        for number in [1, PARTS - 1] {
            pool.region().provide(part(number)).unwrap();
            fill(&pool, number, 7);
        }
        pool.checkpoint().unwrap();
        let used = image_blocks(&path);
        assert!(used < 3 * PART_BYTES, "{used} bytes for two parts");
        let all = ByteRange { offset: PAGE, len: PARTS * PART_BYTES };
        // SAFETY: only this thread uses the region.
        assert!(unsafe { pool.region().give_back(all) }.unwrap());
        pool.checkpoint().unwrap();
        assert!(faulty.struck());
        assert_eq!(image_blocks(&path), used, "errno {code}");
        pool.close().unwrap();
        assert_eq!(Pool::check(&path).unwrap().damage, []);
    }
}

/// Gives part 0 back, and while the checkpoint of that is under way, asks for it, writes it and gives it back again.
/// `last` is called before that checkpoint goes on.
fn give_back_amid_a_checkpoint(path: &Path, last: impl Fn(&Pool) + Send + Sync + 'static) -> Arc<Pool> {
    let (shared, done) = (Arc::new(OnceLock::<Weak<Pool>>::new()), Arc::new(OnceLock::new()));
    let amid = {
        let (shared, done) = (Arc::clone(&shared), Arc::clone(&done));
        move |access: Access, name: &str, _: u64| {
            let writes_sums = access == Access::Write && name == "sums";
            if let Some(pool) = shared.get().filter(|_| writes_sums).and_then(Weak::upgrade) {
                done.get_or_init(|| {
                    pool.region().provide(part(0)).unwrap();
                    fill(&pool, 0, 8);
                    pool.region().drain().unwrap();
                    give_back(&pool, 0);
                    last(&pool);
                });
            }
        }
    };
    let pool = Arc::new(options().storage(hooked(amid)).open(path).unwrap());
    fill_all(&pool);
    pool.checkpoint().unwrap();
    assert!(give_back(&pool, 0));
    shared.set(Arc::downgrade(&pool)).unwrap();
    pool.checkpoint().unwrap();
    assert!(done.get().is_some());
    pool
}

/// The log behind the checkpoint has bytes for a part that is in the list of holes already.
#[test]
fn a_checkpoint_makes_no_hole_where_the_log_behind_it_has_bytes() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = give_back_amid_a_checkpoint(&path, |_| ());
    assert_eq!(image_blocks(&path), PAGE + PARTS * PART_BYTES, "the write behind the checkpoint needs it");
    pool.checkpoint().unwrap();
    assert_eq!(image_blocks(&path), PAGE + (PARTS - 1) * PART_BYTES, "now nothing does");
    assert_eq!([0, 1].map(|number| filled(&pool, number)), [Some(0), Some(7)]);
}

/// The same, when a crash has interrupted the checkpoint and the next process repeats it.
#[test]
fn a_repeated_checkpoint_makes_no_hole_where_the_log_behind_it_has_bytes() {
    let dir = folder();
    let (path, crashed) = (dir.path().join("p"), dir.path().join("crashed"));
    let copy = {
        let (path, crashed) = (path.clone(), crashed.clone());
        move |pool: &Pool| {
            pool.region().drain().unwrap();
            std::fs::create_dir(&crashed).unwrap();
            for name in ["pool", "image", "sums", "log"] {
                std::fs::copy(path.join(name), crashed.join(name)).unwrap();
            }
        }
    };
    drop(give_back_amid_a_checkpoint(&path, copy));
    let used = Arc::new(Mutex::new(Vec::new()));
    let storage = {
        let (used, crashed) = (Arc::clone(&used), crashed.clone());
        hooked(move |access, name, _| {
            if access == Access::Write && name == "sums" {
                used.lock().unwrap().push(image_blocks(&crashed));
            }
        })
    };
    let pool = options().storage(storage).open(&crashed).unwrap();
    pool.checkpoint().unwrap();
    let all = PAGE + PARTS * PART_BYTES;
    assert_eq!(*used.lock().unwrap(), [all, all], "before the repeated checkpoint, and before the next");
    assert_eq!(image_blocks(&crashed), all - PART_BYTES);
    pool.close().unwrap();
    assert_eq!(Pool::check(&crashed).unwrap().damage, []);
}
