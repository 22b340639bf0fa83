//! Chores about the Redis-compatible server: kills, Valkey's own test suite, replication, Cluster and Sentinel.

mod client;
pub(crate) mod clients;
mod cluster;
mod counters;
mod crowd;
mod fleet;
mod kill9;
pub(crate) mod memory;
mod model;
mod operation;
pub(crate) mod replication;
mod resp;
mod sentinel;
mod server;
pub(crate) mod soak;
mod soak_bounds;
pub(crate) mod suite;
mod survey;

pub(crate) use crowd::ClientCrowd;
pub(crate) use kill9::{KEYS_DIVISOR, KillCampaign};
pub(crate) use operation::DEADLINES;
pub(crate) use resp::{Address, RespConnection};
pub(crate) use server::{Programs, ServerKind, free_port, small_limits};
