//! The C ABI of Mangrove's durable applications: `mangrove_app.h`, `libmangrove_app.so.0` and
//! `libmangrove_app.a`.
//!
//! The header is generated from the doc comments here (`cbindgen.toml`), so they are written for its reader: C's
//! names, units, ranges, errors, ownership, threads, crashes. The order of the modules is the order of the header.
//!
//! Invariants:
//! 1. Each entry point runs inside `status::guard` or does nothing that can panic.
//! 2. Out-parameters are written on every path, NULL or 0 after an error.
//! 3. Nothing here keeps heap memory that was allocated while a command runs.

#![expect(non_camel_case_types, reason = "types carry C's names, so that a grep finds both sides")]
#![expect(clippy::missing_safety_doc, reason = "the contract of each function is the header's text")]

mod status;

mod options;

mod callbacks;

mod app;

mod client;

mod batch;

mod serve;

mod stat;

mod addresses;

mod process;

/// This library's own Rust code never allocates persistent memory, whichever thread runs a command.
#[global_allocator]
static HEAP: process::heap::ProcessHeap = process::heap::ProcessHeap;

pub use addresses::*;
pub use app::*;
pub use batch::*;
pub use callbacks::*;
pub use client::*;
pub use options::*;
pub use serve::*;
pub use stat::*;
pub use status::*;
