//! Engines, which store the records of a database: a tree in durable memory or in ordinary memory, or the map.

pub(super) mod catalog;
pub(super) mod engine;
mod leveldb_files;
pub(super) mod map_engine;
pub(super) mod memory_engine;
pub(super) mod pins;
pub(super) mod salvage;
mod small_files;
mod tree_compaction;
mod tree_cursor;
pub(super) mod tree_engine;
mod tree_store;
mod unacked_syncs;
