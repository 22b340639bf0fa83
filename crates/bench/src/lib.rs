//! Workloads, baselines, statistics and figures: `mangrove bench map`.

mod args;
mod baselines;
mod counting;
mod index;
mod keys;
mod run;
mod stats;
mod workload;

pub use args::MapArgs;
pub use keys::Keys;
pub use run::run;
pub use stats::Samples;
pub use workload::Workload;
