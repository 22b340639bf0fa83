//! Floor 3: durable applications. An in-memory program survives any crash.
//!
//! A [`Runtime`] runs a program's commands: reads in parallel on the memory itself, writes in batches. Every store
//! of a batch is tracked, and the batch is committed to a redo log as one atomic group. A result is reported once
//! everything that it depends on is durable.

mod alloc;
mod crash_hooks;
mod error;
mod image;
mod options;
mod persist;
mod runtime;
mod silence;
mod stat;
mod typed;

pub use alloc::global_alloc::Allocator;
pub use alloc::write_fence::{FenceReport, WriteReport};
pub use error::{Error, Result};
pub use image::aslr::{Addresses, settle_addresses};
pub use mangrove_arena::{ArenaStat, MovePlan, SlabSurvey};
pub use mangrove_shadow::{Create, Durability, FlushCost, Latency, Medium, PoolConfig, Start, Ticket};
pub use mangrove_tracker::will_write;
pub use options::{Options, TrackerChoice};
pub use persist::Persist;
pub use runtime::batch::Command;
pub use runtime::runtime::{Client, InitFn as Initialise, Runtime};
pub use stat::{ImageStat, Stat, StateCounts};
pub use typed::Durable;

pub use alloc::split_allocation as route;
#[doc(hidden)]
pub use alloc::thread_keys as keys;

/// What the crash simulator watches and silences, and a runtime for tests of the servers above.
#[doc(hidden)]
pub mod lab {
    pub use crate::crash_hooks::*;
    pub use crate::runtime::fake::{FakeBacking, fake_runtime};
    pub use crate::silence::{set_silencer, set_step_silencer};
}
