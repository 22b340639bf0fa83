//! Floor 3: durable applications. An in-memory program survives any crash.
//!
//! A [`Runtime`] runs a program's commands: reads in parallel on the memory itself, writes in batches whose every
//! store is tracked and committed to a redo log as one unit. An answer is given when what it rests on is durable.

#[path = "image/aslr.rs"]
mod address;
#[path = "alloc/global_alloc.rs"]
mod allocator;
mod arena;
#[path = "image/audit.rs"]
mod audit;
#[path = "runtime/backing.rs"]
mod backing;
#[path = "runtime/batch.rs"]
mod batch;
#[path = "runtime/combiner.rs"]
mod combiner;
mod error;
#[path = "image/variables.rs"]
mod globals;
#[path = "image/image.rs"]
mod image;
#[path = "image/layout.rs"]
mod image_layout;
#[doc(hidden)]
#[path = "alloc/thread_keys.rs"]
pub mod keys;
#[doc(hidden)]
#[path = "crash_hooks.rs"]
pub mod lab;
#[path = "alloc/mmap.rs"]
mod mappings;
#[path = "image/modules.rs"]
mod modules;
mod options;
mod persist;
#[path = "alloc/split_allocation.rs"]
pub mod route;
mod rpc;
#[path = "runtime/runtime.rs"]
mod runtime;
#[path = "alloc/stderr_line.rs"]
mod say;
#[path = "runtime/slots.rs"]
mod slots;
mod stat;
#[path = "runtime/sync.rs"]
mod sync;
mod typed;

#[cfg(test)]
#[path = "image/image_tests.rs"]
mod image_tests;
#[cfg(test)]
#[path = "runtime/runtime_tests.rs"]
mod runtime_tests;
#[cfg(test)]
#[path = "runtime/slots_tests.rs"]
mod slots_tests;

pub use address::{Addresses, settle_addresses};
pub use allocator::Allocator;
pub use arena::ArenaStat;
pub use batch::Command;
pub use error::{Error, Result};
pub use image::ImageStat;
pub use mangrove_shadow::{CreateMode, Durability, Latency, MediumChoice, Start, Ticket};
pub use mangrove_tracker::will_write;
pub use options::{Options, TrackerChoice};
pub use persist::Persist;
pub use rpc::{Answer, Context, Frame, Server, ServerOptions, ServerStat, Service, Stopper};
pub use runtime::{Client, Initialise, Runtime};
pub use stat::Stat;
pub use typed::Durable;
