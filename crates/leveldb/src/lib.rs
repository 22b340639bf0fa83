//! LevelDB's C API over Mangrove: a program written for `<leveldb/c.h>` links to this library instead, unchanged.
//!
//! The entry points have LevelDB's names, types and conventions (errors are strings from malloc(), see `status.rs`);
//! a test compares them with LevelDB's header. `cpp` has the C++ classes over them, and headers of our own.
//! docs/leveldb.md lists the differences.
//!
//! Invariants:
//! 1. Each entry point that calls or drops a part of an engine does so inside `status::guard`, `quietly` or `caught`.
//! 2. Only `mangrove_cabi` and the entry points themselves follow a pointer of the caller. They rely on the API's
//!    contract: handles are live and of their type, bytes are readable for the whole call.
//! 3. A handle holds the parts of an engine as `OwnedByProcess`: a child of fork neither uses nor drops them.

#![expect(non_camel_case_types, reason = "types carry C's names, so that a grep finds both sides")]
#![expect(clippy::missing_safety_doc, reason = "the contract of each function is LevelDB's header")]

mod api;
mod batch;
mod bytes;
mod change_list;
mod engine;
mod objects;
mod order;
mod status;
mod transfer;
mod tree;

pub use api::cpp::*;
pub use api::db::*;
pub use api::handles::*;
pub use api::iter::*;
pub use api::manage::*;
pub use api::options::*;
pub use batch::*;
pub use objects::*;
pub use transfer::{TransferError, TransferOptions, TransferProgress, Transferred, export, import};
