//! Adapters to the stores that a user would otherwise pick: LMDB, LevelDB and RocksDB through
//! their C APIs (Debian packages in APT.txt), redb, fjall and sled as crates.
//!
//! A crate of its own, and never built unless asked for by name, so that nobody links RocksDB by
//! accident. Settings are those a user gets by following each project's first page, made fair where
//! a default would cripple it (cache sizes, bloom filters); each file says which.

mod fjall_store;
mod leveldb;
mod lmdb;
mod lsm;
mod redb_store;
mod rocksdb;
mod sled_store;

use mangrove_bench::StoreKind;

/// Cache of each peer, in bytes: the 1M records of the bench fit into it.
const CACHE_BYTES: usize = 512 << 20;

/// Every peer.
#[must_use]
pub fn all() -> Vec<Box<dyn StoreKind>> {
    vec![
        Box::new(lmdb::Lmdb),
        Box::new(leveldb::LevelDb),
        Box::new(rocksdb::RocksDb),
        Box::new(redb_store::Redb),
        Box::new(fjall_store::Fjall),
        Box::new(sled_store::Sled),
    ]
}
