//! Workloads, baselines, statistics and figures: `mangrove bench map`, `bench durable`, `bench leveldb`.
//!
//! Every subject is measured in the same run, in interleaved rounds, beside the floors of the
//! machine; what is printed are medians and the ratio to Mangrove in the same line.

#![deny(clippy::print_stderr, clippy::print_stdout)]

#[path = "harness/args.rs"]
mod args;
mod baselines;
#[path = "harness/clock.rs"]
mod clock;
#[path = "harness/context.rs"]
mod context;
#[path = "harness/counting.rs"]
mod counting;
mod durable;
#[path = "report/figures.rs"]
mod figures;
#[path = "report/goals.rs"]
mod goals;
#[path = "harness/index.rs"]
mod index;
#[path = "harness/keys.rs"]
mod keys;
mod leveldb;
#[path = "harness/machine.rs"]
mod machine;
#[path = "harness/media.rs"]
mod media;
#[path = "harness/progress.rs"]
mod progress;
#[path = "harness/records.rs"]
mod records;
#[path = "report/render.rs"]
mod render;
#[path = "report/report.rs"]
mod report;
mod run;
#[path = "report/say.rs"]
mod say;
mod sections;
#[path = "harness/stats.rs"]
mod stats;
#[path = "harness/store.rs"]
mod store;
mod subjects;
#[path = "harness/workload.rs"]
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
