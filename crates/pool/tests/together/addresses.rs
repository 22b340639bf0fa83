//! Pools that a program opens together do not meet in its address space.

use mangrove_pool::{AddressChoice, Create, Medium, Pool, PoolOptions};
use std::path::Path;

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
