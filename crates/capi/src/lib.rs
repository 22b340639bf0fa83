//! The C ABI of Mangrove: `mangrove.h`, `libmangrove.so.0` and `libmangrove.a`.
//!
//! Everything that [`mangrove::Map`] and [`mangrove::heap::Heap`] do, for C and for languages that call C. The header
//! is generated from the doc comments here (`cbindgen.toml`), so they are written for the reader of the header: C's
//! names, units, ranges, errors, ownership, threads, crashes. The order of the modules is the order of the header.
//!
//! Invariants:
//! 1. Each entry point runs inside `status::guard` or does nothing that can panic.
//! 2. Only `mangrove_cabi` and `bytes.rs` follow a pointer that came from the caller (and, for structs that carry
//!    their own layout, `iter.rs`). What such a pointer must satisfy is the header's contract ("Rules that hold for
//!    every function").
//! 3. Out-parameters are written on every path, NULL or 0 after an error.

#![expect(non_camel_case_types, reason = "types carry C's names, so that a grep finds both sides")]
#![expect(clippy::missing_safety_doc, reason = "the contract of each function is the header's text")]

mod status;

mod options;

mod map;

mod iter;

mod batch;

mod snapshot;

mod backup;
mod check;
mod load;
mod salvage;
mod stat;

mod heap;

mod bytes;

pub use backup::*;
pub use batch::*;
pub use bytes::*;
pub use check::*;
pub use heap::*;
pub use iter::*;
pub use load::*;
pub use map::*;
pub use options::*;
pub use salvage::*;
pub use snapshot::*;
pub use stat::*;
pub use status::*;
