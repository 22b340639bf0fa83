//! Workloads, baselines, statistics and figures: `mangrove bench map`.

mod args;
mod run;

pub use args::MapArgs;
pub use run::run;
