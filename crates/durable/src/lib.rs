//! Floor 3: durable applications. An in-memory program survives any crash.
//!
//! A [`Runtime`] runs a program's commands: reads in parallel on the memory itself, writes in batches whose every
//! store is tracked and committed to a redo log as one unit. An answer is given when what it rests on is durable.

mod address;
mod allocator;
mod arena;
mod audit;
mod backing;
mod batch;
mod combiner;
mod error;
mod globals;
mod image;
mod image_layout;
#[doc(hidden)]
pub mod keys;
#[doc(hidden)]
pub mod lab;
mod mappings;
mod modules;
mod options;
mod persist;
pub mod route;
mod rpc;
mod runtime;
mod say;
mod slots;
mod stat;
mod sync;
mod typed;

#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod runtime_tests;
#[cfg(test)]
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
