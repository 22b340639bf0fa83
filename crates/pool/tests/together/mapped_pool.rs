//! Pools whose region is mapped: emulated, and the error of dax on a machine without it.

use mangrove_pool::{
    Create, Domain, Emulated, Error, Fault, FaultKind, Faulty, FaultyOperation, FlushCost, FlushInstruction,
    Latency, Medium, MediumKind, OsStorage, Pool, PoolOptions, crc32c,
};
use std::path::Path;

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::Emulated(Latency::default()))
        .capacity(64 << 20)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn read(pool: &Pool, offset: u64, len: usize) -> Vec<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(pool.region().at(offset), len) }.to_vec()
}

fn put(pool: &Pool, offset: u64, bytes: &[u8]) {
    let region = pool.region();
    region.grow(offset + bytes.len() as u64).unwrap();
    region.write(offset, bytes);
    region.flush(offset, bytes.len());
    region.fence();
    region.drain().unwrap();
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_growth_that_fails_latches_and_one_without_space_does_not() {
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    let dir = folder();
    let storage = Faulty::new(std::sync::Arc::new(OsStorage));
    let pool = options().storage(std::sync::Arc::new(storage.clone())).open(dir.path().join("p")).unwrap();
    let region = pool.region();
    let fail = |kind| {
        storage.plant(Fault { file: None, operations: vec![FaultyOperation::Allocate], nth: 0, kind });
    };
    fail(FaultKind::ErrnoForEver(ENOSPC));
    assert!(matches!(region.grow(4096), Err(Error::NoSpace { .. })));
    region.drain().unwrap();
    fail(FaultKind::Errno(EIO));
    assert!(matches!(region.grow(4096), Err(Error::Io { .. })));
    assert!(matches!(region.medium().poisoned(), Some(Error::Io { .. })));
    assert!(matches!(region.grow(4096), Err(Error::Poisoned { .. })));
    assert!(matches!(region.drain(), Err(Error::Poisoned { .. })));
    assert!(matches!(pool.close(), Err(Error::Poisoned { .. })));
    let pool = options().open(dir.path().join("p")).unwrap();
    assert!(!pool.was_clean());
    put(&pool, 0, b"goes on");
}

#[test]
fn an_emulated_pool_survives_a_drop_and_a_close() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    assert_eq!(pool.info().medium, MediumKind::Emulated);
    put(&pool, 300_000, b"first");
    drop(pool);
    let pool = options().open(&path).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(read(&pool, 300_000, 5), b"first");
    put(&pool, 5_000_000, b"second");
    pool.close().unwrap();
    let pool = options().open(&path).unwrap();
    assert!(pool.was_clean());
    assert_eq!((read(&pool, 300_000, 5), read(&pool, 5_000_000, 6)), (b"first".to_vec(), b"second".to_vec()));
    assert!(matches!(options().open(&path), Err(Error::Busy { .. })));
    put(&pool, 0, b"only the first segment changes");
    pool.close().unwrap();
    assert_eq!(Pool::check(&path).unwrap().damage, []);
}

/// A process that is killed while it opens a closed pool may leave one copy of the superblock that says "clean".
#[test]
fn no_copy_says_clean_once_something_is_stored() {
    let dir = folder();
    let path = dir.path().join("p");
    let file = path.join("pool");
    let pool = options().open(&path).unwrap();
    put(&pool, 0, b"closed");
    pool.close().unwrap();
    let closed = std::fs::read(&file).unwrap();
    drop(options().open(&path).unwrap());
    let mut killed = std::fs::read(&file).unwrap();
    let number = |copy: usize| u64::from_le_bytes(killed[4096 * copy + 16..][..8].try_into().unwrap());
    // The place of the copy that the killed process did not come to.
    let second = 4096 * usize::from(number(0) < number(1));
    killed[second..][..4096].copy_from_slice(&closed[second..][..4096]);
    std::fs::write(&file, &killed).unwrap();
    let pool = options().open(&path).unwrap();
    assert!(!pool.was_clean());
    put(&pool, 0, b"stored");
    drop(pool);
    let left = std::fs::read(&file).unwrap();
    for copy in [0, 1] {
        std::fs::write(&file, &left).unwrap();
        flip(&file, 4096 * copy + 100);
        assert!(!Pool::inspect(&path).unwrap().clean, "where copy {copy} is damaged");
    }
}

#[test]
fn any_flipped_bit_of_a_closed_pool_is_found() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put(&pool, 300_000, b"first");
    pool.close().unwrap();
    let image = std::fs::metadata(path.join("image")).unwrap().len();
    for at in [0, 300_001, image - 1] {
        flip(&path.join("image"), at);
        let error = options().open(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == at / 4096 * 4096), "{error}");
        assert_eq!(Pool::check(&path).unwrap().damage.len(), 1);
        flip(&path.join("image"), at);
    }
    flip(&path.join("sums"), 4 * 73);
    assert!(matches!(options().open(&path).unwrap_err(), Error::Corrupt { .. }));
    flip(&path.join("sums"), 4 * 73);
    options().open(&path).unwrap();
}

#[test]
fn read_only_changes_nothing() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put(&pool, 0, b"mine");
    pool.close().unwrap();
    let before = std::fs::read(path.join("image")).unwrap();
    let pool = PoolOptions::new().read_only(true).open(&path).unwrap();
    pool.region().write(0, b"ours");
    pool.region().flush(0, 4);
    pool.region().drain().unwrap();
    assert_eq!(read(&pool, 0, 4), b"ours");
    assert!(pool.region().grow(60 << 20).is_err());
    pool.close().unwrap();
    assert_eq!(std::fs::read(path.join("image")).unwrap(), before);
    assert!(Pool::inspect(&path).unwrap().clean);
}

