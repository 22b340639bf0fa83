//! Workloads, baselines, statistics and figures: `mangrove bench map`, `bench durable`, `bench leveldb`,
//! `bench python`, `bench redis`, `bench txn`.
//!
//! Every subject is measured in the same run, in interleaved rounds, together with the floors of the machine. The
//! report prints medians, and the ratio to Mangrove in the same line.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod baselines;
mod durable;
mod harness;
mod leveldb;
mod python;
mod redis;
mod report;
mod run;
mod sections;
mod subjects;
mod txn;

pub use durable::{DurableArgs, run as run_durable};
pub use harness::args::MapArgs;
pub use harness::keys::Keys;
pub use harness::run_args::RunArgs;
pub use harness::stats::Samples;
pub use harness::store::{OpenStore, StoreKind, SyncMode};
pub use harness::workload::Workload;
pub use leveldb::{LeveldbArgs, run as run_leveldb};
pub use python::{PythonArgs, run as run_python};
pub use redis::{RedisArgs, run as run_redis};
pub use report::report::{BenchReport, FigureUnit, Goal, MachineInfo, Row, RowKey};
pub use report::say::OutputUnread;
pub use run::{run, run_with};
pub use txn::{
    OneTransaction, TxnArgs, TxnDomain, TxnHeap, TxnKind, TxnWork, WordAccess, WorkDone, drive,
    run as run_txn, verified_rate,
};
