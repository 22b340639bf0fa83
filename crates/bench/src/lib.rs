//! Workloads, baselines, statistics and figures: `mangrove bench map`, `bench durable`, `bench leveldb`.
//!
//! Every subject is measured in the same run, in interleaved rounds, beside the floors of the
//! machine; what is printed are medians and the ratio to Mangrove in the same line.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod baselines;
mod clock;
mod context;
mod counting;
mod durable;
mod figures;
mod goals;
mod index;
mod keys;
mod leveldb;
mod machine;
mod media;
mod progress;
mod records;
mod render;
mod report;
mod run;
mod say;
mod sections;
mod stats;
mod store;
mod subjects;
mod workload;

pub use args::MapArgs;
pub use durable::{DurableArgs, run as run_durable};
pub use keys::Keys;
pub use leveldb::{LeveldbArgs, run as run_leveldb};
pub use report::{Goal, Key, Machine, Report, Row, Unit};
pub use run::{run, run_with};
pub use stats::Samples;
pub use store::{Store, StoreKind, SyncMode};
pub use workload::Workload;
