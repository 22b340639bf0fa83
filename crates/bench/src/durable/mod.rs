//! `mangrove bench durable`: what durability costs an in-memory program at a call, a store, a batch, a restart.

mod args;
mod calls;
mod context;
mod goals;
mod kv;
mod log;
mod media;
mod programs;
mod ratios;
mod recovery;
mod run;
mod sqlite;

pub use args::DurableArgs;
pub use run::run;
