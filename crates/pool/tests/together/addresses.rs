//! Pools that a program opens together do not meet in its address space.

use mangrove_pool::{AddressChoice, Create, Medium, Pool, PoolOptions};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Held by a test while it makes pools: at the same time they would take each other's addresses.
static TURN: Mutex<()> = Mutex::new(());

const CAPACITY: u64 = 256 << 30;

fn address_of_new(path: &Path) -> u64 {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let options = PoolOptions::new()
        .create(Create::New)
        .medium(Medium::File)
        .capacity(CAPACITY)
        .log_bytes(16 << 10)
        .address(AddressChoice::Chosen);
    options.open(path).unwrap().close().unwrap();
    Pool::inspect(path).unwrap().address
}

/// 248 places hold such pools. Of 60 drawn at random some meet, but for one chance in a thousand.
#[test]
fn pools_in_neighbouring_folders_have_addresses_apart() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut addresses: Vec<u64> = (0..30)
        .map(|n| address_of_new(&dir.path().join(format!("database-{n}/pool"))))
        .chain((0..30).map(|n| address_of_new(&dir.path().join(format!("database-0/other-{n}")))))
        .collect();
    // The last ones lie beside the first database's pool only.
    let others = addresses.split_off(30);
    for group in [
        addresses,
        [&others[..], &[Pool::inspect(dir.path().join("database-0/pool")).unwrap().address]].concat(),
    ] {
        let mut sorted = group.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= CAPACITY), "{sorted:x?}");
    }
}

/// Each is built in a directory of its own, and gets its name then. Of 60 drawn at random some meet, but for one chance
/// in a thousand.
#[test]
fn pools_of_imported_databases_have_addresses_apart() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let import = |n: u32| {
        let partial = dir.path().join(format!("database-{n}.partial"));
        let address = address_of_new(&partial.join("new/pool"));
        std::fs::rename(partial.join("new"), dir.path().join(format!("database-{n}"))).unwrap();
        std::fs::remove_dir(partial).unwrap();
        address
    };
    let mut addresses: Vec<u64> = (0..60).map(import).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= CAPACITY), "{addresses:x?}");
}