#[test]
fn dax_where_there_is_none_gets_a_sentence_and_leaves_no_pool() {
    let dir = folder();
    let path = dir.path().join("p");
    let dax = options().medium(Medium::Dax);
    let text = dax.open(&path).unwrap_err().to_string();
    assert!(text.contains("not on a file system mounted with dax"), "{text}");
    let text = dax.clone().devdax("/dev/null").open(&path).unwrap_err().to_string();
    assert!(text.contains("not a devdax device"), "{text}");
    let pool = options().medium(Medium::Auto).log_bytes(64 << 10).open(&path).unwrap();
    assert_eq!(pool.info().medium, MediumKind::File);
    drop(pool);
    let text = dax.open(&path).unwrap_err().to_string();
    assert!(text.contains("lies on the medium file, not dax"), "{text}");
}

#[test]
fn domain_and_instruction_can_be_chosen() {
    let dir = folder();
    let of = |o: PoolOptions, name: &str| o.open(dir.path().join(name)).unwrap().stat().domain.unwrap();
    let eadr = of(options().domain(Domain::Eadr), "a");
    assert!(eadr.eadr && eadr.instruction == FlushInstruction::None);
    let adr = of(options().domain(Domain::Adr).flush_instruction(FlushInstruction::Clflush), "b");
    assert!(!adr.eadr && adr.instruction == FlushInstruction::Clflush);
    let wrong =
        options().domain(Domain::Adr).flush_instruction(FlushInstruction::None).open(dir.path().join("c"));
    assert!(matches!(wrong, Err(Error::Unsupported { .. })));
}

#[test]
fn injected_latency_is_felt() {
    let slow = Latency { write_ns: 50_000, ..Latency::default() };
    let region = Emulated::region_with(1 << 20, slow, Domain::Adr).unwrap();
    let begun = std::time::Instant::now();
    for i in 0..100 {
        region.flush(i * 64, 64);
    }
    assert!(begun.elapsed().as_millis() >= 4, "{:?}", begun.elapsed());
}

#[test]
fn queued_latency_is_felt_at_the_fence() {
    let flushes = FlushCost::Queued { line_ns: 0 };
    let slow = Latency { write_ns: 20_000_000, flushes, ..Latency::default() };
    let region = Emulated::region_with(1 << 20, slow, Domain::Adr).unwrap();
    let begun = std::time::Instant::now();
    for i in 0..3 {
        region.flush(i * 64, 64);
    }
    region.fence();
    assert!(begun.elapsed().as_millis() >= 18, "{:?}", begun.elapsed());
}

/// The file `image`, with another length.
fn set_len(path: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap().set_len(len).unwrap();
}

fn image_len(path: &Path) -> u64 {
    std::fs::metadata(path.join("image")).unwrap().len()
}

#[test]
fn an_unclosed_image_that_is_shorter_than_it_was_grown_is_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    for round in 1..4u64 {
        let pool = options().open(&path).unwrap();
        put(&pool, round << 20, b"there");
        drop(pool);
        let len = image_len(&path);
        assert_eq!(Pool::inspect(&path).unwrap().image_bytes, len, "kept while it grows");
        for short in [0, 1, 4096, len - 4096, len - 1] {
            set_len(&path, short);
            for read_only in [true, false] {
                let error = options().read_only(read_only).open(&path).unwrap_err();
                assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("image")), "{error}");
            }
            assert_eq!(Pool::check(&path).unwrap().damage.len(), 1);
            set_len(&path, len);
        }
        // `set_len` cut the bytes off.
        put(&options().open(&path).unwrap(), round << 20, b"there");
    }
}

/// A growth makes the image longer, then the page checksums, then the superblock.
#[test]
fn a_growth_that_a_crash_interrupted_is_finished() {
    let dir = folder();
    let path = dir.path().join("p");
    put(&options().open(&path).unwrap(), 0, b"there");
    let long = image_len(&path) + (16 << 20);
    set_len(&path, long);
    for _ in 0..3 {
        let pool = options().open(&path).unwrap();
        assert_eq!((read(&pool, 0, 5), pool.stat().grown), (b"there".to_vec(), long));
        drop(pool);
        assert_eq!(Pool::inspect(&path).unwrap().image_bytes, long);
        assert_eq!(Pool::check(&path).unwrap().damage, []);
    }
    options().open(&path).unwrap().close().unwrap();
    assert!(options().open(&path).unwrap().was_clean());
}

#[test]
fn an_unclosed_pool_of_version_2_opens_without_the_check_and_then_has_it() {
    let dir = folder();
    let path = dir.path().join("p");
    let pool = options().open(&path).unwrap();
    put(&pool, 0, b"there");
    put(&pool, 8 << 20, b"gone");
    drop(pool);
    let mut bytes = std::fs::read(path.join("pool")).unwrap();
    for copy in bytes.chunks_exact_mut(4096) {
        copy[8..12].copy_from_slice(&2u32.to_le_bytes());
        copy[72..80].fill(0);
        copy[1160..1177].fill(0);
        let crc = crc32c(0, &copy[..4092]);
        copy[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(path.join("pool"), bytes).unwrap();
    set_len(&path, 1 << 20);
    let pool = options().open(&path).unwrap();
    assert_eq!((read(&pool, 0, 5), pool.stat().grown), (b"there".to_vec(), 1 << 20));
    drop(pool);
    let versions = std::fs::read(path.join("pool")).unwrap();
    assert_eq!([versions[8], versions[4096 + 8]], [5, 5]);
    set_len(&path, 4096);
    assert!(matches!(options().open(&path), Err(Error::Corrupt { .. })));
}
