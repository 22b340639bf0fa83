//! Adapters to the stores that a user would otherwise pick: LMDB, LevelDB and RocksDB through their C APIs (Debian
//! packages in APT.txt), redb, fjall and sled as crates. For transactions: PMDK.
//!
//! A crate of its own, built only when a command names it, so that a user never links RocksDB by accident. Settings
//! are those of each project's first page, made fair where a default would cripple the store (cache sizes, bloom
//! filters); each file names them.

mod cache;
mod fjall_store;
mod leveldb;
mod lmdb;
mod lsm;
mod pmdk;
mod redb_store;
mod rocksdb;
mod sled_store;

use mangrove_bench::{StoreKind, TxnKind};

/// Every peer of the map.
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

/// Every peer of transactions.
#[must_use]
pub fn transactions() -> Vec<Box<dyn TxnKind>> {
    vec![Box::new(pmdk::Pmdk)]
}
