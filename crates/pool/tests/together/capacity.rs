//! The capacity of a pool, and what its log may grow to, change in place when it is opened for writing: whatever
//! operation is the last one of the process, the pool opens and holds what it held.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, Latency, Medium, MediumKind, OsStorage, Pool, PoolOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SMALL: u64 = 1 << 20;
const LARGE: u64 = 6 << 20;
const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options(medium: Medium) -> PoolOptions {
    PoolOptions::new().create(Create::IfMissing).medium(medium).background(false)
}

/// Writes `value` near the end of `bytes` bytes of the region, durably.
fn write(pool: &Pool, bytes: u64, value: u64) -> Result<(), Error> {
    let region = pool.region();
    region.grow(bytes)?;
    region.store(bytes - 8, value, Ordering::Release);
    region.flush(bytes - 8, 8);
    region.fence();
    region.drain()
}

fn read(pool: &Pool, bytes: u64) -> u64 {
    if pool.stat().grown < bytes { 0 } else { pool.region().word(bytes - 8).load(Ordering::Acquire) }
}

/// A pool of a small capacity with something at its end; closed in order or not.
fn make(path: &Path, medium: Medium, is_closed: bool) {
    let pool = options(medium).capacity(SMALL).open(path).unwrap();
    write(&pool, SMALL, 7).unwrap();
    if is_closed {
        pool.close().unwrap();
    }
}

#[test]
fn a_greater_capacity_is_given_in_place_and_kept() {
    let dir = folder();
    for medium in [Medium::File, EMULATED] {
        for is_closed in [true, false] {
            let path = dir.path().join(format!("{medium}-{is_closed}").replace('/', "-"));
            make(&path, medium, is_closed);
            assert_eq!(Pool::inspect(&path).unwrap().capacity, SMALL);
            let pool = options(medium).capacity(LARGE - 1).open(&path).unwrap();
            assert_eq!((pool.info().capacity, pool.region().len()), (LARGE, LARGE));
            assert_eq!(read(&pool, SMALL), 7);
            write(&pool, LARGE, 8).unwrap();
            pool.close().unwrap();
            // Who asks for none, or for the same again, gets it as it is.
            for asked in [None, Some(LARGE)] {
                let mut options = options(Medium::Auto);
                if let Some(bytes) = asked {
                    options = options.capacity(bytes);
                }
                let pool = options.open(&path).unwrap();
                assert_eq!((pool.info().capacity, pool.region().len()), (LARGE, LARGE));
                assert_eq!((read(&pool, SMALL), read(&pool, LARGE)), (7, 8));
                pool.close().unwrap();
            }
            assert_eq!(Pool::check(&path).unwrap().damage, []);
        }
    }
}

#[test]
fn a_smaller_capacity_is_refused_and_so_is_growth_without_writing() {
    let dir = folder();
    let path = dir.path().join("p");
    make(&path, Medium::File, true);
    let before = std::fs::read(path.join("pool")).unwrap();
    for (options, wanted) in [
        (options(Medium::Auto).capacity(SMALL / 2), "can only become greater, not 524288"),
        (options(Medium::Auto).capacity(LARGE).read_only(true), "open the pool for writing"),
    ] {
        let error = options.open(&path).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{text}");
        assert!(text.contains("its capacity is 1048576 bytes") && text.contains(wanted), "{text}");
    }
    assert!(std::fs::read(path.join("pool")).unwrap() == before, "a refusal changes nothing");
    options(Medium::Auto).capacity(SMALL).read_only(true).open(&path).unwrap();
}

#[test]
fn a_pool_with_an_address_grows_there_or_stays_as_it_is() {
    let dir = folder();
    let path = dir.path().join("p");
    let chosen = mangrove_pool::AddressChoice::Chosen;
    let pool = options(Medium::File).capacity(SMALL).address(chosen).open(&path).unwrap();
    write(&pool, SMALL, 7).unwrap();
    let address = pool.region().base() as usize;
    pool.close().unwrap();
    // Something lies behind it in this process.
    let behind = mangrove_sys::Reservation::anonymous_at(address + SMALL as usize, 4096).unwrap();
    let error = options(Medium::Auto).capacity(LARGE).open(&path).unwrap_err();
    assert!(matches!(error, Error::AddressTaken { .. }), "{error}");
    assert_eq!(Pool::inspect(&path).unwrap().capacity, SMALL, "nothing was saved");
    let pool = options(Medium::Auto).open(&path).unwrap();
    assert_eq!(read(&pool, SMALL), 7);
    pool.close().unwrap();
    drop(behind);
    let pool = options(Medium::Auto).capacity(LARGE).open(&path).unwrap();
    assert_eq!(pool.region().base() as usize, address);
    write(&pool, LARGE, 8).unwrap();
    assert_eq!((read(&pool, SMALL), read(&pool, LARGE)), (7, 8));
    pool.close().unwrap();
}

