//! LevelDB's C API over Mangrove: a program written for `<leveldb/c.h>` links to this library instead,
//! unchanged, and every synced write is durable at Mangrove's speed.
//!
//! The entry points have LevelDB's names, types and conventions (errors are strings from malloc(), see
//! `status.rs`); the header is LevelDB's own. docs/leveldb.md says what differs.
//!
//! Invariants:
//! 1. Each entry point that calls or drops a part of an engine does so inside `status::guard`, `quietly` or `caught`.
//! 2. A pointer that came from the caller is followed in `bytes.rs` or right in the entry point, under
//!    the API's contract: handles are live and of their type, bytes are readable for the whole call.
//! 3. What a handle has of an engine it has as `Ours`: a child of fork neither uses nor drops it.

#![expect(non_camel_case_types, reason = "types carry C's names, so that a grep finds both sides")]
#![expect(clippy::missing_safety_doc, reason = "the contract of each function is LevelDB's header")]

mod status;

mod objects;
#[path = "api/options.rs"]
mod options;

mod batch;
#[path = "api/db.rs"]
mod db;
#[path = "api/iter.rs"]
mod iter;
#[path = "api/manage.rs"]
mod manage;

#[path = "engine/catalog.rs"]
mod catalog;
#[path = "engine/engine.rs"]
mod engine;
#[path = "api/fork_guard.rs"]
mod ours;

#[path = "engine/tree_engine.rs"]
mod durable_engine;
#[path = "tree/node.rs"]
mod node;
mod order;
#[path = "engine/pins.rs"]
mod pins;
#[path = "tree/tree.rs"]
mod tree;
#[cfg(test)]
#[path = "tree/tree_tests.rs"]
mod tree_tests;

#[path = "engine/map_engine.rs"]
mod hart_engine;

#[path = "api/own_thread.rs"]
mod aside;
#[path = "engine/buckets.rs"]
mod buckets;
mod bytes;

pub use batch::*;
pub use db::*;
pub use iter::*;
pub use manage::*;
pub use objects::*;
pub use options::*;
