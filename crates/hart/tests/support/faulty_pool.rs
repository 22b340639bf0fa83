//! A pool on a disk that fails where a test wants it to.

use mangrove_pool::{Create, Faulty, Medium, OsStorage, Pool, PoolOptions};
use std::path::Path;
use std::sync::Arc;

/// A new pool on disk, and the storage below it, where a test plants faults.
pub fn faulty_pool(path: &Path) -> (Faulty, Pool) {
    faulty_pool_with(path, PoolOptions::new())
}

/// As [`faulty_pool`], with these options besides.
pub fn faulty_pool_with(path: &Path, options: PoolOptions) -> (Faulty, Pool) {
    let storage = Faulty::new(Arc::new(OsStorage));
    let options = options
        .create(Create::New)
        .medium(Medium::File)
        .capacity(16 << 20)
        .log_bytes(1 << 20)
        .storage(Arc::new(storage.clone()));
    let pool = options.open(path).unwrap();
    (storage, pool)
}
