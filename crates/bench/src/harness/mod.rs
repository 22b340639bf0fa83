//! The tools of every section: workloads, clocks, media, statistics.

pub(super) mod args;
pub(super) mod clock;
pub(super) mod context;
pub(super) mod counting;
pub(super) mod index;
pub(super) mod keys;
pub(super) mod library;
pub(super) mod machine;
pub(super) mod media;
pub(super) mod own_path;
pub(super) mod progress;
pub(super) mod records;
pub(super) mod run_args;
pub(super) mod stats;
pub(super) mod store;
pub(super) mod workload;