/// Each storage operation of an opening that changes the pool, and of the first write beyond the old capacity, is the
/// last one in turn.
#[test]
fn any_operation_may_be_the_last_one_of_a_process_that_changes_a_pool() {
    let dir = folder();
    for medium in [Medium::File, EMULATED] {
        for is_closed in [true, false] {
            let (mut died, mut with_small) = (0, 0);
            for nth in 0.. {
                let path = dir.path().join("p");
                make(&path, medium, is_closed);
                let faulty = Faulty::new(Arc::new(OsStorage));
                faulty.plant(Fault { file: None, operations: vec![], nth, kind: FaultKind::Halt });
                let asked = options(medium).capacity(LARGE).log_bytes(1 << 20);
                let pool = asked.storage(Arc::new(faulty.clone())).open(&path);
                let is_open = pool.is_ok();
                let is_durable = pool.is_ok_and(|pool| write(&pool, LARGE, 8).is_ok());
                // One that asks for nothing, and one that asks again.
                let pool = options(medium).open(&path).unwrap_or_else(|e| panic!("{nth}: {e}"));
                let capacity = pool.info().capacity;
                assert!(capacity == LARGE || (capacity == SMALL && !is_open), "{nth}: {capacity}");
                with_small += u32::from(capacity == SMALL);
                assert_eq!(read(&pool, SMALL), 7, "{nth}");
                if is_durable {
                    assert_eq!(read(&pool, LARGE), 8, "{nth}");
                }
                drop(pool);
                let pool = options(medium).capacity(LARGE).open(&path).unwrap();
                write(&pool, LARGE, 9).unwrap();
                assert_eq!((read(&pool, SMALL), read(&pool, LARGE)), (7, 9), "{nth}");
                pool.close().unwrap();
                assert_eq!(Pool::check(&path).unwrap().damage, []);
                std::fs::remove_dir_all(&path).unwrap();
                if !faulty.struck() {
                    assert!(is_durable);
                    break;
                }
                died += 1;
            }
            assert!(died > 8 && with_small > 2 && with_small < died, "{died}, {with_small}");
        }
    }
}

#[test]
fn another_limit_of_the_log_is_kept_and_one_below_its_size_is_refused() {
    let dir = folder();
    let path = dir.path().join("p");
    let fill = |pool: &Pool| {
        for n in 0..400 {
            write(pool, 64 << 10, n).unwrap();
            pool.region().flush(0, 4096);
        }
        pool.region().drain().unwrap();
    };
    let pool = options(Medium::File).capacity(SMALL).log_bytes(64 << 10).open(&path).unwrap();
    fill(&pool);
    assert_eq!(pool.stat().log_bytes, 64 << 10);
    pool.close().unwrap();
    // It is kept from the opening on, although the log does not grow in this process.
    let pool = options(Medium::Auto).log_bytes(200 << 10).open(&path).unwrap();
    assert_eq!(pool.info().log_bytes_max, 200 << 10);
    pool.close().unwrap();
    assert_eq!(Pool::inspect(&path).unwrap().medium, MediumKind::File);
    let pool = options(Medium::Auto).open(&path).unwrap();
    assert_eq!(pool.info().log_bytes_max, 200 << 10);
    fill(&pool);
    assert_eq!(pool.stat().log_bytes, 200 << 10);
    pool.close().unwrap();
    let text = options(Medium::Auto).log_bytes(64 << 10).open(&path).unwrap_err().to_string();
    assert!(text.contains("its log has 131072 bytes and does not become shorter"), "{text}");
    let pool = options(Medium::Auto).log_bytes(200 << 10).open(&path).unwrap();
    assert_eq!(read(&pool, 64 << 10), 399);
    pool.close().unwrap();
}
